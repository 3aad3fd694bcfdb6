"""The repository root in the prompt: the config's, else the nearest folder with `.git`."""

import logging
from pathlib import Path

import pytest

from homarus.agent.prompt.repo_root import find_repo_root
from homarus.config.agent_settings import resolve_agent_settings
from homarus.config.paths import Paths
from homarus.config.schema import Config


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with a folder deep in it, and a second one next to it."""
    (tmp_path / "repo" / ".git").mkdir(parents=True)
    (tmp_path / "repo" / "a" / "b").mkdir(parents=True)
    (tmp_path / "worktree" / "src").mkdir(parents=True)
    (tmp_path / "worktree" / ".git").write_text("gitdir: elsewhere")
    (tmp_path / "plain").mkdir()
    return tmp_path


def test_repo_root_is_nearest_folder_with_git(tree: Path) -> None:
    assert find_repo_root(None, tree / "repo" / "a" / "b", tree / "plain") == tree / "repo"
    assert find_repo_root(None, tree / "repo", None) == tree / "repo"
    assert find_repo_root(None, tree / "worktree" / "src", None) == tree / "worktree"


def test_repo_root_workspace_without_git_uses_current_folder(tree: Path) -> None:
    assert find_repo_root(None, tree / "plain", tree / "worktree") == tree / "worktree"


def test_repo_root_configured_folder_wins(tree: Path) -> None:
    assert find_repo_root(tree / "plain", tree / "repo", tree / "worktree") == tree / "plain"


def test_repo_root_configured_folder_missing_is_logged_and_detected(
    tree: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert find_repo_root(tree / "gone", tree / "repo", None) == tree / "repo"
    assert "agents.defaults.repoRoot: there is no folder" in caplog.text


def test_repo_root_too_far_up_is_not_found(tree: Path) -> None:
    deep = tree / "repo" / Path(*"abcdefghijklm")
    deep.mkdir(parents=True)
    assert find_repo_root(None, deep, None) is None


def test_agent_settings_expand_repo_root(tmp_path: Path) -> None:
    config = Config.model_validate({"agents": {"defaults": {"repoRoot": "~/code"}}})
    paths = Paths.find({}, tmp_path)
    assert resolve_agent_settings(config, paths, "main").repo_root == paths.home / "code"
    assert resolve_agent_settings(Config(), paths, "main").repo_root is None
