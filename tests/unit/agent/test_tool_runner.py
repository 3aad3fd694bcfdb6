"""The tool runner: each call runs once, by policy, with the hooks around it."""

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from homarus.agent.agent import Agent
from homarus.agent.loop_detection import NOT_RUN, LoopDetector
from homarus.agent.prompt.chat_context import ChatContext
from homarus.agent.run_journal import RunJournal
from homarus.agent.taint import RunTaint
from homarus.agent.tool_runner import ToolRunner
from homarus.config.tools_schema import LoopDetectionConfig, ToolsConfig
from homarus.core.event import EventData, ToolProgressed
from homarus.core.message import Address, Inbound, Text, ToolCall, ToolResult
from homarus.plugins.hook_runner import Hooks
from homarus.plugins.hooks import hook
from homarus.plugins.values import HookContext, Refusal
from homarus.policy.tool_call import CallerFacts
from homarus.policy.tool_policy import ToolRules, make_policy_rules
from homarus.sessions.transcript import interrupted_result
from homarus.store.approvals import ApprovalRecord
from homarus.testing.memory_store import MemoryStore
from homarus.tools.registry import ToolRegistry
from homarus.tools.tool import ToolContext, tool
from tests.approval_harness import make_run_approvals

CALL = ToolCall("c1", "count", {"step": "one"})


class RecordingJournal(RunJournal):
    """A journal that only records which calls were started."""

    def __init__(self) -> None:
        self.started: list[str] = []

    async def mark_call_started(self, call_id: str, approval: ApprovalRecord | None = None) -> None:
        self.started.append(call_id)


class RunnerHarness:
    """A tool runner with two tools: `count`, and `peek`, which is idempotent."""

    def __init__(self, folder: Path, *, rules: Sequence[ToolRules] = (), **changes: Any) -> None:
        self.journal, self.hooks = RecordingJournal(), Hooks()
        self.events: list[EventData] = []
        self.contexts: list[ToolContext] = []

        @tool(group="test")
        async def count(ctx: ToolContext, step: str) -> str:
            """Count a step."""
            self.contexts.append(ctx)
            ctx.progress(f"counting {step}")
            return f"counted {step}"

        @tool(group="test", idempotent=True)
        async def peek(ctx: ToolContext) -> str:
            """Look at the count."""
            self.contexts.append(ctx)
            return "peeked"

        self.runner = ToolRunner(
            agent=Agent("main", "Ada", folder),
            tools=ToolRegistry([count, peek]),
            inbound=Inbound("7", Address("test", "42"), "ann", "hi"),
            where=HookContext("main", "agent:main:main", "r1"),
            journal=self.journal,
            repeats=changes.get("repeats") or LoopDetector(LoopDetectionConfig()),
            interrupted_calls=changes.get("interrupted_calls", frozenset()),
            get_chat=lambda: ChatContext(rules=tuple(rules)),
            get_approvals=make_run_approvals,
            messenger=None,
            hooks=self.hooks,
            emit=self.events.append,
            now_ms=lambda: 5,
        )


async def test_tool_runner_call_runs_with_context_of_run(tmp_path: Path) -> None:
    harness = RunnerHarness(tmp_path)
    result = await harness.runner.run(CALL)
    assert (result.call_id, result.text, result.is_error) == ("c1", "counted one", False)
    (context,) = harness.contexts
    assert (context.session_key, context.run_id, context.call_id) == ("agent:main:main", "r1", "c1")
    assert (context.here, context.message_id) == (Address("test", "42"), "7")
    assert harness.events == [ToolProgressed(CALL, "counting one")]


async def test_tool_runner_records_start_of_non_idempotent_calls(tmp_path: Path) -> None:
    harness = RunnerHarness(tmp_path)
    await harness.runner.run(CALL)
    await harness.runner.run(ToolCall("c2", "peek", {}))
    assert harness.journal.started == ["c1"]


async def test_tool_runner_interrupted_call_is_not_run_again(tmp_path: Path) -> None:
    harness = RunnerHarness(tmp_path, interrupted_calls=frozenset({"c1"}))
    assert await harness.runner.run(CALL) == interrupted_result(CALL)
    assert not harness.contexts and not harness.journal.started


