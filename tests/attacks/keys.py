"""`session_key`: sessions that must not share a key, and keys of other callers."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from homarus.channels.registry import find_traits
from homarus.core import session_keys
from homarus.core.errors import HomarusError, UserError
from homarus.core.message import ToolCall
from homarus.core.principal import Principal
from homarus.gateway.session_access import SessionAccess
from homarus.memory.agent_memory import AgentMemory
from homarus.memory.spec import MemorySpec
from homarus.memory.tools import memory_tools
from homarus.policy.audience import chat_of, session_readers
from homarus.policy.session_reach import SessionReach
from homarus.policy.tool_call import ToolCallFacts, ToolDecision
from homarus.store.base import SessionRecord
from homarus.store.sqlite import open_store
from homarus.tools.execute import execute_tool_call
from homarus.tools.registry import ToolRegistry
from homarus.tools.tool import ToolContext
from tests.attacks.cases import Case, Judge, NotRunError
from tests.docs.tool_stages.plain import make_context, open_program


@contextmanager
def world() -> Iterator[Judge]:
    """Call functions; open a store or a tool for the cases that need one."""
    yield _judge


def _judge(case: Case) -> str:
    a, b, relation = case["a"], case["b"], case["relation"]
    match a.get("kind", "chat"):
        case "tenant":
            return asyncio.run(_two_tenants(a, b))
        case "memory_search":
            return asyncio.run(_ask_memory(a))
        case "http":
            if relation != "reject" or not _is_refused(a):
                return "was let in"
            return asyncio.run(_use_session_tools(a))
        case "hook":
            seen = [session_keys.is_hook(each["key"]) for each in (a, b)]
            return "" if relation == "both_untrusted" and all(seen) else f"is a hook's: {seen}"
    first, second = _derive(a), _derive(b)
    return _compare(first, second, relation) or _find_reach(first, second, relation)


def _find_reach(first: str | None, second: str | None, relation: str) -> str:
    """Return which of two chats reaches the other by its tools, with the widest settings."""
    if not relation.startswith("must_differ") or first is None or second is None:
        return ""
    for key, other in ((first, second), (second, first)):
        if session_readers(key) not in {"person", "others"} or session_readers(other) == "own":
            continue  # the owner's own sessions reach all, and the owner's chats reach those
        if chat_of(key) == chat_of(other):
            continue  # threads of one chat: the same people read both
        wide = SessionReach(key, "main", "all", allows_other_agents=True)
        if not wide.refusal(other):
            return f"{key} reaches {other}"
    return ""


def _compare(first: str | None, second: str | None, relation: str) -> str:
    if relation == "must_equal":
        return "" if first is not None and first == second else f"{first} and {second}"
    if relation.startswith("must_differ"):
        if first is None or second is None:
            return "" if relation.endswith("reject") else f"refused: {first}, {second}"
        if not all(session_keys.canonical_key(key) == key for key in (first, second)):
            return "a key that is stored otherwise"
        return "" if first != second else f"both are {first}"
    raise NotRunError(f"relation {relation}")


def _derive(told: dict[str, Any]) -> str | None:
    """Return the key of a described session; None if it is refused."""
    try:
        match told.get("kind", "chat"):
            case "chat":
                return _chat_key(told)
            case "cron":
                return session_keys.cron_key("main", told["job"], told.get("run", ""))
            case "subagent":
                name = f"{told['parent']}::{told['child']}"
                return session_keys.canonical_key(name, agents=[told["child"]])
    except UserError:
        return None
    raise NotRunError(f"conversations of kind {told['kind']}")


def _chat_key(told: dict[str, Any]) -> str:
    kind = {"dm": "direct"}.get(told["chat_type"], told["chat_type"])
    peer = told.get("peer") if kind == "direct" else told.get("group")
    key = session_keys.peer_key(
        told["agent"],
        told["channel"],
        kind,
        "" if peer is None else str(peer),
        account=told.get("account"),
        scope=told.get("dm_scope", "main"),
        traits=find_traits(told["channel"]),
    )
    return session_keys.thread_key(key, told.get("thread"))


def _is_refused(asked: dict[str, Any]) -> bool:
    try:
        key = session_keys.canonical_key(
            asked["key"], asked.get("caller_agent", session_keys.DEFAULT_AGENT)
        )
        SessionAccess(asked.get("caller_agent", ""), asked.get("caller", "")).check(key)
    except HomarusError:
        return True
    return False


async def _use_session_tools(asked: dict[str, Any]) -> str:
    """Name another caller's session in every tool about sessions, as the owner of this one."""
    own = session_keys.main_key("main")
    if "caller" in asked:
        own = session_keys.peer_key("main", "", "direct", asked["caller"], scope="per-peer")
    agents = {"list": [{"id": "main"}, {"id": "other"}], "defaults": {"skipBootstrap": True}}
    tools = {"sessions": {"visibility": "all"}}
    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder, "workspace")
        workspace.mkdir()
        async with open_program(workspace, agents=agents, tools=tools) as app:
            for key in (own, session_keys.canonical_key(asked["key"])):
                await (await app.control.load(key)).update(label=key[-30:])
            ctx = replace(make_context(workspace), session_key=own, sessions=app.store)
            for name in ("sessions_history", "session_status", "sessions_send"):
                args = {"sessionKey": asked["key"]}
                args |= {"message": "hello"} if name == "sessions_send" else {}
                call = ToolCall("1", name, args)
                result = await execute_tool_call(app.tools("main"), ctx, call, _allow)
                if not result.is_error or "forbidden" not in result.text:
                    return f"{name} was let in: {result.text[:200]}"
                again = ToolCall("2", name, args | {"sessionKey": own})
                if name == "sessions_history":  # the refusal is about the key
                    result = await execute_tool_call(app.tools("main"), ctx, again, _allow)
                    if result.is_error:
                        return f"{name} refuses its own session: {result.text[:200]}"
    return ""


