import json
import os
import subprocess
from pathlib import Path

import pytest

from homarus.agent import workspace
from homarus.core.errors import UserError


def texts(folder: Path, max_chars: int = 20_000, total: int = 150_000) -> dict[str, str]:
    return {file.name: file.text for file in workspace.Reader().load(folder, max_chars, total)}


def test_a_new_workspace_gets_every_template_and_a_git_repository(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "workspace"
    made = workspace.seed(folder)
    assert {*workspace.SEEDED, "BOOTSTRAP.md", ".gitignore", ".git"} == set(made)
    tracked = subprocess.run(
        ["git", "-C", folder, "status", "--porcelain", "-uall"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "AGENTS.md" in tracked.stdout and ".openclaw" not in tracked.stdout
    state = json.loads((folder / ".openclaw" / "workspace-state.json").read_text())
    assert state["version"] == 1


def test_nothing_that_exists_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "SOUL.md").write_text("mine")
    workspace.seed(tmp_path)
    assert (tmp_path / "SOUL.md").read_text() == "mine"
    assert (tmp_path / "AGENTS.md").exists()


def test_the_ritual_is_only_for_a_brand_new_workspace(tmp_path: Path) -> None:
    workspace.seed(tmp_path)
    (tmp_path / "BOOTSTRAP.md").unlink()
    assert workspace.seed(tmp_path) == ()
    assert not (tmp_path / "BOOTSTRAP.md").exists()
    lived_in = tmp_path / "old"
    lived_in.mkdir()
    (lived_in / "AGENTS.md").write_text("x")
    assert "BOOTSTRAP.md" not in workspace.seed(lived_in)


def test_the_templates_are_short(tmp_path: Path) -> None:
    workspace.seed(tmp_path)
    assert sum(len(text) for text in texts(tmp_path).values()) <= 6_000


def test_files_are_cut_to_their_budget_and_the_cut_is_said(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text("a" * 5_000)
    (tmp_path / "SOUL.md").write_text("s" * 5_000)
    found = texts(tmp_path, max_chars=1_000, total=1_500)
    assert "left out" in found["AGENTS.md"] and len(found["AGENTS.md"]) < 1_100
    assert len(found["SOUL.md"]) < 600


def test_a_blank_file_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_text(" \n\n")
    assert texts(tmp_path) == {}


def test_a_link_out_of_the_workspace_is_told_and_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("canary")
    inside = tmp_path / "workspace"
    inside.mkdir()
    (inside / "AGENTS.md").symlink_to(tmp_path / "secret")
    (inside / "SOUL.md").symlink_to("../secret")
    found = texts(inside)
    assert "could not be read" in found["AGENTS.md"] and "could not be read" in found["SOUL.md"]
    assert "canary" not in "".join(found.values())


def test_binary_and_broken_text_do_not_stop_a_turn(tmp_path: Path) -> None:
    (tmp_path / "AGENTS.md").write_bytes(b"\xff\xfe\x00ok")
    os.mkfifo(tmp_path / "SOUL.md")
    found = texts(tmp_path)
    assert "ok" in found["AGENTS.md"]
    assert "could not be read" in found["SOUL.md"]


def test_a_missing_or_unusable_workspace_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder") as missing:
        texts(tmp_path / "gone")
    assert "homarus setup" in missing.value.fix
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="cannot use the workspace"):
        workspace.seed(tmp_path / "file" / "workspace")


def test_a_file_is_read_again_when_it_changed(tmp_path: Path) -> None:
    reader = workspace.Reader()
    file = tmp_path / "AGENTS.md"
    file.write_text("one")
    assert reader.load(tmp_path, 100, 100)[0].text == "one"
    assert reader.load(tmp_path, 100, 100)[0].text == "one"
    file.write_text("two")
    assert reader.load(tmp_path, 100, 100)[0].text == "two"
    file.unlink()
    assert reader.load(tmp_path, 100, 100) == ()
