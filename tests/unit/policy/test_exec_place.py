"""Where a command runs: in the sandbox of its session, on this machine, or not at all."""

from typing import Any

import pytest

from homarus.config.check import check_config
from homarus.config.schema import Config
from homarus.core.errors import ToolDeniedError
from homarus.policy.exec_settings import ExecSettings
from homarus.policy.sandbox_settings import elevated_level, resolve_exec_place
from homarus.policy.tool_call import CallerFacts

MAIN, GROUP = "agent:main:main", "agent:main:telegram:group:-100"


def sandbox(mode: str) -> dict[str, Any]:
    return {"agents": {"defaults": {"sandbox": {"mode": mode}}}}


def config(tree: Any) -> Config:
    found = check_config(tree).config
    assert found
    return found


def caller(key: str = MAIN, **facts: Any) -> CallerFacts:
    return CallerFacts("main", key, **facts)


def elevated(level: str, key: str = MAIN, **facts: Any) -> CallerFacts:
    return caller(key, elevated=level, is_elevated_allowed=True, **facts)


@pytest.mark.parametrize(
    ("tree", "key", "expected"),
    [
        ({}, GROUP, "gateway"),
        (sandbox("off"), GROUP, "gateway"),
        (sandbox("non-main"), MAIN, "gateway"),
        (sandbox("non-main"), GROUP, "sandbox"),
        (sandbox("all"), MAIN, "sandbox"),
        ({"agents": {"list": [{"id": "Main", "sandbox": {"mode": "all"}}]}}, MAIN, "sandbox"),
        (
            {
                "agents": {
                    "defaults": {"sandbox": {"mode": "all"}},
                    "list": [{"id": "main", "sandbox": {"mode": "off"}}],
                }
            },
            MAIN,
            "gateway",
        ),
        ({"tools": {"exec": {"host": "gateway"}}, **sandbox("all")}, MAIN, "sandbox"),
        ({"tools": {"exec": {"host": "sandbox"}}, **sandbox("all")}, MAIN, "sandbox"),
    ],
)
def test_exec_place_by_mode_and_session(tree: Any, key: str, expected: str) -> None:
    assert resolve_exec_place(config(tree), caller(key)) == expected


def test_exec_place_with_sandboxed_caller_is_sandbox() -> None:
    assert resolve_exec_place(Config(), caller(is_sandboxed=True)) == "sandbox"


def test_exec_place_with_session_host_gateway_stays_in_sandbox() -> None:
    on_gateway = caller(exec=ExecSettings(host="gateway"))
    assert resolve_exec_place(config(sandbox("all")), on_gateway) == "sandbox"


def test_exec_place_with_call_host_gateway_is_refused_in_sandbox() -> None:
    with pytest.raises(ToolDeniedError, match="run in a sandbox") as found:
        resolve_exec_place(config(sandbox("all")), caller(), host="gateway")
    assert found.value.fix == "call it without host: it then runs in the sandbox"
    with pytest.raises(ToolDeniedError) as found:
        resolve_exec_place(config(sandbox("all")), elevated("off"), host="gateway")
    assert "elevated: true" in (found.value.fix or "")


@pytest.mark.parametrize(
    ("tree", "facts", "host", "fix"),
    [
        ({}, {}, "sandbox", "call it without host"),
        (sandbox("non-main"), {}, "sandbox", "call it without host"),
        ({}, {"exec": ExecSettings(host="sandbox")}, None, "/exec host=gateway"),
        ({"tools": {"exec": {"host": "sandbox"}}}, {}, None, "tools.exec.host"),
        ({"tools": {"exec": {"host": "sandbox"}}}, {}, "gateway", "tools.exec.host"),
        (
            {
                "tools": {"exec": {"host": "sandbox"}},
                "agents": {"list": [{"id": "main", "tools": {"exec": {"timeoutSec": 5}}}]},
            },
            {},
            None,
            "tools.exec.host",
        ),
    ],
)
def test_exec_place_without_wanted_sandbox_is_refused(
    tree: Any, facts: dict[str, Any], host: Any, fix: str
) -> None:
    with pytest.raises(ToolDeniedError, match=r"this conversation has none") as found:
        resolve_exec_place(config(tree), caller(**facts), host=host)
    assert fix in (found.value.fix or "")


@pytest.mark.parametrize("mode", ["off", "all"])
@pytest.mark.parametrize(
    ("tree", "facts", "call"),
    [
        ({}, {}, {"host": "node"}),
        ({}, {}, {"node": "phone"}),
        ({}, {"exec": ExecSettings(host="node")}, {}),
        ({"tools": {"exec": {"host": "node"}}}, {}, {}),
        ({"tools": {"exec": {"host": "node"}}}, {}, {"elevated": True}),
    ],
)
def test_exec_place_on_node_is_refused(
    mode: str, tree: Any, facts: dict[str, Any], call: dict[str, Any]
) -> None:
    with pytest.raises(ToolDeniedError, match="nodes"):
        resolve_exec_place(config({**tree, **sandbox(mode)}), caller(**facts), **call)


@pytest.mark.parametrize(
    ("level", "requested", "host", "expected"),
    [
        ("off", None, None, "sandbox"),
        ("off", True, None, "gateway"),
        ("off", True, "gateway", "gateway"),
        ("on", None, None, "gateway"),
        ("ask", None, None, "gateway"),
        ("full", None, None, "gateway"),
        ("full", False, None, "sandbox"),
        ("full", None, "sandbox", "sandbox"),
        ("on", True, "sandbox", "sandbox"),
    ],
)
def test_exec_place_of_elevated_command_is_gateway(
    level: str, requested: bool | None, host: Any, expected: str
) -> None:
    facts = elevated(level)
    found = resolve_exec_place(config(sandbox("all")), facts, host=host, elevated=requested)
    assert found == expected


def test_exec_place_of_elevated_command_without_permission_is_refused() -> None:
    facts = caller(elevated="full", is_elevated_allowed=False)
    with pytest.raises(ToolDeniedError, match=r"tools\.elevated") as found:
        resolve_exec_place(config(sandbox("all")), facts, elevated=True)
    assert "without elevated" in (found.value.fix or "")
    assert resolve_exec_place(config(sandbox("all")), facts) == "sandbox"


def test_exec_place_of_elevated_command_ignores_host_sandbox_of_config() -> None:
    tree = {"tools": {"exec": {"host": "sandbox"}}}
    assert resolve_exec_place(config(tree), elevated("on")) == "gateway"


@pytest.mark.parametrize(
    ("level", "requested", "is_allowed", "expected"),
    [
        ("off", None, True, "off"),
        ("off", True, True, "on"),
        ("ask", True, True, "ask"),
        ("full", None, True, "full"),
        ("full", False, True, "off"),
        ("full", True, False, "off"),
    ],
)
def test_elevated_level_of_session_and_call(
    level: Any, requested: bool | None, is_allowed: bool, expected: str
) -> None:
    facts = caller(elevated=level, is_elevated_allowed=is_allowed)
    assert elevated_level(facts, requested=requested) == expected
