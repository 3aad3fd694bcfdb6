"""Cache final answers by idempotency key, for requests that are repeated within minutes.

That a run happens only once is guaranteed by the journal, not by this cache.
"""

from collections import OrderedDict

from homarus.core.clock import Clock
from homarus.core.message import Json
from homarus.gateway.run_tracker import RunFailedError

ANSWER_TTL_S = 300.0
MAX_ANSWERS = 1_000
MAX_ANSWER_CHARS = 8_000_000  # of all of them


class IdempotencyCache:
    """Holds the newest answers, bounded in age, number and size."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._answers: OrderedDict[str, tuple[float, Json | RunFailedError, int]] = OrderedDict()
        self._chars = 0

    def get(self, key: str) -> Json | None:
        """Return the earlier answer, or None; an earlier failure is raised again."""
        self._expire()
        found = self._answers.get(key)
        if found is None:
            return None
        if isinstance(found[1], RunFailedError):
            raise found[1].with_traceback(None)
        return found[1]

    def save(self, key: str, answer: Json | RunFailedError, chars: int = 0) -> None:
        """Store an answer; `chars` is its length, when that is more than a few lines."""
        self._remove(key)
        self._answers[key] = (self._clock.monotonic(), answer, chars)
        self._chars += chars
        self._expire()

    def _remove(self, key: str) -> None:
        _, _, chars = self._answers.pop(key, (0.0, None, 0))
        self._chars -= chars

    def _expire(self) -> None:
        oldest = self._clock.monotonic() - ANSWER_TTL_S
        while self._answers:
            first = next(iter(self._answers))
            fits = len(self._answers) <= MAX_ANSWERS and self._chars <= MAX_ANSWER_CHARS
            if fits and self._answers[first][0] > oldest:
                return
            self._remove(first)
