"""Broadcast the events of runs to clients; one subscriber of the bus serves all connections.

A run becomes `agent` events, one for each event of the bus, and `chat` events: the text so far at
most once per 150 ms, then exactly one `final`, `aborted` or `error`. Buffered pieces of text, or
of reasoning, are sent together: a client gets the same text in fewer frames, numbered without a
gap. Tool events go only to connections that started or joined the run and asked for them. Of a
heartbeat, `chat` has nothing but an alert.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Protocol

from homarus.agent.reply.reply_parser import ParsedReply
from homarus.core.bus import Subscription
from homarus.core.clock import Clock
from homarus.core.event import (
    ApprovalRequested,
    ApprovalResolved,
    AttemptFailed,
    CommandAnswered,
    Event,
    EventEncoder,
    MessageSaved,
    RunEnded,
    RunStarted,
    TextAdded,
    ThinkingAdded,
    ToolEnded,
    ToolStarted,
)
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import HEARTBEAT_CHANNEL, Json, Message, Text, ToolCall
from homarus.core.silent_reply import strip_heartbeat_ack
from homarus.gateway.session_subscriptions import SessionSubscriptions
from homarus.sessions.transcript import encode_message

DELTA_S = 0.150
# The subscriber runs once per loop turn: its buffer needs to hold one turn's events.
BUS_SIZE = 100_000
# Bounded: a run whose message steered another run never starts, and its waiters stay.
_MAX_JOINED = 2_000
_PIECES = (TextAdded, ThinkingAdded)
_HEARTBEAT = f"{HEARTBEAT_CHANNEL}:"  # the start of the id of its run
_ONLY_VERBOSE = ("result", "partialResult")
# Each frame repeats the complete text: the longer it is, the fewer frames are sent.
_SLOW_TEXT_CHARS = 4_000
_INTERVAL_S_PER_CHAR = 1e-5


class EventSink(Protocol):
    """Where events are sent; `server.Gateway` implements it."""

    def broadcast(
        self,
        event: str,
        payload: Json,
        *,
        drop_if_slow: bool = False,
        newest: Mapping[str, Json] | None = None,
    ) -> None: ...

    def send(
        self, conn_id: str, event: str, payload: Json, *, newest: Mapping[str, Json] | None = None
    ) -> None: ...


@dataclass(slots=True)
class LiveRun:
    """A run under way, with what a client that connects late needs to catch up."""

    run_id: str
    session_key: str
    text: str = ""  # of the message being streamed
    reply: ParsedReply | None = None  # the last complete message that has text
    stop: str = ""  # why it ended
    seq: int = 0  # of the last event sent
    last_seq: int = 0  # the bus's number of the last event processed
    started_ms: int = 0
    buffered: list[Event] = field(default_factory=list)  # pieces of one kind, not sent yet
    frame_chars: int = 0  # of the text that the last frame repeated
    payloads: EventEncoder = field(default_factory=EventEncoder)
    text_at_s: float = float("-inf")  # when text was last sent, in `agent` and in `chat`
    delta_at_s: float = float("-inf")
    delta_text: str = ""
    sent_text: str = ""  # in the last delta that was sent
    is_flush_scheduled: bool = False  # a flush is scheduled
    verbose: bool | None = None
    calls: dict[str, ToolCall] = field(default_factory=dict)  # tool calls that have no result
    # Of a heartbeat: a text of this length next to HEARTBEAT_OK is not shown.
    ack_max_chars: int | None = None

    @property
    def is_heartbeat(self) -> bool:
        return self.ack_max_chars is not None

    @property
    def is_acknowledged(self) -> bool:
        """Whether a heartbeat found nothing that needs attention."""
        if self.ack_max_chars is None:
            return False
        text = self.reply.text if self.reply else self.text
        found = strip_heartbeat_ack(text, heartbeat=True, max_chars=self.ack_max_chars)
        return found.skip or self.reply is None or self.reply.silent


class EventBroadcaster:
    """Turn bus events into client events. `later` calls a function after some seconds.

    `find_ack_max_chars` returns for the session of a heartbeat how long the text of an
    acknowledgement may be; None if heartbeats are shown like other runs.
    """

    def __init__(
        self,
        sender: EventSink,
        clock: Clock,
        *,
        later: Callable[[float, Callable[[], None]], None],
        verbose: Callable[[str], Awaitable[bool]],
        sessions: SessionSubscriptions | None = None,
        find_ack_max_chars: Callable[[str], int | None] = lambda _key: None,
    ) -> None:
        self._find_ack_max_chars = find_ack_max_chars
        self._sender, self._clock, self._later, self._verbose = sender, clock, later, verbose
        self._sessions = sessions
        self._runs: dict[str, LiveRun] = {}
        self._joined: dict[str, set[str]] = {}
        self._result_receivers: set[str] = set()  # connections that get the output of tools

    async def follow(self, subscription: Subscription) -> None:
        """Send the events of the bus until it is closed."""
        unsent: dict[str, LiveRun] = {}
        async for event in subscription:
            if isinstance(event.data, ApprovalRequested | ApprovalResolved):
                self._send_approval(event)
                continue
            if isinstance(event.data, CommandAnswered):
                self._answer(event, event.data)
                await self._send_session_events(event)
                continue
            run = self._runs.get(event.run_id) or self._start(event)
            if isinstance(event.data, _PIECES):
                if run.buffered and type(run.buffered[-1].data) is not type(event.data):
                    self._send_text(run, immediately=True)
                run.buffered.append(event)
                unsent[run.run_id] = run
            else:
                unsent.pop(run.run_id, None)
                await self._process(run, event)
            if unsent and not subscription.pending:
                for unsent_run in unsent.values():
                    self._send_text(unsent_run)
                unsent.clear()

    def subscribe_tools(self, run_id: str, conn_id: str) -> None:
        """Subscribe a connection to a run's tool events, and send it the text so far."""
        if run_id not in self._joined and len(self._joined) >= _MAX_JOINED:
            del self._joined[next(iter(self._joined))]
        self._joined.setdefault(run_id, set()).add(conn_id)
        if run := self._runs.get(run_id):
            self._catch_up(run, conn_id)

    def catch_up(self, session_key: str, conn_id: str, *, tools: bool = False) -> None:
        """Send a client that opens a session the text so far of its active runs."""
        for run in self.live(session_key):
            if tools:
                self._joined.setdefault(run.run_id, set()).add(conn_id)
            self._catch_up(run, conn_id)

    def add_result_receiver(self, conn_id: str) -> None:
        """Send a connection the output of tools too, whatever the session's verbose level is."""
        self._result_receivers.add(conn_id)

    def leave(self, conn_id: str) -> None:
        """Forget a connection that ended."""
        self._result_receivers.discard(conn_id)
        for connections in self._joined.values():
            connections.discard(conn_id)

    def live(self, session_key: str | None = None) -> Sequence[LiveRun]:
        """Return the active runs, of one session or of all."""
        return [run for run in self._runs.values() if session_key in (None, run.session_key)]

    def _start(self, event: Event) -> LiveRun:
        run = LiveRun(event.run_id, event.session_key, started_ms=event.ts_ms)
        if event.run_id.startswith(_HEARTBEAT):
            run.ack_max_chars = self._find_ack_max_chars(event.session_key)
        self._runs[event.run_id] = run
        return run

    async def _process(self, run: LiveRun, event: Event) -> None:
        """Process an event other than text, after sending the text before it."""
        self._send_text(run, immediately=True)
        self._check_order(run, event, event.seq - run.last_seq <= 1)
        payload = run.payloads.encode(event)
        if payload and payload["stream"] == "tool":
            payload["data"] = _with_meta(run, event, payload["data"])
            await self._send_tool_event(run, self._numbered(run, payload))
        elif payload:
            self._sender.broadcast("agent", self._numbered(run, payload))
        match event.data:
            case MessageSaved(message) if message.role == "assistant":
                if message.text:
                    from homarus.agent.reply.reply_cleaner import clean_message

                    run.reply = clean_message(message)
                    run.stop = message.origin.stop if message.origin else ""
            case AttemptFailed():
                run.text = run.delta_text = ""
            case RunStarted():
                run.started_ms = event.ts_ms
            case RunEnded() as ended:
                self._end(run, ended, event.ts_ms)
            case _:
                pass
        await self._send_session_events(event)

    async def _send_session_events(self, event: Event) -> None:
        """Send subscribers of the session what this event changed in it."""
        sessions, key = self._sessions, event.session_key
        if sessions is None or not sessions.is_followed(key):
            return
        is_heartbeat = event.run_id.startswith(_HEARTBEAT)
        if not is_heartbeat or isinstance(event.data, RunEnded):
            await sessions.send_messages(key, event.run_id, only_path=is_heartbeat)
        run: dict[str, Json] = {"runId": event.run_id}
        match event.data:
            case RunStarted():
                await sessions.send_change(key, phase="start", **run)
            case RunEnded() as ended:
                await sessions.send_change(key, phase="error" if ended.error else "end", **run)
            case CommandAnswered():
                await sessions.send_change(key, reason="command", **run)
            case _:
                pass

    def _send_text(self, run: LiveRun, *, immediately: bool = False) -> None:
        """Send the buffered pieces as one event, and the text so far when it is due."""
        at_s = self._clock.monotonic()
        if run.buffered and (immediately or at_s >= run.text_at_s + _interval_s(run.frame_chars)):
            last = run.buffered[-1]
            self._check_order(run, last, last.seq - run.last_seq == len(run.buffered))
            payload = run.payloads.encode(replace(last, data=_join(run.buffered)))
            run.buffered.clear()
            if payload and isinstance(data := payload["data"], dict):
                text = str(data["text"])
                run.frame_chars, run.text_at_s = len(text), at_s
                if isinstance(last.data, TextAdded):
                    run.text = text
                self._sender.broadcast("agent", self._numbered(run, payload), drop_if_slow=True)
        if run.is_heartbeat:
            run.delta_text = run.text
        if run.text != run.delta_text and at_s >= run.delta_at_s + DELTA_S:
            self._send_delta(run)
        if (run.buffered or run.text != run.delta_text) and not run.is_flush_scheduled:
            run.is_flush_scheduled = True
            self._later(DELTA_S, lambda: self._schedule_flush(run))

    def _schedule_flush(self, run: LiveRun) -> None:
        run.is_flush_scheduled = False
        if run.run_id in self._runs:
            self._send_text(run)

    def _send_delta(self, run: LiveRun) -> None:
        run.delta_at_s = self._clock.monotonic()
        run.delta_text = run.text
        continues = run.text.startswith(run.sent_text)
        piece = run.text[len(run.sent_text) :] if continues else run.text
        newest = _newest(piece, replaces=not continues)
        run.sent_text = run.text
        self._sender.broadcast("chat", self._delta(run), drop_if_slow=True, newest=newest)

    def _delta(self, run: LiveRun) -> dict[str, Json]:
        return {**_chat(run, "delta"), "message": _message(run.text, self._clock.now_ms())}

    def _catch_up(self, run: LiveRun, conn_id: str) -> None:
        if run.text and not run.is_heartbeat:
            newest = _newest(run.sent_text, replaces=True)  # the next piece continues from there
            self._sender.send(conn_id, "chat", self._delta(run), newest=newest)

    async def _send_tool_event(self, run: LiveRun, payload: dict[str, Json]) -> None:
        subscribers = self._joined.get(run.run_id)
        if not subscribers:
            return
        if run.verbose is None:
            run.verbose = await self._verbose(run.session_key)
        short = payload
        if not run.verbose and isinstance(data := payload["data"], dict):
            visible = {name: value for name, value in data.items() if name not in _ONLY_VERBOSE}
            short = {**payload, "data": visible}
        for conn_id in tuple(subscribers):
            shown = payload if conn_id in self._result_receivers else short
            self._sender.send(conn_id, "agent", shown)

    def _end(self, run: LiveRun, ended: RunEnded, at_ms: int) -> None:
        del self._runs[run.run_id]
        self._joined.pop(run.run_id, None)
        if run.is_heartbeat and (ended.error or ended.aborted or run.is_acknowledged):
            return
        self._sender.broadcast("chat", _end_event(run, ended, at_ms))

    def _answer(self, event: Event, answer: CommandAnswered) -> None:
        """Send the output of a command, which has no run."""
        self._joined.pop(event.run_id, None)
        payload = _chat(LiveRun(event.run_id, event.session_key, seq=1), "final")
        if answer.error:
            payload |= {"state": "error", "errorMessage": answer.error}
        elif answer.text:
            message = Message("assistant", (Text(answer.text),), event.ts_ms)
            payload |= {"message": encode_message(message)}
        self._sender.broadcast("chat", payload)

    def _send_approval(self, event: Event) -> None:
        """Send an event about an approval, which clients with the scope for it get."""
        from homarus.gateway.approval_payloads import encode_approval_event  # rarely needed

        if encoded := encode_approval_event(event):
            self._sender.broadcast(*encoded)

    def _numbered(self, run: LiveRun, payload: dict[str, Json]) -> dict[str, Json]:
        run.seq += 1
        return {**payload, "seq": run.seq}

    def _check_order(self, run: LiveRun, event: Event, is_contiguous: bool) -> None:  # noqa: FBT001 - the finding
        """Report a gap in the bus's numbers: this subscriber was too slow and lost events."""
        expected, run.last_seq = run.last_seq + 1, event.seq
        if is_contiguous:
            return
        data: dict[str, Json] = {"reason": "seq gap", "expected": expected, "received": event.seq}
        payload: dict[str, Json] = {
            "runId": run.run_id,
            "stream": "error",
            "ts": event.ts_ms,
            "data": data,
            "sessionKey": run.session_key,
        }
        self._sender.broadcast("agent", self._numbered(run, payload))


