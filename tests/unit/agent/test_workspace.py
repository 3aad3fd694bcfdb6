"""Seeding a workspace; a populated one is not changed."""

import json
import subprocess
from pathlib import Path

import pytest

from homarus.agent import workspace
from homarus.agent.prompt.injection import file_names_for, inject
from homarus.agent.prompt.workspace_files import WorkspaceFileReader
from homarus.config.paths import Paths
from homarus.core.errors import UserError


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file below a folder except git's."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".git" not in path.parts
    }


def test_seed_new_workspace_has_templates_and_git(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "workspace"
    made = workspace.seed_workspace(folder)
    assert {*workspace.SEEDED, "BOOTSTRAP.md", ".gitignore", ".git"} == set(made)
    tracked = subprocess.run(
        ["git", "-C", folder, "status", "--porcelain", "-uall"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "AGENTS.md" in tracked.stdout and ".openclaw" not in tracked.stdout
    state = workspace.read_state(folder)
    assert state["version"] == 1 and str(state["bootstrapSeededAt"]).endswith("Z")


def test_seed_existing_files_are_kept(tmp_path: Path) -> None:
    (tmp_path / "SOUL.md").write_text("mine")
    workspace.seed_workspace(tmp_path)
    assert (tmp_path / "SOUL.md").read_text() == "mine"
    assert (tmp_path / "AGENTS.md").exists()


def test_seed_bootstrap_file_only_in_new_workspace(tmp_path: Path) -> None:
    workspace.seed_workspace(tmp_path)
    (tmp_path / "BOOTSTRAP.md").unlink()
    assert workspace.seed_workspace(tmp_path) == ()
    for name in workspace.SEEDED:
        (tmp_path / name).unlink()
    assert "BOOTSTRAP.md" not in workspace.seed_workspace(tmp_path)  # by its state file
    lived_in = tmp_path / "old"
    lived_in.mkdir()
    (lived_in / "AGENTS.md").write_text("x")
    assert "BOOTSTRAP.md" not in workspace.seed_workspace(lived_in)


def test_templates_are_short(tmp_path: Path) -> None:
    workspace.seed_workspace(tmp_path)
    files = inject(WorkspaceFileReader().load(tmp_path, file_names_for("main")), 20_000, 150_000)
    assert files[0].name == "AGENTS.md"
    assert "HEARTBEAT.md" not in [file.name for file in files]  # the checklist is still empty
    assert sum(len(file.text) for file in files) <= 6_000


@pytest.mark.parametrize("mark", [*workspace.SEEDED, "BOOTSTRAP.md", "MEMORY.md", "memory.md"])
def test_ensure_populated_workspace_is_unchanged(mark: str, tmp_path: Path) -> None:
    (tmp_path / mark).write_text("mine")
    before = contents(tmp_path)
    workspace.ensure_workspace(tmp_path)
    assert contents(tmp_path) == before
    assert not (tmp_path / ".git").exists()


def test_ensure_missing_workspace_is_created(tmp_path: Path) -> None:
    workspace.ensure_workspace(tmp_path / "new")
    assert (tmp_path / "new" / "BOOTSTRAP.md").exists()


def test_ensure_without_templates_creates_folder_only(tmp_path: Path) -> None:
    workspace.ensure_workspace(tmp_path / "new", templates=False)
    assert list((tmp_path / "new").iterdir()) == []
    found = WorkspaceFileReader().load(tmp_path / "new", file_names_for("main"))
    assert [file.name for file in found if file.missing] == [
        "AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md",
    ]  # fmt: skip


@pytest.mark.parametrize("ending", ["deleted", "emptied"])
def test_workspace_state_records_end_of_bootstrap(ending: str, tmp_path: Path) -> None:
    workspace.ensure_workspace(tmp_path)
    workspace.ensure_workspace(tmp_path)
    assert "onboardingCompletedAt" not in workspace.read_state(tmp_path)
    if ending == "deleted":
        (tmp_path / "BOOTSTRAP.md").unlink()
    else:
        (tmp_path / "BOOTSTRAP.md").write_text("\n")
    workspace.ensure_workspace(tmp_path)
    state = workspace.read_state(tmp_path)
    assert str(state["onboardingCompletedAt"]).endswith("Z") and state["bootstrapSeededAt"]
    workspace.ensure_workspace(tmp_path)
    assert workspace.read_state(tmp_path) == state
    assert sorted(p.name for p in (tmp_path / ".openclaw").iterdir()) == ["workspace-state.json"]


@pytest.mark.parametrize("text", ["", "[]", "{", "\ud800", "[" * 100_000, '{"version": 1}'])
def test_workspace_state_broken_file_is_kept(text: str, tmp_path: Path) -> None:
    file = tmp_path / ".openclaw" / "workspace-state.json"
    file.parent.mkdir()
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    before = file.read_bytes()
    workspace.ensure_workspace(tmp_path)
    assert file.read_bytes() == before and not (tmp_path / "BOOTSTRAP.md").exists()


def test_workspace_state_of_openclaw_is_read(tmp_path: Path) -> None:
    file = tmp_path / ".openclaw" / "workspace-state.json"
    file.parent.mkdir()
    seeded = {"version": 1, "bootstrapSeededAt": "2026-02-17T12:00:00.000Z"}
    file.write_text(json.dumps({**seeded, "later": {"kept": True}}))
    workspace.ensure_workspace(tmp_path)
    state = workspace.read_state(tmp_path)
    assert state["later"] == {"kept": True} and "onboardingCompletedAt" in state


def test_seed_uncreatable_workspace_raises_user_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for make in (workspace.seed_workspace, workspace.ensure_workspace):
        with pytest.raises(UserError, match="cannot use the workspace") as caught:
            make(tmp_path / "file" / "workspace")
        assert "homarus setup" in caught.value.fix
    with pytest.raises(UserError, match="cannot use the workspace"):
        workspace.ensure_workspace(tmp_path / "file" / "workspace", templates=False)


# --- BOOT.md -------------------------------------------------------------------------------------


def test_boot_prompt_contains_boot_file(tmp_path: Path) -> None:
    assert workspace.boot_prompt(tmp_path) == ""
    (tmp_path / "BOOT.md").write_text("# BOOT.md\n\n- [ ]\n")
    assert workspace.boot_prompt(tmp_path) == ""
    (tmp_path / "BOOT.md").write_text("- Say good morning to Ann.\n")
    prompt = workspace.boot_prompt(tmp_path)
    assert prompt.endswith("BOOT.md:\n- Say good morning to Ann.") and "NO_REPLY" in prompt
    (tmp_path / "BOOT.md").write_text("- x\n" * 100_000)
    assert len(workspace.boot_prompt(tmp_path)) < 9_000


def test_boot_prompt_link_out_of_workspace_is_not_read(tmp_path: Path) -> None:
    inside = tmp_path / "w"
    inside.mkdir()
    (tmp_path / "secret").write_text("canary")
    (inside / "BOOT.md").symlink_to(tmp_path / "secret")
    assert "canary" not in workspace.boot_prompt(inside)


# --- advice --------------------------------------------------------------------------------------


def test_advice_names_unused_and_unbacked_workspaces(tmp_path: Path) -> None:
    state = tmp_path / ".openclaw"
    used, spare = state / "workspace", state / "workspace-old"
    for folder in (used, spare, tmp_path / "openclaw"):
        workspace.seed_workspace(folder)
    (state / "workspace-empty").mkdir()
    advice = workspace.workspace_advice([used, used], tmp_path, state)
    assert [(one.text.split(" ")[0], "no agent" in one.text) for one in advice] == [
        (str(tmp_path / "openclaw"), True),
        (str(spare), True),
        (str(used), False),
    ]
    with (used / ".git" / "config").open("a") as config:
        config.write('[remote "origin"]\n\turl = git@example.org:me/agent.git\n')
    (tmp_path / "openclaw").rename(tmp_path / "away")
    assert len(workspace.workspace_advice([used, spare], tmp_path, state)) == 1
    assert workspace.workspace_advice([tmp_path / "nowhere"], tmp_path, tmp_path / "nowhere") == ()


def test_advice_ignores_workspace_of_other_profile(tmp_path: Path) -> None:
    state = tmp_path / ".openclaw"
    workspace.seed_workspace(state / "workspace-work")
    assert len(workspace.workspace_advice([state / "workspace"], tmp_path, state)) == 1
    (tmp_path / ".openclaw-work").mkdir()
    assert workspace.workspace_advice([state / "workspace"], tmp_path, state) == ()


def test_advice_ignores_linked_workspace_in_use(tmp_path: Path) -> None:
    state = tmp_path / ".openclaw"
    state.mkdir()
    workspace.seed_workspace(tmp_path / "real")
    (state / "workspace").symlink_to(tmp_path / "real")
    advice = workspace.workspace_advice([state / "workspace"], tmp_path, state)
    assert not [one for one in advice if "no agent" in one.text]


def test_trash_agent_folders_moves_only_those_in_the_state_dir(tmp_path: Path) -> None:
    paths = Paths.find({"HOME": str(tmp_path), "OPENCLAW_STATE_DIR": str(tmp_path / "state")})
    own, foreign, linked = (
        tmp_path / "state" / "workspace-ops",
        tmp_path / "mine",
        tmp_path / "state" / "workspace-link",
    )
    for folder in (own, foreign):
        folder.mkdir(parents=True)
    linked.symlink_to(foreign)
    trash = workspace.trash_agent_folders(
        paths, "ops", 5, own, foreign, linked, tmp_path / "state" / "none"
    )
    assert trash == tmp_path / "state" / "trash" / "ops-5"
    assert [path.name for path in trash.iterdir()] == ["workspace-ops"]
    assert foreign.is_dir() and linked.is_symlink()
