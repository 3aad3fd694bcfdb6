"""The trace of one attempt at a run: when each of its steps happened, in bounded memory.

Steps are recorded as the run makes them; `to_record` makes the record that is stored with the
outcome. A run of many steps keeps the first and the last ones, and counts the others. Texts of
people, models and tools are not recorded, only their sizes.
"""

from collections import deque
from typing import Final

from homarus.agent.usage_recorder import ProviderCall
from homarus.core.clock import Clock, SystemClock
from homarus.core.event import (
    AttemptFailed,
    CompactionEnded,
    CompactionStarted,
    EventData,
    ToolEnded,
    ToolStarted,
)
from homarus.core.message import Inbound, Json, Text, ToolResult
from homarus.core.text import one_line
from homarus.sessions.run_queue import QueuePlace
from homarus.store.traces import MAX_TRACE_CHARS, TraceRecord
from homarus.store.transcript_codec import dump_json

MAX_STEPS: Final = 48  # of each end of the run
_MAX_NAME_CHARS: Final = 80
_MAX_ERROR_CHARS: Final = 160
_MAX_IDS: Final = 20
_MIN_STEPS: Final = 16  # which always fit, so that their trace is not measured
_TRACED: Final = frozenset(
    {ToolStarted, ToolEnded, AttemptFailed, CompactionStarted, CompactionEnded}
)


