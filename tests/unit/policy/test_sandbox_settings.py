"""The settings of sandboxes: an agent's own, else those of all agents, key by key."""

from typing import Any

import pytest

from homarus.config.check import check_config
from homarus.config.schema import Config
from homarus.policy.sandbox_settings import SandboxSettings, is_sandboxed, resolve_sandbox


def config(common: dict[str, Any], own: dict[str, Any] | None = None) -> Config:
    agents: dict[str, Any] = {"defaults": {"sandbox": common}}
    if own is not None:
        agents["list"] = [{"id": "work", "sandbox": own}]
    checked = check_config({"agents": agents})
    assert checked.config, checked.problems
    return checked.config


def test_sandbox_settings_without_config_are_defaults() -> None:
    found = resolve_sandbox(Config(), "main")
    assert found == SandboxSettings()
    assert (found.mode, found.scope, found.access) == ("off", "agent", "none")
    assert found.backend == "auto"
    assert (found.level, found.idle_hours, found.max_age_days) == ("L2", 24, 7)
    assert found.allowed_hosts == found.read_only == ()


def test_sandbox_settings_of_agent_replace_common_ones_by_key() -> None:
    common = {
        "mode": "all",
        "scope": "session",
        "workspaceAccess": "ro",
        "workspaceRoot": "/srv/boxes",
        "level": "L3",
        "backend": "bubblewrap",
        "readOnlyFolders": ["/srv/docs"],
        "network": {"allow": ["pypi.org"]},
        "docker": {"memory": "1g", "env": {"A": "1"}, "pidsLimit": 10},
        "prune": {"idleHours": 5, "maxAgeDays": 0},
    }
    own = {
        "mode": "non-main",
        "workspaceAccess": "rw",
        "network": {"allow": []},
        "readOnlyFolders": [],
        "docker": {"memory": "2g", "env": {"B": "2"}},
        "prune": {"idleHours": 0},
    }
    tree = config(common, own)
    main, work = resolve_sandbox(tree, "main"), resolve_sandbox(tree, "work")
    assert (main.mode, main.access, main.scope, main.level) == ("all", "ro", "session", "L3")
    assert (main.allowed_hosts, main.read_only) == (("pypi.org",), ("/srv/docs",))
    assert (work.mode, work.access, work.scope, work.level) == ("non-main", "rw", "session", "L3")
    assert (work.allowed_hosts, work.read_only) == ((), ())
    assert (work.workspace_root, work.backend) == ("/srv/boxes", "bubblewrap")
    assert (work.container.memory, work.container.pids_limit) == ("2g", 10)
    assert work.container.env == {"A": "1", "B": "2"}
    assert (main.idle_hours, main.max_age_days) == (5, 0)
    assert (work.idle_hours, work.max_age_days) == (0, 0)


def test_sandbox_lists_of_agent_are_merged_with_common_ones() -> None:
    common = {"docker": {"ulimits": {"nproc": 9, "cpu": 9}, "binds": ["/a:/a", "/b:/b"]}}
    own = {"docker": {"ulimits": {"cpu": 5}, "binds": ["/b:/b", "/c:/c"]}}
    found = resolve_sandbox(config(common, own), "work").container
    assert found.ulimits and found.binds == ("/a:/a", "/b:/b", "/c:/c")
    assert {name: each.soft for name, each in found.ulimits.items()} == {"nproc": 9, "cpu": 5}


def test_shared_sandbox_ignores_container_of_agent() -> None:
    common = {"scope": "shared", "docker": {"memory": "1g"}, "prune": {"idleHours": 3}}
    own = {"docker": {"memory": "9g", "binds": ["/c:/c"]}, "prune": {"idleHours": 9}}
    found = resolve_sandbox(config(common, own), "work")
    assert (found.container.memory, found.container.binds) == ("1g", None)
    assert found.idle_hours == 3
    assert resolve_sandbox(config(common, {**own, "scope": "agent"}), "work").idle_hours == 9


@pytest.mark.parametrize(
    ("sandbox", "scope"),
    [
        ({"perSession": True}, "session"),
        ({"perSession": False}, "shared"),
        ({"perSession": True, "scope": "agent"}, "agent"),
        ({"scope": "shared"}, "shared"),
    ],
)
def test_sandbox_scope_is_also_set_by_its_older_form(sandbox: dict[str, Any], scope: str) -> None:
    assert resolve_sandbox(config(sandbox), "main").scope == scope


@pytest.mark.parametrize(
    ("mode", "key", "expected"),
    [
        ("off", "agent:main:x", False),
        ("non-main", "agent:main:main", False),
        ("non-main", "agent:main:subagent:1", True),
        ("non-main", "agent:main:telegram:group:-1", True),
        ("non-main", "global", True),  # messages of groups are in it, too
        ("all", "agent:main:main", True),
    ],
)
def test_session_is_sandboxed_by_mode(mode: str, key: str, expected: bool) -> None:
    assert is_sandboxed(config({"mode": mode}), "main", key) == expected
