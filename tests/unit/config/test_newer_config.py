"""The config of OpenClaw 2026.9: read with the known keys, written with its own."""

import json
from pathlib import Path
from typing import Any

import pytest

from homarus import __version__
from homarus.config.agent_edits import NewAgent, add_agent
from homarus.config.json5_document import Value
from homarus.config.legacy_keys import is_newer_config
from homarus.config.load import examine_config, load_config
from homarus.config.newer_config import to_known_keys, to_newer_keys
from homarus.config.own_keys import describe_openclaw_problems
from homarus.config.paths import Paths
from homarus.config.tree_edit import set_path
from homarus.config.write import write_config
from homarus.core.errors import ConfigError
from homarus.core.session_keys import AgentId

META = {
    "migrations": {"modelPolicyAllowlist": True, "utilityModelSeparation": True},
    "lastTouchedVersion": "2026.9.6",
}
# What `openclaw onboard --non-interactive` of 2026.9.6 writes, without its paths and provider.
ONBOARDED: dict[str, Any] = {
    "agents": {
        "defaults": {"model": {"primary": "mock/mock-1"}, "models": {"mock/mock-1": {}}},
        "entries": {"main": {"name": "main", "identity": {"name": "main"}}},
    },
    "plugins": {"entries": {"codex": {"config": {"sessionCatalog": {"enabled": False}}}}},
    "meta": META,
    "gateway": {"mode": "local", "port": 18999, "bind": "loopback", "tailscale": {"mode": "off"}},
    "tools": {"profile": "full"},
    "wizard": {"lastRunVersion": "2026.9.6", "lastRunCommand": "onboard"},
}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    (tmp_path / ".openclaw").mkdir()
    return Paths.find({}, tmp_path)


def write(paths: Paths, tree: Value) -> None:
    paths.config.write_text(json.dumps(tree, indent=2))


def written(paths: Paths) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads(paths.config.read_text())
    return tree


def with_agents(**agents: Value) -> dict[str, Value]:
    return {"meta": META, "agents": agents}


def errors(paths: Paths, tree: Value) -> list[tuple[str, str]]:
    found = examine_config(paths, {}, json.dumps(tree)).errors
    return [(error.key, error.reason) for error in found]


def test_onboarded_config_is_loaded_with_its_agents(paths: Paths) -> None:
    write(paths, ONBOARDED)
    loaded = load_config(paths, {})
    (agent,) = loaded.config.agents.list
    assert (agent.id, agent.name) == ("main", "main")
    assert loaded.config.gateway.port == 18999
    (warning,) = loaded.warnings
    assert "plugins" in warning and "migrations" not in warning
    assert not describe_openclaw_problems(loaded.raw)


def test_models_of_2026_9_do_not_restrict_without_a_policy(paths: Paths) -> None:
    write(paths, ONBOARDED)
    assert not load_config(paths, {}).config.agents.defaults.models
    defaults = {"models": {"a/b": {"alias": "x"}, "c/d": {}}, "modelPolicy": {"allow": ["a/b"]}}
    write(paths, with_agents(defaults=defaults))
    models = load_config(paths, {}).config.agents.defaults.models
    assert list(models) == ["a/b"] and models["a/b"].alias == "x"


def test_memory_search_is_read_from_its_new_places(paths: Paths) -> None:
    entries = {"main": {"memory": {"search": {"enabled": False}}}}
    tree = {**with_agents(entries=entries), "memory": {"search": {"query": {"maxResults": 3}}}}
    write(paths, tree)
    agents = load_config(paths, {}).config.agents
    assert agents.defaults.memory_search["query"] == {"maxResults": 3}
    assert agents.list[0].memory_search == {"enabled": False}


@pytest.mark.parametrize(
    ("session", "mode"),
    [({}, "idle"), ({"reset": {"mode": "none"}}, "idle"), ({"reset": {"mode": "daily"}}, "daily")],
)
def test_sessions_of_2026_9_are_reset_only_if_configured(
    paths: Paths, session: Value, mode: str
) -> None:
    write(paths, {"meta": META, "session": session})
    reset = load_config(paths, {}).config.session.reset
    assert reset is not None and reset.mode == mode
    assert (reset.idle_minutes or 0) > 10_000_000 or mode == "daily"


