"""Build the Bot API call of an outbound message."""

import logging
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from homarus.channels.telegram.inbound import GENERAL, parse_message_id
from homarus.channels.telegram.settings import TelegramSettings
from homarus.core.errors import SendError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Button, Extras, Json, Media, Outbound, Poll

log = logging.getLogger(__name__)

MAX_BUTTON_BYTES: Final = 64
MAX_PHOTO_BYTES: Final = 10 * 1024 * 1024
MAX_POLL_QUESTION_CHARS: Final = 300
MAX_POLL_OPTION_CHARS: Final = 100
MAX_POLL_OPTIONS: Final = 10
MAX_POLL_S: Final = 600
_METHODS: Final = {
    "photo": "sendPhoto",
    "document": "sendDocument",
    "voice": "sendVoice",
    "audio": "sendAudio",
    "video": "sendVideo",
    "animation": "sendAnimation",
    "sticker": "sendSticker",
}
_FIELDS: Final = {"image": "photo"}
# Telegram's errors about a file that it accepts as another kind, and that kind.
FIELD_FALLBACKS: Final = (
    ("photo_invalid_dimensions", "document"),
    ("image_process_failed", "document"),
    ("photo_ext_invalid", "document"),
    ("photo_save_file_invalid", "document"),
    ("voice_messages_forbidden", "audio"),
)


@dataclass(frozen=True, slots=True)
class BotApiCall:
    """One request: a method, its parameters, and perhaps a file with its field."""

    method: str
    params: dict[str, Json]
    text_param: str = ""  # the parameter with our text
    media: Media | None = None
    field: str = ""

    def with_text(self, text: str) -> "BotApiCall":
        """Return the call with a text without markup."""
        others = {name: value for name, value in self.params.items() if name != "parse_mode"}
        return replace(self, params={**others, self.text_param: text})

    def as_file(self, name: str) -> "BotApiCall":
        """Return the call with the file sent as another kind."""
        return replace(self, method=_METHODS[name], field=name)

    def moved(self, chat: str) -> "BotApiCall":
        """Return the call for another chat."""
        return replace(self, params={**self.params, "chat_id": chat_id(chat)})


def send_call(message: Outbound, settings: TelegramSettings) -> BotApiCall:
    """Return the call that sends a message. Raises SendError when there is none."""
    extras = message.extras
    if len(extras.media) > 1 or (extras.media and extras.replaces):
        raise SendError(
            "Telegram takes one file with a message, and none in an edit", retryable=False
        )
    if extras.replaces:
        return edit_call(message.address, extras.replaces, message.text, settings, extras)
    params = {
        **target_params(message.address),
        **_replying(message),
        **_keyboard(message, settings),
    }
    if extras.silent:
        params["disable_notification"] = True
    if extras.poll:
        return _poll_call(extras.poll, params)
    if extras.media:
        return _file_call(message, extras.media[0], params)
    params |= {"text": message.text, "parse_mode": "HTML", **_preview(settings)}
    return BotApiCall("sendMessage", params, "text")


def check_poll(poll: Poll) -> None:
    """Raise SendError for a poll that Telegram would refuse."""
    problem = ""
    if not 1 <= len(poll.question) <= MAX_POLL_QUESTION_CHARS:
        problem = f"its question must have 1 to {MAX_POLL_QUESTION_CHARS} characters"
    elif not 2 <= len(poll.options) <= MAX_POLL_OPTIONS:
        problem = f"it must have 2 to {MAX_POLL_OPTIONS} options"
    elif not all(1 <= len(option) <= MAX_POLL_OPTION_CHARS for option in poll.options):
        problem = f"an option must have 1 to {MAX_POLL_OPTION_CHARS} characters"
    elif poll.duration_s and not 5 <= poll.duration_s <= MAX_POLL_S:
        problem = f"it can be open for at most {MAX_POLL_S // 60} minutes, or without an end"
    if problem:
        raise SendError(f"Telegram refuses this poll: {problem}", retryable=False)


def _poll_call(poll: Poll, params: dict[str, Json]) -> BotApiCall:
    check_poll(poll)
    options: list[Json] = [{"text": option} for option in poll.options]
    own: dict[str, Json] = {"question": poll.question, "options": options}
    if poll.is_multiple:
        own["allows_multiple_answers"] = True
    if poll.duration_s:
        own["open_period"] = poll.duration_s
    return BotApiCall("sendPoll", {**params, **own}, "question")


