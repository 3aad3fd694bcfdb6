"""The trace of a run for people and clients: its ten hops, from the journal and its trace records.

`find_traced` finds the message of a run by any id of it, `report_trace` describes the run as a JSON
object. An attempt that the end of the program interrupted left no record: its steps are read from
the transcript and the usage records, without their durations. Texts of people, models and tools are
not part of a report; secrets in errors are redacted.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from homarus.config.redaction import redact
from homarus.core.errors import UnknownNameError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, ToolResult
from homarus.core.session_keys import agent_id_of
from homarus.core.text import one_line
from homarus.sessions.transcript import decode_message
from homarus.store.base import Store
from homarus.store.journal import InboxRecord, OutboxRecord
from homarus.store.traces import TraceRecord, newest_attempt

LAST: Final = "last"
SEARCHED_MESSAGES: Final = 1_000
_MIN_PREFIX_CHARS: Final = 4
_MAX_ENTRIES: Final = 1_000  # of a transcript, searched for the steps of an interrupted attempt
_MAX_DERIVED: Final = 100
_OPEN_ATTEMPTS: Final = ("suspended", "cancelled")  # outcomes that the journal does not count
_SETTLED: Final = ("answered", "silent", "reported", "parked")


@dataclass(frozen=True, slots=True)
class TracedRun:
    """A run that was found: its name, and the message that was asked about, if it is stored."""

    run: str
    session: str
    message: InboxRecord | None = None


async def find_traced(store: Store, name: str, session: str | None = None) -> TracedRun:
    """Return the run of an id: of the run, a message, a reply, or `last`.

    The start of a message's id is enough. Raises UserError.
    """
    journal = store.journal
    if name in ("", LAST):
        newest = await journal.inbox_records(session=session, limit=1)
        if not newest:
            where = f"the session {one_line(session, 80)!r}" if session else "the journal"
            raise UserError(f"{where} has no messages", fix="homarus sessions lists the sessions")
        return _traced(newest[-1])
    if (record := await journal.inbox_record(name)) is not None:
        return _traced(record)
    if traces := await journal.traces(run=name, limit=1):
        return TracedRun(name, traces[-1].session)
    if (reply := await journal.outbox_record(name)) is not None:
        record = await journal.inbox_record(reply.run)
        return _traced(record) if record else TracedRun(reply.run, "")
    recent = await journal.inbox_records(session=session, limit=SEARCHED_MESSAGES)
    found = [one for one in recent if name in (one.message_id, one.run)]
    if not found and len(name) >= _MIN_PREFIX_CHARS:
        found = [one for one in recent if one.id.startswith(name)]
    if len({one.run or one.id for one in found}) > 1:
        raise UserError(f"{one_line(name, 40)!r} could be {len(found)} messages", fix="write more")
    if not found:
        raise UnknownNameError("message or run", one_line(name, 64), ())
    return _traced(found[-1])


def _traced(record: InboxRecord) -> TracedRun:
    return TracedRun(record.run or record.id, record.session, record)


async def report_trace(
    store: Store, traced: TracedRun, now_ms: int, live: Mapping[str, Json] | None = None
) -> dict[str, Json]:
    """Describe a run; `live` is the trace so far of the attempt that is under way."""
    journal = store.journal
    first = await journal.inbox_record(traced.run)
    record = first or traced.message
    traces = sorted(await journal.traces(run=traced.run), key=lambda one: one.attempt)
    outbox = await journal.outbox_records(run=traced.run)
    last = newest_attempt(traces)
    data = live if live is not None else (last.data if last else {})
    interrupted = _count_interrupted(record, traces, is_live=live is not None)
    derived = await _derive_steps(store, traced, record, traces) if interrupted else []
    state = _state(record, last, interrupted, is_live=live is not None)
    report: dict[str, Json] = {
        "runId": traced.run,
        "sessionKey": traced.session or (record.session if record else ""),
        "ts": now_ms,
        "state": state,
        "now": _describe_now(state, data, outbox, now_ms, live is not None),
        "hops": [
            _accepted(record),
            *_way_to_run(record, data, traced),
            _loop(data, derived),
            _settled(record, data, traces, outbox),
            _delivered(outbox),
        ],
        "attempts": [_attempt_row(one) for one in traces],
        "interrupted": interrupted,
        "totals": _add_totals([one.data for one in traces], live),
    }
    if traced.message and traced.message.id != traced.run:
        report["message"] = _joined(traced.message)
    redacted: dict[str, Json] = _redacted(report)
    return redacted


def _count_interrupted(
    record: InboxRecord | None, traces: Sequence[TraceRecord], *, is_live: bool
) -> int:
    """Count the attempts that ended with the program: the journal counted them, and no more."""
    if record is None:
        return 0
    ended = sum(one.data.get("outcome") not in _OPEN_ATTEMPTS for one in traces)
    is_running_now = is_live and record.state == "running"
    return max(0, record.attempts - ended - is_running_now)


def _state(
    record: InboxRecord | None, last: TraceRecord | None, interrupted: int, *, is_live: bool
) -> str:
    if is_live:
        return "running"
    if record is None:
        return str(last.data.get("outcome", "unknown")) if last else "unknown"
    if record.state == "running":
        return "interrupted" if interrupted or not last else "running"
    return record.state


def _describe_now(
    state: str,
    data: Mapping[str, Json],
    outbox: Sequence[OutboxRecord],
    now_ms: int,
    is_live: bool,  # noqa: FBT001 - of the same trace
) -> str:
    """Return what the run does now, or what it waits for; "" when nothing is left to do."""
    if is_live:
        return _describe_live(data, now_ms)
    waiting = sum(one.state in ("pending", "sending") for one in outbox)
    texts = {
        "accepted": "waits for its run",
        "interrupted": "the program ended while it ran; it is resumed when a gateway runs",
        "suspended": "waits for an approval",
        "parked": "is set aside: homarus inbox retry runs it again",
    }
    if state in texts:
        return texts[state]
    return f"{waiting} of {len(outbox)} messages of its reply are not sent" if waiting else ""


def _describe_live(data: Mapping[str, Json], now_ms: int) -> str:
    times = data.get("times", {})
    calls = [
        step for step in data.get("steps", ()) if step["kind"] == "tool" and step["ms"] is None
    ]
    if calls:
        step = calls[-1]
        for_s = max(0, now_ms - step["at"]) / 1000
        waits = step.get("decision") == "ask" and "approvalMs" not in step
        verb = "waits for the approval of" if waits else "runs"
        return f"{verb} the tool {step.get('name', '')} for {for_s:.1f} s"
    if "request" in times:
        for_s = max(0, now_ms - times["request"]) / 1000
        return f"calls the model {data.get('model', '')} for {for_s:.1f} s"
    if "admitted" in times:
        return "prepares its context"
    return "waits for a place in the lane" if "leased" in times else "waits for its session"


# The hops, in order


def _hop(number: int, name: str, at_ms: int | None, **details: Json) -> dict[str, Json]:
    return {"hop": number, "name": name, "at": at_ms or None, **details}


def _accepted(record: InboxRecord | None) -> dict[str, Json]:
    if record is None:
        return _hop(2, "accepted", None)
    return _hop(
        2,
        "accepted",
        record.at_ms,
        channel=record.channel,
        account=record.account,
        sender=one_line(record.sender, 80),
        dedupeKey=one_line(f"{record.channel}:{record.account}:{record.message_id}", 200),
        duplicates=record.duplicates,
        starts=record.attempts,
    )


def _way_to_run(
    record: InboxRecord | None, data: Mapping[str, Json], traced: TracedRun
) -> list[dict[str, Json]]:
    """Return the hops from the route to the prompt."""
    times: Mapping[str, int] = data.get("times", {})
    session = traced.session or (record.session if record else "")
    inbound = record.inbound if record else None
    why = data.get("matchedBy") or (inbound.matched_by if inbound else "") or data.get("source", "")
    received_ms = data.get("receivedMs") or (inbound.at_ms if inbound else None)
    started, leased, admitted = (times.get(name) for name in ("started", "leased", "admitted"))
    accepted_ms = record.at_ms if record else None
    submitted, prepared = times.get("submitted"), times.get("prepared")
    requests = [step for step in data.get("steps", ()) if step["kind"] == "model"]
    return [
        _hop(1, "received", received_ms),
        _hop(
            3, "routed", accepted_ms,
            agent=data.get("agent") or (agent_id_of(session) if session else ""),
            session=session, why=why,
        ),
        _hop(4, "submitted", submitted, sinceAcceptedMs=_ms(accepted_ms, submitted)),
        _hop(
            5, "queued", started,
            mode=data.get("mode"), merged=data.get("merged"), lane=data.get("lane"),
            ms=_ms(submitted, started), sessionMs=_ms(started, leased),
            laneMs=_ms(leased, admitted),
        ),
        _hop(
            6, "prepared", prepared,
            ms=_ms(admitted, prepared), model=data.get("model"), thinking=data.get("thinking"),
        ),
        _hop(
            7, "prompt", times.get("prompt"),
            ms=_ms(prepared, times.get("prompt")),
            tokens=requests[0].get("promptTokens") if requests else None,
        ),
    ]  # fmt: skip


def _ms(start: int | None, end: int | None) -> int | None:
    return max(0, end - start) if start and end else None


def _loop(data: Mapping[str, Json], derived: Sequence[Mapping[str, Json]]) -> dict[str, Json]:
    steps = [*derived, *data.get("steps", ())]
    at_ms = steps[0]["at"] if steps else None
    return _hop(8, "loop", at_ms, steps=steps, omitted=data.get("omitted", 0))


def _settled(
    record: InboxRecord | None,
    data: Mapping[str, Json],
    traces: Sequence[TraceRecord],
    outbox: Sequence[OutboxRecord],
) -> dict[str, Json]:
    is_settled = record is None or record.state in _SETTLED
    last = newest_attempt(traces)
    at_ms = (record.settled_ms if record else 0) or data.get("times", {}).get("settled")
    return _hop(
        9,
        "settled",
        at_ms if is_settled else None,
        outcome=(record.state if record else data.get("outcome")) if is_settled else None,
        why=(record.why if record else "") or str(last.data.get("error", "") if last else ""),
        ms=_ms(record.at_ms if record else None, at_ms) if is_settled else None,
        outbox=[one.id for one in outbox],
    )


def _delivered(outbox: Sequence[OutboxRecord]) -> dict[str, Json]:
    ended = [one.tries[-1].ended_ms for one in outbox if one.state == "sent" and one.tries]
    is_done = bool(outbox) and all(one.state == "sent" for one in outbox)
    messages = [
        {
            "id": one.id,
            "channel": one.address.channel,
            "account": one.address.account,
            "state": one.state,
            "enqueued": one.at_ms,
            "attempts": one.attempts,
            "receipt": one_line(one.receipt, 80),
            "why": one_line(one.why, 200),
            "tries": [
                {
                    "at": each.started_ms,
                    "ms": max(0, each.ended_ms - each.started_ms),
                    "state": each.state,
                    "why": each.why,
                }
                for each in one.tries
            ],
            **({"sendingSince": one.started_ms} if one.state == "sending" else {}),
        }
        for one in outbox
    ]
    return _hop(10, "delivered", max(ended) if is_done and ended else None, messages=messages)


def _attempt_row(trace: TraceRecord) -> dict[str, Json]:
    data = trace.data
    return {
        "attempt": trace.attempt,
        "at": trace.at_ms,
        "ms": _ms(trace.at_ms, data.get("times", {}).get("settled")),
        "outcome": data.get("outcome", "unreadable"),
        "error": data.get("error", ""),
    }


def _joined(message: InboxRecord) -> dict[str, Json]:
    """Describe a message that another message's run answers: it steered it or was merged."""
    return {"id": message.id, "at": message.at_ms, "state": message.state, "joined": message.run}


