"""A reply and the `message` tool attach only files that their conversation may read.

To a group, MEMORY.md, private notes and the notes of other chats are not there; where the `read`
tool is denied, no file of the workspace is attached at all.
"""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from homarus.agent.context.image_refs import attach_named_images, workspace_reader
from homarus.core.errors import ToolError
from homarus.core.message import Address, Extras, Media, user_message
from homarus.policy.audience import audience_of as audience
from homarus.policy.audience import folder_of
from homarus.policy.tool_policy import PolicyRules, ToolRules
from homarus.policy.workspace_access import WorkspaceAccess, session_access
from homarus.testing.fakes import assistant_message
from homarus.tools.attachments import AttachmentStore
from homarus.tools.builtin.message import message_tool
from homarus.tools.tool import Messenger, SendResult, ToolContext
from tests.unit.agent.harness import Harness, message

MAIN, GROUP = "agent:main:main", "agent:main:telegram:group:-100"
OTHER = "agent:main:telegram:group:-200"
SECRET = "the owner's secret"
PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 16
PRIVATE_FILES = (
    "MEMORY.md",
    "./MEMORY.md",
    "notes/../MEMORY.md",
    "link.md",
    "memory/2026-01-31.md",
    f"{folder_of(audience(OTHER))}/2026-01-31.md",
    "bank/people.md",
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    root = tmp_path / "ws"
    for name in ("MEMORY.md", *PRIVATE_FILES[4:]):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(SECRET)
    (root / "notes").mkdir()
    (root / "notes" / "plan.md").write_text("for everybody")
    (root / "link.md").symlink_to("MEMORY.md")
    return root


def attach(workspace: Path, name: str, access: WorkspaceAccess) -> Media:
    store = AttachmentStore(workspace.parent / "media")
    (media,) = asyncio.run(store([name], workspace, access))
    return media


@pytest.mark.parametrize("name", PRIVATE_FILES)
def test_attachment_of_private_file_is_not_there_for_group(workspace: Path, name: str) -> None:
    for path in (name, f"{workspace}/{name}"):
        assert attach(workspace, path, session_access(GROUP)).problem == "no such file or folder"
        assert not attach(workspace, path, session_access(MAIN)).problem
    assert not attach(workspace, "notes/plan.md", session_access(GROUP)).problem


def test_attachment_of_hard_link_is_refused(workspace: Path) -> None:
    (workspace / "innocent.md").hardlink_to(workspace / "MEMORY.md")
    assert "hard link" in attach(workspace, "innocent.md", session_access(GROUP)).problem


def test_attachment_of_linked_memory_file_is_not_there_for_group(workspace: Path) -> None:
    (workspace / "MEMORY.md").rename(workspace / "notes" / "mem.md")
    (workspace / "MEMORY.md").symlink_to("notes/mem.md")
    found = attach(workspace, "notes/mem.md", session_access(GROUP))
    assert found.problem == "no such file or folder"


def test_attachment_without_read_tool_is_refused(workspace: Path) -> None:
    access = replace(session_access(MAIN), can_attach=False)
    assert "may not be read" in attach(workspace, "notes/plan.md", access).problem


class FileMessenger:
    """Attaches files of a workspace as the program does, and records what is sent."""

    def __init__(self, workspace: Path) -> None:
        self.attach = AttachmentStore(workspace.parent / "media")
        self.sent: list[tuple[Media, ...]] = []

    def accounts(self) -> list[tuple[str, str]]:
        return [("test", "default")]

    def resolve_address(self, target: str, **_names: Any) -> Address:
        return Address("test", target or "-100")

    async def send(self, to: Address, text: str, extras: Extras, key: str) -> SendResult:
        self.sent.append(extras.media)
        return SendResult("sent")


async def send_file(workspace: Path, key: str, name: str) -> tuple[Media, ...]:
    messenger = FileMessenger(workspace)
    ctx = ToolContext(
        key, "main", workspace, here=Address("test", "-100"), messenger=cast("Messenger", messenger)
    )
    await message_tool()(ctx, {"message": "look", "media": name})
    return messenger.sent[0]


async def test_message_tool_sends_no_private_file_from_group(workspace: Path) -> None:
    for name in PRIVATE_FILES:
        with pytest.raises(ToolError, match="no such file"):
            await send_file(workspace, GROUP, name)
    assert await send_file(workspace, GROUP, "notes/plan.md")
    assert await send_file(workspace, MAIN, "MEMORY.md")


def reply_files(workspace: Path, key: str, *rules: ToolRules) -> tuple[Media, ...]:
    """Return the files of a reply that names a private and a common file."""
    harness = Harness(
        workspace, assistant_message("Look.\nMEDIA:./MEMORY.md\nMEDIA:./notes/plan.md")
    )
    harness.key, harness.agent = key, replace(harness.agent, rules=PolicyRules(lists=rules))
    harness.replace_services(messenger=cast("Messenger", FileMessenger(workspace)))
    harness.run(message())
    records = asyncio.run(harness.store.journal.outbox_records())
    return tuple(media for record in records for media in record.extras.media)


def test_media_line_of_group_reply_attaches_no_private_file(workspace: Path) -> None:
    problems = {media.name: media.problem for media in reply_files(workspace, GROUP)}
    assert problems == {"MEMORY.md": "no such file or folder", "plan.md": ""}
    assert [media.problem for media in reply_files(workspace, MAIN)] == ["", ""]


def test_media_line_with_every_tool_denied_attaches_nothing(workspace: Path) -> None:
    for rules in (ToolRules(deny=("*",)), ToolRules(allow=("message",)), ToolRules(ask=("read",))):
        for key in (GROUP, MAIN):
            problems = [media.problem for media in reply_files(workspace, key, rules)]
            assert len(problems) == 2 and all("may not be read" in each for each in problems)


def test_image_named_in_group_message_is_read_by_same_rules(workspace: Path) -> None:
    (workspace / "memory" / "face.png").write_bytes(PNG)
    (workspace / "cat.png").write_bytes(PNG)
    question = user_message("compare memory/face.png and cat.png")

    def count(access: WorkspaceAccess) -> int:
        return len(attach_named_images(question, workspace_reader(workspace, access)).parts) - 1

    assert count(session_access(MAIN)) == 2
    assert count(session_access(GROUP)) == 1
    assert count(replace(session_access(MAIN), can_attach=False)) == 0
