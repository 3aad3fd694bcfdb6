"""What a run asks before it does it after it has read untrusted content."""

from dataclasses import replace
from typing import Any

import pytest

from homarus.core.message import Address, Inbound, InboundMetadata
from homarus.policy.decision import decide_tool_call
from homarus.policy.taint import (
    TAINT_RULES,
    command_taint,
    inbound_file_taint,
    inbound_taint,
    output_source,
    taint_verdict,
)
from homarus.policy.tool_call import (
    CallerFacts,
    Effect,
    ExecEvaluation,
    TaintSource,
    ToolCallFacts,
    ToolDeclaration,
)

PAGE = TaintSource("web", "https://a.example")
CLEAN = CallerFacts("main", "agent:main:main")
TAINTED = replace(CLEAN, taint=(PAGE,))
READ = ToolCallFacts(ToolDeclaration("read", ("fs",)), {"path": "a.txt"})


def with_effect(effect: Effect) -> ToolCallFacts:
    return ToolCallFacts(ToolDeclaration("x"), effects=frozenset({effect}))


@pytest.mark.parametrize("effect", TAINT_RULES)
def test_every_effect_is_asked_about_in_a_tainted_run_only(effect: Effect) -> None:
    verdict = taint_verdict(with_effect(effect), TAINTED)
    assert verdict.action == "ask"
    assert TAINT_RULES[effect] in verdict.reason and "https://a.example" in verdict.reason
    assert taint_verdict(with_effect(effect), CLEAN).action is None


def test_call_without_effect_is_not_asked_about() -> None:
    assert taint_verdict(READ, TAINTED).action is None


def test_tool_known_by_name_has_its_effect() -> None:
    for name in ("exec", "cron", "nodes"):
        assert taint_verdict(ToolCallFacts(ToolDeclaration(name)), TAINTED).action == "ask"


def test_command_in_a_sandbox_is_not_asked_about() -> None:
    call = ToolCallFacts(ToolDeclaration("exec"), {"command": "ls"}, sandbox_level="L2")
    assert taint_verdict(call, TAINTED).action is None
    assert taint_verdict(replace(call, sandbox_level="L1"), TAINTED).action == "ask"
    both = replace(call, effects=frozenset({"config"}))
    assert taint_verdict(both, TAINTED).action == "ask"


def test_allowlisted_command_of_a_tainted_run_is_asked_about() -> None:
    evaluation = ExecEvaluation(is_parsed=True, matches=("allowlist:1",))
    exec_tool = ToolDeclaration("exec", ("runtime",))
    call = ToolCallFacts(exec_tool, {"command": "ls"}, frozenset({"exec"}), evaluation)
    for security in ("allowlist", "full"):
        clean = replace(CLEAN, exec=replace(CLEAN.exec, security=security))
        assert decide_tool_call(call, clean).action == "allow"
        decision = decide_tool_call(call, replace(clean, taint=(PAGE,)))
        assert (decision.action, decision.layer) == ("ask", "taint")
        elevated = replace(clean, taint=(PAGE,), elevated="full", is_elevated_allowed=True)
        assert decide_tool_call(call, elevated).action == "ask"


def inbound(text: str = "hi", **about: Any) -> Inbound:
    metadata = InboundMetadata(**about)
    return Inbound("1", Address("telegram", "42"), "42", text, metadata=metadata)


@pytest.mark.parametrize(
    ("message", "kinds"),
    [
        (inbound(), []),
        (inbound(forwarded="Eve"), ["forward"]),
        (inbound(via_bot="gif"), ["forward"]),
        (inbound(is_press=True), []),
        (inbound(quoted="x", reply_to="7"), []),
        (inbound(quoted="x"), ["quote"]),
        (inbound(quoted="x", reply_to="7", kind="group"), ["quote"]),
        (inbound(quoted="x", reply_to="7", kind="group", replies_to_us=True), []),
        (inbound(quoted="x", reply_to="7", replies_to_us=True, quotes_others=True), ["quote"]),
        (inbound(quoted="x", reply_to="7", quotes_others=True), ["quote"]),
        (inbound(quotes_others=True), []),
        (replace(inbound(kind="group"), group_history="Eve (1): obey"), ["group"]),
        (replace(inbound(), authority="stranger"), ["sender"]),
        (replace(inbound(), authority="owner"), []),
        (replace(inbound(), address=Address("hook", "h")), ["hook"]),
    ],
)
def test_message_taints_by_what_others_wrote(message: Inbound, kinds: list[str]) -> None:
    assert [source.kind for source in inbound_taint(message)] == kinds


def test_file_of_a_message_is_untrusted_by_any_path_to_it() -> None:
    for path in (
        "/x/.openclaw/media/inbound/x.pdf",
        "/x/.openclaw/media/outbound/../inbound/x.pdf",
        "/x/.openclaw//media/./inbound/x.pdf",
    ):
        assert inbound_file_taint(path) == TaintSource("file", "x.pdf")
        call = replace(READ, args={"path": path})
        assert output_source(call) == TaintSource("file", "x.pdf")
    assert output_source(READ) is None


@pytest.mark.parametrize(
    "command", ["curl https://a", "/usr/bin/curl -s a", "ls; wget -qO- a", "echo $(CURL a)"]
)
def test_output_of_network_command_is_untrusted(command: str) -> None:
    assert command_taint(command) is not None
    call = ToolCallFacts(ToolDeclaration("exec", ("runtime",)), {"command": command})
    assert output_source(call) == command_taint(command)


@pytest.mark.parametrize(
    "command",
    [
        "cat /s/media/inbound/x.txt",
        "head '/s/media/./inbound/x.txt'",
        "a|cat</s/media/inbound/x.txt",
    ],
)
def test_output_of_command_on_received_file_is_untrusted(command: str) -> None:
    assert command_taint(command) == TaintSource("file", "x.txt")


def test_output_of_local_command_is_trusted() -> None:
    for command in ("ls -la", "cat curl.txt", "git status", ""):
        assert command_taint(command) is None


def test_output_of_foreign_tool_is_untrusted() -> None:
    call = ToolCallFacts(ToolDeclaration("fetch", source="mcp:files"))
    assert output_source(call) == TaintSource("mcp", "files")
