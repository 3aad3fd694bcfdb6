"""A message from a client on its way to a run: one door for `chat.send`, `agent` and `wake`."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from uuid import uuid4

from homarus.agent.agent import Agent
from homarus.agent.run import Outcome, agent_of
from homarus.core.errors import InvalidRequest, Unavailable
from homarus.core.message import Address, Image, Inbound, Json, Wishes
from homarus.gateway.bounds import Bounds
from homarus.gateway.memo import Notice
from homarus.gateway.method import Call
from homarus.sessions.envelope import stamp
from homarus.sessions.levels import think_level, think_levels

MAX_TIMEOUT_S = 7 * 86_400.0
MAX_WAITING = 100  # messages of one session
MAX_GOING = 1_000  # runs of all


@dataclass(frozen=True, slots=True)
class Turn:
    """What a client wants answered. Without `run_id` the run gets a name of its own."""

    session_key: str
    text: str
    images: tuple[Image, ...] = ()
    run_id: str = field(default_factory=lambda: str(uuid4()))
    channel: str = "webchat"
    wishes: Wishes = field(default_factory=Wishes)


def run_key(call: Call, asked: str | None, agent: str | None = None) -> tuple[str, Agent]:
    """The session a client wants answered in, and the agent who answers there."""
    key = call.host.key(asked, agent)
    Bounds(agent=agent or "").check(key)
    return key, call.host.agent(agent_of(key))


def wishes(thinking: str | None, timeout_s: float | None) -> Wishes:
    """What a client asks of one run. An unknown level of thinking is told before it begins."""
    if thinking is not None and think_level(thinking) is None:
        known = ", ".join((*think_levels("", ""), "xhigh"))
        raise InvalidRequest(f"unknown thinking level {thinking[:40]!r} (use {known})")
    limit_s = min(timeout_s, MAX_TIMEOUT_S) if timeout_s else None
    return Wishes(thinking=thinking, timeout_s=limit_s)


async def check_policy(call: Call, session_key: str) -> None:
    """Refuse a session in which nobody may write."""
    record = await call.host.store.session(session_key)
    if record and record.data.get("sendPolicy") == "deny":
        raise InvalidRequest("send blocked by session policy")


def begin(
    call: Call, turn: Turn, done: Callable[[Outcome | None], None] = lambda _outcome: None
) -> asyncio.Future[Outcome]:
    """Hand a turn in. `done` hears how it went: None when it was dropped or broke.

    Notices that wait for the session go along, in lines of their own.
    """
    host, memo = call.host, call.gateway.memo
    if memo.runs.count >= MAX_GOING or len(memo.runs.of(turn.session_key)) >= MAX_WAITING:
        raise Unavailable("too many messages wait for an answer; wait for some of them")
    now_ms = host.clock.now_ms()
    notices = [_line(notice) for notice in memo.notices.take(turn.session_key)]
    said = stamp(turn.text, now_ms)
    inbound = Inbound(
        id=turn.run_id,
        address=Address(turn.channel, turn.session_key),
        sender=call.caller.device_id or call.caller.client_id,
        text="\n".join([*notices, *(["", said] if notices and said else [said] if said else [])]),
        images=turn.images,
        at_ms=now_ms,
        wishes=turn.wishes,
        run_id=turn.run_id,
    )
    call.gateway.join_run(turn.run_id, call.caller)
    outcome = host.put(turn.session_key, inbound)

    def ended(found: Outcome | None) -> None:
        if found is None or found.run_id != turn.run_id:
            _close(call, turn, found)
        done(found)

    memo.runs.follow(turn.run_id, turn.session_key, outcome, ended)
    return outcome


def chat_event(
    run_id: str, session_key: str, seq: int, state: str, message: Mapping[str, Json] | None = None
) -> dict[str, Json]:
    """The payload of a `chat` event."""
    told: dict[str, Json] = {
        "runId": run_id,
        "sessionKey": session_key,
        "seq": seq,
        "state": state,
    }
    return told if message is None else {**told, "message": dict(message)}


def _close(call: Call, turn: Turn, outcome: Outcome | None) -> None:
    """A message without a run of its own: another run took it along, or it was dropped."""
    state = "final" if outcome and outcome.status == "answered" else "aborted"
    call.gateway.broadcast("chat", chat_event(turn.run_id, turn.session_key, 0, state))


def _line(notice: Notice) -> str:
    at = datetime.fromtimestamp(notice.at_ms / 1000, UTC).astimezone()
    return f"System: [{at:%Y-%m-%d %H:%M:%S %Z}] {notice.text}"
