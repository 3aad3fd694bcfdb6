"""Check the JSON of a message as strictly as Discord does."""

import re
from collections.abc import Mapping
from typing import Any, Final

from homarus.core.message import Json
from homarus.testing.discord_server.state import FakeDiscordError

MAX_CONTENT, MAX_NONCE, MAX_FILES, MAX_OPTIONS = 2_000, 25, 10, 25
_COMMAND_NAME: Final = re.compile(r"[-_a-z0-9]{1,32}")
_CREATE: Final = frozenset(
    {
        "content", "nonce", "enforce_nonce", "tts", "embeds", "allowed_mentions", "components",
        "message_reference", "sticker_ids", "attachments", "flags", "poll",
    }
)  # fmt: skip
_EDIT: Final = frozenset(
    {"content", "embeds", "flags", "allowed_mentions", "components", "attachments"}
)
_SILENT, _NO_EMBEDS = 1 << 12, 1 << 2


def check_message(data: Json, files: int, *, is_edit: bool = False, in_post: bool = False) -> None:
    """Raise FakeDiscordError for a message that Discord would refuse."""
    known = _EDIT if is_edit else _CREATE - ({"nonce", "enforce_nonce"} if in_post else set())
    if not isinstance(data, dict) or (unknown := data.keys() - known):
        raise invalid(f"unknown fields: {sorted(unknown) if isinstance(data, dict) else data}")
    content = data.get("content") or ""
    if not isinstance(content, str) or len(content) > MAX_CONTENT:
        raise invalid("content", f"Must be {MAX_CONTENT} or fewer in length.")
    if "allowed_mentions" not in data:
        raise invalid("allowed_mentions", "a message of ours may mention no one")
    nonce = data.get("nonce", "")
    if len(str(nonce)) > MAX_NONCE or (data.get("enforce_nonce") and not nonce):
        raise invalid("nonce", f"Must be {MAX_NONCE} or fewer in length.")
    if data.get("flags", 0) & ~(_SILENT | _NO_EMBEDS):
        raise invalid("flags", "only SUPPRESS_EMBEDS and SUPPRESS_NOTIFICATIONS can be set")
    _check_components(data.get("components") or [])
    _check_attachments(data.get("attachments") or [], files)
    if poll := data.get("poll"):
        _check_poll(poll)
    has_more = any(data.get(name) for name in ("poll", "sticker_ids", "components", "embeds"))
    if not content.strip() and not files and not has_more and not is_edit:
        raise FakeDiscordError(400, 50006, "Cannot send an empty message")


def check_command(data: Json) -> None:
    """Raise FakeDiscordError for a slash command that Discord would refuse."""
    _check_name(data)
    options = data.get("options") or []
    names = [one["name"] for one in options]
    if len(options) > MAX_OPTIONS or len({*names}) != len(names):
        raise invalid("options", "Must be 25 or fewer in length, with names of their own.")
    if [one.get("required", False) for one in options] != sorted(
        (one.get("required", False) for one in options), reverse=True
    ):
        raise invalid("options", "Required options must be placed before non-required options")
    for option in options:
        _check_name(option)
        choices = option.get("choices") or []
        texts = [one[key] for one in choices for key in ("name", "value")]
        if len(choices) > MAX_OPTIONS or any(not 1 <= len(text) <= 100 for text in texts):
            raise invalid("choices", "Must be between 1 and 100 in length.")


def _check_name(data: Mapping[str, Any]) -> None:
    if not _COMMAND_NAME.fullmatch(data["name"]):
        raise invalid("name", "Command name is invalid")
    if not 1 <= len(data["description"]) <= 100:
        raise invalid("description", "Must be between 1 and 100 in length.")


def invalid(field: str, message: str = "") -> FakeDiscordError:
    """Return the refusal of a form."""
    detail = {field: {"_errors": [{"code": "INVALID", "message": message or field}]}}
    return FakeDiscordError(400, 50035, "Invalid Form Body", errors=detail)


def _check_components(rows: Json) -> None:
    ids = set[str]()
    if not isinstance(rows, list) or len(rows) > 5:
        raise invalid("components", "Must be between 1 and 5 in length.")
    for row in rows:
        parts = row.get("components") if row.get("type") == 1 else None
        if not isinstance(parts, list) or not 1 <= len(parts) <= 5:
            raise invalid("components", "a row has one to five buttons, or a menu")
        for part in parts:
            id_ = part.get("custom_id", "")
            if not 1 <= len(id_) <= 100 or id_ in ids:
                raise invalid("custom_id", "Component custom id cannot be duplicated")
            ids.add(id_)
            _check_component(part, alone=len(parts) == 1)


def _check_component(part: Mapping[str, Any], *, alone: bool) -> None:
    if part["type"] == 2:
        if not 1 <= len(part.get("label", "")) <= 80 or part.get("style") not in {1, 2, 3, 4}:
            raise invalid("label", "Must be between 1 and 80 in length.")
    elif part["type"] == 3 and alone:
        options = part.get("options", [])
        values = {option["value"] for option in options}
        if not 1 <= len(options) <= 25 or len(values) != len(options):
            raise invalid("options", "Must be between 1 and 25 in length.")
        if any(not 1 <= len(str(one[key])) <= 100 for one in options for key in ("label", "value")):
            raise invalid("options", "Must be between 1 and 100 in length.")
    else:
        raise invalid("type", "a menu is alone in its row")


def _check_attachments(rows: Json, files: int) -> None:
    if (
        files > MAX_FILES
        or len(rows) != files
        or [row.get("id") for row in rows] != [*range(files)]
    ):
        raise invalid("attachments", "one for each of at most ten files")


def _check_poll(poll: Json) -> None:
    answers = poll.get("answers", [])
    texts = [answer["poll_media"]["text"] for answer in answers]
    if not 1 <= len(poll["question"]["text"]) <= 300 or not 1 <= len(answers) <= 10:
        raise invalid("poll", "Must be between 1 and 300 in length.")
    if any(not 1 <= len(text) <= 55 for text in texts) or not 1 <= poll["duration"] <= 768:
        raise invalid("poll", "Must be between 1 and 55 in length.")