@pytest.mark.parametrize(
    ("mode", "security", "ask"),
    [("deny", "deny", None), ("ask", "allowlist", "on-miss"), ("full", "full", "off")],
)
def test_exec_mode_becomes_security_and_ask(
    paths: Paths, mode: str, security: str, ask: str | None
) -> None:
    entries = {"main": {"tools": {"exec": {"mode": mode}}}}
    write(paths, {**with_agents(entries=entries), "tools": {"exec": {"mode": mode}}})
    config = load_config(paths, {}).config
    own = config.agents.list[0].tools
    assert own and (own.exec.security, own.exec.ask) == (security, ask)
    assert (config.tools.exec.security, config.tools.exec.ask) == (security, ask)


def test_secret_reference_to_a_variable_is_resolved(paths: Paths) -> None:
    token = {"source": "env", "provider": "default", "id": "GATEWAY_SECRET"}
    tree = {"meta": META, "gateway": {"auth": {"mode": "token", "token": token}}}
    write(paths, tree)
    loaded = load_config(paths, {"GATEWAY_SECRET": "s3cret"})
    assert loaded.config.gateway.auth.token == "s3cret"
    ((key, reason),) = errors(paths, tree)
    assert key == "gateway.auth.token" and "GATEWAY_SECRET" in reason


@pytest.mark.parametrize(
    ("tree", "key"),
    [
        ({"tools": {"toolsBySender": {"*": {"deny": ["exec"]}}}}, "tools.toolsBySender"),
        ({"gateway": {"roles": {"guest": {"scopes": []}}}}, "gateway.roles"),
        ({"session": {"groupScope": "main"}}, "session.groupScope"),
        ({"security": {"installPolicy": {"enabled": True}}}, "security"),
        ({"later": {"deep": {"requireMention": True}}}, "later.deep.requireMention"),
        ({"later": {"allowLinks": False}}, "later.allowLinks"),
        (
            {"agents": {"entries": {"a": {"modelPolicy": {"allow": ["x/y"]}}}}},
            "agents.entries.a.modelPolicy",
        ),
        (
            {"agents": {"defaults": {"modelPolicy": {"allow": ["x/*"]}}}},
            "agents.defaults.modelPolicy.allow",
        ),
    ],
)
def test_new_setting_that_restricts_is_refused(
    paths: Paths, tree: dict[str, Value], key: str
) -> None:
    found = errors(paths, {"meta": META, **tree})
    assert [each for each, _ in found] == [key]


@pytest.mark.parametrize(
    "tree",
    [
        {"later": {"colour": "red", "denied": [], "allowLinks": True, "requireX": False}},
        {"mcp": {"servers": {"x": {"command": "a", "colour": "red"}}}},
        {"agents": {"defaults": {"utilityModel": "a/b", "experimental": {"localModelLean": True}}}},
        {"gateway": {"prot": 5}},
    ],
)
def test_new_setting_that_restricts_nothing_is_named(paths: Paths, tree: dict[str, Value]) -> None:
    write(paths, {"meta": META, **tree})
    (warning,) = load_config(paths, {}).warnings
    assert "have no effect" in warning
    if "gateway" in tree:
        assert "gateway.prot (did you mean port" in warning


def test_agents_without_binding_are_refused_if_ownership_is_explicit(paths: Paths) -> None:
    entries: dict[str, Value] = {"home": {}, "work": {}}
    tree = with_agents(ownership="explicit", entries=entries)
    tree |= {"channels": {"telegram": {"botToken": "1:a"}}}
    assert errors(paths, tree) == [
        ("agents.ownership", "the chats of telegram are bound to no agent")
    ]
    tree["bindings"] = [{"agentId": "work", "match": {"channel": "telegram"}}]
    assert not errors(paths, tree)
    chosen = with_agents(entries=entries, defaults={"systemAgent": {"agentId": "work"}})
    write(paths, chosen)
    agents = load_config(paths, {}).config.agents.list
    assert [agent.id for agent in agents if agent.default] == ["work"]