def edit_call(
    to: Address,
    message_id: str,
    text: str,
    settings: TelegramSettings,
    extras: Extras | None = None,
) -> BotApiCall:
    """Return the call that edits a message."""
    params = {"chat_id": chat_id(to.chat), "message_id": require_message_id(message_id, to)}
    params |= {"text": text, "parse_mode": "HTML", **_preview(settings)}
    if extras:
        params |= _keyboard(Outbound(to, text, extras=extras), settings)
    return BotApiCall("editMessageText", params, "text")


def draft_call(to: Address, key: str, text: str) -> BotApiCall:
    """Return the call that shows a draft."""
    number = zlib.crc32(key.encode("utf-8", "replace")) & 0x7FFFFFFF or 1
    params = {**target_params(to), "draft_id": number, "text": text, "parse_mode": "HTML"}
    return BotApiCall("sendMessageDraft", params, "text")


def target_params(to: Address, *, typing: bool = False) -> dict[str, Json]:
    """Return the chat and topic; the general topic is named for typing and never for sending."""
    params: dict[str, Json] = {"chat_id": chat_id(to.chat)}
    if to.thread and (typing or to.thread != GENERAL):
        if not to.thread.isascii() or not to.thread.isdigit():
            raise SendError(f"{to.thread!r} is no topic of Telegram's", retryable=False)
        params["message_thread_id"] = int(to.thread)
    return params


def chat_id(chat: str) -> int | str:
    """Return a chat by its number, or a public one by its `@name`."""
    digits = chat.removeprefix("-")
    if digits.isascii() and digits.isdigit() and len(digits) < 19:
        return int(chat)
    if chat.startswith("@") and len(chat) > 1:
        return chat
    raise SendError(
        f"{chat!r} is no chat of Telegram's", retryable=False, fix="give its number, or its @name"
    )


def is_private(chat: str) -> bool:
    """Return whether a chat is private: people have positive ids, groups negative ones."""
    return chat.isascii() and chat.isdigit()


def require_message_id(message_id: str, to: Address) -> int:
    """Return the number of a message. Raises SendError for an invalid id."""
    found = parse_message_id(message_id, to.chat)
    if not found:
        raise SendError(f"{message_id!r} is no message of this chat", retryable=False)
    return found


def _replying(message: Outbound) -> dict[str, Json]:
    number = parse_message_id(message.extras.reply_to, message.address.chat)
    if not number:
        return {}
    return {"reply_parameters": {"message_id": number, "allow_sending_without_reply": True}}


def _preview(settings: TelegramSettings) -> dict[str, Json]:
    if settings.link_preview is None:
        return {}
    return {"link_preview_options": {"is_disabled": not settings.link_preview}}


def _keyboard(message: Outbound, settings: TelegramSettings) -> dict[str, Json]:
    if not message.extras.buttons:
        return {}
    is_group = not is_private(message.address.chat)
    if not settings.capabilities.shows_buttons(group=is_group):
        log.info("buttons are off here (channels.telegram.capabilities.inlineButtons)")
        return {}
    rows = [row for buttons in message.extras.buttons if (row := _row(buttons))]
    return {"reply_markup": {"inline_keyboard": rows}} if rows else {}


def _row(buttons: Sequence[Button]) -> list[Json]:
    row: list[Json] = []
    for button in buttons:
        if button.label and 0 < len(button.data.encode("utf-8", "replace")) <= MAX_BUTTON_BYTES:
            row.append({"text": button.label, "callback_data": button.data})
        else:
            log.warning("a button is left out: its data has no or more than 64 bytes")
    return row


def _file_call(message: Outbound, media: Media, params: dict[str, Json]) -> BotApiCall:
    name = _field_for(media, as_voice=message.extras.as_voice)
    if message.text:
        if name == "sticker":
            raise SendError("Telegram shows no words under a sticker", retryable=False)
        params |= {"caption": message.text, "parse_mode": "HTML"}
    return BotApiCall(_METHODS[name], params, "caption", media, name)


def _field_for(media: Media, *, as_voice: bool) -> str:
    if media.kind in {"audio", "voice"}:
        return "voice" if as_voice or media.kind == "voice" else "audio"
    if media.mime == "image/gif" or media.name.lower().endswith(".gif"):
        return "animation"
    return _FIELDS.get(media.kind, media.kind)