async def _allow(_call: ToolCallFacts) -> ToolDecision:
    return ToolDecision("allow", "")


async def _two_tenants(a: dict[str, Any], b: dict[str, Any]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        async with open_store(Path(folder)) as store:
            mine, theirs = (store.scoped(Principal(team=each["tenant"])) for each in (a, b))
            async with mine.transaction() as unit:
                unit.put_session(SessionRecord(a["key"], "main", "s1", 1))
            if not await mine.session(a["key"]):
                return "a tenant does not find its own session"
            if await theirs.session(b["key"]) or await theirs.sessions():
                return "a tenant sees another's session"
    return ""


async def _ask_memory(a: dict[str, Any]) -> str:
    """Search with the tools of a model: the owner finds the note, a group does not."""
    key = session_keys.peer_key(
        "main", "telegram", "group" if a["session"] == "group" else "direct", "1"
    )
    with tempfile.TemporaryDirectory() as folder:
        root, state = Path(folder), Path(folder, "state")
        (root / "MEMORY.md").write_text("- private: the door code is 4711\n")
        memory = AgentMemory(MemorySpec("main", root, state / "m.sqlite", state, state, state))
        tools = ToolRegistry(memory_tools(lambda: memory))
        calls = {
            "memory_search": {"query": "private door code"},
            "memory_get": {"path": "MEMORY.md"},
        }
        told = dict[str, list[str]]()
        try:
            for of in (session_keys.main_key("main"), key):
                ctx = ToolContext(of, "main", root)
                asked = [ToolCall("1", name, args) for name, args in calls.items()]
                told[of] = [
                    (await execute_tool_call(tools, ctx, one, _allow)).text for one in asked
                ]
        finally:
            await memory.close()
    if not all("4711" in text for text in told[session_keys.main_key("main")]):
        return "memory was not read by who may"
    return "private memory was read" if any("4711" in text for text in told[key]) else ""
