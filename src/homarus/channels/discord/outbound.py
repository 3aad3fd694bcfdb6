"""Build the JSON of an outbound message, as Discord's REST API takes it."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import Final

from homarus.channels.discord.snowflake import is_id
from homarus.core.errors import SendError
from homarus.core.message import Address, Button, Json, Outbound, Poll
from homarus.core.text import one_line

USER: Final = "user:"  # of a chat with one person
MAX_NONCE_CHARS: Final = 25
MAX_ROWS, MAX_IN_ROW, MAX_OPTIONS = 5, 5, 25
MAX_BUTTONS: Final = MAX_ROWS * MAX_IN_ROW
MAX_FILES: Final = 10
MAX_LABEL_CHARS, MAX_OPTION_CHARS, MAX_DATA_CHARS = 80, 100, 100
MAX_TITLE_CHARS: Final = 100
MAX_POLL_QUESTION_CHARS: Final = 300
MAX_POLL_ANSWER_CHARS: Final = 55
MAX_POLL_ANSWERS: Final = 10
MAX_POLL_HOURS: Final = 768
# Nobody is notified by what a model writes: no @everyone, no roles, no people.
NO_MENTIONS: Final[dict[str, Json]] = {"parse": [], "replied_user": False}
_SILENT: Final = 1 << 12
_ACTION_ROW, _BUTTON, _SELECT = 1, 2, 3
_GREY: Final = 2


def nonce_for(key: str) -> str:
    """Return the nonce of an idempotency key; Discord takes 25 characters."""
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()[:MAX_NONCE_CHARS]


def message_json(message: Outbound) -> dict[str, Json]:
    """Return the JSON of a message; files are added by the sender."""
    extras = message.extras
    data: dict[str, Json] = {"allowed_mentions": NO_MENTIONS}
    if message.key:
        data |= {"nonce": nonce_for(message.key), "enforce_nonce": True}
    if is_id(extras.reply_to):
        data["message_reference"] = {"message_id": extras.reply_to, "fail_if_not_exists": False}
    if extras.poll:
        return data | {"poll": poll_json(extras.poll)} | _flags(message)
    if message.text:
        data["content"] = message.text
    if extras.buttons:
        data["components"] = components_json(extras.buttons)
    return data | _flags(message)


def edit_json(message: Outbound) -> dict[str, Json]:
    """Return the JSON of an edit."""
    data: dict[str, Json] = {"content": message.text, "allowed_mentions": NO_MENTIONS}
    if message.extras.buttons:
        data["components"] = components_json(message.extras.buttons)
    return data


def components_json(rows: Sequence[Sequence[Button]]) -> list[Json]:
    """Return rows of buttons; a row of more than five is a menu.

    The data of a button is its id in the message, where it is short enough and no other has it;
    the label is what a press says.
    """
    if len(rows) > MAX_ROWS:
        flat = [button for row in rows for button in row]
        rows = [flat[start : start + MAX_IN_ROW] for start in range(0, len(flat), MAX_IN_ROW)]
    taken, made = set[str](), list[Json]()
    for number, row in enumerate(rows[:MAX_ROWS]):
        pairs = [(button.label, _custom_id(button, taken)) for button in row if button.label]
        if len(pairs) > MAX_IN_ROW:
            made.append(_row([_menu(f"menu-{number}", pairs[:MAX_OPTIONS])]))
        elif pairs:
            made.append(
                _row(
                    {
                        "type": _BUTTON,
                        "style": _GREY,
                        "label": one_line(label, MAX_LABEL_CHARS),
                        "custom_id": id_,
                    }
                    for label, id_ in pairs
                )
            )
    return made


def poll_json(poll: Poll) -> dict[str, Json]:
    """Return a poll. Discord has no poll without an end: it stays open for 32 days then."""
    check_poll(poll)
    hours = max(1, -(-poll.duration_s // 3600)) if poll.duration_s else MAX_POLL_HOURS
    return {
        "question": {"text": poll.question},
        "answers": [{"poll_media": {"text": option}} for option in poll.options],
        "duration": hours,
        "allow_multiselect": poll.is_multiple,
    }


def check_poll(poll: Poll) -> None:
    """Raise SendError for a poll that Discord would refuse."""
    problem = ""
    if not 1 <= len(poll.question) <= MAX_POLL_QUESTION_CHARS:
        problem = f"its question must have 1 to {MAX_POLL_QUESTION_CHARS} characters"
    elif not 1 <= len(poll.options) <= MAX_POLL_ANSWERS:
        problem = f"it must have 1 to {MAX_POLL_ANSWERS} options"
    elif not all(1 <= len(option) <= MAX_POLL_ANSWER_CHARS for option in poll.options):
        problem = f"an option must have 1 to {MAX_POLL_ANSWER_CHARS} characters"
    elif poll.duration_s > MAX_POLL_HOURS * 3600:
        problem = f"it can be open for at most {MAX_POLL_HOURS // 24} days"
    if problem:
        raise SendError(f"Discord refuses this poll: {problem}", retryable=False)


def require_id(text: str, what: str) -> str:
    """Return an id. Raises SendError for a text that is none."""
    if not is_id(text):
        raise SendError(
            f"{one_line(text, 60)!r} is no {what} of Discord's",
            retryable=False,
            fix="give its number: with Developer Mode on, Discord's menus have `Copy ID`",
        )
    return text


def channel_of(to: Address) -> str:
    """Return the thread or channel of an address; "" for a direct chat."""
    if to.thread:
        return require_id(to.thread, "thread")
    if to.chat.startswith(USER):
        return ""
    return require_id(to.chat.removeprefix("channel:"), "channel")


def _row(components: Iterable[Json]) -> dict[str, Json]:
    return {"type": _ACTION_ROW, "components": [*components]}


def _menu(id_: str, pairs: Sequence[tuple[str, str]]) -> dict[str, Json]:
    options = [
        {"label": one_line(label, MAX_OPTION_CHARS), "value": value} for label, value in pairs
    ]
    return {"type": _SELECT, "custom_id": id_, "options": options}


def _custom_id(button: Button, taken: set[str]) -> str:
    data = button.data
    if not 0 < len(data) <= MAX_DATA_CHARS or data in taken:
        data = f"button-{len(taken)}"
    taken.add(data)
    return data


def _flags(message: Outbound) -> dict[str, Json]:
    return {"flags": _SILENT} if message.extras.silent else {}