async def test_tool_runner_denied_by_chat_rules_is_not_started(tmp_path: Path) -> None:
    harness = RunnerHarness(tmp_path, rules=[ToolRules(deny=("count",))])
    result = await harness.runner.run(CALL)
    assert result.is_error and "denied" in result.text
    assert not harness.contexts and not harness.journal.started


async def test_tool_runner_refusal_of_hook_is_the_result(tmp_path: Path) -> None:
    class Refuses:
        @hook
        def before_tool_call(self, call: ToolCall) -> Refusal:
            return Refusal(f"no {call.name} today")

    harness = RunnerHarness(tmp_path)
    harness.hooks.register(Refuses(), "refuses")
    result = await harness.runner.run(CALL)
    assert (result.text, result.is_error, harness.contexts) == ("no count today", True, [])


async def test_tool_runner_hooks_change_args_and_see_result(tmp_path: Path) -> None:
    seen: list[tuple[str, str]] = []

    class Changes:
        @hook
        def before_tool_call(self) -> dict[str, str]:
            return {"step": "two"}

        @hook
        def after_tool_call(self, call: ToolCall, result: ToolResult) -> None:
            seen.append((call.args["step"], result.text))

    harness = RunnerHarness(tmp_path)
    harness.hooks.register(Changes(), "changes")
    assert (await harness.runner.run(CALL)).text == "counted two"
    assert seen == [("two", "counted two")] and harness.hooks.failures == ()


async def test_tool_runner_repeated_call_is_warned_then_stopped(tmp_path: Path) -> None:
    rules = LoopDetectionConfig.model_validate({"warningThreshold": 2, "criticalThreshold": 3})
    harness = RunnerHarness(tmp_path, repeats=LoopDetector(rules))
    texts = [(await harness.runner.run(CALL)).text for _ in range(4)]
    assert texts[0] == "counted one" and "called 2 times" in texts[1]
    assert texts[3] == NOT_RUN and len(harness.contexts) == 3


async def test_tool_runner_decides_with_rules_of_the_calling_model(tmp_path: Path) -> None:
    harness = RunnerHarness(tmp_path)
    tools = ToolsConfig.model_validate({"byProvider": {"tiny": {"deny": ["count"]}}})
    agent = Agent("main", "Ada", tmp_path, rules=make_policy_rules(tools))
    chat = ChatContext().with_model("tiny", "m")
    runner = replace(harness.runner, agent=agent, get_chat=lambda: chat)
    result = await runner.run(CALL)
    assert result.is_error and "byProvider.tiny" in result.text
    chat = chat.with_model("big", "m")
    assert (await runner.run(CALL)).text == "counted one"


async def test_tool_runner_asks_for_effects_of_tainted_run(tmp_path: Path) -> None:
    @tool(group="test", effects=("config",))
    async def configure(ctx: ToolContext) -> str:
        """Change the config."""
        return ctx.caller.agent_id

    harness = RunnerHarness(tmp_path)
    runner = replace(
        harness.runner,
        tools=ToolRegistry([configure]),
        resolve_caller=lambda _caller: CallerFacts("resolved", "k"),
    )
    call = ToolCall("c3", "configure", {})
    assert (await runner.run(call)).text == "resolved"
    taint = RunTaint()
    page = {"untrusted": [{"kind": "web", "origin": "x.example"}]}
    taint.add_result(ToolResult("c2", "web_fetch", (Text("a page"),), details=page))
    tainted = replace(runner, taint=taint)
    result = await tainted.run(call)
    assert result.is_error and "approval" in result.text


async def test_tool_runner_context_has_ports_and_no_program(tmp_path: Path) -> None:
    harness, store = RunnerHarness(tmp_path), MemoryStore()
    await replace(harness.runner, sessions=store).run(CALL)
    (context,) = harness.contexts
    assert context.sessions and await context.sessions.session("agent:main:main") is None
    types = " ".join(str(each.type) for each in fields(ToolContext))
    assert "App" not in types.replace("Approv", "") and "Services" not in types
