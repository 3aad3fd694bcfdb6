"""What clients do to a session from outside: stop its runs, and put words into it."""

from collections.abc import Sequence

from homarus.core.errors import Unavailable
from homarus.core.message import Json, Message, Text
from homarus.gateway.method import Call
from homarus.sessions.transcript import write_message


async def abort_runs(call: Call, session_key: str) -> Sequence[str]:
    """Stop everything a session does or has waiting, and see it end; the runs' ids."""
    stopped = call.host.abort(session_key)
    if stopped and not await call.gateway.memo.runs.settle(session_key):
        raise Unavailable(f"the run of {session_key} did not stop yet; try again in a moment")
    return stopped


async def inject(call: Call, session_key: str, text: str) -> tuple[str, dict[str, Json]]:
    """Add an assistant message that no model wrote; its entry's id, and how clients see it."""
    message = Message("assistant", (Text(text),), call.host.clock.now_ms())
    session = await call.host.session(session_key)
    await session.append(message)
    assert session.leaf is not None  # noqa: S101 - it has at least this message
    return session.leaf, write_message(message)