def _add_totals(
    attempts: Sequence[Mapping[str, Json]], live: Mapping[str, Json] | None
) -> dict[str, Json]:
    totals: dict[str, Json] = {}
    for data in (*attempts, *((live,) if live else ())):
        for name, value in data.get("totals", {}).items():
            totals[name] = totals.get(name, 0) + value
    return totals


# What an interrupted attempt left


async def _derive_steps(
    store: Store, traced: TracedRun, record: InboxRecord | None, traces: Sequence[TraceRecord]
) -> list[dict[str, Json]]:
    """Return the steps of attempts without a record, from what they saved."""
    if record is None:
        return []
    known = [(one.at_ms, one.data.get("times", {}).get("settled", one.at_ms)) for one in traces]

    def is_known(at_ms: int) -> bool:
        return any(start <= at_ms <= end for start, end in known)

    steps = list[dict[str, Json]]()
    for call in await store.usage_records(since_ms=record.at_ms, session=record.session):
        if call.run == traced.run and not is_known(call.at_ms):
            steps.append(
                {
                    "kind": "model", "at": call.at_ms, "ms": None, "provider": call.provider,
                    "model": call.model, "input": call.usage.input, "output": call.usage.output,
                    "cost": call.usage.cost, "error": one_line(call.error, 160),
                    "interrupted": True,
                }
            )  # fmt: skip
    steps += [step for step in await _saved_calls(store, record) if not is_known(step["at"])]
    return sorted(steps, key=lambda step: int(step["at"]))[-_MAX_DERIVED:]


