"""Detect an agent that repeats the same tool calls: warn the model, then end the run.

Counted are calls with the same arguments and the same result, and two such calls in alternation.
A repeated call with changing results is polling: it gets one warning and never ends the run.
"""

import hashlib
import json
from collections import deque
from collections.abc import Callable

from homarus.config.tools_schema import LoopDetectionConfig
from homarus.core.errors import ToolLoopError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Image, Json, Text, ToolCall, ToolResult
from homarus.core.text import one_line

NOT_RUN = "This call was not made: the run is being ended because it goes in circles."


@dataclass(frozen=True, slots=True)
class _RecordedCall:
    """One call: hashes of its arguments and of its result."""

    tool: str
    args_hash: str
    result_hash: str


class LoopDetector:
    """Counts the repeated calls of one run."""

    def __init__(self, rules: LoopDetectionConfig) -> None:
        self._rules = rules
        size = max(rules.history_size, rules.critical_threshold + 1)
        self._calls: deque[_RecordedCall] = deque(maxlen=size)
        self._warned: set[str] = set()  # argument hashes of polling calls that were warned about
        self._stop_reason = ""

    def record(self, call: ToolCall, result: ToolResult) -> str:
        """Record a call; return a warning for the model to append to its result, or ""."""
        if not self._rules.enabled:
            return ""
        args_hash = _hash([call.name, dict(call.args), call.broken])
        self._calls.append(_RecordedCall(call.name, args_hash, _outcome(result)))
        count, description = max(self._counts(), key=lambda found: found[0])
        if count >= self._stop_after:
            self._stop_reason = self._stop_reason or description
        half = max(1, self._rules.warning_threshold // 2)
        over = count - self._rules.warning_threshold
        if over < 0:
            return self._polling_warning(call)
        if over % half == 0:
            return (
                f"[{description} That brings nothing new. Try something else, or stop and say what "
                f"you have and what is missing. After {self._stop_after} times the run is ended.]"
            )
        return ""

    @property
    def is_stopped(self) -> bool:
        """Whether the run must end: no further call is run."""
        return bool(self._stop_reason)

    def refusal_result(self, call: ToolCall) -> ToolResult:
        """Return the result of a call that is not run because the run must end."""
        return ToolResult(call.id, call.name, (Text(NOT_RUN),), is_error=True)

    def check_limit(self) -> None:
        """Raise ToolLoopError when the run must end. Called before each model call."""
        if self._stop_reason:
            raise ToolLoopError(
                f"the run was ended because it went in circles: {self._stop_reason}",
                fix="say it another way, or in smaller steps",
            )

    @property
    def _stop_after(self) -> int:
        rules = self._rules
        end = min(rules.critical_threshold, rules.global_circuit_breaker_threshold)
        return max(end, rules.warning_threshold + 1)  # a warning comes before the end

    def _counts(self) -> list[tuple[int, str]]:
        """Return how often the last call repeated, alone and in alternation, with a description."""
        detectors, last = self._rules.detectors, self._calls[-1]
        name = one_line(last.tool, 40)
        counts = [(0, "")]
        if detectors.generic_repeat or detectors.known_poll_no_progress:
            same = self._run(lambda at: self._calls[at] == last)
            text = f"{name} was called {same} times with the same arguments and the same result."
            counts.append((same, text))
        if detectors.ping_pong and len(self._calls) > 1 and self._calls[-2] != last:
            pair = (last, self._calls[-2])
            turns = self._run(lambda at: self._calls[at] == pair[(len(self._calls) - 1 - at) % 2])
            other = one_line(self._calls[-2].tool, 40)
            text = f"{name} and {other} took turns {turns} times, with the same results."
            counts.append((turns, text))
        return counts

    def _run(self, fits: Callable[[int], bool]) -> int:
        count = 0
        for at in range(len(self._calls) - 1, -1, -1):
            if not fits(at):
                break
            count += 1
        return count

    def _polling_warning(self, call: ToolCall) -> str:
        """Return a warning, once per call, about a repeated call with changing results."""
        last = self._calls[-1]
        if not self._rules.detectors.generic_repeat or last.args_hash in self._warned:
            return ""
        count = sum(recorded.args_hash == last.args_hash for recorded in self._calls)
        if count < self._rules.warning_threshold:
            return ""
        self._warned.add(last.args_hash)
        name = one_line(call.name, 40)
        return (
            f"[{name} was called {count} times with the same arguments. If you are waiting for "
            f"something, wait longer between looks, or stop and say so.]"
        )


def _outcome(result: ToolResult) -> str:
    shown: list[Json] = [result.is_error]
    for part in result.content:
        match part:
            case Text(text):
                shown.append(text)
            case Image(data, _):
                shown.append(["image", data])
    return _hash(shown)


def _hash(value: Json) -> str:
    try:
        text = json.dumps(value, sort_keys=True, default=dict)
    except (ValueError, TypeError, RecursionError):  # keys of several kinds, or endless depth
        text = repr(type(value))
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