class RunTrace:
    """Records the steps of one attempt at a run."""

    def __init__(
        self,
        run: str = "",
        session: str = "",
        ids: tuple[str, ...] = (),
        clock: Clock | None = None,
    ) -> None:
        self.run, self._session, self._ids = run, session, ids
        self._clock = clock or SystemClock()
        self._now_ms = self._clock.now_ms
        self.started_ms = self._now_ms()
        self.attempt = 0  # the token of the lease
        self._facts: dict[str, Json] = {}
        self._times: dict[str, int] = {"started": self.started_ms}
        self._first: list[dict[str, Json]] = []
        self._last: deque[dict[str, Json]] = deque(maxlen=MAX_STEPS)
        self._count = 0
        self._open_calls: dict[str, dict[str, Json]] = {}
        self._compaction: dict[str, Json] | None = None  # the last one
        self._prompt_tokens = 0
        self._retries = 0  # of the model call under way
        self.totals: dict[str, Json] = {}

    # What the run reports

    def set_fact(self, **facts: Json) -> None:
        """Set facts about the run; texts are cut."""
        for name, value in facts.items():
            self._facts[name] = _cut(value) if isinstance(value, str) else value

    def set_origin(self, inbound: Inbound) -> None:
        """Record why the message is in this session, and when its service received it."""
        source = inbound.options.provenance
        if inbound.at_ms:
            self._facts["receivedMs"] = inbound.at_ms
        if inbound.matched_by:
            self.set_fact(matchedBy=inbound.matched_by)
        elif inbound.is_heartbeat:
            self.set_fact(source="heartbeat")
        else:
            self.set_fact(source=source.kind if source else "named by its sender")

    def mark(self, phase: str) -> None:
        """Record when the run reached a phase."""
        self._times[phase] = self._now_ms()

    def set_place(self, place: QueuePlace | None, lane: str) -> None:
        """Record how the message came to its run."""
        self.set_fact(lane=lane)
        if place:
            waited_ms = round((self._clock.monotonic() - place.submitted_s) * 1000)
            self._times["submitted"] = self.started_ms - max(0, waited_ms)
            self.set_fact(mode=place.mode, merged=place.messages)

    def on_request(self, tokens: int) -> None:
        """Record that the prompt of a model call was built."""
        self._prompt_tokens = tokens
        self._times.setdefault("prompt", self._now_ms())
        self._times["request"] = self._now_ms()

    def on_model_call(self, call: ProviderCall) -> None:
        """Record a model call that ended, also one that failed."""
        usage = call.usage
        self._add(
            {
                "kind": "model",
                "at": self._now_ms() - call.duration_ms,
                "ms": call.duration_ms,
                "ttfbMs": call.ttfb_ms,
                "provider": _cut(call.provider),
                "model": _cut(call.model),
                "attempt": self._retries + 1,
                "promptTokens": self._prompt_tokens,
                "input": usage.input,
                "output": usage.output,
                "cacheRead": usage.cache_read,
                "cacheWrite": usage.cache_write,
                "cost": usage.cost,
                "error": one_line(call.error, _MAX_ERROR_CHARS),
            }
        )
        self._retries = self._retries + 1 if call.error else 0
        for name, more in (
            ("modelCalls", 1),
            ("modelErrors", int(bool(call.error))),
            ("input", usage.input + usage.cache_read + usage.cache_write),
            ("output", usage.output),
            ("cost", usage.cost),
        ):
            self._total(name, more)

    def on_event(self, data: EventData) -> None:
        """Record the events of the run that are steps."""
        if type(data) not in _TRACED:
            return
        match data:
            case ToolStarted(call):
                self._tool_step(call.id)["name"] = _cut(call.name)
            case ToolEnded(result):
                self._end_call(result)
            case AttemptFailed():
                self._add(
                    {
                        "kind": "fallback",
                        "at": self._now_ms(),
                        "model": _cut(f"{data.provider}/{data.model}"),
                        "reason": _cut(data.reason),
                        "next": _cut(data.then),
                        "waitMs": round(data.wait_s * 1000),
                    }
                )
            case CompactionStarted():
                self._compaction = {"kind": "compaction", "at": self._now_ms(), "ms": None}
                self._add(self._compaction)
            case CompactionEnded():
                if step := self._compaction:
                    step["ms"] = max(0, self._now_ms() - int(step["at"]))

    def on_decision(self, call_id: str, action: str, rule: str) -> None:
        """Record what the policy decided about a call."""
        step = self._tool_step(call_id)
        step.update(decision=action, rule=_cut(rule), decidedMs=self._now_ms())

    def on_call_start(self, call_id: str, approval_id: str) -> None:
        """Record that a call starts, after its approval if it needed one."""
        step = self._tool_step(call_id)
        decided_ms = step.pop("decidedMs", None)
        if decided_ms is not None and step.get("decision") == "ask":
            step["approvalMs"] = max(0, self._now_ms() - int(decided_ms))
        if approval_id:
            step["approval"] = approval_id

    def on_suspended_calls(self, approvals: dict[str, str]) -> None:
        """Record which calls wait for which approval."""
        for call_id, approval_id in approvals.items():
            if step := self._open_calls.get(call_id):
                step["approval"] = approval_id

    def _tool_step(self, call_id: str) -> dict[str, Json]:
        step = self._open_calls.get(call_id)
        if step is None:
            step = {"kind": "tool", "at": self._now_ms(), "ms": None, "call": _cut(call_id)}
            self._open_calls[call_id] = step
            self._add(step)
            self._total("toolCalls", 1)
        return step

    def _end_call(self, result: ToolResult) -> None:
        step = self._open_calls.pop(result.call_id, None)
        if step is None:
            return
        step.pop("decidedMs", None)
        step["ms"] = max(0, self._now_ms() - int(step["at"]))
        step["outcome"] = "error" if result.is_error else "ok"
        step["chars"] = sum(len(part.text) for part in result.content if isinstance(part, Text))
        self._total("toolErrors", int(result.is_error))

    def _add(self, step: dict[str, Json]) -> None:
        self._count += 1
        if len(self._first) < MAX_STEPS:
            self._first.append(step)
        else:
            self._last.append(step)

    def _total(self, name: str, more: float) -> None:
        self.totals[name] = self.totals.get(name, 0) + more

    # What is read of it

    def snapshot(self) -> dict[str, Json]:
        """Return the trace so far."""
        steps = [dict(step) for step in (*self._first, *self._last)]
        data: dict[str, Json] = {
            "v": 1,
            **self._facts,
            "messages": [_cut(each) for each in self._ids[:_MAX_IDS]],
            "times": dict(self._times),
            "steps": steps,
            "totals": dict(self.totals),
        }
        if omitted := self._count - len(steps):
            data["omitted"] = omitted
        return data

    def to_record(self, outcome: str, error: str = "") -> TraceRecord:
        """Return what is stored with the outcome of this attempt."""
        self.mark("settled")
        data = self.snapshot() | {"outcome": outcome}
        if error:
            data["error"] = one_line(error, _MAX_ERROR_CHARS)
        return TraceRecord(self.run, self._session, self.attempt, self.started_ms, _bounded(data))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_NAME_CHARS and text.isprintable() else one_line(text, 80)


def _bounded(data: dict[str, Json]) -> dict[str, Json]:
    """Return a trace whose JSON is not too long, with fewer steps if it is."""
    steps = list(data["steps"])
    while len(steps) > _MIN_STEPS and len(dump_json(data)) > MAX_TRACE_CHARS:
        half = len(steps) // 4
        data["omitted"] = data.get("omitted", 0) + len(steps) - 2 * half
        steps = [*steps[:half], *steps[-half:]]
        data["steps"] = steps
    return data
