"""A message from a client on its way to a run: one door for `chat.send`, `agent` and `wake`."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import field
from uuid import uuid4

from homarus.agent.agent import Agent
from homarus.agent.run import Outcome
from homarus.core.errors import InvalidRequest, Unavailable
from homarus.core.keys import agent_of
from homarus.core.message import Address, Authority, Image, Inbound, Json, Wishes
from homarus.core.value import dataclass
from homarus.gateway.bounds import Bounds
from homarus.gateway.method import Call
from homarus.sessions.levels import think_level, think_levels
from homarus.sessions.send_policy import send_policy
from homarus.store.journal import Accepted

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
    authority: Authority = ""  # what its commands may do; "": none are looked for
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
    """Refuse a session that is not answered."""
    record = await call.host.store.session(session_key)
    rules = call.host.loaded.config.session.send_policy
    if send_policy(rules, session_key, record.data if record else None) == "deny":
        raise InvalidRequest("send blocked by session policy")


async def begin(
    call: Call, turn: Turn, done: Callable[[Outcome | None], None] = lambda _outcome: None
) -> asyncio.Future[Outcome]:
    """Have a turn answered. `done` hears how it went: None when it was dropped or broke.

    When this returns, the message is in the journal. Known is raised for one that was there.
    """
    host, memo = call.host, call.gateway.memo
    if memo.runs.count >= MAX_GOING or len(memo.runs.of(turn.session_key)) >= MAX_WAITING:
        raise Unavailable("too many messages wait for an answer; wait for some of them")
    inbound = Inbound(
        id=turn.run_id,
        address=Address(turn.channel, turn.session_key),
        sender=call.caller.device_id or call.caller.client_id,
        text=turn.text,
        images=turn.images,
        at_ms=host.clock.now_ms(),
        wishes=turn.wishes,
        run_id=turn.run_id,
        authority=turn.authority,
    )
    acceptance = await host.accept(turn.session_key, inbound)
    if acceptance.kind == "conflict":
        raise InvalidRequest(f"run {turn.run_id} was asked for with another message")
    if acceptance.kind == "duplicate":
        raise Known(acceptance.row)
    call.gateway.join_run(turn.run_id, call.caller)
    outcome = host.put(turn.session_key, acceptance.row)

    def ended(found: Outcome | None) -> None:
        if found is None or found.run_id != turn.run_id:
            _close(call, turn, found)
        done(found)

    memo.runs.follow(turn.run_id, turn.session_key, outcome, ended)
    return outcome


class Known(Exception):
    """A message was accepted before, perhaps by a process before this one."""

    def __init__(self, row: Accepted) -> None:
        super().__init__(row.id)
        self.row = row


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
