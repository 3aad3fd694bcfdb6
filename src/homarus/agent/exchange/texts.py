"""The texts of messages between sessions, and the words with which a model ends them. Pure."""

from typing import Final

from homarus.core.silent_reply import is_silent_text
from homarus.core.text import clip_middle
from homarus.core.untrusted import wrap_untrusted

REPLY_SKIP: Final = "REPLY_SKIP"
ANNOUNCE_SKIP: Final = "ANNOUNCE_SKIP"
MAX_REPLY_CHARS: Final = 20_000
_MAX_QUOTED_CHARS: Final = 4_000


def is_end(reply: str) -> bool:
    """Return whether an answer ends the exchange."""
    return not reply.strip() or is_silent_text(reply, REPLY_SKIP)


def is_unannounced(reply: str) -> bool:
    """Return whether a session has nothing to say in its chat about an exchange."""
    return any(not reply.strip() or is_silent_text(reply, word) for word in _SKIPS)


_SKIPS: Final = (ANNOUNCE_SKIP, REPLY_SKIP)


def request_text(source: str, body: str) -> str:
    """Return the message that a session gets by `sessions_send`."""
    return (
        f"[Message of the session {source}, by its tool sessions_send]\n{body}\n"
        "[Your answer goes back to that session. No chat gets it.]"
    )


def turn_text(other: str, turn: int, turns: int, body: str) -> str:
    """Return the message with which the answer of one session reaches the other."""
    return (
        f"[Answer of the session {other}, turn {turn} of {turns}]\n{body}\n"
        f"[Answer to continue with that session, or answer only {REPLY_SKIP} to end this. No chat"
        " gets your answer.]"
    )


def announce_text(source: str, channel: str, request: str, reply: str) -> str:
    """Return the message that asks a session what its chat is told about an exchange."""
    return (
        f"[Your exchange with the session {source} has ended]\nIt asked:\n{request}\n\n"
        f"The last answer was:\n{reply}\n\n[What you answer now is sent to the {channel} chat of"
        f" this session. Answer only {ANNOUNCE_SKIP} if its people need not know.]"
    )


def make_body(text: str, origin: str, *, is_untrusted: bool, quoted: bool = False) -> str:
    """Return a text as another session reads it; one that others may have written is wrapped."""
    text = clip_middle(text, _MAX_QUOTED_CHARS if quoted else MAX_REPLY_CHARS)
    return wrap_untrusted(text, "session", origin) if is_untrusted else text
