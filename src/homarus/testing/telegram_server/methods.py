"""The methods of the Bot API, with its limits and error texts.

Stricter than the real one in one thing: an unknown parameter is refused, not ignored.
"""

import re
import time
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import utf16_len
from homarus.testing.telegram_server.forms import Upload
from homarus.testing.telegram_server.state import (
    FakeChat,
    Object,
    TelegramState,
    marked,
    without_answers,
)
from homarus.testing.telegram_server.telegram_html import BadMarkupError, parse, trimmed

Params: TypeAlias = Mapping[str, Json]

MAX_TEXT_UNITS: Final = 4_096
MAX_CAPTION_UNITS: Final = 1_024
MAX_BUTTON_BYTES: Final = 64
MAX_UPLOAD_BYTES: Final = 50 * 1024 * 1024
MAX_PHOTO_BYTES: Final = 10 * 1024 * 1024
MAX_DOWNLOAD_BYTES: Final = 20 * 1024 * 1024
REACTIONS: Final = frozenset(
    "👍👎🔥🥰👏😁🤔🤯😱🤬😢🎉🤩🤮💩🙏👌🕊🤡🥱🥴😍🐳🌚🌭💯🤣⚡🍌🏆"
    "💔🤨😐🍓🍾💋🖕😈😴😭🤓👻👀🎃🙈😇😨🤝🤗🫡🎅🎄☃💅🤪🗿🆒💘🙉🦄😘💊🙊😎👾😡❤✍"
)
_ACTIONS: Final = {
    "typing", "upload_photo", "record_video", "upload_video", "record_voice", "upload_voice",
    "upload_document", "choose_sticker", "find_location", "record_video_note", "upload_video_note",
}  # fmt: skip
_NOT_MODIFIED: Final = (
    "message is not modified: specified new message content and reply markup are exactly the same"
    " as a current content and reply markup of the message"
)
MAX_POLL_QUESTION_UNITS: Final = 300
MAX_POLL_OPTIONS: Final = 10
MAX_POLL_S: Final = 600
_COMMAND: Final = re.compile(r"[a-z0-9_]{1,32}")


class FakeBotError(Exception):
    """The server refuses a call."""

    def __init__(self, status: int, words: str, **more: Json) -> None:
        super().__init__(words)
        self.status, self.words, self.more = status, words, more


@dataclass(frozen=True, slots=True)
class FakeBotMethod:
    """The parameters of a method and its function."""

    takes: frozenset[str]
    run: Callable[[TelegramState, Params], Json]


def bad(words: str, **more: Json) -> FakeBotError:
    """Return the error for an invalid request."""
    return FakeBotError(400, f"Bad Request: {words}", **more)


def perform(state: TelegramState, name: str, params: Params) -> Json:
    """Return the result of a call."""
    method = METHODS.get(name)
    if method is None:
        raise FakeBotError(404, "Not Found: method not found")
    if unknown := set(params) - method.takes:
        raise bad(f"no parameter is called {sorted(unknown)} (the fake is strict here)")
    return method.run(state, params)


# Messages


def _send_message(state: TelegramState, params: Params) -> Json:
    chat = _chat(state, params)
    text, entities = _words(params, "text", "parse_mode", "entities")
    if not text:
        raise bad("message text is empty")
    if utf16_len(text) > MAX_TEXT_UNITS:
        raise bad("message is too long")
    fields: Object = {"text": text, **({"entities": entities} if entities else {})}
    if "link_preview_options" in params:
        fields["link_preview_options"] = params["link_preview_options"]
    return _sent(state, chat, params, fields)


def _send_file(field: str) -> Callable[[TelegramState, Params], Json]:
    def send(state: TelegramState, params: Params) -> Json:
        chat = _chat(state, params)
        caption, entities = _words(params, "caption", "parse_mode", "caption_entities")
        if utf16_len(caption) > MAX_CAPTION_UNITS:
            raise bad("message caption is too long")
        fields = _file_fields(state, field, params.get(field))
        if caption:
            fields["caption"] = caption
        if entities:
            fields["caption_entities"] = entities
        return _sent(state, chat, params, fields)

    return send