def test_error_names_key_and_line_of_the_file(paths: Paths) -> None:
    tree = with_agents(entries={"main": {"name": 5}})
    text = json.dumps(tree, indent=2)
    (error,) = examine_config(paths, {}, text).errors
    assert error.key == "agents.entries.main.name"
    assert text.splitlines()[error.line - 1].strip() == '"name": 5'


def test_write_keeps_the_shape_of_2026_9(paths: Paths) -> None:
    write(paths, ONBOARDED)
    new = NewAgent(AgentId("coder"), "coder", "~/coder")
    write_config(paths, {}, lambda tree: add_agent(tree, new))
    path = ("agents", "defaults", "memorySearch", "enabled")
    write_config(paths, {}, lambda tree: set_path(tree, path, False))
    expected = json.loads(json.dumps(ONBOARDED))
    expected["agents"]["entries"]["coder"] = {"name": "coder", "workspace": "~/coder"}
    expected["memory"] = {"search": {"enabled": False}}
    assert written(paths) == expected, "its stamp is unchanged too"
    assert [agent.id for agent in load_config(paths, {}).config.agents.list] == ["main", "coder"]


def test_write_of_newer_keys_by_a_client_is_merged_into_entries(paths: Paths) -> None:
    write(paths, ONBOARDED)
    write_config(paths, {}, lambda t: set_path(t, ("agents", "entries", "main", "name"), "Eva"))
    entry = written(paths)["agents"]["entries"]["main"]
    assert entry == {"name": "Eva", "identity": {"name": "main"}}
    assert "list" not in written(paths)["agents"]


def test_write_to_an_older_config_keeps_agents_list(paths: Paths) -> None:
    write(paths, {"agents": {"list": [{"id": "main"}]}})
    write_config(paths, {}, lambda t: set_path(t, ("agents", "entries", "main", "name"), "Eva"))
    assert written(paths)["agents"] == {"list": [{"id": "main", "name": "Eva"}]}


def test_default_agent_is_refused_in_a_config_of_2026_9(paths: Paths) -> None:
    write(paths, ONBOARDED)
    with pytest.raises(ConfigError, match="no default agent"):
        write_config(paths, {}, lambda t: set_path(t, ("agents", "list", 0, "default"), True))
    assert written(paths) == ONBOARDED


@pytest.mark.parametrize(
    ("version", "expected"),
    [("2026.5.2", "2026.5.2"), ("2026.2.17", __version__), ("2026.10.1", "2026.10.1")],
)
def test_stamp_of_a_newer_openclaw_survives_a_write(
    paths: Paths, version: str, expected: str
) -> None:
    write(paths, {"meta": {"lastTouchedVersion": version}})
    write_config(paths, {}, lambda tree: set_path(tree, ("gateway", "port"), 5000))
    assert written(paths)["meta"]["lastTouchedVersion"] == expected
    names_newer = any(version in text for text in load_config(paths, {}).warnings)
    assert names_newer == (version != "2026.2.17")


@pytest.mark.parametrize(
    "tree",
    [
        ONBOARDED,
        {"agents": {"entries": {"a": {"memory": {"search": {"x": 1}, "y": 2}}, "b": {}}}},
        {"memory": {"search": {"enabled": True}, "backend": "builtin"}},
        {"agents": {"entries": {"$include": "agents.json5"}}, "meta": META},
        {"agents": {"defaults": {"memorySearch": {}}, "entries": {}}, "meta": META},
    ],
)
def test_conversion_and_back_returns_the_same_tree(tree: dict[str, Value]) -> None:
    assert is_newer_config(tree)
    back = to_newer_keys(to_known_keys(tree))
    if tree.get("agents", {}).get("defaults", {}).get("memorySearch") is not None:
        assert back["memory"] == {"search": {}}
    else:
        assert back == tree
