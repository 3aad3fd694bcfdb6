"""Built, known and unknown keys."""

import importlib.metadata
from importlib.metadata import EntryPoint
from typing import Any

import pytest

from homarus.config.check import check_config, implemented_keys, unimplemented_keys
from homarus.config.known_keys import lookup


def told(tree: dict[str, Any]) -> list[str]:
    return [
        f"{'.'.join(map(str, problem.path))}: {problem.message}"
        for problem in check_config(tree).problems
    ]


def test_check_config_empty_is_valid() -> None:
    checked = check_config({})
    assert checked.config
    defaults = checked.config.agents.defaults
    assert (defaults.timeout_seconds, defaults.max_concurrent) == (600, 4)
    assert (defaults.bootstrap_max_chars, defaults.bootstrap_total_max_chars) == (20_000, 150_000)
    assert checked.config.tools.exec.timeout_sec == 1800
    assert checked.unbuilt == ()


@pytest.mark.parametrize("api", ["smoke-signals", "openai", "registry", "../openai", ""])
def test_check_config_unknown_provider_api_is_refused(api: str) -> None:
    entry = {"api": api, "models": [{"id": "m", "api": api}]}
    problems = told({"models": {"providers": {"x": entry}}})
    assert [line.partition(": ")[0] for line in problems] == [
        "models.providers.x.api",
        "models.providers.x.models.0.api",
    ]
    for line in problems:
        assert ": expected one of 'github-copilot', 'anthropic-messages', " in line
        assert line.endswith(", found text")


def test_check_config_provider_api_of_entry_point_is_valid(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    entry = EntryPoint("smoke-signals", "not_imported", "homarus.providers")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda *, group: (entry,))
    for api in ("smoke-signals", "github-copilot", "google-vertex", "ollama"):
        assert told({"models": {"providers": {"x": {"api": api}}}}) == []


def test_check_config_complete_provider_is_valid() -> None:
    model = {
        "id": "m",
        "name": "M",
        "api": "openai-completions",
        "reasoning": True,
        "input": ["text", "image"],
        "cost": {"input": 1, "output": 2.5, "cacheRead": 0, "cacheWrite": 0},
        "contextWindow": 1000,
        "maxTokens": 100,
        "headers": {"a": "b"},
        "compat": {"maxTokensField": "max_tokens", "supportsStore": False},
    }
    provider = {
        "baseUrl": "http://x/v1",
        "apiKey": "k",
        "auth": "api-key",
        "api": "openai-completions",
        "headers": {},
        "authHeader": True,
        "models": [model],
    }
    config = check_config({"models": {"mode": "replace", "providers": {"x": provider}}}).config
    assert config
    read = config.models.providers["x"].models[0]
    assert read.compat.max_tokens_field == "max_tokens"
    assert read.compat.supports_store is False
    assert read.compat.supports_developer_role is None
    assert read.cost.output == 2.5
    assert read.input == ("text", "image")
    assert "'k'" not in repr(config)


def test_schema_has_every_provider_key_of_openclaw() -> None:
    built = set(implemented_keys())
    provider = lookup(("models", "providers", "x"))
    assert provider
    level = [provider]
    while level:
        node = level.pop()
        assert node.path in built
        level += node.children.values()


def test_schema_keys_are_all_known_to_openclaw() -> None:
    for path in implemented_keys():
        steps = path.replace("[]", ".[]").split(".")
        assert lookup([0 if step == "[]" else step for step in steps]), path


@pytest.mark.parametrize("text", ["a/b", {"primary": "a/b"}])
def test_model_choice_accepts_text_or_object(text: Any) -> None:
    config = check_config({"agents": {"defaults": {"model": text}}}).config
    assert config
    assert config.agents.defaults.model.primary == "a/b"


def test_legacy_agent_key_is_merged_below_agents_defaults() -> None:
    tree = {
        "agent": {"workspace": "old", "timeoutSeconds": 5, "model": {"fallbacks": ["x"]}},
        "agents": {"defaults": {"workspace": "new"}, "list": [{"id": "a"}]},
    }
    config = check_config(tree).config
    assert config
    assert config.agents.defaults.workspace == "new"
    assert config.agents.defaults.timeout_seconds == 5
    assert config.agents.defaults.model.fallbacks == ("x",)
    assert config.agents.list[0].id == "a"
    assert "agent" in tree


def test_unimplemented_keys_are_accepted_and_named_once() -> None:
    checked = check_config(
        {
            "channels": {"telegram": {"enabled": True}, "zalo": {}, "defaults": {}},
            "canvasHost": {"enabled": True, "port": 1},
            "agents": {
                "defaults": {"heartbeat": {"every": "5m"}, "workspace": "w"},
                "list": [{"id": "a", "heartbeat": {}}, {"id": "b", "heartbeat": {}}],
            },
            "env": {"shellEnv": {"enabled": True}, "FOO": "x"},
        }
    )
    assert checked.problems == ()
    assert checked.config
    assert checked.config.env.model_extra == {"FOO": "x"}
    assert checked.unbuilt == (
        "canvasHost",
        "channels.zalo",
    )


