"""What file tools reach besides the workspace: sent files, folders to read, the machine."""

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import ToolDeniedError, ToolError
from homarus.core.message import Image, Text
from homarus.policy.workspace_access import (
    FULL_ACCESS,
    FileScope,
    WorkspaceAccess,
    session_access,
)
from homarus.tools.builtin.files import edit, read, write
from homarus.tools.builtin.search import find, grep, ls
from homarus.tools.folder import DescriptorFolder, open_folder
from homarus.tools.rooted_fs import RootedFs
from homarus.tools.tool import Tool, ToolContext, ToolOutput

MAIN, GROUP = "agent:main:main", "agent:main:telegram:group:-100"
PDF = b"%PDF-1.7\n1 0 obj\nendobj\n"
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16


class Stage:
    """A state directory with sent files, a workspace, and files elsewhere."""

    def __init__(self, folder: Path) -> None:
        self.state, self.workspace = folder / "state", folder / "state" / "workspace"
        self.inbound, self.home = self.state / "media" / "inbound", folder / "home"
        for each in (self.workspace, self.inbound, self.home, folder / "skills" / "weather"):
            each.mkdir(parents=True)
        self.skills = folder / "skills"
        (self.skills / "weather" / "SKILL.md").write_text("ask the sky")
        (self.state / "openclaw.json").write_text("SECRET")
        (self.home / "notes.txt").write_text("of the owner\n")
        self.pdf = self.sent("a" * 32 + ".pdf", PDF)
        self.note = self.sent("b" * 32 + ".txt", b"dear agent\n")
        self.foreign = self.sent("c" * 32 + ".txt", b"SECRET of another chat\n")

    def sent(self, name: str, content: bytes) -> str:
        (self.inbound / name).write_bytes(content)
        return str(self.inbound / name)

    def context(self, access: WorkspaceAccess = FULL_ACCESS, **scope: Any) -> ToolContext:
        media = frozenset({self.pdf, self.note})
        access = replace(access, get_media=lambda: media)
        return ToolContext(
            MAIN, "main", self.workspace, run_access=access, scope=FileScope(**scope)
        )

    def open(self, access: WorkspaceAccess = FULL_ACCESS) -> ToolContext:
        """Return the context of a config with workspaceOnly: false."""
        return self.context(access, protected=(self.state, self.state.parent / "other"))


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def use(made: Tool, ctx: ToolContext, **args: Any) -> str:
    result = asyncio.run(made(ctx, args))
    if isinstance(result, ToolOutput):
        return "".join(part.text for part in result.content if isinstance(part, Text))
    return result


def test_sent_file_is_read_and_searched_by_its_path(stage: Stage) -> None:
    for access in (FULL_ACCESS, session_access(GROUP)):
        ctx = stage.context(access)
        assert use(read, ctx, path=stage.note) == "dear agent"
        assert use(grep, ctx, path=stage.note, pattern="agent") == f"{stage.note}:1: dear agent"


def test_sent_image_is_shown(stage: Stage) -> None:
    path = stage.sent("d" * 32 + ".png", PNG)
    ctx = replace(stage.context(), run_access=WorkspaceAccess(get_media=lambda: frozenset({path})))
    result = asyncio.run(read(ctx, {"path": path}))
    assert isinstance(result, ToolOutput) and isinstance(result.content[1], Image)


def test_sent_pdf_that_is_damaged_is_named_and_not_shown(stage: Stage) -> None:
    with pytest.raises(ToolError, match=r"cannot be read: it is damaged"):
        use(read, stage.context(), path=stage.pdf)


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (b"\0\1\2", "of an unknown type, 3 bytes"),
        (b"\x1f\x8b\x08\xff\xfe", "application/gzip, 5 bytes"),
        (b"ID3 tags are metadata", ""),
        ("Grüße".encode("latin-1"), ""),
        ("é".encode() * 5000, ""),
    ],
)
def test_read_tells_binary_files_from_text(stage: Stage, content: bytes, shown: str) -> None:
    (stage.workspace / "x").write_bytes(content)
    if not shown:
        assert use(read, stage.context(), path="x")
        return
    with pytest.raises(ToolError, match=shown):
        use(read, stage.context(), path="x")


def test_sent_file_of_another_conversation_is_refused(stage: Stage) -> None:
    for path in (
        stage.foreign,
        f"{stage.inbound}/../inbound/{Path(stage.foreign).name}",
        f"{stage.note}/../{Path(stage.foreign).name}",
    ):
        with pytest.raises(ToolError, match="outside the workspace"):
            use(read, stage.context(), path=path)
    with pytest.raises(ToolError, match="outside the workspace"):
        use(ls, stage.context(), path=str(stage.inbound))
    with pytest.raises(ToolError, match="outside the workspace"):
        use(find, stage.context(), path=str(stage.inbound), pattern="*")