def _with_meta(run: LiveRun, event: Event, data: dict[str, Json]) -> dict[str, Json]:
    """Return the data of a tool event; that of a result says in short what the call was about."""
    match event.data:
        case ToolStarted(call):
            run.calls[call.id] = call
        case ToolEnded(result) if result.call_id in run.calls:
            from homarus.tools.describe import describe_target  # only for runs that use tools

            if meta := describe_target(run.calls.pop(result.call_id)):
                return {**data, "meta": meta}
        case _:
            pass
    return data


def _chat(run: LiveRun, state: str) -> dict[str, Json]:
    return {"runId": run.run_id, "sessionKey": run.session_key, "seq": run.seq, "state": state}


def _newest(delta: str, *, replaces: bool) -> dict[str, Json]:
    """Return the newest protocol's fields for a piece of text; `replace` restarts the text."""
    fields: dict[str, Json] = {"deltaText": delta}
    return {**fields, "replace": True} if replaces else fields


def _join(events: Sequence[Event]) -> TextAdded | ThinkingAdded:
    """Return event data with the text of all these events, which are of one kind."""
    pieces = [event.data for event in events if isinstance(event.data, _PIECES)]
    delta = "".join([piece.delta for piece in pieces])
    if isinstance(pieces[-1], ThinkingAdded):
        return ThinkingAdded(delta)
    return TextAdded(
        delta, tuple(p for one in pieces if isinstance(one, TextAdded) for p in one.media)
    )


def _message(text: str, at_ms: int, media: Sequence[str] = ()) -> dict[str, Json]:
    content: list[Json] = [{"type": "text", "text": text}] if text else []
    content += [{"type": "media", "path": path} for path in media]
    return {"role": "assistant", "content": content, "timestamp": at_ms}


def _end_event(run: LiveRun, ended: RunEnded, at_ms: int) -> dict[str, Json]:
    """Return the one chat event that ends a run."""
    if ended.error:
        return {**_chat(run, "error"), "errorMessage": ended.error}
    reply = run.reply or ParsedReply(run.text)
    body: dict[str, Json] = {}
    if reply.text or reply.media:
        body = {"message": _message(reply.text, at_ms, reply.media)}
    if ended.aborted:
        return {**_chat(run, "aborted"), "stopReason": "rpc", **body}
    if run.stop not in {"", "stop"}:
        body["stopReason"] = run.stop
    return {**_chat(run, "final"), **body}


def _interval_s(chars: int) -> float:
    """Return the seconds between two frames that repeat a text of this length."""
    return min(DELTA_S, chars * _INTERVAL_S_PER_CHAR) if chars > _SLOW_TEXT_CHARS else 0.0
