"""What the sandbox of a session shows, and where its commands and file tools work."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.agent.context.image_refs import workspace_reader
from homarus.core.errors import SandboxError, ToolDeniedError, ToolError
from homarus.policy.workspace_access import FULL_ACCESS, WorkspaceAccess, session_access
from homarus.tools.attachments import AttachmentStore, attach_from_sandbox
from homarus.tools.builtin.files import edit, read, write
from homarus.tools.builtin.search import find, grep, ls
from homarus.tools.effects import write_effects
from homarus.tools.sandbox.session_sandbox import SessionSandbox
from homarus.tools.tool import ToolContext, ToolOutput
from tests.unit.tools.sandbox_builders import GROUP, SandboxHarness

GROUP_ACCESS = session_access(GROUP)
PNG = b"\x89PNG\r\n\x1a\n" + bytes(64)


def context(sandbox: SessionSandbox, access: WorkspaceAccess = FULL_ACCESS) -> ToolContext:
    return ToolContext(GROUP, "main", sandbox.agent_workspace, run_access=access, sandbox=sandbox)


async def call(tool: Any, ctx: ToolContext, **args: Any) -> str:
    made = await tool.run(ctx, **args)
    return str(getattr(made.content[0], "text", "")) if isinstance(made, ToolOutput) else made


def shown(sandbox: SessionSandbox) -> dict[str, str]:
    """Return the mounts of the sandbox: target to source."""
    spec = sandbox.make_spec()
    assert not any(mount.is_writable for mount in spec.mounts)
    return {mount.target: str(mount.source) for mount in spec.mounts}


# Access


@pytest.mark.parametrize(
    ("wanted", "access", "given"),
    [
        ("none", FULL_ACCESS, "none"),
        ("ro", FULL_ACCESS, "ro"),
        ("rw", FULL_ACCESS, "rw"),
        ("rw", GROUP_ACCESS, "ro"),
        ("none", GROUP_ACCESS, "none"),
    ],
)
def test_access_without_all_rights_is_narrowed_to_ro(
    tmp_path: Path, wanted: str, access: WorkspaceAccess, given: str
) -> None:
    harness = SandboxHarness(tmp_path, {"workspaceAccess": wanted})
    sandbox = harness.open(access=access)
    assert sandbox.access == given
    assert (sandbox.workspace == harness.workspace) == (given == "rw")


def test_mounts_of_full_access_are_the_complete_workspace(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path, {"workspaceAccess": "ro"})
    assert shown(harness.open()) == {"/agent": str(harness.workspace)}
    harness = SandboxHarness(tmp_path, {"workspaceAccess": "none"})
    assert shown(harness.open()) == {}


def test_mounts_of_a_linked_workspace_are_its_target(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path, {"workspaceAccess": "ro"})
    (tmp_path / "link").symlink_to("workspace")
    harness.workspace = tmp_path / "link"
    assert shown(harness.open()) == {"/agent": str(tmp_path / "workspace")}
    harness = SandboxHarness(tmp_path, {"workspaceAccess": "rw"})
    harness.workspace = tmp_path / "link"
    assert harness.open().make_spec().workspace == tmp_path / "workspace"


def test_mounts_of_a_group_are_the_entries_it_sees(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path, {"workspaceAccess": "ro"})
    root = harness.workspace
    for name in ("memory", "bank", ".git", ".openclaw", "notes", "private"):
        (root / name).mkdir()
    for name in ("MEMORY.md.bak", "AGENTS.md", "private/diary.md"):
        (root / name).touch()
    (root / "MEMORY.md").symlink_to("private/diary.md")
    (root / "shortcut").symlink_to("memory")
    assert set(shown(harness.open(access=GROUP_ACCESS))) == {"/agent/AGENTS.md", "/agent/notes"}


def test_mounts_of_a_group_leave_out_what_is_removed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = SandboxHarness(tmp_path, {"workspaceAccess": "ro"})
    (harness.workspace / "notes").mkdir()
    sandbox = harness.open(access=GROUP_ACCESS)
    entries = list(harness.workspace.iterdir())
    monkeypatch.setattr(Path, "iterdir", lambda _self: iter([*entries, tmp_path / "gone"]))
    assert list(shown(sandbox)) == ["/agent/notes"]


def test_mounts_include_documentation_folders_and_sent_files(tmp_path: Path) -> None:
    docs, extra, media = tmp_path / "docs", tmp_path / "extra", tmp_path / "state" / "media"
    for folder in (docs, extra, media):
        folder.mkdir(parents=True)
    sent, other = media / "sent.txt", tmp_path / "state" / "other.txt"
    sent.touch()
    other.touch()
    harness = SandboxHarness(tmp_path, {"readOnlyFolders": [str(extra)]})
    paths = frozenset({str(sent), str(media / "gone"), f"{media}/../other.txt", str(other)})
    access = replace(GROUP_ACCESS, get_media=lambda: paths)
    opened = harness.registry.open("main", GROUP, harness.workspace, access, docs=docs)
    assert opened and set(shown(opened)) == {str(docs), str(extra), str(sent)}
    silent = replace(access, can_attach=False)
    opened = harness.registry.open("main", GROUP, harness.workspace, silent)
    assert opened and set(shown(opened)) == {str(extra)}


def test_mounts_include_skills_except_those_with_private_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = ("state/skills/a", "workspace/skills/b", "elsewhere/c", "state/logs", "other/skills/d")
    folders = [tmp_path / name for name in names]
    for folder in folders:
        folder.mkdir(parents=True)
    harness = SandboxHarness(tmp_path, others=[tmp_path / "other"])
    access = replace(GROUP_ACCESS, get_skills=lambda: folders)
    opened = harness.registry.open("main", GROUP, harness.workspace, access)
    assert opened and shown(opened) == {str(each): str(each) for each in folders[:3]}
    assert "2 skills are not in the sandbox" in caplog.text


@pytest.mark.parametrize(
    "folder",
    ["state", "", "state/credentials", "workspace", "workspace/a", "other", "missing", "link"],
)
def test_read_only_folder_with_private_files_is_refused(tmp_path: Path, folder: str) -> None:
    for each in ("state/credentials", "workspace/a", "other"):
        (tmp_path / each).mkdir(parents=True)
    (tmp_path / "link").symlink_to("state")
    settings = {"readOnlyFolders": [str(tmp_path / folder)]}
    harness = SandboxHarness(tmp_path, settings, others=[tmp_path / "other"])
    with pytest.raises(SandboxError, match="readOnlyFolders"):
        harness.open().make_spec()


@pytest.mark.parametrize("folder", ["/", "/proc/self", "/dev", f"/{'x' * 300}"])
def test_read_only_folder_of_the_system_is_refused(tmp_path: Path, folder: str) -> None:
    harness = SandboxHarness(tmp_path, {"readOnlyFolders": [folder]})
    with pytest.raises(SandboxError, match="readOnlyFolders"):
        harness.open().make_spec()


@pytest.mark.parametrize("wanted", ["ro", "rw"])
def test_workspace_with_the_state_directory_in_it_is_not_shown(tmp_path: Path, wanted: str) -> None:
    harness = SandboxHarness(tmp_path, {"workspaceAccess": wanted})
    harness.state.mkdir()
    harness.workspace = tmp_path
    with pytest.raises(SandboxError, match="contains the state directory"):
        harness.open().make_spec()


@pytest.mark.parametrize("root", [".", "state", "workspace/boxes", "link/boxes"])
def test_workspace_root_among_other_files_is_refused(tmp_path: Path, root: str) -> None:
    (tmp_path / "link").symlink_to("workspace")
    harness = SandboxHarness(tmp_path, {"workspaceRoot": str(tmp_path / root)})
    harness.state.mkdir()
    with pytest.raises(SandboxError, match="workspaceRoot"):
        harness.open().make_workspace()
    assert list(harness.workspace.iterdir()) == []


async def test_workspace_root_of_the_config_holds_the_workspace(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path, {"workspaceRoot": str(tmp_path / "boxes")})
    sandbox = harness.open()
    launch, _ = await sandbox.make_launch("true")
    launch.close()
    assert [each.name for each in (tmp_path / "boxes").iterdir()] == [sandbox.name]
    await harness.registry.remove(sandbox.name)
    assert list((tmp_path / "boxes").iterdir()) == []


@pytest.mark.parametrize(
    "docker", [{"setupCommand": "apt-get update"}, {"binds": ["/srv:/srv:ro"]}]
)
async def test_setting_that_cannot_be_obeyed_is_refused(tmp_path: Path, docker: Any) -> None:
    harness = SandboxHarness(tmp_path, {"docker": docker})
    with pytest.raises(SandboxError, match="docker"):
        await harness.open().make_launch("true")
    assert harness.backend.commands == []


def test_backend_is_containers_where_an_image_is_named(tmp_path: Path) -> None:
    assert SandboxHarness(tmp_path).open().backend == "bubblewrap"
    assert SandboxHarness(tmp_path, {"docker": {"image": "x"}}).open().backend == "oci"
    named = {"docker": {"image": "x"}, "backend": "bubblewrap"}
    assert SandboxHarness(tmp_path, named).open().backend == "bubblewrap"


def test_limits_of_the_config_are_those_of_the_sandbox(tmp_path: Path) -> None:
    docker = {
        "pidsLimit": 7,
        "memory": "512m",
        "cpus": 1.5,
        "ulimits": {"nofile": "100:200", "fsize": {"soft": 9}, "cpu": 30},
    }
    limits = SandboxHarness(tmp_path, {"docker": docker}).open().make_spec().limits
    assert (limits.pids, limits.memory_bytes, limits.cpus) == (7, 512 << 20, 1.5)
    assert (limits.open_files, limits.file_bytes, limits.cpu_s) == (100, 9, 30)


# Folders of commands


def test_workdir_is_resolved_as_commands_see_it(tmp_path: Path) -> None:
    sandbox = SandboxHarness(tmp_path, {"workspaceAccess": "ro"}).open()
    sandbox.make_workspace()
    (sandbox.workspace / "src").mkdir()
    for path in ("src", "./src", "/workspace/src", str(sandbox.workspace / "src")):
        if not path.startswith(str(tmp_path)):
            assert sandbox.resolve_workdir(path) == "/workspace/src"
    assert sandbox.resolve_workdir(None) == sandbox.resolve_workdir("/workspace") == "/workspace"
    assert sandbox.resolve_workdir("/tmp/x") == "/tmp/x"
    assert sandbox.resolve_workdir("/agent/a/../b") == "/agent/b"


@pytest.mark.parametrize(
    "path",
    ["..", "/workspace/../etc", "/etc", "/tmp/../etc", "missing", "a\\b", "/agentx"],
)
def test_workdir_outside_the_sandbox_is_refused(tmp_path: Path, path: str) -> None:
    sandbox = SandboxHarness(tmp_path).open()
    with pytest.raises(ToolError):
        sandbox.resolve_workdir(path)


# File tools


async def test_file_tools_work_on_the_files_of_the_sandbox(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path)
    (harness.workspace / "MEMORY.md").write_text("secret")
    sandbox = harness.open()
    ctx = context(sandbox)
    await call(write, ctx, path="/workspace/src/a.txt", content="one\n")
    assert (sandbox.workspace / "src" / "a.txt").read_text() == "one\n"
    await call(edit, ctx, path="src/a.txt", old_text="one", new_text="two")
    assert await call(read, ctx, path="/workspace/src/a.txt") == "two"
    assert await call(ls, ctx) == "src/"
    assert await call(find, ctx, pattern="*.txt", path="/workspace") == "src/a.txt"
    assert "two" in await call(grep, ctx, pattern="two", path="/workspace/src")
    assert [each.name for each in harness.workspace.iterdir()] == ["MEMORY.md"]
    hidden = ("MEMORY.md", "/agent/MEMORY.md", str(harness.workspace / "MEMORY.md"), "/etc/passwd")
    for path in hidden:
        with pytest.raises(ToolError):
            await call(read, ctx, path=path)
    for path in ("/var/x", "/agent/x", "/workspace/../x", "/tmp/../x"):
        with pytest.raises(ToolError):
            await call(write, ctx, path=path, content="")


async def test_file_tools_of_a_link_out_of_the_sandbox_are_refused(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path)
    sandbox, secret = harness.open(), tmp_path / "secret"
    secret.write_text("key")
    sandbox.make_workspace()
    (sandbox.workspace / "link").symlink_to(secret)
    (sandbox.workspace / "up").symlink_to("../../..")
    (sandbox.workspace / "hard").hardlink_to(secret)
    for path in ("link", "up/secret", "hard", "/workspace/link"):
        with pytest.raises(ToolDeniedError):
            await call(read, context(sandbox), path=path)
        with pytest.raises(ToolDeniedError):
            await call(write, context(sandbox), path=path, content="x")
    assert secret.read_text() == "key"


async def test_file_tools_read_the_agents_files_with_ro_access(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path, {"workspaceAccess": "ro"})
    (harness.workspace / "notes").mkdir()
    (harness.workspace / "notes" / "a.md").write_text("shared note")
    (harness.workspace / "MEMORY.md").write_text("secret")
    ctx = context(harness.open(access=GROUP_ACCESS), GROUP_ACCESS)
    assert await call(read, ctx, path="/agent/notes/a.md") == "shared note"
    assert await call(ls, ctx, path="/agent") == "notes/"
    found = await call(grep, ctx, pattern="note", path="/agent")
    assert found == "/agent/notes/a.md:1: shared note"
    with pytest.raises(ToolError):
        await call(read, ctx, path="/agent/MEMORY.md")
    for path in ("/agent/notes/a.md", "/agent/new"):
        with pytest.raises(ToolDeniedError):
            await call(write, ctx, path=path, content="x")


async def test_file_tools_of_rw_access_use_the_agents_workspace(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path, {"workspaceAccess": "rw"})
    ctx = context(harness.open())
    await call(write, ctx, path="/workspace/AGENTS.md", content="x")
    assert (harness.workspace / "AGENTS.md").read_text() == "x"
    assert await write_effects(ctx, "/workspace/AGENTS.md") == {"identity"}
    assert await write_effects(ctx, "/tmp/AGENTS.md") == frozenset()
    harness.workspace.chmod(0)
    harness.open().make_workspace()
    assert harness.workspace.stat().st_mode & 0o700 == 0o700
    isolated = context(SandboxHarness(tmp_path).open())
    assert await write_effects(isolated, "/workspace/AGENTS.md") == frozenset()


async def test_file_tools_read_the_read_only_folders(tmp_path: Path) -> None:
    extra = tmp_path / "extra"
    extra.mkdir()
    (extra / "a.txt").write_text("from the machine")
    harness = SandboxHarness(tmp_path, {"readOnlyFolders": [str(extra)]})
    ctx = context(harness.open())
    assert await call(read, ctx, path=str(extra / "a.txt")) == "from the machine"
    with pytest.raises(ToolDeniedError):
        await call(write, ctx, path=str(extra / "a.txt"), content="x")


async def test_file_tools_reach_the_tmp_of_commands(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path)
    ctx, canary = context(harness.open()), f"/tmp/{tmp_path.name}-canary/x"
    assert canary in await call(write, ctx, path=canary, content="inside")
    spec = harness.open().make_spec()
    assert (spec.tmp / canary.removeprefix("/tmp/")).read_text() == "inside"
    assert await call(read, ctx, path=canary) == "inside" and not Path(canary).exists()
    assert await call(ls, ctx, path="/tmp") != "(empty folder)"


async def test_attachments_are_those_of_the_sandbox(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path, {"workspaceAccess": "ro"})
    (harness.workspace / "MEMORY.md").write_text("secret")
    (harness.workspace / "shared.txt").write_text("shared")
    sandbox = harness.open(access=GROUP_ACCESS)
    sandbox.make_workspace()
    (sandbox.workspace / "MEMORY.md").write_text("made inside")
    (sandbox.workspace / "link").symlink_to(harness.workspace / "MEMORY.md")
    attach = AttachmentStore(tmp_path / "media")
    names = [
        "/workspace/MEMORY.md",
        "/agent/shared.txt",
        "/agent/MEMORY.md",
        "shared.txt",
        "link",
        "/etc/hostname",
        str(harness.workspace / "shared.txt"),
        str(tmp_path / "media" / "inbound" / "x"),
    ]
    found = await attach_from_sandbox(attach, names, sandbox, GROUP_ACCESS)
    texts = [Path(each.path).read_text() if each.path else "" for each in found]
    assert texts == ["made inside", "shared", "", "", "", "", "", ""]
    assert all(each.problem for each in found[2:])
    many = await attach_from_sandbox(attach, ["shared.txt"] * 12, sandbox, GROUP_ACCESS)
    assert [each.problem for each in many[10:]] == ["too many files at once"] * 2
    silent = replace(GROUP_ACCESS, can_attach=False)
    (refused,) = await attach_from_sandbox(attach, names[:1], sandbox, silent)
    assert "may not be read" in refused.problem


async def test_images_that_messages_name_are_those_of_the_sandbox(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path, {"workspaceAccess": "ro"})
    sandbox = harness.open()
    sandbox.make_workspace()
    (sandbox.workspace / "in.png").write_bytes(PNG)
    (harness.workspace / "out.png").write_bytes(PNG)
    read_one = workspace_reader(harness.workspace, FULL_ACCESS, sandbox)
    assert read_one("in.png") and read_one("/workspace/in.png") and read_one("/agent/out.png")
    assert read_one("out.png") is None and read_one(str(harness.workspace / "out.png")) is None


async def test_use_by_file_tools_is_recorded(tmp_path: Path) -> None:
    harness = SandboxHarness(tmp_path)
    await call(write, context(harness.open()), path="a", content="")
    harness.now_ms += 3_600_000
    await call(read, context(harness.open()), path="a")
    assert [each.used_ms for each in harness.registry.entries()] == [harness.now_ms]
