"""Chat commands that need no model: a word, a reply. One function each.

A known command that is not here yet says so; it is never handed to a model as a message.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Final, TypeAlias

from homarus import __version__
from homarus.agent.run import agent_of
from homarus.core.errors import InvalidRequest
from homarus.core.message import Json
from homarus.gateway.method import Call, Scope
from homarus.gateway.rows import Defaults, find_defaults
from homarus.gateway.transcripts import abort_runs
from homarus.sessions import queue
from homarus.sessions.commands import COMMANDS, Spoken

Answer: TypeAlias = Callable[[Call, str, str], Awaitable[str]]  # the call, the session, arguments
# What a command does that no message may: said in a chat it needs the scope its method would.
NEEDED: Final[Mapping[str, Scope]] = {
    "approve": "approvals",
    "allowlist": "admin",
    "config": "admin",
    "debug": "admin",
    "elevated": "admin",
    "exec": "admin",
    "restart": "admin",
}


def check_right(call: Call, spoken: Spoken) -> None:
    """Refuse a command that the caller may not give."""
    scope = NEEDED.get(spoken.command.name, "write")
    if not call.caller.may(scope):
        raise InvalidRequest(f"missing scope: operator.{scope}")


async def reply_to(call: Call, session_key: str, spoken: Spoken) -> str:
    """What a command says."""
    answer = ANSWERS.get(spoken.command.name)
    if answer is None:
        return f"/{spoken.command.name} is not built yet."
    return await answer(call, session_key, spoken.args)


async def _help(_call: Call, _session_key: str, _args: str) -> str:
    lines = [
        f"/{command.name}{' ' + command.args if command.args else ''}: {command.help}"
        for command in COMMANDS
        if command.name in ANSWERS
    ]
    return "\n".join(lines)


async def _status(call: Call, session_key: str, _args: str) -> str:
    host = call.host
    session = await host.session(session_key)
    defaults = await find_defaults(host, agent_of(session_key))
    model = session.model or f"{defaults.provider}/{defaults.model}"
    used, window = session.context_tokens, _count(session.record.data, defaults)
    share = f" ({100 * used // window}%)" if window else ""
    return (
        f"Homarus {__version__}\n"
        f"Model: {model if defaults.model or session.model else 'none can be used'}\n"
        f"Context: {used:,} of {window:,} tokens{share}\n"
        f"Session: {session_key} · {len(session.messages)} messages\n"
        f"Thinking: {session.thinking or 'as the model does'}"
    )


def _count(data: Mapping[str, Json], defaults: Defaults) -> int:
    """How much fits: what the last run found, else what the usual model holds."""
    found = data.get("contextTokens")
    return found if isinstance(found, int) else defaults.window or 0


async def _model(call: Call, session_key: str, args: str) -> str:
    session = await call.host.session(session_key)
    if args.strip().lower() == "default":
        await session.set_model(None, None)
    elif args.strip():
        model = call.host.models.check(args.strip())
        await session.set_model(model.provider, model.id)
        return f"Model: {model.ref}"
    if session.model:
        return f"Model: {session.model} (chosen for this session)"
    defaults = await find_defaults(call.host, agent_of(session_key))
    return f"Model: {defaults.provider}/{defaults.model}" if defaults.model else "No model."


async def _queue(call: Call, session_key: str, args: str) -> str:
    session = await call.host.session(session_key)
    return await queue.obey(session, call.host.loaded.config.messages.queue, args)


async def start_afresh(call: Call, session_key: str, _args: str = "") -> str:
    """Stop what the session does, and begin a new transcript."""
    await abort_runs(call, session_key)
    await (await call.host.session(session_key)).reset()
    return "A new session."


async def _whoami(call: Call, _session_key: str, _args: str) -> str:
    caller = call.caller
    device = f", device {caller.device_id[:12]}" if caller.device_id else ""
    return f"You are {caller.client_id} ({caller.mode}{device})."


async def _stop(call: Call, session_key: str, _args: str) -> str:
    return "Stopped." if await abort_runs(call, session_key) else "Nothing is running."


ANSWERS: Final[Mapping[str, Answer]] = {
    "help": _help,
    "status": _status,
    "model": _model,
    "queue": _queue,
    "new": start_afresh,
    "reset": start_afresh,
    "stop": _stop,
    "whoami": _whoami,
}
