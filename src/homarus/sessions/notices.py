"""System notices: lines that are prepended to the next message of a session."""

from collections import OrderedDict, deque
from datetime import UTC, datetime

from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line

MAX_NOTICES = 20  # of one session
MAX_SESSIONS = 200  # sessions
MAX_NOTICE_CHARS = 2_000


@dataclass(frozen=True, slots=True)
class Notice:
    """One line for the next message of a session."""

    text: str
    at_ms: int


class Notices:
    """Pending notices by session, bounded in number; lost when the process ends."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[Notice]] = OrderedDict()

    def add(self, session_key: str, text: str, at_ms: int) -> None:
        """Add a notice; a repetition of the last one is ignored."""
        line = one_line(text, MAX_NOTICE_CHARS)  # one line, so that it cannot imitate a message
        waiting = self._waiting.setdefault(session_key, deque(maxlen=MAX_NOTICES))
        if not waiting or waiting[-1].text != line:
            waiting.append(Notice(line, at_ms))
        self._waiting.move_to_end(session_key)
        while len(self._waiting) > MAX_SESSIONS:
            self._waiting.popitem(last=False)

    def pending(self, session_key: str) -> tuple[Notice, ...]:
        return tuple(self._waiting.get(session_key, ()))

    def pop_all(self, session_key: str) -> tuple[Notice, ...]:
        """Return and remove the notices of a session."""
        return tuple(self._waiting.pop(session_key, ()))

    def prepend_to(self, session_key: str, text: str) -> str:
        """Return a message after the session's notices, which are removed."""
        lines = [_line(notice) for notice in self.pop_all(session_key)]
        if lines and text:
            lines.append("")
        return "\n".join([*lines, text] if text else lines)


def _line(notice: Notice) -> str:
    at = datetime.fromtimestamp(notice.at_ms / 1000, UTC).astimezone()
    return f"System: [{at:%Y-%m-%d %H:%M:%S %Z}] {notice.text}"