def test_sent_file_is_never_changed(stage: Stage) -> None:
    with pytest.raises(ToolError, match="outside the workspace"):
        use(write, stage.context(), path=stage.note, content="x")
    with pytest.raises(ToolError, match="outside the workspace"):
        use(edit, stage.context(), path=stage.note, oldText="dear", newText="x")
    assert Path(stage.note).read_text() == "dear agent\n"


def test_sent_file_that_is_a_link_is_refused(stage: Stage) -> None:
    Path(stage.note).unlink()
    Path(stage.note).symlink_to(stage.foreign)
    with pytest.raises(ToolError, match="a link that is not followed"):
        use(read, stage.context(), path=stage.note)
    Path(stage.note).unlink()
    os.link(stage.foreign, stage.note)
    with pytest.raises(ToolError, match="hard link"):
        use(read, stage.context(), path=stage.note)


def test_listed_skill_is_read_only(stage: Stage) -> None:
    ctx = stage.context(session_access(GROUP), read_only=(stage.skills,))
    path = f"{stage.skills}/weather/SKILL.md"
    assert use(read, ctx, path=path) == "ask the sky"
    assert use(ls, ctx, path=str(stage.skills)) == "weather/"
    assert use(find, ctx, path=str(stage.skills), pattern="**/*.md") == path
    with pytest.raises(ToolError, match="outside the workspace"):
        use(write, ctx, path=path, content="x")


def test_offered_skill_is_read_only_wherever_it_is(stage: Stage) -> None:
    folder = stage.skills / "weather"
    access = replace(session_access(GROUP), get_skills=lambda: (folder,))
    ctx = stage.context(access)
    assert use(read, ctx, path=f"{folder}/SKILL.md") == "ask the sky"
    assert use(ls, ctx, path=str(folder)) == "SKILL.md"
    (folder / "link").symlink_to(stage.foreign)
    with pytest.raises(ToolError, match="a link that is not followed"):
        use(read, ctx, path=f"{folder}/link")
    for outside in (str(stage.skills), f"{folder}/../x", f"{folder}2/SKILL.md"):
        with pytest.raises(ToolError, match="outside the workspace"):
            use(read, ctx, path=outside)
    with pytest.raises(ToolError, match="outside the workspace"):
        use(write, ctx, path=f"{folder}/SKILL.md", content="x")


def test_path_outside_is_refused_by_default(stage: Stage) -> None:
    for tool, more in ((read, {}), (ls, {}), (write, {"content": "x"})):
        with pytest.raises(ToolError, match="outside the workspace"):
            use(tool, stage.context(), path=f"{stage.home}/notes.txt", **more)


def test_path_outside_is_read_and_written_with_open_scope(stage: Stage) -> None:
    ctx, notes = stage.open(), f"{stage.home}/notes.txt"
    assert use(read, ctx, path=notes) == "of the owner"
    assert use(ls, ctx, path=str(stage.home)) == "notes.txt"
    assert use(grep, ctx, path=str(stage.home), pattern="owner") == f"{notes}:1: of the owner"
    use(edit, ctx, path=notes, oldText="owner", newText="agent")
    use(write, ctx, path=f"{stage.home}/new/file", content="made")
    assert Path(notes).read_text() == "of the agent\n"
    assert (stage.home / "new" / "file").read_text() == "made"
    use(write, ctx, path="mine.txt", content="x")
    assert (stage.workspace / "mine.txt").exists()
    assert use(read, ctx, path=f"{stage.workspace}/mine.txt") == "x"


def test_open_scope_holds_for_the_owner_alone(stage: Stage) -> None:
    stranger = session_access(MAIN, is_owner=False)
    everyone = session_access(MAIN, is_owner=False, can_everyone_write=True)
    for access in (session_access(GROUP), stranger, everyone):
        for tool, more in ((read, {}), (grep, {"pattern": "x"}), (write, {"content": "x"})):
            with pytest.raises(ToolError, match="outside the workspace"):
                use(tool, stage.open(access), path=f"{stage.home}/notes.txt", **more)


