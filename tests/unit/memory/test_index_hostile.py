"""Whatever lies in a workspace is indexed or skipped by name, and costs its own note at most."""

import os
import random
import shutil
import socket
import threading
from pathlib import Path

import apsw
import pytest

from homarus.memory.index import SyncReport
from homarus.memory.note_files import (
    MAX_FILE_BYTES,
    MAX_FILE_LINES,
    NoteFile,
    SkippedFile,
    find_notes,
    read_note,
)
from homarus.memory.note_search import NoteSearch


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "memory"
    folder.mkdir()
    (folder / "good.md").write_text("- the lamp", encoding="utf-8")
    return folder


def sync(folder: Path) -> SyncReport:
    """Index a workspace: the good note is found, whatever is beside it."""
    with NoteSearch(folder.parent, folder.parent / "state" / "main.sqlite") as memory:
        report = memory.sync()
        assert "memory/good.md" in report.indexed
        assert any(one.path == "memory/good.md" for one in memory.search("lamp"))
        assert memory.sync().indexed == ()
        return report


def says(memory: NoteSearch, word: str) -> bool:
    """Whether a search for a word finds it."""
    return any(word in one.snippet for one in memory.search(word))


def why_skipped(report: SyncReport) -> dict[str, str]:
    return {one.path: one.why for one in report.skipped}


def test_sync_file_of_100_mb_is_skipped_unread(notes: Path) -> None:
    with (notes / "huge.md").open("wb") as huge:
        huge.truncate(100 << 20)
    assert why_skipped(sync(notes)) == {"memory/huge.md": "is larger than 32 MB"}