async def _saved_calls(store: Store, record: InboxRecord) -> list[dict[str, Json]]:
    """Return the tool calls that the transcript has after the question."""
    if not record.session_id or not record.entry:
        return []
    entries = await store.entries(record.session_id, limit=_MAX_ENTRIES, newest=True)
    ids = [entry.id for entry in entries]
    if record.entry not in ids:
        return []
    steps: dict[str, dict[str, Json]] = {}
    for entry in entries[ids.index(record.entry) + 1 :]:
        message = decode_message(entry)
        if message is None or message.role == "user":
            continue
        for call in message.calls:
            steps[call.id] = {
                "kind": "tool", "at": entry.at_ms, "ms": None, "call": one_line(call.id, 80),
                "name": one_line(call.name, 80), "interrupted": True,
            }  # fmt: skip
        for part in message.parts:
            if isinstance(part, ToolResult) and part.call_id in steps:
                step = steps[part.call_id]
                step["ms"] = max(0, entry.at_ms - int(step["at"]))
                step["outcome"] = "error" if part.is_error else "ok"
                step["chars"] = len(part.text)
    return list(steps.values())


def _redacted(value: Json) -> Json:
    if isinstance(value, str):
        return redact(value) if value else value
    if isinstance(value, dict):
        return {key: _redacted(each) for key, each in value.items()}
    return [_redacted(each) for each in value] if isinstance(value, list | tuple) else value
