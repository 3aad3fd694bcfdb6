import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest

from homarus.memory.index import open_index
from homarus.memory.note_files import MAX_FILE_BYTES, NoteFile, SkippedFile, find_notes, read_note
from homarus.memory.note_search import NoteSearch


def write(folder: Path, name: str, text: str | bytes, age_s: int = 100) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    then = path.stat().st_mtime - age_s
    os.utime(path, (then, then))
    return path


def memory_of(folder: Path) -> NoteSearch:
    return NoteSearch(folder, folder / "state" / "main.sqlite")


def test_sync_reads_only_changed_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        write(tmp_path, f"memory/{name}.md", f"- note {name}")
    with memory_of(tmp_path) as memory:
        first = memory.sync()
        assert (len(first.indexed), first.unchanged) == (3, 0)
        write(tmp_path, "memory/b.md", "- note changed")
        read: list[str] = []

        def counted(note: NoteFile) -> object:
            read.append(note.path)
            return read_note(note)

        monkeypatch.setattr("homarus.memory.changes.read_note", counted)
        second = memory.sync()
        assert (second.indexed, second.unchanged, read) == (("memory/b.md",), 2, ["memory/b.md"])
        assert second.generation == first.generation + 1
        assert memory.sync().generation == second.generation
        assert "changed" in memory.search("changed")[0].snippet


def test_sync_change_of_same_size_and_second_is_detected(tmp_path: Path) -> None:
    path = write(tmp_path, "memory/a.md", "- tea", age_s=0)
    with memory_of(tmp_path) as memory:
        memory.sync()
        at = path.stat().st_mtime_ns
        path.write_text("- cup", encoding="utf-8")
        os.utime(path, ns=(at, at))
        assert memory.sync().indexed == ("memory/a.md",)


def test_sync_touched_file_is_not_reindexed(tmp_path: Path) -> None:
    path = write(tmp_path, "memory/a.md", "- tea")
    with memory_of(tmp_path) as memory:
        memory.sync()
        os.utime(path, (1_600_000_000, 1_600_000_000))
        assert memory.sync().indexed == ()
        assert memory.sync().unchanged == 1


def test_sync_deleted_note_is_removed(tmp_path: Path) -> None:
    path = write(tmp_path, "memory/a.md", "- the lamp")
    write(tmp_path, "memory/b.md", "- the harbour")
    with memory_of(tmp_path) as memory:
        memory.sync()
        path.unlink()
        assert memory.sync().removed == ("memory/a.md",)
        assert memory.search("lamp") == []
        assert memory.search("harbour")


def test_schema_tables_match_openclaw(tmp_path: Path) -> None:
    write(tmp_path, "MEMORY.md", "# Facts\n\n- the lamp")
    with memory_of(tmp_path) as memory:
        memory.sync()
    db = apsw.Connection(str(tmp_path / "state" / "main.sqlite"))
    columns = {
        "files": "path source hash mtime size",
        "chunks": "id path source start_line end_line hash model text embedding updated_at",
        "embedding_cache": "provider model provider_key hash embedding dims updated_at",
        "chunks_fts": "text id path source model start_line end_line",
    }
    for table, names in columns.items():
        found = [row[1] for row in db.execute(f"PRAGMA table_info({table})")]
        assert found == names.split()
    (row,) = db.execute("SELECT path, start_line, end_line FROM chunks_fts('lamp')")
    assert row == ("MEMORY.md", 1, 3)
    db.close()


@pytest.mark.parametrize("damage", [b"", b"not a database at all, but some words", b"\0" * 9000])
def test_sync_damaged_index_is_rebuilt_and_reported(tmp_path: Path, damage: bytes) -> None:
    note = write(tmp_path, "memory/a.md", "- the lamp")
    with memory_of(tmp_path) as memory:
        memory.sync()
    (tmp_path / "state" / "main.sqlite").write_bytes(damage)
    with memory_of(tmp_path) as memory:
        report = memory.sync()
        assert report.indexed == ("memory/a.md",)
        assert "damaged" in report.rebuilt
        assert memory.search("lamp")
    assert note.read_text(encoding="utf-8") == "- the lamp"


def test_sync_index_damaged_in_middle_is_rebuilt(tmp_path: Path) -> None:
    for number in range(60):
        write(tmp_path, f"memory/{number}.md", f"- the lamp {number}\n" * 40)
    database = tmp_path / "state" / "main.sqlite"
    with memory_of(tmp_path) as memory:
        memory.sync()
    data = bytearray(database.read_bytes())
    data[8192:-4096] = os.urandom(len(data) - 8192 - 4096)
    database.write_bytes(data)
    with memory_of(tmp_path) as memory:
        write(tmp_path, "memory/1.md", "- another lamp")
        report = memory.sync()
        assert "damaged" in report.rebuilt
        assert len(report.indexed) == 60
        assert memory.search("another lamp")