def test_keys_without_effect_are_named_when_set() -> None:
    checked = check_config(
        {
            "agents": {"defaults": {"blockStreamingBreak": "message_end"}},
            "browser": {"color": "#ff0000"},
            "session": {"mainKey": "other"},
            "channels": {
                "telegram": {"blockStreamingCoalesce": {"idleMs": 5}, "draftChunk": {}},
                "irc": {"accounts": {"a": {"capabilities": []}, "b": {}}},
            },
        }
    )
    assert checked.problems == ()
    assert checked.unbuilt == (
        "browser.color",
        "channels.irc.capabilities",
        "channels.telegram.draftChunk",
        "session.mainKey",
    )


def test_wizard_section_gives_no_warning() -> None:
    checked = check_config(
        {"wizard": {"lastRunAt": "x"}, "meta": {"lastTouchedAt": "x"}, "$schema": "s"}
    )
    assert (checked.problems, checked.unbuilt) == ((), ())


def test_check_config_reports_all_problems() -> None:
    tree = {
        "agnts": {},
        "agents": {
            "defaults": {"workspce": "x", "timeoutSeconds": 0, "thinkingDefault": "huge"},
            "list": [{"name": "x"}, {"id": ""}, 5],
        },
        "logging": {"level": 3, "redactPatterns": "x"},
        "diagnostics": {"flags": "x"},
        "browser": {"enabled": "yes"},
        "models": [],
        "tools": {"allow": [1], "exec": {"timeoutSec": 1.5}},
        "env": {"A": 1},
    }
    thinking = "'off', 'minimal', 'low', 'medium', 'high' or 'xhigh'"
    levels = "'silent', 'fatal', 'error', 'warn', 'info', 'debug' or 'trace'"
    assert sorted(told(tree)) == [
        f"agents.defaults.thinkingDefault: expected one of {thinking}, found text",
        "agents.defaults.timeoutSeconds: expected a number above 0, found 0",
        "agents.defaults.workspce: unknown key",
        "agents.list.0.id: id is missing",
        "agents.list.1.id: expected text that is not empty, found text",
        "agents.list.2: expected an object, found 5",
        "agnts: unknown key",
        "browser.enabled: expected true or false, found text",
        "diagnostics.flags: expected a list, found text",
        "env.A: expected text, found 1",
        f"logging.level: expected one of {levels}, found 3",
        "logging.redactPatterns: expected a list, found text",
        "models: expected an object, found a list",
        "tools.allow.0: expected text, found 1",
        "tools.exec.timeoutSec: expected a whole number, found 1.5",
    ]


def test_memory_sections_are_checked_at_their_path() -> None:
    tree = {
        "memory": {"backend": "qdm", "citation": "on", "qmd": {"limits": {"maxResults": 0}}},
        "agents": {
            "defaults": {
                "memorySearch": {"query": {"minScore": 3}, "sync": {"watchDebounceMs": -1}}
            },
            "list": [{"id": "a", "memorySearch": {"enabld": True, "remote": {"apiKey": 5}}}],
        },
    }
    positive = "expected a number of at least 0, found -1"
    assert sorted(told(tree)) == [
        "agents.defaults.memorySearch.query.minScore: expected a number of at most 1.0, found 3",
        f"agents.defaults.memorySearch.sync.watchDebounceMs: {positive}",
        "agents.list.0.memorySearch.enabld: unknown key",
        "agents.list.0.memorySearch.remote.apiKey: expected text, found 5",
        "memory.backend: expected one of 'builtin' or 'qmd', found text",
        "memory.citation: unknown key",
        "memory.qmd.limits.maxResults: expected a number above 0, found 0",
    ]
    assert [one.fix for one in check_config(tree).problems if "citation" in one.path] == [
        "did you mean citations?"
    ]


def test_memory_keys_without_effect_are_named() -> None:
    search = {
        "chunking": {"tokens": 200},
        "store": {"vector": {"enabled": True, "extensionPath": "/lib/vec0.so"}},
    }
    checked = check_config({"agents": {"list": [{"id": "a", "memorySearch": search}]}})
    assert checked.config
    assert checked.unbuilt == ("agents.list[].memorySearch.store.vector.extensionPath",)


def test_agents_with_equal_ids_are_a_problem() -> None:
    tree = {"agents": {"list": [{"id": "Ops Team"}, {"id": "x"}, {"id": "ops-team"}]}}
    assert told(tree) == ["agents.list.2.id: 'ops-team' and 'Ops Team' are the same agent"]


def test_unimplemented_keys_are_derived_from_the_schema() -> None:
    groups = unimplemented_keys()
    built = set(implemented_keys())
    assert "channels.signal" in groups and "channels.discord" not in groups
    assert "agents.defaults.heartbeat" not in groups
    assert "channels" not in groups
    assert not set(groups) & built
    assert "channels.signal.account" in groups["channels.signal"]
    assert not [group for group in groups if group.startswith(("meta", "wizard", "models.prov"))]
