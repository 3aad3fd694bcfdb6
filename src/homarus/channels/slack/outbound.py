"""Build the Web API call of an outbound message.

Slack has no idempotency key: the key of a message is in its metadata, by which a message whose
outcome is unknown is looked up.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from homarus.channels.slack.timestamps import is_ts, parse_ts, require_ts
from homarus.core.errors import SendError
from homarus.core.message import Address, Button, Json, Outbound

log = logging.getLogger(__name__)

EVENT_TYPE: Final = "homarus_message"
MAX_BUTTONS: Final = 25  # elements of one block
MAX_VALUE_CHARS: Final = 2_000
MAX_LABEL_CHARS: Final = 75
MAX_SECTION_CHARS: Final = 3_000
_NO_PREVIEWS: Final = {"unfurl_links": False, "unfurl_media": False}


def post_params(message: Outbound, chat: str) -> dict[str, Json]:
    """Return the parameters of `chat.postMessage`."""
    extras = message.extras
    text = _titled(extras.thread_title, message.text)
    if not text.strip():
        raise SendError("the message has no text", retryable=False)
    params: dict[str, Json] = {
        "channel": chat,
        "text": text,
        "metadata": {"event_type": EVENT_TYPE, "event_payload": {"key": message.key}},
        **_NO_PREVIEWS,
    }
    if thread := thread_for(message):
        params["thread_ts"] = thread
    if extras.buttons:
        params["blocks"] = make_blocks(text, extras.buttons)
    return params


def edit_params(to: Address, chat: str, message_id: str, message: Outbound) -> dict[str, Json]:
    """Return the parameters of `chat.update`; without `blocks`, Slack would keep the old ones."""
    buttons = message.extras.buttons
    return {
        "channel": chat,
        "ts": require_ts(message_id, to),
        "text": message.text,
        "blocks": make_blocks(message.text, buttons) if buttons else [],
    }


def thread_for(message: Outbound) -> str:
    """Return the thread that a message goes to: that of its chat, else that of its `reply_to`."""
    thread = message.address.thread
    if thread and not is_ts(thread):
        raise SendError(f"{thread!r} is no thread of Slack's", retryable=False)
    if thread or message.extras.thread_title:
        return thread or ""
    return parse_ts(message.extras.reply_to)


def key_of(message: Mapping[str, Json]) -> str:
    """Return the key of a message of ours, from its metadata; "" when it has none."""
    metadata = message.get("metadata")
    payload = metadata.get("event_payload") if isinstance(metadata, dict) else None
    is_ours = isinstance(metadata, dict) and metadata.get("event_type") == EVENT_TYPE
    key = payload.get("key") if is_ours and isinstance(payload, dict) else None
    return key if isinstance(key, str) else ""


def make_blocks(text: str, rows: Sequence[Sequence[Button]]) -> list[Json]:
    """Return a message with buttons: sections of its text, then one block for each row."""
    blocks: list[Json] = [
        {"type": "section", "text": {"type": "mrkdwn", "text": piece, "verbatim": True}}
        for piece in _sections(text)
    ]
    number = 0
    for row in rows:
        elements = list[Json]()
        for button in row:
            if not button.label or not 0 < len(button.data) <= MAX_VALUE_CHARS:
                log.warning("a button is left out: its data has no or more than 2000 characters")
                continue
            number += 1
            elements.append(_button(button, f"button-{number}"))
        if elements:
            blocks.append({"type": "actions", "elements": elements[:MAX_BUTTONS]})
    return blocks


def _button(button: Button, action: str) -> Json:
    label = button.label
    if len(label) > MAX_LABEL_CHARS:
        label = f"{label[: MAX_LABEL_CHARS - 1]}…"
    text = {"type": "plain_text", "text": label, "emoji": True}
    return {"type": "button", "text": text, "action_id": action, "value": button.data}


def _sections(text: str) -> Iterator[str]:
    """Cut a text into sections, at lines or words where it has any; markup may span two of them."""
    while len(text) > MAX_SECTION_CHARS:
        head = text[:MAX_SECTION_CHARS]
        cut = max(head.rfind("\n"), 0) or max(head.rfind(" "), 0) or MAX_SECTION_CHARS
        yield text[:cut]
        text = text[cut:].lstrip("\n ")
    if text:
        yield text


def _titled(title: str, text: str) -> str:
    if not title:
        return text
    from homarus.channels.slack.text import escape_text

    heading = f"*{escape_text(' '.join(title.split())[:150])}*"
    return f"{heading}\n{text}" if text.strip() else heading