@pytest.mark.parametrize(
    "path",
    [
        "{}/state/openclaw.json", "{}/home/../state/openclaw.json", "{}/STATE/openclaw.json",
        "{}/state/media/inbound/" + "c" * 32 + ".txt", "{}/state", "{}/other/MEMORY.md",
        "/proc/self/environ", "/proc/1/cwd/x", "/sys/kernel", "/dev/null",
        "//proc/self",        "/home/../proc/self/mem", "{}/state/./openclaw.json", "/./dev/fd/0",
    ],
)  # fmt: skip
def test_open_scope_has_no_state_kernel_or_other_workspace(stage: Stage, path: str) -> None:
    path = path.format(stage.state.parent)
    for tool, more in ((read, {}), (ls, {}), (write, {"content": "x"})):
        with pytest.raises(ToolDeniedError, match="not for file tools"):
            use(tool, stage.open(), path=path, **more)
    assert (stage.state / "openclaw.json").read_text() == "SECRET"


def test_open_scope_does_not_follow_links_into_the_state(stage: Stage) -> None:
    (stage.home / "link").symlink_to("../state")
    (stage.home / "absolute").symlink_to(stage.state)
    for path in ("link/openclaw.json", "absolute/openclaw.json"):
        for tool, more in ((read, {}), (write, {"content": "x"})):
            with pytest.raises(ToolError):
                use(tool, stage.open(), path=f"{stage.home}/{path}", **more)
    base = stage.state.parent
    assert "openclaw.json" not in use(find, stage.open(), path=str(base), pattern="**/*")
    assert "SECRET" not in use(grep, stage.open(), path=str(base), pattern="SECRET")
    assert (stage.state / "openclaw.json").read_text() == "SECRET"


@pytest.mark.parametrize("name", ["MEMORY.md", "memory/2026-01-01.md", "bank/x.md", ".git/config"])
def test_group_reaches_private_notes_by_no_tool_and_no_path(stage: Stage, name: str) -> None:
    path = stage.workspace / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("SECRET note")
    ctx = stage.open(session_access(GROUP))
    for spelling in (name, f"./{name}", str(path), f"{stage.workspace}/./{name}"):
        for tool, more in (
            (read, {}), (edit, {"oldText": "SECRET", "newText": "x"}),
            (grep, {"pattern": "SECRET"}), (write, {"content": "x"}),
        ):  # fmt: skip
            with pytest.raises(ToolError):
                use(tool, ctx, path=spelling, **more)
    for folder in (".", str(stage.workspace)):
        assert use(grep, ctx, path=folder, pattern="SECRET") == "no matches"
        found = use(find, ctx, path=folder, pattern="**/*").split("\n")
        assert not {name, str(path)} & {*found, *use(ls, ctx, path=folder).split("\n")}
    assert path.read_text() == "SECRET note"


class SwappingFolder(DescriptorFolder):
    """Gives a file outside a second name while the file is opened."""

    outside = ""

    def open_read(self, name: str) -> int:
        os.unlink(name, dir_fd=self.fd)
        os.link(self.outside, name, dst_dir_fd=self.fd)
        fd = super().open_read(name)
        os.unlink(name, dir_fd=self.fd)
        os.close(self.create(name, 0o600))
        return fd


def test_file_outside_with_a_second_name_for_a_moment_is_refused(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("SECRET")
    root = tmp_path / "ws"
    root.mkdir()
    (root / "x").write_text("inside")

    def swapping(path: Path) -> SwappingFolder:
        folder = open_folder(path)
        assert isinstance(folder, DescriptorFolder)
        found = SwappingFolder(folder.fd)
        found.outside = str(tmp_path / "secret")
        return found

    with (
        pytest.raises(ToolError, match="replaced again and again"),
        RootedFs(root, swapping).open_read("x") as opened,
    ):
        assert opened.file.read() != b"SECRET"


@pytest.mark.parametrize(
    "path", ["hooks/greet/handler.py", "hooks/new/HOOK.md", "internal-hooks.json"]
)
async def test_hooks_of_the_state_directory_cannot_be_written(tmp_path: Path, path: str) -> None:
    """They are code that runs in the gateway's name, and the list of what the owner enabled."""
    stage = Stage(tmp_path)
    file = stage.state / path
    file.parent.mkdir(parents=True, exist_ok=True)
    for ctx in (stage.context(), stage.open()):
        with pytest.raises(ToolError):
            await write(ctx, {"path": str(file), "content": "evil"})
        with pytest.raises(ToolError):
            await write(ctx, {"path": f"../{path}", "content": "evil"})
    assert not file.exists()


async def test_hooks_of_the_workspace_are_written_by_the_owner_alone(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    group = stage.context(session_access(GROUP))
    with pytest.raises(ToolError):
        await write(group, {"path": "hooks/greet/handler.py", "content": "evil"})
    assert not (stage.workspace / "hooks").exists()
