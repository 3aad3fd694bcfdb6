"""Hooks: who is asked, in which order, what an answer does, and that no failure gets out."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest

from homarus.core.errors import UnknownNameError, UserError
from homarus.core.message import (
    Address,
    Inbound,
    Outbound,
    Text,
    ToolCall,
    ToolResult,
    user_message,
)
from homarus.plugins.hook_runner import Hooks
from homarus.plugins.hooks import HookSpecs, hook
from homarus.plugins.values import HookContext, HookFailure, Refusal

T = TypeVar("T")
WHERE = HookContext("main", "agent:main:main", "run-1")
CALL = ToolCall("c1", "exec", {"command": "ls"})
OUT = Outbound(Address("telegram", "42"), "Hello", "key-1")
IN = Inbound("1", OUT.address, "ann", "Hi")
RESULT = ToolResult("c1", "exec", (Text("a"),))


@asynccontextmanager
async def run(*plugins: object, deadline_s: float = 30.0) -> AsyncIterator[Hooks]:
    hooks = Hooks(deadline_s)
    for number, plugin in enumerate(plugins):
        hooks.register(plugin, f"p{number}")
    yield hooks


def test_hooks_without_plugins_do_not_import_pluggy() -> None:
    code = (
        "import asyncio, sys\n"
        "from homarus.core.message import ToolCall\n"
        "from homarus.plugins.hook_runner import Hooks\n"
        "from homarus.plugins.values import HookContext\n"
        "call = ToolCall('1', 'x', {})\n"
        "assert asyncio.run(Hooks().before_tool_call(HookContext(), call)) is call\n"
        "assert 'pluggy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


class Adds:
    def __init__(self, word: str) -> None:
        self.word = word

    @hook
    def before_agent_start(self, prompt: str) -> str:
        return f"{self.word} for {prompt}"

    @hook
    async def before_tool_call(self, call: ToolCall) -> Mapping[str, Any]:
        await asyncio.sleep(0)
        return {**call.args, "seen": [*call.args.get("seen", ()), self.word]}

    @hook
    def message_sending(self, outbound: Outbound) -> str:
        return f"{outbound.text} {self.word}"

    @hook
    def agent_bootstrap(self, files: Mapping[str, str]) -> Mapping[str, str]:
        return {**files, f"{self.word}.md": str(len(files))}

    @hook
    def command(self, name: str) -> str:
        return f"{self.word}: {name}"


class First(Adds):
    @hook(tryfirst=True)
    def message_sending(self, outbound: Outbound) -> str:
        return f"{outbound.text} {self.word}"


async def test_hooks_run_in_order_and_see_earlier_changes() -> None:
    plugins = (Adds("one"), Adds("two"), First("three"))
    async with run(*plugins) as hooks:
        called = await hooks.before_tool_call(WHERE, CALL)
        assert isinstance(called, ToolCall)
        assert called.args == {"command": "ls", "seen": ["one", "two", "three"]}
        assert called.id == "c1"
        sent = await hooks.message_sending(OUT)
        assert isinstance(sent, Outbound)
        assert (sent.text, sent.key) == ("Hello three one two", "key-1")
        files = await hooks.agent_bootstrap(WHERE, {"SOUL.md": "x"})
        assert list(files) == ["SOUL.md", "one.md", "two.md", "three.md"]
        prompt = await hooks.before_agent_start(WHERE, "this", [user_message("hi")])
        assert prompt == "one for this\n\ntwo for this\n\nthree for this"
        assert await hooks.command(WHERE, "new") == ("one: new", "two: new", "three: new")


class Refuses:
    @hook
    def before_tool_call(self) -> Refusal:
        return Refusal("not today")

    @hook
    async def message_sending(self) -> Refusal:
        return Refusal("too late at night")


async def test_hooks_first_refusal_ends_the_chain() -> None:
    called: list[str] = []

    class Notes:
        @hook
        def before_tool_call(self, call: ToolCall) -> None:
            called.append(call.name)

    async with run(Refuses(), Notes()) as h:
        result = await h.before_tool_call(WHERE, CALL)
    assert result == Refusal("not today")
    async with run(Refuses()) as h:
        outcome = await h.message_sending(OUT)
    assert outcome == Refusal("too late at night")
    assert called == []


class Breaks:
    @hook
    def before_tool_call(self) -> None:
        raise RuntimeError("boom")

    @hook
    async def agent_end(self) -> None:
        await asyncio.Event().wait()

    @hook
    def message_sending(self) -> int:
        return 7


async def test_hook_failure_is_skipped_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        async with run(Breaks(), Adds("after")) as hooks:
            for _ in range(2):
                called = await hooks.before_tool_call(WHERE, CALL)
                assert isinstance(called, ToolCall) and called.args["seen"] == ["after"]
            sent = await hooks.message_sending(OUT)
            assert isinstance(sent, Outbound) and sent.text == "Hello after"
            assert hooks.failures == (
                HookFailure("p0", "before_tool_call", 2, "RuntimeError('boom')"),
                HookFailure("p0", "message_sending", 1, "it gave int, not str or Refusal"),
            )
    assert "hook before_tool_call of plugin p0 failed" in caplog.text


async def test_hook_past_deadline_is_skipped() -> None:
    async with run(Breaks(), deadline_s=0.01) as hooks:
        await hooks.agent_end(WHERE, [], "", 5)
        late = HookFailure("p0", "agent_end", 1, "it took longer than 0.01 s")
        assert hooks.failures == (late,)


async def test_hook_is_cancelled_with_its_run() -> None:
    async with run(Breaks()) as hooks:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await hooks.agent_end(WHERE, [], "", 5)
        assert hooks.failures == ()


async def test_hooks_all_receive_their_documented_arguments() -> None:
    notified: dict[str, set[str]] = {}
    names = [name for name in vars(HookSpecs) if not name.startswith("_")]

    class Everything:
        pass

    for name in names:
        spec = getattr(HookSpecs, name)
        wanted = spec.__code__.co_varnames[1 : spec.__code__.co_argcount]
        scope: dict[str, Any] = {"notified": notified}
        args = ", ".join(("self", *wanted))
        exec(f"def {name}({args}): notified['{name}'] = {set(wanted) or 'set()'}", scope)
        setattr(Everything, name, hook(scope[name]))
    async with run(Everything()) as hooks:
        await hooks.before_agent_start(WHERE, "hi", [])
        await hooks.agent_end(WHERE, [], "", 1)
        await hooks.before_tool_call(WHERE, CALL)
        await hooks.after_tool_call(WHERE, CALL, RESULT, 1)
        await hooks.before_compaction(WHERE, 1, 1)
        await hooks.after_compaction(WHERE, 1, 1)
        await hooks.message_received(WHERE, IN)
        await hooks.message_sending(OUT)
        await hooks.message_sent(OUT)
        await hooks.session_start(WHERE, "id")
        await hooks.session_end(WHERE, "id", 1)
        await hooks.gateway_start(18789)
        await hooks.gateway_stop("restart")
        await hooks.agent_bootstrap(WHERE, {})
        await hooks.command(WHERE, "new")
        await hooks.gateway_startup()
        await hooks.diagnostic_event({"type": "run.attempt"})
        assert hooks.failures == ()
    assert notified.keys() == set(names)


async def test_register_unknown_hook_offers_closest() -> None:
    class Typo:
        @hook
        def before_tool_cal(self) -> None: ...

    hooks = Hooks()
    with pytest.raises(UnknownNameError, match="before_tool_call"):
        hooks.register(Typo(), "typo")
    assert await hooks.before_tool_call(WHERE, CALL) is CALL


def test_register_unknown_argument_raises_user_error() -> None:
    class Asks:
        @hook
        def gateway_start(self, host: str) -> None: ...

    hooks = Hooks()
    with pytest.raises(UserError, match="host"):
        hooks.register(Asks(), "asks")


def test_register_wrapper_or_duplicate_name_raises() -> None:
    class Wraps:
        @hook(wrapper=True)
        def gateway_start(self) -> Any:
            return (yield)

    hooks = Hooks()
    with pytest.raises(UserError, match="wrapper"):
        hooks.register(Wraps(), "wraps")
    assert hooks.register(Refuses(), "one") == ("before_tool_call", "message_sending")
    with pytest.raises(UserError, match="one"):
        hooks.register(Refuses(), "one")


async def test_unregister_removes_the_plugin() -> None:
    hooks = Hooks()
    hooks.unregister("nobody")
    hooks.register(Refuses(), "one")
    hooks.unregister("one")
    assert await hooks.before_tool_call(WHERE, CALL) is CALL