def test_sync_failed_keeps_previous_generation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "memory/a.md", "- the lamp")
    with memory_of(tmp_path) as memory:
        before = memory.sync().generation
        write(tmp_path, "memory/a.md", "- the harbour")
        write(tmp_path, "memory/b.md", "- the tea")
        calls = iter([True])

        def break_second(*_: object) -> list[object]:
            if next(calls, False):
                return []
            raise OSError("the disk is gone")

        with monkeypatch.context() as patch:
            patch.setattr("homarus.memory.index_writer.cut_chunks", break_second)
            with pytest.raises(OSError, match="disk"):
                memory.sync()
        assert "lamp" in memory.search("lamp")[0].snippet
        assert memory.search("harbour") == []
        assert memory.sync().generation == before + 1


def test_sync_untrusted_files_are_skipped_and_named(tmp_path: Path) -> None:
    write(tmp_path, "memory/good.md", "- the lamp")
    write(tmp_path, "memory/binary.md", b"PK\0\1" + os.urandom(3000))
    write(tmp_path, "memory/latin.md", "- caf\xe9 lamp".encode("latin-1"))
    write(tmp_path, "memory/half.md", "- the lamp of 東京".encode()[:-1])
    with (tmp_path / "memory" / "huge.md").open("wb") as huge:
        huge.truncate(MAX_FILE_BYTES + 1)
    os.mkfifo(tmp_path / "memory" / "pipe.md")
    (tmp_path / "memory" / "link.md").symlink_to(tmp_path / "memory" / "good.md")
    (tmp_path / "memory" / "loop").symlink_to(tmp_path / "memory")
    (tmp_path / "memory" / "folder.md").mkdir()
    with memory_of(tmp_path) as memory:
        report = memory.sync()
    why = {one.path: one.why for one in report.skipped}
    assert set(why) == {f"memory/{name}.md" for name in ("binary", "huge", "pipe", "link")}
    assert report.inexact == ("memory/half.md", "memory/latin.md")
    assert report.indexed == ("memory/good.md", "memory/half.md", "memory/latin.md")


def test_sync_line_of_megabytes_is_cut_and_cited(tmp_path: Path) -> None:
    write(tmp_path, "memory/long.md", "word " * 200_000 + "lamp " + "word " * 200_000)
    with memory_of(tmp_path) as memory:
        memory.sync()
        (found, *_) = memory.search("lamp")
    assert "lamp" in found.snippet
    assert (found.start_line, found.end_line) == (1, 1)
    assert len(found.snippet) <= 1500


def test_sync_two_writers_wait_for_each_other(tmp_path: Path) -> None:
    for number in range(200):
        write(tmp_path, f"memory/{number}.md", f"- lamp {number}\n" * 20)

    def work(turn: int) -> None:
        with memory_of(tmp_path) as memory:
            for step in range(3):
                write(tmp_path, f"memory/new{turn}.md", f"- harbour {turn} {step}")
                memory.sync()
                assert memory.search("lamp")

    with ThreadPoolExecutor(3) as threads:
        list(threads.map(work, range(3)))  # raises what one of them did
    with memory_of(tmp_path) as memory:
        memory.sync()
        assert {one.path for one in memory.search("harbour")} == {
            f"memory/new{turn}.md" for turn in range(3)
        }
    db = apsw.Connection(str(tmp_path / "state" / "main.sqlite"))
    assert db.execute("SELECT COUNT(*), COUNT(DISTINCT path) FROM notes").fetchall() == [(203, 203)]
    assert db.execute("SELECT COUNT(*) FROM lines").fetchall() == [(200 * 20 + 3,)]
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()


def test_sync_note_being_written_is_complete_next_time(tmp_path: Path) -> None:
    path = write(tmp_path, "memory/a.md", "- the la")
    with memory_of(tmp_path) as memory:
        memory.sync()
        with path.open("a", encoding="utf-8") as note:
            note.write("mp\n- and more")
        memory.sync()
        assert "the lamp" in memory.search("lamp")[0].snippet


def test_sync_openclaw_database_is_converted(tmp_path: Path) -> None:
    path = tmp_path / "state" / "main.sqlite"
    path.parent.mkdir()
    db = apsw.Connection(str(path))
    db.execute(
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT); CREATE TABLE chunks (id TEXT)"
    )
    db.close()
    write(tmp_path, "MEMORY.md", "- the lamp")
    with memory_of(tmp_path) as memory:
        memory.sync()
        assert memory.search("lamp")[0].path == "MEMORY.md"


def test_find_notes_includes_root_files_folders_and_extra_paths(tmp_path: Path) -> None:
    for name in (
        "MEMORY.md",
        "memory/deep/er/a.md",
        "bank/entities/ada.md",
        "other/x.md",
        "other/y.txt",
    ):
        write(tmp_path, name, "- lamp")
    found = find_notes(tmp_path, [tmp_path / "other", tmp_path / "missing"])
    assert [one.path for one in found] == [
        "MEMORY.md",
        "bank/entities/ada.md",
        "memory/deep/er/a.md",
        "other/x.md",
    ]
    assert not [one for one in found if isinstance(one, SkippedFile)]


def test_index_file_is_private(tmp_path: Path) -> None:
    with open_index(tmp_path / "state" / "main.sqlite"):
        assert (tmp_path / "state" / "main.sqlite").stat().st_mode & 0o077 == 0
