"""What holds for one agent."""

from pathlib import Path
from typing import Any

import pytest

from homarus.config.agent_settings import agent_ids, default_agent_id, resolve_agent_settings
from homarus.config.check import check_config
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.errors import UnknownNameError

TWO = {
    "defaults": {"model": {"primary": "a/b", "fallbacks": ["c/d"]}, "workspace": "~/w"},
    "list": [{"id": "Ops Team"}, {"id": "home", "default": True, "name": "Home"}],
}


def config(section: dict[str, Any]) -> Config:
    return Config.model_validate({"agents": section})


def test_agent_ids_without_list_is_main(paths: Paths, tmp_path: Path) -> None:
    assert agent_ids(config({})) == ("main",)
    assert default_agent_id(config({})) == "main"
    settings = resolve_agent_settings(config({}), paths, "main")
    assert settings.is_default
    assert settings.workspace == tmp_path / ".openclaw/workspace"
    assert settings.agent_dir == tmp_path / ".openclaw/agents/main/agent"
    assert (settings.model, settings.fallbacks) == (None, ())
    assert (settings.timeout_s, settings.thinking, settings.max_concurrent) == (600.0, None, 4)


def test_default_agent_id_is_marked_one_else_first() -> None:
    assert agent_ids(config(TWO)) == ("ops-team", "home")
    assert default_agent_id(config(TWO)) == "home"
    assert default_agent_id(config({"list": [{"id": "x"}, {"id": "y"}]})) == "x"


def test_default_agent_id_of_defaults_wins_over_marked_one(paths: Paths) -> None:
    chosen = config({**TWO, "defaults": {"agentId": "Ops Team"}})
    assert default_agent_id(chosen) == "ops-team"
    assert resolve_agent_settings(chosen, paths, "ops-team").is_default
    alone = config({"defaults": {"agentId": "Ada"}})
    assert agent_ids(alone) == ("ada",)
    assert default_agent_id(alone) == "ada"


def test_default_agent_id_of_no_agent_is_refused() -> None:
    agents = {"defaults": {"agentId": "wrok"}, "list": [{"id": "main"}, {"id": "work"}]}
    [problem] = check_config({"agents": agents}).problems
    assert problem.path == ("agents", "defaults", "agentId")
    assert "main, work" in problem.fix
    assert not check_config({"agents": {"defaults": {"agentId": "ada"}}}).problems


def test_repo_root_and_time_format_are_read() -> None:
    defaults = config({"defaults": {"repoRoot": "~/src", "timeFormat": "12"}}).agents.defaults
    assert (defaults.repo_root, defaults.time_format) == ("~/src", "12")
    assert check_config({"agents": {"defaults": {"timeFormat": "13"}}}).problems
    assert check_config({"agents": {"defaults": {"repoRoot": ""}}}).problems


def test_default_workspace_is_only_for_the_default_agent(paths: Paths, tmp_path: Path) -> None:
    home = resolve_agent_settings(config(TWO), paths, "home")
    ops = resolve_agent_settings(config(TWO), paths, "OPS team")
    assert home.workspace == tmp_path / "w"
    assert ops.workspace == tmp_path / ".openclaw/workspace-ops-team"
    assert (ops.id, ops.name, home.name) == ("ops-team", "ops-team", "Home")
    assert not ops.is_default


def test_agent_settings_entry_overrides_defaults(paths: Paths, tmp_path: Path) -> None:
    entry = {
        "id": "x",
        "workspace": "~/x",
        "agentDir": "~/dir",
        "model": "e/f",
        "identity": {"name": "Ix"},
        "tools": {"deny": ["exec"]},
    }
    settings = resolve_agent_settings(config({**TWO, "list": [entry]}), paths, "x")
    assert settings.workspace == tmp_path / "x"
    assert settings.agent_dir == tmp_path / "dir"
    assert (settings.model, settings.fallbacks) == ("e/f", ("c/d",))
    assert settings.name == "Ix"
    assert settings.identity.name == "Ix"
    assert settings.tools
    assert settings.tools.deny == ("exec",)


def test_agent_settings_empty_fallbacks_override_defaults(paths: Paths) -> None:
    entry = {"id": "x", "model": {"fallbacks": []}}
    settings = resolve_agent_settings(config({**TWO, "list": [entry]}), paths, "x")
    assert (settings.model, settings.fallbacks) == ("a/b", ())


def test_agent_settings_unknown_agent_offers_closest(paths: Paths) -> None:
    with pytest.raises(UnknownNameError) as caught:
        resolve_agent_settings(config(TWO), paths, "hme")
    assert caught.value.nearest == ("home",)
    with pytest.raises(UnknownNameError) as caught:
        resolve_agent_settings(config(TWO), paths, "zzz")
    assert caught.value.nearest == ("ops-team", "home")
