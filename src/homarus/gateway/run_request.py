"""Start a run for a client's message: what `chat.send`, `agent` and `wake` have in common."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final
from uuid import uuid4

from homarus.agent.agent import Agent
from homarus.agent.run import RunOutcome
from homarus.core.errors import InvalidRequestError, UnavailableError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import (
    DIRECT,
    Address,
    Authority,
    Image,
    Inbound,
    InboundMetadata,
    Json,
    Media,
    RunOptions,
)
from homarus.core.session_keys import agent_id_of, normalize_agent_id
from homarus.gateway.method import Caller, MethodCall
from homarus.gateway.session_access import SessionAccess
from homarus.plugins.values import HookContext
from homarus.sessions.last_route import last_chat
from homarus.sessions.levels import think_level, think_levels
from homarus.sessions.send_policy import send_policy
from homarus.store.journal import InboxRecord

MAX_TIMEOUT_S = 7 * 86_400.0
MAX_PENDING_PER_SESSION = 100
MAX_PENDING = 2_000
_TERMINAL_CLIENT: Final = "cli"  # the client id and mode of our own terminal commands


def client_channel(caller: Caller) -> str:
    """Return the channel of a client's messages: `cli` for a terminal, else `webchat`."""
    return "cli" if _TERMINAL_CLIENT in {caller.client_id, caller.mode} else "webchat"


def hook_context(call: MethodCall, session_key: str, run_id: str = "") -> HookContext:
    """Return what hooks are told of a client's request about a session."""
    agent = call.services.agent(agent_id_of(session_key))
    return HookContext(
        agent.id, session_key, run_id, str(agent.workspace), client_channel(call.caller)
    )


@dataclass(frozen=True, slots=True)
class RunRequest:
    """A message that a client wants answered.

    `channel` is that of the client, unless the method has its own. A `program` has no chat that a
    later message could be sent to: its session keeps the last route it had. So it does when the
    reply is delivered there.
    """

    session_key: str
    text: str
    images: tuple[Image, ...] = ()
    run_id: str = field(default_factory=lambda: str(uuid4()))
    channel: str = ""
    authority: Authority = ""  # "": the text is not searched for commands
    options: RunOptions = field(default_factory=RunOptions)
    is_program: bool = False
    media: tuple[Media, ...] = ()
    message_id: str = ""  # "": the run's id


def resolve_run_session(
    call: MethodCall, name: str | None, agent: str | None = None
) -> tuple[str, Agent]:
    """Return the key of the session that a client names, and its agent."""
    key = resolve_session_key(call, name, agent)
    return key, call.services.agent(agent_id_of(key))


def resolve_session_key(call: MethodCall, name: str | None, agent: str | None = None) -> str:
    """Return the stored key of a session; raises when it is not of the agent that is named too."""
    agent = normalize_agent_id(agent) if agent else None
    key = call.services.control.resolve_key(name, agent)
    SessionAccess(agent=agent or "").check(key)
    return key


def parse_run_options(thinking: str | None, timeout_s: float | None) -> RunOptions:
    """Return a client's run options; raises InvalidRequestError for an unknown thinking level."""
    if thinking is not None and think_level(thinking) is None:
        known = ", ".join((*think_levels("", ""), "xhigh"))
        raise InvalidRequestError(f"unknown thinking level {thinking[:40]!r} (use {known})")
    limit_s = min(timeout_s, MAX_TIMEOUT_S) if timeout_s else None
    return RunOptions(thinking=thinking, timeout_s=limit_s)


async def check_policy(call: MethodCall, session_key: str) -> None:
    """Raise InvalidRequestError when the send policy denies the session."""
    record = await call.services.store.session(session_key)
    rules = call.services.loaded.config.session.send_policy
    if send_policy(rules, session_key, record.data if record else None) == "deny":
        raise InvalidRequestError("send blocked by session policy")


async def find_last_chat(call: MethodCall, session_key: str) -> Address | None:
    """Return the last chat of a session on a channel that runs; None when it has none."""
    record = await call.services.store.session(session_key)
    last = last_chat(record.data) if record else Address("", "")
    running = call.services.messenger.accounts()
    return last if last.chat and (last.channel, last.account) in running else None


async def start_run(
    call: MethodCall,
    request: RunRequest,
    on_end: Callable[[RunOutcome | None], None] = lambda _run: None,
) -> asyncio.Future[RunOutcome]:
    """Start the run of a request; `on_end` gets its outcome, None when it was dropped or crashed.

    When this returns, the message is in the journal. Raises DuplicateMessageError for one that
    was there before.
    """
    control, runs, key = call.services.control, call.gateway.runs, request.session_key
    if runs.count >= MAX_PENDING or len(runs.for_session(key)) >= MAX_PENDING_PER_SESSION:
        raise UnavailableError("too many messages wait for an answer; wait for some of them")
    channel = request.channel or client_channel(call.caller)
    at_ms = call.services.clock.now_ms()
    keeps_route = request.is_program or bool(request.options.deliver_to)
    inbound = Inbound(
        id=request.message_id or request.run_id,
        address=Address(channel, "" if keeps_route else key),
        sender=call.caller.device_id or call.caller.client_id,
        text=request.text,
        images=request.images,
        media=request.media,
        at_ms=at_ms,
        options=request.options,
        run_id=request.run_id,
        authority=request.authority,
        metadata=DIRECT if call.caller.may("admin") else InboundMetadata(is_limited=True),
    )
    acceptance = await control.accept(key, inbound)
    if acceptance.kind == "conflict":
        raise InvalidRequestError(f"run {request.run_id} was asked for with another message")
    if acceptance.kind == "duplicate":
        raise DuplicateMessageError(acceptance.record)
    call.gateway.subscribe_run(request.run_id, call.caller)
    runs.record_message(key, at_ms, request.run_id)
    outcome = control.submit(key, acceptance.record)

    def ended(run: RunOutcome | None) -> None:
        # A run that has begun, such as a suspended one that is stopped, reports its end itself.
        has_begun = any(live.run_id == request.run_id for live in call.gateway.events.live(key))
        if not has_begun and (run is None or run.run_id != request.run_id):
            _broadcast_end(call, request, run)
        on_end(run)

    runs.track(request.run_id, key, outcome, ended)
    if control.queue_depth(key):  # no event of a run shows that it waits
        await call.gateway.sessions.send_change(key, reason="queue")
    return outcome


class DuplicateMessageError(Exception):
    """The message was accepted before, perhaps by an earlier process."""

    def __init__(self, row: InboxRecord) -> None:
        super().__init__(row.id)
        self.row = row


def chat_event(
    run_id: str, session_key: str, seq: int, state: str, message: Mapping[str, Json] | None = None
) -> dict[str, Json]:
    """Return the payload of a `chat` event."""
    payload: dict[str, Json] = {
        "runId": run_id,
        "sessionKey": session_key,
        "seq": seq,
        "state": state,
    }
    return payload if message is None else {**payload, "message": dict(message)}


def _broadcast_end(call: MethodCall, request: RunRequest, outcome: RunOutcome | None) -> None:
    """Report the end of a message that another run answered, or that was dropped."""
    state = "final" if outcome and outcome.status == "answered" else "aborted"
    call.gateway.broadcast("chat", chat_event(request.run_id, request.session_key, 0, state))
