"""A setting that restricts is obeyed, or what it restricts is refused with the reason."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from homarus.agent.agent import make_agent
from homarus.agent.prompt.chat_context import make_caller
from homarus.config.agent_settings import resolve_agent_settings
from homarus.config.approvals_file import read_approvals
from homarus.config.check import check_config, unimplemented_keys
from homarus.config.ignored_settings import WITHOUT_EFFECT, reason_without_effect
from homarus.config.known_keys import KnownKey, root_key
from homarus.config.log_setup import configure_logging
from homarus.config.paths import Paths
from homarus.config.redaction import redact
from homarus.config.schema import Config
from homarus.core.errors import ConfigError, UserError
from homarus.core.message import Message, Origin, ToolCall, ToolResult
from homarus.policy.decision import decide_tool_call
from homarus.policy.exec_settings import resolve_exec_settings
from homarus.policy.restrictions import (
    check_run_allowed,
    check_start_allowed,
)
from homarus.policy.sandbox_settings import resolve_exec_place
from homarus.policy.tool_call import CallerFacts, ExecEvaluation, ToolCallFacts
from homarus.process import serve
from homarus.tools.catalog import builtin_tools
from tests.unit.gateway.app_harness import Harness, answer, run

MAIN, GROUP = "agent:main:main", "agent:main:telegram:group:-1"
GROUPS = builtin_tools().known_groups
TOOLS = ("memory_search", "memory_write", "read", "write", "exec", "message", "grep")
LOOKS_RESTRICTING = re.compile(
    r"(?i)allow|deny|block|only|require|security|\bask\b|policy|scope|visib|enabled|mode|redact"
    r"|readonly|sandbox|profile|limit|max|cap|network|writes|tls|insecure|danger|auth|access|token"
    r"|restrict|trust|forbid|skills|elevated|tools|bash|config$|debug"
)


def config(tree: dict[str, Any]) -> Config:
    checked = check_config(tree)
    assert checked.config, checked.problems
    return checked.config


def allowed(tree: dict[str, Any], provider: str = "mock", model: str = "m") -> list[str]:
    found = config(tree)
    settings = resolve_agent_settings(found, Paths.find({"HOME": "/nowhere"}), "main")
    agent = make_agent(settings, found.tools)
    caller = CallerFacts("main", MAIN, provider=provider, model=model)
    calls = [ToolCallFacts(builtin_tools().get(name).declaration) for name in TOOLS]
    return [
        call.tool.name
        for call in calls
        if decide_tool_call(call, caller, agent.rules).action == "allow"
    ]


def is_refused(found: Config, agent: str, approvals: Mapping[str, Any]) -> bool:
    """Return whether a command that is on no list is denied, without a question."""
    settings = resolve_exec_settings(found, [approvals], agent, {}, is_owner=True)
    unlisted = ExecEvaluation(is_parsed=True, matches=("",))
    call = ToolCallFacts(builtin_tools().get("exec").declaration, exec=unlisted)
    return decide_tool_call(call, CallerFacts(agent, MAIN, exec=settings)).action == "deny"


def result_text(it: Harness) -> str:
    """Return the result of the tool call that the model was sent."""
    (part,) = it.model.requests[1].messages[-1].parts
    assert isinstance(part, ToolResult)
    return part.text


@pytest.mark.parametrize(
    ("tools", "own", "expected"),
    [
        ({"profile": "minimal"}, {}, ["memory_search", "memory_write"]),
        ({"profile": "messaging"}, {}, ["memory_search", "memory_write", "message"]),
        ({"profile": "coding", "deny": ["exec"]}, {}, [*TOOLS[:4], "grep"]),
        ({"profile": "full"}, {}, [*TOOLS]),
        ({"profile": "minimal", "alsoAllow": ["grep"]}, {}, [*TOOLS[:2], "grep"]),
        ({}, {"profile": "minimal"}, [*TOOLS[:2]]),
        ({"profile": "minimal"}, {"profile": "full"}, [*TOOLS]),
        ({"profile": "full"}, {"profile": "minimal", "alsoAllow": ["read"]}, [*TOOLS[:3]]),
        ({"profile": "minimal"}, {"allow": ["read"]}, []),
        ({"byProvider": {"mock": {"profile": "minimal"}}}, {}, [*TOOLS[:2]]),
        ({"byProvider": {"Mock/M": {"allow": ["read"]}, "mock": {"deny": ["*"]}}}, {}, ["read"]),
        ({"byProvider": {"other": {"deny": ["*"]}}}, {}, [*TOOLS]),
        ({}, {"byProvider": {"mock": {"deny": ["group:fs", "shell"]}}}, [*TOOLS[:2], "message"]),
        ({"deny": ["group:openclaw"]}, {}, ["read", "write", "exec", "grep"]),
        ({"deny": ["file_read", "file_write", "code_run", "dm_send"]}, {}, [*TOOLS[:2], "grep"]),
        ({"deny": ["file_*", "bash", "channel_*"]}, {}, [*TOOLS[:2], "grep"]),
        ({"allow": ["Shell", " file_read"]}, {}, ["read", "exec"]),
        ({"allow": ["group:plugins"]}, {}, []),  # there are no plugins
        ({"allow": ["group:plugins", "read"]}, {}, ["read"]),
        ({"allow": ["raed"]}, {}, []),  # a name that means nothing allows nothing
        ({}, {"policy": {"profile": "minimal"}}, [*TOOLS[:2]]),
        ({}, {"policy": "messaging"}, [*TOOLS[:2], "message"]),
        ({}, {"allow": ["read", "exec"], "policy": {"deny": ["exec"]}}, ["read"]),
    ],
)
def test_tool_filters_of_config_leave_expected_tools(
    tools: dict[str, Any], own: dict[str, Any], expected: list[str]
) -> None:
    tree = {"tools": tools, "agents": {"list": [{"id": "main", "tools": own}]}}
    assert allowed(tree) == expected


def test_allow_with_also_allow_is_rejected() -> None:
    problems = check_config({"tools": {"allow": ["read"], "alsoAllow": ["exec"]}}).problems
    assert [one.path for one in problems] == [("tools",)] and "exclude" in problems[0].message


async def test_minimal_profile_offers_and_runs_no_other_tool(tmp_path: Path) -> None:
    call = answer(ToolCall("c1", "write", {"path": "x", "content": "x"}))
    tools = {"tools": {"profile": "minimal"}}
    async with run(tmp_path, call, answer("done"), config=tools) as it:
        await it.send("hi")
        offered = {tool.name for tool in it.model.requests[0].tools}
        assert offered == {"memory_search", "memory_get", "memory_write", "session_status"}
        assert "write is not on the allow list of the profile minimal" in result_text(it)
    assert not list(tmp_path.rglob("workspace/x"))


async def test_tool_call_of_restricted_fallback_model_is_denied(tmp_path: Path) -> None:
    call = ToolCall("c1", "write", {"path": "x", "content": "x"})
    fallback = Message("assistant", (call,), origin=Origin("a", "other", "small"))
    tools = {"tools": {"byProvider": {"other": {"profile": "minimal"}}}}
    async with run(tmp_path, fallback, answer("done"), config=tools) as it:
        await it.send("hi")
        assert "write" in {tool.name for tool in it.model.requests[0].tools}
        assert "not on the allow list" in result_text(it)
    assert not list(tmp_path.rglob("workspace/x"))


async def test_subagent_session_obeys_tools_of_subagents(tmp_path: Path) -> None:
    tools = {"tools": {"subagents": {"tools": {"deny": ["group:fs", "exec"]}}}}
    async with run(tmp_path, answer("a"), answer("b"), config=tools) as it:
        await it.send("hi", "r1", "agent:main:subagent:1")
        await it.send("hi", "r2", "main")
        child, main = ({tool.name for tool in each.tools} for each in it.model.requests)
        assert not {"read", "write", "exec", "memory_search"} & child
        assert {"read", "exec"} <= main


@pytest.mark.parametrize(
    ("agents", "key", "sandboxed"),
    [
        ({"defaults": {"sandbox": {"mode": "all", "workspaceAccess": "none"}}}, MAIN, True),
        ({"defaults": {"sandbox": {"mode": "non-main"}}}, MAIN, False),
        ({"defaults": {"sandbox": {"mode": "non-main"}}}, GROUP, True),
        ({"list": [{"id": "main", "sandbox": {"mode": "all"}}]}, MAIN, True),
        (
            {
                "defaults": {"sandbox": {"mode": "all"}},
                "list": [{"id": "main", "sandbox": {"mode": "off"}}],
            },
            GROUP,
            False,
        ),
        ({"defaults": {"sandbox": {"mode": "off", "workspaceAccess": "none"}}}, GROUP, False),
    ],
)
def test_session_with_sandbox_mode_has_sandboxed_caller(
    agents: dict[str, Any], key: str, *, sandboxed: bool
) -> None:
    found = config({"agents": agents})
    check_run_allowed(found, "main", GROUPS)
    assert make_caller(found, key, ()).is_sandboxed == sandboxed
    place = resolve_exec_place(found, CallerFacts("main", key))
    assert place == ("sandbox" if sandboxed else "gateway")


async def test_sandboxed_session_is_offered_tools_of_sandboxes(tmp_path: Path) -> None:
    tree = {
        "agents": {"defaults": {"model": "mock/mock-1", "sandbox": {"mode": "non-main"}}},
        "tools": {"sandbox": {"tools": {"alsoAllow": ["memory_get"], "deny": ["write"]}}},
    }
    async with run(tmp_path, answer("a"), answer("b"), config=tree) as it:
        await it.send("hi", "r1", "agent:main:web:direct:1")
        await it.send("hi", "r2", "main")
        inside, main = ({tool.name for tool in each.tools} for each in it.model.requests)
    assert {"exec", "read", "edit", "grep", "memory_get"} <= inside
    assert not {"memory_search", "memory_write", "message", "write"} & inside
    assert {"memory_search", "write", "exec"} <= main


async def test_refused_run_reports_reason_and_calls_no_model(tmp_path: Path) -> None:
    tools = {"tools": {"deny": ["group:file"]}}
    async with run(tmp_path, answer("never"), config=tools) as it:
        await it.send("hi")
        (last,) = it.gateway.chats("run-1")
        assert last["state"] == "error" and "no such group" in last["errorMessage"]
        assert not it.model.requests
        await it.send("/status", "run-2")
        assert it.gateway.chats("run-2")[-1]["state"] == "final"


@pytest.mark.parametrize("where", ["tools", "own", "provider", "subagents", "sandbox"])
def test_denied_group_that_does_not_exist_refuses_runs(where: str) -> None:
    deny = {"deny": ["group:file"]}
    trees: dict[str, dict[str, Any]] = {
        "tools": {"tools": deny},
        "own": {"agents": {"list": [{"id": "main", "tools": deny}]}},
        "provider": {"tools": {"byProvider": {"mock": deny}}},
        "subagents": {"tools": {"subagents": {"tools": deny}}},
        "sandbox": {"tools": {"sandbox": {"tools": deny}}},
    }
    with pytest.raises(UserError, match="no such group of tools"):
        check_run_allowed(config(trees[where]), "main", GROUPS)


@pytest.mark.parametrize(
    ("tree", "key"),
    [
        (
            {"gateway": {"tls": {"enabled": True, "autoGenerate": False}}},
            "gateway.tls.autoGenerate",
        ),
        (
            {"gateway": {"tls": {"enabled": True, "certPath": "/no/cert", "keyPath": "/no/key"}}},
            "gateway.tls.certPath",
        ),
        ({"gateway": {"mode": "remote"}}, "gateway.mode"),
    ],
)
async def test_gateway_that_cannot_obey_does_not_start(
    tree: dict[str, Any], key: str, tmp_path: Path
) -> None:
    state = tmp_path / ".openclaw"
    state.mkdir()
    (state / "openclaw.json").write_text(json.dumps({**tree, "logging": {"level": "silent"}}))
    with pytest.raises(ConfigError) as refused:
        await serve({"HOME": str(tmp_path)}, port=0)
    assert refused.value.key == key and refused.value.fix
    assert not (state / "gateway.json").exists()


def test_start_is_allowed_without_such_settings() -> None:
    onboarded = {
        "gateway": {
            "mode": "local",
            "tls": {"enabled": False},
            "tailscale": {"mode": "off", "resetOnExit": False},
            "nodes": {"denyCommands": ["camera.snap"]},
        },
        "channels": {"whatsapp": {"dmPolicy": "disabled"}, "slack": {"groupPolicy": "disabled"}},
        "tools": {"web": {"search": {"enabled": False}}, "elevated": {"enabled": False}},
        "plugins": {"deny": ["x"]},
    }
    check_start_allowed(config(onboarded))
    check_run_allowed(config(onboarded), "main", GROUPS)


@pytest.mark.parametrize(
    ("tools", "approvals", "refused"),
    [
        ({}, {}, False),
        ({"exec": {"security": "deny"}}, {}, True),
        ({"exec": {"security": "allowlist"}}, {}, False),  # a person is asked each time
        ({"exec": {"security": "allowlist", "ask": "off"}}, {}, True),
        ({"exec": {"security": "full", "ask": "off"}}, {}, False),
        ({}, {"defaults": {"security": "deny"}}, True),
        ({"exec": {"security": "full"}}, {"agents": {"Main": {"security": "deny"}}}, True),
        ({}, {"agents": {"other": {"security": "deny"}}}, False),
        ({}, {"agents": {"*": {"security": "deny"}}}, True),
        ({}, {"agents": {"default": {"security": "deny"}}}, True),
        ({}, {"defaults": {"security": "never"}}, True),
    ],
)
def test_exec_is_refused_where_only_listed_commands_may_run(
    tools: dict[str, Any], approvals: dict[str, Any], *, refused: bool
) -> None:
    assert is_refused(config({"tools": tools}), "main", approvals) == refused


def test_exec_of_agent_uses_its_own_security() -> None:
    own = {"id": "main", "tools": {"exec": {"security": "deny"}}}
    tree = {"tools": {"exec": {"security": "full"}}, "agents": {"list": [own]}}
    assert is_refused(config(tree), "main", {})
    assert not is_refused(config(tree), "other", {})


@pytest.mark.parametrize("content", ["{", "[]", "\0"])
def test_unreadable_approvals_file_denies_all_commands(content: str, tmp_path: Path) -> None:
    assert read_approvals(tmp_path) == {}
    (tmp_path / "exec-approvals.json").write_text(content)
    assert is_refused(config({}), "main", read_approvals(tmp_path))


async def test_exec_call_is_denied_by_approvals_file_of_state(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    rules = {"version": 1, "agents": {"main": {"security": "deny"}}}
    (tmp_path / "state/exec-approvals.json").write_text(json.dumps(rules))
    call = answer(ToolCall("c1", "exec", {"command": "touch canary"}))
    async with run(tmp_path, call, answer("done")) as it:
        await it.send("hi")
        assert "exec denied: commands are switched off" in result_text(it)


def test_redact_patterns_of_config_are_redacted() -> None:
    patterns = [r"project-\w+", "/CODE[0-9]+/"]
    configure_logging(config({"logging": {"level": "silent", "redactPatterns": patterns}}))
    try:
        assert redact("see Project-Lobster, CODE17 and code17") == "see ***, *** and code17"
    finally:
        configure_logging(config({"logging": {"level": "silent"}}))
    assert redact("project-lobster") == "project-lobster"
    (problem,) = check_config({"logging": {"redactPatterns": ["(?<=x)y"]}}).problems
    assert "cannot be searched" in problem.message


def test_media_limit_of_defaults_holds_for_channels() -> None:
    from homarus.config.channels import common_settings

    tree: dict[str, Any] = {
        "agents": {"defaults": {"mediaMaxMb": 2}},
        "channels": {"telegram": {"accounts": {"b": {"mediaMaxMb": 3}}}},
    }
    assert common_settings(config(tree), "telegram", "default").media_max_mb == 2
    assert common_settings(config(tree), "telegram", "b").media_max_mb == 3


@pytest.mark.parametrize(("native", "executed"), [(True, True), (False, False)])
async def test_text_commands_are_off_where_no_list_is_shown(
    native: bool, executed: bool, tmp_path: Path
) -> None:
    from homarus.core.message import Address, Inbound
    from homarus.store.journal import InboxRecord

    commands = {"commands": {"text": False, "native": native}}
    async with run(tmp_path, config=commands) as it:
        for channel, expected in (("telegram", executed), ("irc", True)):
            inbound = Inbound("1", Address(channel, "1"), "ann", "/status", authority="owner")
            about = (channel, "default", "1", "ann", inbound.text, 0)
            record = InboxRecord("1", MAIN, *about, inbound=inbound)
            assert bool(it.app.commands.interpret(MAIN, record).execute) == expected


# Every key of OpenClaw


def leaves(node: KnownKey) -> Iterator[str]:
    if not node.children:
        yield node.path
    for below in node.children.values():
        yield from leaves(below)


def restricting_keys_without_effect() -> list[str]:
    groups = unimplemented_keys()
    found = [path for paths in groups.values() for path in paths if LOOKS_RESTRICTING.search(path)]
    return sorted(path for path in found if not path.startswith("channels."))


def test_every_key_is_implemented_or_listed_with_a_reason() -> None:
    assert len(list(leaves(root_key()))) > 2_000
    listed = unimplemented_keys()
    assert [
        path for paths in listed.values() for path in paths if not reason_without_effect(path)
    ] == []
    known = {path for path in listed if not path.startswith("channels.")}
    stale = [key for key in WITHOUT_EFFECT if not any(is_below(each, key) for each in known)]
    assert set(stale) <= {"gateway.auth.trustedProxy", "gateway.auth.allowTailscale"}


def is_below(path: str, above: str) -> bool:
    return path == above or path.startswith(f"{above}.")


@pytest.mark.parametrize("path", restricting_keys_without_effect())
def test_restricting_key_without_effect_has_nothing_to_restrict(path: str) -> None:
    assert reason_without_effect(path), f"{path} restricts something and is ignored"


@pytest.mark.parametrize(
    "path",
    [
        "tools.profile", "agents.list[].tools.profile", "tools.byProvider.<key>.profile",
        "tools.byProvider.<key>.deny", "tools.alsoAllow", "tools.fs.workspaceOnly",
        "tools.exec.security", "tools.exec.ask", "tools.exec.host", "tools.subagents.tools.deny",
        "agents.defaults.sandbox.mode", "agents.defaults.sandbox.workspaceAccess",
        "agents.list[].sandbox.mode", "gateway.tls.enabled", "gateway.mode",
        "session.sendPolicy.rules[].action", "commands.text", "commands.ownerAllowFrom",
        "logging.redactSensitive", "logging.redactPatterns", "agents.defaults.mediaMaxMb",
    ],
)  # fmt: skip
def test_restricting_key_has_an_effect(path: str) -> None:
    assert not any(path in paths or path == group for group, paths in unimplemented_keys().items())