def test_sync_line_of_30_mb_is_cut_and_cited(notes: Path) -> None:
    word = "word " * ((MAX_FILE_BYTES - 4096) // 10 // 5)
    (notes / "long.md").write_text(word * 5 + "lighthouse " + word * 5, encoding="utf-8")
    with NoteSearch(notes.parent, notes.parent / "state" / "main.sqlite") as memory:
        memory.sync()
        (found, *_) = memory.search("lighthouse")
    assert (found.path, found.start_line, found.end_line) == ("memory/long.md", 1, 1)
    assert "lighthouse" in found.snippet
    assert len(found.snippet) <= 1500


def test_sync_line_of_blanks_is_empty(notes: Path) -> None:
    (notes / "blank.md").write_text("x" + " " * 3_000_000, encoding="utf-8")
    (notes / "empty.md").write_text(" " * 3_000_000, encoding="utf-8")
    assert sync(notes).lines == 2


def test_sync_million_empty_lines_index_nothing(notes: Path) -> None:
    (notes / "empty.md").write_bytes(b"\n" * MAX_FILE_LINES)
    (notes / "more.md").write_bytes(b"\n" * (MAX_FILE_LINES + 1))
    report = sync(notes)
    assert report.lines == 1
    assert why_skipped(report) == {"memory/more.md": "has more than 1,000,000 lines"}


def test_sync_invalid_files_are_skipped_or_marked_inexact(notes: Path) -> None:
    chance = random.Random(7)
    (notes / "zip.md").write_bytes(b"PK\3\4" + chance.randbytes(100_000))
    (notes / "nul.md").write_bytes(b"- a note\0with NULs")
    (notes / "late.md").write_bytes(b"- a violin\n" * 2000 + b"\0\0 and a NUL far below")
    (notes / "utf16.md").write_bytes("- in another code".encode("utf-16"))
    (notes / "high.md").write_bytes(bytes(range(128, 256)) * 500)
    (notes / "half.md").write_bytes("- 東京".encode()[:-1])
    (notes / "surrogate.md").write_bytes(b"- \xed\xa0\x80 half a pair")
    (notes / "bom.md").write_bytes(b"\xef\xbb\xbf# A heading\r\n\r\n- of a mountain\r\n")
    report = sync(notes)
    assert why_skipped(report) == {
        f"memory/{name}.md": "is not text" for name in ("nul", "utf16", "zip")
    }
    assert report.inexact == ("memory/half.md", "memory/high.md", "memory/surrogate.md")
    with NoteSearch(notes.parent, notes.parent / "state" / "main.sqlite") as memory:
        assert memory.search("mountain")[0].snippet.endswith("of a mountain")
        assert memory.search("violin")


@pytest.mark.parametrize("seed", range(8))
def test_sync_arbitrary_bytes_are_indexed_or_skipped(notes: Path, seed: int) -> None:
    chance = random.Random(seed)
    parts = [b"\r", b"\n", b"# ", b"- ", b"\xff", b"\xe2\x80\xa8", b":", b" ", b"a", b"\x1b[2J"]
    for number in range(20):
        data = b"".join(chance.choices(parts, k=chance.randrange(4000)))
        (notes / f"{number}.md").write_bytes(data + chance.randbytes(chance.randrange(3)))
    report = sync(notes)
    told = len(report.indexed) + len(report.skipped)
    assert told == 21


def test_sync_special_files_are_skipped_without_blocking(notes: Path) -> None:
    os.mkfifo(notes / "pipe.md")
    (notes / "link.md").symlink_to(notes / "good.md")
    (notes / "nowhere.md").symlink_to(notes / "missing")
    (notes / "self.md").symlink_to(notes / "self.md")
    (notes / "loop").symlink_to(notes)
    (notes / "null.md").symlink_to("/dev/zero")
    (notes / "folder.md").mkdir()
    (notes / "folder.md" / "inner.md").write_text("- the lamp inside", encoding="utf-8")
    with socket.socket(socket.AF_UNIX) as listening:
        before = Path.cwd()
        os.chdir(notes)  # a socket's name may not be long
        try:
            listening.bind("socket.md")
        finally:
            os.chdir(before)
        report = sync(notes)
    links = ("link", "nowhere", "null", "self")
    assert why_skipped(report) == {
        **{f"memory/{name}.md": "is a link" for name in links},
        **{f"memory/{name}.md": "is not a file" for name in ("pipe", "socket")},
    }
    assert "memory/folder.md/inner.md" in report.indexed


@pytest.mark.parametrize(
    ("name", "shown", "why"),
    [
        (b"new\nline.md", "memory/new\ufffdline.md", "its name has control characters"),
        (b"esc\x1b[2J.md", "memory/esc\ufffd[2J.md", "its name has control characters"),
        ("turn\u202edm.md".encode(), "memory/turn\ufffddm.md", "its name has control characters"),
        (b"latin\xe9.md", "memory/latin?.md", "its name is not UTF-8"),
    ],
)
def test_sync_uncitable_name_is_skipped(notes: Path, name: bytes, shown: str, why: str) -> None:
    Path(os.fsdecode(os.fsencode(notes) + b"/" + name)).write_bytes(b"- a lamp")
    assert why_skipped(sync(notes)) == {shown: why}


def test_sync_unusual_citable_names_are_indexed(notes: Path) -> None:
    names = ["a b.md", "東京.md", "'; DROP TABLE lines --.md", "%s.md", '"q".md', ".md", "..md"]
    for name in names:
        (notes / name).write_text("- odd one", encoding="utf-8")
    assert set(sync(notes).indexed) == {"memory/good.md", *(f"memory/{name}" for name in names)}


def test_sync_deep_folders_are_walked(notes: Path) -> None:
    here = notes
    for _ in range(60):
        here /= "deeper"
    here.mkdir(parents=True)
    (here / "note.md").write_text("- at the bottom", encoding="utf-8")
    assert len(sync(notes).indexed) == 2


def test_sync_disk_error_skips_note(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (notes / "secret.md").write_text("- hidden", encoding="utf-8")
    real_open, real_scan = os.open, os.scandir
    (notes / "closed").mkdir()

    def refused(path: str | Path, *rest: int) -> int:
        if str(path).endswith("secret.md"):
            raise PermissionError(13, "Permission denied")
        return real_open(path, *rest)

    def unlisted(path: str) -> object:
        if path.endswith("closed"):
            raise OSError(5, "Input/output error")
        return real_scan(path)

    monkeypatch.setattr("homarus.memory.note_files.os.open", refused)
    monkeypatch.setattr("homarus.memory.note_files.os.scandir", unlisted)
    assert why_skipped(sync(notes)) == {
        "memory/secret.md": "Permission denied",
        "memory/closed": "Input/output error",
    }


def test_sync_file_removed_after_listing_is_skipped(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (notes / "brief.md").write_text("- brief", encoding="utf-8")
    (notes / "swapped.md").write_text("- swapped", encoding="utf-8")

    def listed(workspace: Path, extra: object) -> list[NoteFile | SkippedFile]:
        found = find_notes(workspace)
        (notes / "brief.md").unlink(missing_ok=True)
        (notes / "swapped.md").unlink(missing_ok=True)
        (notes / "swapped.md").symlink_to("/etc/hostname")
        return found

    monkeypatch.setattr("homarus.memory.note_search.find_notes", listed)
    with NoteSearch(notes.parent, notes.parent / "state" / "main.sqlite") as memory:
        report = memory.sync()
    assert report.indexed == ("memory/good.md",)
    assert set(why_skipped(report)) == {"memory/brief.md", "memory/swapped.md"}


def test_sync_unreadable_note_is_removed_from_index(notes: Path) -> None:
    path = notes / "turns.md"
    path.write_text("- a lighthouse", encoding="utf-8")
    with NoteSearch(notes.parent, notes.parent / "state" / "main.sqlite") as memory:
        memory.sync()
        assert memory.search("lighthouse")
        path.write_bytes(b"\0\0\0")
        report = memory.sync()
        assert report.removed == ("memory/turns.md",)
        assert not says(memory, "lighthouse")


@pytest.mark.parametrize("shift_s", [-10 * 365 * 86_400, 365 * 86_400])
def test_sync_clock_jump_detects_change(notes: Path, shift_s: int) -> None:
    path = notes / "good.md"
    with NoteSearch(notes.parent, notes.parent / "state" / "main.sqlite") as memory:
        memory.sync()
        at_s = path.stat().st_mtime + shift_s
        path.write_text("- the cups", encoding="utf-8")
        os.utime(path, (at_s, at_s))
        assert memory.sync().indexed == ("memory/good.md",)
        assert memory.sync().indexed == ()
        path.write_text("- the lake", encoding="utf-8")  # as long, and as old
        os.utime(path, (at_s, at_s))
        assert memory.sync().indexed == ("memory/good.md",)
        assert memory.search("lake")


def test_sync_replaced_file_of_same_size_and_time_is_reindexed(notes: Path) -> None:
    """`cp -p` and `rsync -t` keep the time of modification; that of the change is the system's."""
    path = notes / "good.md"
    os.utime(path, (1_600_000_000, 1_600_000_000))
    with NoteSearch(notes.parent, notes.parent / "state" / "main.sqlite") as memory:
        memory.sync()
        draft = notes / "draft"
        draft.write_text("- the cups", encoding="utf-8")
        os.utime(draft, (1_600_000_000, 1_600_000_000))
        draft.replace(path)
        assert memory.sync().indexed == ("memory/good.md",)
        assert memory.search("cups")


def test_sync_both_root_names_of_one_file_are_one_note(tmp_path: Path) -> None:
    """As on a disk that ignores case."""
    (tmp_path / "MEMORY.md").write_text("- lamp", encoding="utf-8")
    os.link(tmp_path / "MEMORY.md", tmp_path / "memory.md")
    assert [one.path for one in find_notes(tmp_path)] == ["MEMORY.md"]


@pytest.mark.slow
def test_sync_50_000_tiny_files_is_fast_enough(tmp_path: Path) -> None:
    for copy in range(50):
        folder = tmp_path / "memory" / str(copy)
        folder.mkdir(parents=True)
        for number in range(1000):
            path = f"{folder}/{number}.md"
            Path(path).write_bytes(b"- tiny lamp %d" % number)
            os.utime(path, (1_700_000_000, 1_700_000_000))
    with NoteSearch(tmp_path, tmp_path / "state" / "main.sqlite") as memory:
        assert len(memory.sync().indexed) == 50_000
        again = memory.sync()
        assert (again.unchanged, again.indexed) == (50_000, ())
        (tmp_path / "memory" / "49" / "new.md").write_bytes(b"- a lighthouse")
        assert memory.sync().indexed == ("memory/49/new.md",)
        assert memory.search("lighthouse")[0].path == "memory/49/new.md"
        assert memory.search("923")[0].snippet == "- tiny lamp 923"
    shutil.rmtree(tmp_path / "memory")


def test_sync_notes_rewritten_meanwhile_are_complete_in_the_end(notes: Path) -> None:
    """Half-written notes are indexed as they were, and again when they are whole."""
    ended = threading.Event()
    paths = [notes / f"busy{number}.md" for number in range(4)]

    def write() -> None:
        chance = random.Random(1)
        while not ended.is_set():
            with chance.choice(paths).open("wb") as file:
                for _ in range(chance.randrange(1, 30)):
                    file.write("- half a harbour 東京 ".encode()[: chance.randrange(24)])
                    file.flush()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with NoteSearch(notes.parent, notes.parent / "state" / "main.sqlite") as memory:
            for _ in range(40):
                memory.sync()
                memory.search("harbour")
            ended.set()
            writer.join()
            for number, path in enumerate(paths):
                path.write_text(f"- whole violin {number}", encoding="utf-8")
            memory.sync()
            found = {one.snippet for one in memory.search("violin") if "violin" in one.snippet}
            assert found == {f"- whole violin {number}" for number in range(4)}
            assert not says(memory, "harbour")
            assert memory.search("lamp")
    finally:
        ended.set()
        writer.join()
    db = apsw.Connection(str(notes.parent / "state" / "main.sqlite"))
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()


def test_sync_file_growing_past_limit_is_skipped(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("homarus.memory.note_files.MAX_FILE_BYTES", 1 << 20)
    path = notes / "grows.md"
    path.write_bytes(b"x" * (1 << 20))
    real = os.fstat

    def before_it_grew(descriptor: int) -> os.stat_result:
        status = real(descriptor)
        if status.st_size == 1 << 20:
            with path.open("ab") as file:
                file.write(b"y")
        return status

    monkeypatch.setattr("homarus.memory.note_files.os.fstat", before_it_grew)
    assert read_note(NoteFile("memory/grows.md", path)) == SkippedFile(
        "memory/grows.md", "is larger than 1 MB"
    )