def _send_poll(state: TelegramState, params: Params) -> Json:
    chat, question, options = _chat(state, params), params.get("question"), params.get("options")
    if not isinstance(question, str) or not 1 <= utf16_len(question) <= MAX_POLL_QUESTION_UNITS:
        raise bad("poll question length must be from 1 to 300")
    if not isinstance(options, list) or not 2 <= len(options) <= MAX_POLL_OPTIONS:
        raise bad("poll must have from 2 to 10 options")
    texts = [each.get("text") if isinstance(each, dict) else None for each in options]
    if not all(isinstance(text, str) and 1 <= utf16_len(text) <= 100 for text in texts):
        raise bad("poll options length must not exceed 100")
    period = params.get("open_period")
    if period is not None and not 5 <= int(period) <= MAX_POLL_S:
        raise bad("poll close time is invalid")
    poll: Object = {
        "id": str(len(texts)),
        "question": question,
        "options": [
            {"persistent_id": str(number), "text": text, "voter_count": 0}
            for number, text in enumerate(texts)
        ],
        "total_voter_count": 0,
        "is_closed": False,
        "is_anonymous": params.get("is_anonymous", True),
        "type": "regular",
        "allows_multiple_answers": params.get("allows_multiple_answers", False),
        "allows_revoting": True,
        "members_only": False,
    }
    return _sent(state, chat, params, {"poll": poll})


def _file_fields(state: TelegramState, field: str, given: Json) -> Object:
    if isinstance(given, Upload):
        if not given.content:
            raise bad("file must be non-empty")
        if len(given.content) > MAX_UPLOAD_BYTES:
            raise FakeBotError(413, "Request Entity Too Large")
        if field == "photo" and len(given.content) > MAX_PHOTO_BYTES:
            raise bad("file is too big")
        file = state.add_file(given.content, f"{field}s/{{number}}-{given.name}")
        name, mime = given.name, given.mime
    elif isinstance(given, str) and given in state.files:
        file, name, mime = state.files[given], "", ""
    elif given is None:
        raise bad(f"there is no {field} in the request")
    else:
        raise bad("wrong remote file identifier specified: can't unserialize it")
    return file_fields(field, file.shown(), name, mime)


def file_fields(field: str, file: Object, name: str, mime: str) -> Object:
    """Return the fields by which a message shows a file."""
    named = {"file_name": name, "mime_type": mime} if name else {}
    sized = {"width": 320, "height": 240}
    match field:
        case "photo":
            small = {**file, "file_id": f"{file['file_id']}-s", "file_unique_id": "s"}
            return {"photo": [{**small, "width": 90, "height": 67}, {**file, **sized}]}
        case "voice":
            return {"voice": {**file, "duration": 3, "mime_type": mime or "audio/ogg"}}
        case "audio":
            return {"audio": {**file, **named, "duration": 3}}
        case "video":
            return {"video": {**file, **named, **sized, "duration": 3}}
        case "video_note":
            return {"video_note": {**file, "length": 240, "duration": 3}}
        case "animation":
            shown = {**file, **named, **sized, "duration": 3}
            return {"animation": shown, "document": {**file, **named}}
        case "sticker":
            kind = {"type": "regular", "is_animated": False, "is_video": False}
            return {"sticker": {**file, **kind, "width": 512, "height": 512, "emoji": "🦞"}}
    return {"document": {**file, **named}}


def _sent(state: TelegramState, chat: FakeChat, params: Params, fields: Object) -> Object:
    thread = _number(params, "message_thread_id")
    if thread and thread not in chat.topics:
        raise bad("message thread not found")
    fields |= _reply_fields(chat, params)
    if keyboard := _keyboard(params):
        fields["reply_markup"] = keyboard
    author = {"sender_chat": chat.shown} if chat.type == "channel" else {"from": state.bot}
    return state.new_message(chat, **author, **state.thread_fields(chat, thread), **fields)


def _reply_fields(chat: FakeChat, params: Params) -> Object:
    asked = params.get("reply_parameters")
    if asked is None:
        return {}
    number = _number(asked, "message_id")
    if number in chat.messages:
        return {"reply_to_message": without_answers(chat.messages[number])}
    if asked.get("allow_sending_without_reply") is True:
        return {}
    raise bad("message to be replied not found")


