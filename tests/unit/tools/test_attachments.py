"""Files that go out: found in two folders and nowhere else, and kept as they were."""

import asyncio
import os
import time
from pathlib import Path

import pytest

from homarus.core.message import Media
from homarus.policy.workspace_access import FULL_ACCESS
from homarus.tools import attachments
from homarus.tools.attachments import KEEP_S, MAX_FILES, AttachmentStore

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


class Harness:
    """A workspace and a state's media folder."""

    def __init__(self, folder: Path) -> None:
        self.workspace, self.media = folder / "ws", folder / "state" / "media"
        self.workspace.mkdir()
        (self.media / "inbound").mkdir(parents=True)
        self.attach = AttachmentStore(self.media)

    def __call__(self, *names: str) -> list[Media]:
        return list(asyncio.run(self.attach(names, self.workspace, FULL_ACCESS)))


@pytest.fixture
def stage(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "kind", "mime"),
    [
        ("a.bin", PNG, "image", "image/png"),
        ("a.pdf", b"%PDF-1.7 ...", "document", "application/pdf"),
        ("a.ogg", b"OggS....", "audio", "audio/ogg"),
        ("a.mp4", b"\0\0\0\x18ftypisom", "video", "video/mp4"),
        ("a.txt", b"words", "document", "text/plain"),
        ("a.unheard-of", b"words", "document", "application/octet-stream"),
        ("a.svg", b"<svg/>", "document", "image/svg+xml"),
    ],
)
def test_attachment_type_comes_from_bytes_then_name(
    stage: Harness, name: str, content: bytes, kind: str, mime: str
) -> None:
    (stage.workspace / name).write_bytes(content)
    (found,) = stage(f"./{name}")
    assert (found.kind, found.mime, found.name) == (kind, mime, name)
    assert (found.size, found.problem) == (len(content), "")


def test_attachment_replaced_after_lookup_keeps_copied_bytes(stage: Harness) -> None:
    file = stage.workspace / "note.txt"
    file.write_text("as it was")
    (found,) = stage("note.txt")
    file.unlink()
    file.symlink_to("/etc/passwd")
    kept = Path(found.path)
    assert kept.read_text() == "as it was" and kept.is_relative_to(stage.media)
    assert kept.stat().st_mode & 0o077 == 0


def test_attachment_same_file_is_copied_once(stage: Harness) -> None:
    (stage.workspace / "a.txt").write_text("same")
    one, two = stage("a.txt", str(stage.workspace / "a.txt"))
    assert one == two and len(list((stage.media / "outbound").iterdir())) == 1


def test_attachment_received_file_can_be_sent(stage: Harness) -> None:
    came = stage.media / "inbound" / "x.png"
    came.write_bytes(PNG)
    (found,) = stage(str(came))
    assert found.problem == "" and found.kind == "image"


@pytest.mark.parametrize(
    "name",
    [
        "/etc/passwd",
        "../secret.txt",
        "sub/../../secret.txt",
        "link.txt",
        "linked/secret.txt",
        "hard.txt",
        "~/secret.txt",
        "https://example.com/a.png",
        "file.txt\0.png",
        "missing.txt",
        "folder",
        "pipe",
        "empty.txt",
        ".openclaw/openclaw.json",
        "{media}/../../secret.txt",
        "{media}/link.txt",
        "{media}/../openclaw.json",
    ],
)
def test_attachment_outside_allowed_directories_is_refused(
    stage: Harness, tmp_path: Path, name: str
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    (tmp_path / "state" / "openclaw.json").write_text("secret")
    ws = stage.workspace
    (ws / "sub").mkdir()
    (ws / "folder").mkdir()
    (ws / ".openclaw").mkdir()
    (ws / ".openclaw" / "openclaw.json").write_text("secret")
    (ws / "link.txt").symlink_to(secret)
    (ws / "linked").symlink_to(tmp_path)
    (ws / "hard.txt").hardlink_to(secret)
    (ws / "empty.txt").touch()
    (stage.media / "link.txt").symlink_to(secret)
    os.mkfifo(ws / "pipe")
    (found,) = stage(name.replace("{media}", str(stage.media)))
    assert found.problem and not found.path
    assert "secret" not in str(list((stage.media).rglob("*secret*")))


def test_attachments_too_many_or_too_large_give_reason(
    stage: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stage.workspace / "a.txt").write_text("12345")
    found = stage(*["a.txt"] * (MAX_FILES + 2))
    assert [bool(one.problem) for one in found] == [False] * MAX_FILES + [True] * 2
    monkeypatch.setattr(attachments, "MAX_BYTES", 4)
    (big,) = stage("a.txt")
    assert "larger" in big.problem


def test_attachment_old_copies_are_deleted(stage: Harness) -> None:
    (stage.workspace / "a.txt").write_text("old")
    (stage.workspace / "b.txt").write_text("new")
    (old,) = stage("a.txt")
    long_ago = time.time() - KEEP_S - 60
    os.utime(Path(old.path).parent, (long_ago, long_ago))
    (new,) = stage("b.txt")
    assert not Path(old.path).exists() and Path(new.path).exists()
