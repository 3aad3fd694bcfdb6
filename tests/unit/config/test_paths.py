"""Where things are."""

from pathlib import Path

import pytest

from homarus.config.paths import Paths, expand, shorten
from homarus.core.errors import UserError


def test_paths_default_to_dot_openclaw_in_home(tmp_path: Path) -> None:
    paths = Paths.find({}, tmp_path)
    assert paths.state == tmp_path / ".openclaw"
    assert paths.config == tmp_path / ".openclaw/openclaw.json"
    assert paths.database == tmp_path / ".openclaw/state.sqlite"
    assert paths.logs == tmp_path / ".openclaw/logs"
    assert paths.agent_dir("ops") == tmp_path / ".openclaw/agents/ops/agent"
    assert paths.sessions_dir("ops") == tmp_path / ".openclaw/agents/ops/sessions"
    assert paths.models_cache == tmp_path / ".cache/homarus/models"


def test_paths_home_comes_from_the_given_environment() -> None:
    assert Paths.find({"HOME": "/somewhere"}).state == Path("/somewhere/.openclaw")


def test_paths_state_and_config_can_be_set_by_variables(tmp_path: Path) -> None:
    env = {"OPENCLAW_STATE_DIR": "~/elsewhere", "OPENCLAW_CONFIG_PATH": "/etc/openclaw.json5"}
    paths = Paths.find(env, tmp_path)
    assert paths.state == tmp_path / "elsewhere"
    assert paths.config == Path("/etc/openclaw.json5")


def test_paths_config_is_in_explicit_state_directory(tmp_path: Path) -> None:
    paths = Paths.find({"OPENCLAW_STATE_DIR": str(tmp_path / "s")}, tmp_path)
    assert paths.config == tmp_path / "s/openclaw.json"


def test_paths_profile_has_own_state_and_workspace(tmp_path: Path) -> None:
    paths = Paths.find({"OPENCLAW_PROFILE": "work"}, tmp_path)
    assert paths.state == tmp_path / ".openclaw-work"
    assert paths.default_workspace("main", is_default=True) == tmp_path / ".openclaw/workspace-work"
    assert (
        paths.default_workspace("ops", is_default=False)
        == tmp_path / ".openclaw-work/workspace-ops"
    )


def test_paths_profile_default_is_no_profile(tmp_path: Path) -> None:
    assert Paths.find({"OPENCLAW_PROFILE": "default"}, tmp_path) == Paths.find({}, tmp_path)


def test_paths_explicit_state_contains_its_workspace(tmp_path: Path) -> None:
    env = {"OPENCLAW_STATE_DIR": str(tmp_path / "s"), "OPENCLAW_PROFILE": "work"}
    workspace = Paths.find(env, tmp_path).default_workspace("main", is_default=True)
    assert workspace == tmp_path / "s/workspace"


@pytest.mark.parametrize("profile", ["../x", "a/b", ".", "-x", "ä", "x" * 65])
def test_paths_profile_with_path_raises_user_error(tmp_path: Path, profile: str) -> None:
    with pytest.raises(UserError, match="profile"):
        Paths.find({"OPENCLAW_PROFILE": profile}, tmp_path)


@pytest.mark.parametrize("agent", ["", ".", "..", "../x", "a/b", "a b", "a\0", "x" * 65])
def test_paths_agent_id_with_path_raises_user_error(tmp_path: Path, agent: str) -> None:
    paths = Paths.find({}, tmp_path)
    with pytest.raises(UserError, match="agent id"):
        paths.agent_dir(agent)
    with pytest.raises(UserError, match="agent id"):
        paths.default_workspace(agent, is_default=False)


@pytest.mark.parametrize("name", [".clawdbot", ".moldbot", ".moltbot"])
def test_paths_legacy_state_is_used_if_it_is_the_only_one(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "clawdbot.json").write_text("{}")
    paths = Paths.find({}, tmp_path)
    assert paths.state == tmp_path / name
    assert paths.config == tmp_path / name / "clawdbot.json"
    (tmp_path / ".openclaw").mkdir()
    assert Paths.find({}, tmp_path).state == tmp_path / ".openclaw"


def test_paths_newest_config_name_wins_over_legacy(tmp_path: Path) -> None:
    (tmp_path / ".openclaw").mkdir()
    (tmp_path / ".openclaw/moltbot.json").write_text("{}")
    assert Paths.find({}, tmp_path).config.name == "moltbot.json"
    (tmp_path / ".openclaw/openclaw.json").write_text("{}")
    assert Paths.find({}, tmp_path).config.name == "openclaw.json"


def test_paths_cache_uses_absolute_xdg_directory(tmp_path: Path) -> None:
    assert Paths.find({"XDG_CACHE_HOME": "/c"}, tmp_path).models_cache == Path("/c/homarus/models")
    assert Paths.find({"XDG_CACHE_HOME": "c"}, tmp_path).cache == tmp_path / ".cache"


def test_expand_and_shorten_use_a_tilde(tmp_path: Path) -> None:
    assert expand("~", tmp_path) == tmp_path
    assert expand("~/a", tmp_path) == tmp_path / "a"
    assert expand("a", tmp_path).is_absolute()
    assert shorten(tmp_path / "a/b", tmp_path) == "~/a/b"
    assert shorten(Path("/etc/x"), tmp_path) == "/etc/x"