def _keyboard(params: Params) -> Json:
    markup = params.get("reply_markup")
    if markup is None:
        return None
    rows = markup.get("inline_keyboard") if isinstance(markup, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        raise bad("object expected as reply markup")
    for button in (button for row in rows for button in row):
        if not isinstance(button, dict) or not button.get("text"):
            raise bad('can\'t parse inline keyboard button: Field "text" must be of type String')
        data = button.get("callback_data")
        if not isinstance(data, str):
            raise bad("can't parse inline keyboard button: Text buttons are unallowed in the"
                      " inline keyboard")  # fmt: skip
        if not 1 <= len(data.encode()) <= MAX_BUTTON_BYTES:
            raise bad("BUTTON_DATA_INVALID")
    return {"inline_keyboard": rows}


def _edit_text(state: TelegramState, params: Params) -> Json:
    chat = _chat(state, params)
    message = chat.messages.get(_number(params, "message_id"))
    if message is None:
        raise bad("message to edit not found")
    if message.get("from", {}).get("id") != state.me["id"] and chat.type != "channel":
        raise bad("message can't be edited")
    if "text" not in message:
        raise bad("there is no text in the message to edit")
    text, entities = _words(params, "text", "parse_mode", "entities")
    if not text:
        raise bad("message text is empty")
    if utf16_len(text) > MAX_TEXT_UNITS:
        raise bad("MESSAGE_TOO_LONG")
    keyboard = _keyboard(params)
    had = (message["text"], message.get("entities", []), message.get("reply_markup"))
    if (text, entities, keyboard) == had:
        raise bad(_NOT_MODIFIED)
    message |= {"text": text, "edit_date": int(time.time())}
    for name, value in (("entities", entities), ("reply_markup", keyboard)):
        message.pop(name, None)
        if value:
            message[name] = value
    return message


def _delete(state: TelegramState, params: Params) -> Json:
    chat = _chat(state, params)
    if chat.messages.pop(_number(params, "message_id"), None) is None:
        raise bad("message to delete not found")
    return True


def _react(state: TelegramState, params: Params) -> Json:
    chat = _chat(state, params)
    number = _number(params, "message_id")
    if number not in chat.messages:
        raise bad("message to react not found")
    for reaction in params.get("reaction") or []:
        if reaction.get("type") != "emoji" or reaction.get("emoji") not in REACTIONS:
            raise bad("REACTION_INVALID")
    chat.reactions[number] = list(params.get("reaction") or [])
    return True


def _act(state: TelegramState, params: Params) -> Json:
    chat = _chat(state, params)
    if params.get("action") not in _ACTIONS:
        raise bad("wrong parameter action in request")
    thread = _number(params, "message_thread_id")
    if thread > 1 and thread not in chat.topics:
        raise bad("message thread not found")
    state.actions.append({**params, "chat_id": chat.id})
    return True


def _draft(state: TelegramState, params: Params) -> Json:
    chat = _chat(state, params)
    if chat.type != "private":
        raise bad("TEXTDRAFT_PEER_INVALID")
    if not _number(params, "draft_id"):
        raise bad("draft_id must be non-zero")
    text, _ = _words(params, "text", "parse_mode", "entities")
    if utf16_len(text) > MAX_TEXT_UNITS:
        raise bad("message is too long")
    state.drafts.append({**params, "chat_id": chat.id, "text": text})
    return True


# The bot itself


def _set_commands(state: TelegramState, params: Params) -> Json:
    commands = params.get("commands")
    if not isinstance(commands, list):
        raise bad("can't parse BotCommand: expected an array")
    if len(commands) > 100:
        raise bad("BOT_COMMANDS_TOO_MUCH")
    for command in commands:
        if not _COMMAND.fullmatch(command["command"]):
            raise bad("BOT_COMMAND_INVALID")
        if not 1 <= len(command["description"]) <= 256:
            raise bad("BOT_COMMAND_DESCRIPTION_INVALID")
    state.commands = commands
    return True


def _delete_commands(state: TelegramState, _params: Params) -> Json:
    state.commands = []
    return True


def _answer_press(state: TelegramState, params: Params) -> Json:
    id_ = params.get("callback_query_id")
    if id_ not in state.queries:
        raise bad("query is too old and response timeout expired or query ID is invalid")
    state.queries[id_] = True
    return True


def _get_file(state: TelegramState, params: Params) -> Json:
    file = state.files.get(str(params.get("file_id", "")))
    if file is None:
        raise bad("invalid file_id")
    if len(file.content) > MAX_DOWNLOAD_BYTES:
        raise bad("file is too big")
    return {**file.shown(), "file_path": file.path}


# Shared by several methods


def _chat(state: TelegramState, params: Params) -> FakeChat:
    given = params.get("chat_id")
    chat = None
    if isinstance(given, str) and given.startswith("@"):
        named = (one for one in state.chats.values() if one.type != "private")
        chat = next((one for one in named if one.shown.get("username") == given[1:]), None)
    elif id_ := _number(params, "chat_id"):
        chat = state.chats.get(id_)
    elif given in {None, ""}:
        raise bad("chat_id is empty")
    if chat is None:
        raise bad("chat not found")
    if chat.moved_to:
        raise bad("group chat was upgraded to a supergroup chat",
                  parameters={"migrate_to_chat_id": chat.moved_to})  # fmt: skip
    if chat.refusal:
        raise FakeBotError(*chat.refusal)
    return chat


def _words(params: Params, name: str, mode: str, entities: str) -> tuple[str, list[Json]]:
    said = params.get(name, "")
    if not isinstance(said, str):
        raise bad(f'field "{name}" must be of type String')
    how = params.get(mode)
    if how not in {None, "", "HTML"}:
        raise bad("unsupported parse_mode")
    try:
        text, found = parse(said) if how else (said, list(params.get(entities) or []))
    except BadMarkupError as exc:
        raise bad(f"can't parse entities: {exc}") from exc
    text, found = trimmed(text, found)
    return text, found or marked(text)


def _number(params: Params, name: str) -> int:
    value = params.get(name, 0)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise bad(f'field "{name}" must be of type Number')
    try:
        return int(value)
    except ValueError as exc:
        raise bad(f'field "{name}" must be of type Number') from exc


_SENDING: Final = {
    "chat_id", "message_thread_id", "disable_notification", "protect_content", "reply_parameters",
    "reply_markup", "parse_mode",
}  # fmt: skip
_TEXT: Final = {"text", "entities", "link_preview_options"}
_EDITING: Final = {"chat_id", "message_id", "reply_markup", "parse_mode"}
_FILES: Final = ("photo", "document", "voice", "audio", "video", "animation")
METHODS: Final[dict[str, FakeBotMethod]] = {
    "getMe": FakeBotMethod(frozenset(), lambda state, _params: state.me),
    "sendMessage": FakeBotMethod(frozenset(_SENDING | _TEXT), _send_message),
    "sendPoll": FakeBotMethod(
        frozenset(
            (_SENDING - {"parse_mode"})
            | {"question", "options", "is_anonymous", "allows_multiple_answers", "open_period"}
        ),
        _send_poll,
    ),
    "editMessageText": FakeBotMethod(frozenset(_EDITING | _TEXT), _edit_text),
    "deleteMessage": FakeBotMethod(frozenset({"chat_id", "message_id"}), _delete),
    "setMessageReaction": FakeBotMethod(
        frozenset({"chat_id", "message_id", "reaction", "is_big"}), _react
    ),
    "sendChatAction": FakeBotMethod(frozenset({"chat_id", "message_thread_id", "action"}), _act),
    "sendMessageDraft": FakeBotMethod(
        frozenset({"chat_id", "message_thread_id", "draft_id", "text", "parse_mode", "entities"}),
        _draft,
    ),
    "setMyCommands": FakeBotMethod(
        frozenset({"commands", "scope", "language_code"}), _set_commands
    ),
    "deleteMyCommands": FakeBotMethod(frozenset({"scope", "language_code"}), _delete_commands),
    "answerCallbackQuery": FakeBotMethod(
        frozenset({"callback_query_id", "text", "show_alert"}), _answer_press
    ),
    "getFile": FakeBotMethod(frozenset({"file_id"}), _get_file),
    "sendSticker": FakeBotMethod(
        frozenset((_SENDING - {"parse_mode"}) | {"sticker"}), _send_file("sticker")
    ),
    **{
        f"send{name.title()}": FakeBotMethod(
            frozenset(_SENDING | {name, "caption", "caption_entities"}), _send_file(name)
        )
        for name in _FILES
    },
}
