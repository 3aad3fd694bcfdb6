"""Notices: what an agent should know when it is next spoken to, in lines before the message."""

from collections import OrderedDict, deque
from datetime import UTC, datetime

from homarus.core.text import one_line
from homarus.core.value import dataclass

MAX_NOTICES = 20  # of one session
MAX_NOTICED = 200  # sessions
MAX_NOTICE_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Notice:
    """Something an agent should know when it is next spoken to."""

    text: str
    at_ms: int


class Notices:
    """Notices by session, until the next message takes them along."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[Notice]] = OrderedDict()

    def add(self, session_key: str, text: str, at_ms: int) -> None:
        """One more; the same again at once is the same."""
        told = one_line(text, MAX_NOTICE_CHARS)  # a line: nobody else's words can be made of it
        waiting = self._waiting.setdefault(session_key, deque(maxlen=MAX_NOTICES))
        if not waiting or waiting[-1].text != told:
            waiting.append(Notice(told, at_ms))
        self._waiting.move_to_end(session_key)
        while len(self._waiting) > MAX_NOTICED:
            self._waiting.popitem(last=False)

    def of(self, session_key: str) -> tuple[Notice, ...]:
        return tuple(self._waiting.get(session_key, ()))

    def take(self, session_key: str) -> tuple[Notice, ...]:
        """All of a session's, once."""
        return tuple(self._waiting.pop(session_key, ()))

    def take_before(self, session_key: str, said: str) -> str:
        """A message with all of a session's notices in front of it, once."""
        lines = [_line(notice) for notice in self.take(session_key)]
        if lines and said:
            lines.append("")
        return "\n".join([*lines, said] if said else lines)


def _line(notice: Notice) -> str:
    at = datetime.fromtimestamp(notice.at_ms / 1000, UTC).astimezone()
    return f"System: [{at:%Y-%m-%d %H:%M:%S %Z}] {notice.text}"
