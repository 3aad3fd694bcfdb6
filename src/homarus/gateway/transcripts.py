"""What clients do to a session from outside: stop its runs, and put words into it."""

import asyncio
from collections.abc import Sequence

from homarus.core.errors import Unavailable
from homarus.core.keys import agent_of
from homarus.core.message import Json, Message, StoppedBy, Text
from homarus.gateway.method import Call
from homarus.plugins.values import Where
from homarus.sessions.transcript import write_message

_TURNS = 5  # of the loop, until a run that was asked for just now has begun


async def stop_runs(
    call: Call, session_key: str, run_id: str | None = None, *, by: StoppedBy = "rpc"
) -> Sequence[str]:
    """Stop what a session does or has waiting, or one run of it; the runs' ids."""
    host, runs = call.host, call.gateway.memo.runs
    known = {run.run_id for run in runs.of(session_key) if run_id in (None, run.run_id)}
    stopped = dict.fromkeys(host.abort(session_key, run_id, by=by))
    for _ in range(_TURNS):
        if known <= stopped.keys():
            return list(stopped)
        await asyncio.sleep(0)
        stopped |= dict.fromkeys(host.abort(session_key, run_id, by=by))
    # What is left, the live run took along.
    for live in host.live_runs(session_key):
        stopped |= dict.fromkeys(host.abort(session_key, live, by=by))
    return list(stopped)


async def abort_runs(call: Call, session_key: str, *, by: StoppedBy = "rpc") -> Sequence[str]:
    """Stop everything a session does or has waiting, and see it end; the runs' ids."""
    stopped = await stop_runs(call, session_key, by=by)
    if stopped and not await call.gateway.memo.runs.settle(session_key):
        raise Unavailable(f"the run of {session_key} did not stop yet; try again in a moment")
    return stopped


async def start_afresh(call: Call, session_key: str) -> None:
    """Stop what a session does, and begin a new transcript."""
    await abort_runs(call, session_key)
    session = await call.host.session(session_key)
    where = Where(agent=agent_of(session_key), session_key=session_key, channel="webchat")
    await call.host.hooks.session_end(where, session.session_id, len(session.messages))
    await session.reset()


async def inject(call: Call, session_key: str, text: str) -> tuple[str, dict[str, Json]]:
    """Add an assistant message that no model wrote; its entry's id, and how clients see it."""
    message = Message("assistant", (Text(text),), call.host.clock.now_ms())
    session = await call.host.session(session_key)
    await session.append(message)
    assert session.leaf is not None  # noqa: S101 - it has at least this message
    return session.leaf, write_message(message)
