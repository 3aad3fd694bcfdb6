"""Describe the mails that a watcher of a Gmail mailbox (`gog`) sends. Pure.

One request may have several mails; all of them are for one run. What the config keeps from the
agent is removed from a request before anything else reads it.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from homarus.config.hooks_schema import GmailHookConfig
from homarus.core.errors import InvalidRequestError
from homarus.core.message import Json
from homarus.core.text import one_line

PATH: Final = "gmail"
MAX_MAILS: Final = 20
_MAX_ID_CHARS: Final = 128
_MAX_LINE_CHARS: Final = 500
_MAX_SNIPPET_CHARS: Final = 1_000


def find_mails(payload: Mapping[str, Json]) -> Sequence[Mapping[str, Json]]:
    """Return the mails of a request; raises InvalidRequestError when it has none."""
    found = payload.get("messages")
    mails = [each for each in found if isinstance(each, Mapping)] if isinstance(found, list) else []
    if not mails or not mail_id(mails[0]):
        raise InvalidRequestError(
            "messages required: a list of mails with an id, as gog sends them"
        )
    if len(mails) > MAX_MAILS:
        raise InvalidRequestError(f"messages has more than {MAX_MAILS} mails")
    return mails


def mail_id(mail: Mapping[str, Json]) -> str:
    """Return the id of a mail; "" if it has none."""
    found = mail.get("id")
    return found.strip() if isinstance(found, str) and len(found) <= _MAX_ID_CHARS else ""


def delivery_id(payload: Mapping[str, Json]) -> str:
    """Return what is the same when the same mails are sent again; "" without mails."""
    found = payload.get("messages")
    mails = found[: MAX_MAILS + 1] if isinstance(found, list) else []
    ids = [mail_id(mail) for mail in mails if isinstance(mail, Mapping)]
    if not any(ids):
        return ""
    return " ".join((str(payload.get("historyId") or "")[:_MAX_ID_CHARS], *ids))


def limit_mails(payload: Mapping[str, Json], config: GmailHookConfig) -> dict[str, Json]:
    """Return the request with as much of the texts of mails as the config lets the agent see."""
    found = payload.get("messages")
    if not isinstance(found, list):
        return dict(payload)
    return {**payload, "messages": [_limit(mail, config) for mail in found]}


def _limit(mail: Json, config: GmailHookConfig) -> Json:
    if not isinstance(mail, Mapping) or "body" not in mail:
        return mail
    if not config.include_body:
        return {name: value for name, value in mail.items() if name != "body"}
    body = _text(mail, "body").encode("utf-8", "replace")[: config.max_bytes]
    return {**mail, "body": body.decode("utf-8", "ignore")}


def describe_mails(payload: Mapping[str, Json]) -> str:
    """Return sender, subject and text of each mail."""
    return "\n\n".join(map(_describe, find_mails(payload)))


def _describe(mail: Mapping[str, Json]) -> str:
    lines = (
        f"New email from {one_line(_text(mail, 'from'), _MAX_LINE_CHARS)}",
        f"Subject: {one_line(_text(mail, 'subject'), _MAX_LINE_CHARS)}",
        _text(mail, "snippet")[:_MAX_SNIPPET_CHARS],
        _text(mail, "body"),
    )
    return "\n".join(line for line in lines if line)


def _text(mail: Mapping[str, Json], name: str) -> str:
    value = mail.get(name)
    return value if isinstance(value, str) else ""
