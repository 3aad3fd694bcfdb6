"""Row 42 of the failure matrix: the index flipped, cut, deleted, locked, or not ours at all.

A search on it makes it anew and answers as before; the notes are never written.
"""

import hashlib
import os
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from homarus.core.errors import CorruptDataError, DiskFullError, StateInUseError, StoreError
from homarus.memory.index import open_index
from homarus.memory.note_files import find_notes
from homarus.memory.note_search import NoteSearch

WORDS = ("lamp", "harbour", "tea", "mountain", "violin", "garden", "letter", "winter", "bicycle")
QUESTIONS = ("the lamp of note 3", "violin in winter", "who wrote a letter?", "bicycle garden")

Seen = list[list[tuple[str, int, int, str]]]


class Place:
    """A workspace with notes, its index, and what questions get from it while it is whole."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / "state" / "main.sqlite"
        chance = random.Random(42)
        notes = folder / "memory"
        notes.mkdir()
        for number in range(24):
            lines = [f"- Ada: {' '.join(chance.choices(WORDS, k=9))} {number}" for _ in range(30)]
            text = f"# Note {number}\n\n" + "\n".join(lines) + "\n"
            (notes / f"2026-01-{number + 1:02}.md").write_text(text, encoding="utf-8")
            os.utime(notes / f"2026-01-{number + 1:02}.md", (1_700_000_000, 1_700_000_000))
        with self.memory() as memory:
            memory.sync()
            self.answers = self.ask(memory)
        self.hashes = self.hash_notes()
        self.whole = folder / "whole"
        shutil.copytree(self.database.parent, self.whole)
        self.bytes = self.database.read_bytes()

    def memory(self) -> NoteSearch:
        return NoteSearch(self.folder, self.database)

    def ask(self, memory: NoteSearch) -> Seen:
        return [
            [(one.path, one.start_line, one.end_line, one.snippet) for one in memory.search(text)]
            for text in QUESTIONS
        ]

    def hash_notes(self) -> dict[str, str]:
        files = sorted((self.folder / "memory").iterdir())
        return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in files}

    def restore(self) -> None:
        shutil.rmtree(self.database.parent)
        shutil.copytree(self.whole, self.database.parent)

    def check(self) -> str:
        """Ask without a sync: the answers are right. Why the index was made anew."""
        with self.memory() as memory:
            assert self.ask(memory) == self.answers
            assert self.ask(memory) == self.answers
            assert self.hash_notes() == self.hashes
            return memory.rebuilt


def says(memory: NoteSearch, word: str) -> bool:
    """Whether a search for a word finds it."""
    return any(word in one.snippet for one in memory.search(word))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Place:
    return Place(tmp_path_factory.mktemp("damage"))


@pytest.fixture
def place(made: Place) -> Iterator[Place]:
    made.restore()
    yield made
    assert made.hash_notes() == made.hashes


def flipped(data: bytes, chance: random.Random, times: int) -> bytes:
    changed = bytearray(data)
    for _ in range(times):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def test_row_42_intact_index_is_not_rebuilt(place: Place) -> None:
    assert place.check() == ""


def test_row_42_bits_flipped_between_uses_rebuilds(place: Place) -> None:
    chance = random.Random(1)
    for _ in range(30):
        changed = flipped(place.bytes, chance, chance.choice((1, 1, 2, 20)))
        place.database.write_bytes(changed)
        assert (place.check() != "") == (changed != place.bytes)
        place.restore()


def test_row_42_bits_flipped_during_use_rebuilds(place: Place) -> None:
    chance = random.Random(2)
    with place.memory() as memory:
        for turn in range(20):
            data = place.database.read_bytes()
            with place.database.open("r+b") as file:
                file.write(flipped(data, chance, 3))
            os.utime(place.database, (1_700_000_000 + turn, 1_700_000_000))
            assert place.ask(memory) == place.answers


def test_row_42_bits_flipped_without_checksum_rebuilds(place: Place) -> None:
    """A writer was killed, and then a bit rotted: nothing breaks, and nothing is written."""
    chance = random.Random(3)
    for _ in range(30):
        place.database.write_bytes(flipped(place.bytes, chance, chance.choice((1, 5, 50))))
        place.database.with_name("main.sqlite-seal").unlink()
        with place.memory() as memory:
            place.ask(memory)
            memory.sync(force=True)
            assert place.ask(memory) == place.answers
        place.restore()


@pytest.mark.parametrize("size", [0, 1, 99, 4096, 20_000, -4096, -1])
def test_row_42_truncated_file_rebuilds(place: Place, size: int) -> None:
    os.truncate(place.database, size if size >= 0 else len(place.bytes) + size)
    assert "damaged" in place.check()


def test_row_42_truncated_during_use_rebuilds(place: Place) -> None:
    with place.memory() as memory:
        assert place.ask(memory) == place.answers
        os.truncate(place.database, 30_000)
        assert place.ask(memory) == place.answers
        assert "damaged" in memory.rebuilt


@pytest.mark.parametrize("data", [b"not a database at all", b"\0" * 9000, b"SQLite format 3\0"])
def test_row_42_other_content_rebuilds(place: Place, data: bytes) -> None:
    place.database.write_bytes(data)
    assert "damaged" in place.check()
    place.database.write_bytes(data)
    place.database.with_name("main.sqlite-seal").unlink()
    place.check()


def test_row_42_deleted_between_uses_rebuilds(place: Place) -> None:
    place.database.unlink()
    place.check()


def test_row_42_deleted_during_use_rebuilds(place: Place) -> None:
    with place.memory() as memory:
        assert place.ask(memory) == place.answers
        place.database.unlink()
        assert place.ask(memory) == place.answers
        assert "gone" in memory.rebuilt
        shutil.rmtree(place.database.parent)
        assert memory.sync().indexed
        assert place.ask(memory) == place.answers


def test_row_42_rebuilt_by_other_process_during_use_is_reopened(place: Place) -> None:
    with place.memory() as memory:
        assert place.ask(memory) == place.answers
        os.truncate(place.database, 30_000)
        assert "damaged" in place.check()
        assert place.ask(memory) == place.answers
        assert memory.rebuilt == ""  # by the other one
        assert memory.sync().indexed == ()


@pytest.mark.parametrize(
    "sql",
    [
        "DROP TABLE lines",
        "DROP TABLE postings",
        "ALTER TABLE notes DROP COLUMN audience",
        "ALTER TABLE lines RENAME TO rows",
        "DROP TABLE meta; CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL, more)",
    ],
)
@pytest.mark.parametrize("is_sealed", [True, False])
def test_row_42_other_schema_rebuilds(place: Place, sql: str, is_sealed: bool) -> None:
    db = apsw.Connection(str(place.database))
    db.execute(sql)
    db.close()
    if not is_sealed:
        place.database.with_name("main.sqlite-seal").unlink()
    assert "damaged" in place.check()


def test_row_42_other_schema_during_use_rebuilds(place: Place) -> None:
    with place.memory() as memory:
        assert place.ask(memory) == place.answers
        db = apsw.Connection(str(place.database))
        db.execute("DROP TABLE lines")
        db.close()
        assert place.ask(memory) == place.answers
        assert "damaged" in memory.rebuilt


def test_row_42_openclaw_index_is_replaced(place: Place) -> None:
    shutil.rmtree(place.database.parent)
    place.database.parent.mkdir()
    db = apsw.Connection(str(place.database))
    db.execute(
        """CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
        CREATE TABLE files (path TEXT PRIMARY KEY, source TEXT, hash TEXT, mtime INTEGER);
        CREATE TABLE chunks (id TEXT PRIMARY KEY, path TEXT, text TEXT, embedding TEXT);
        CREATE VIRTUAL TABLE chunks_fts USING fts5(text, id UNINDEXED);
        INSERT INTO meta VALUES ('memory_index_meta_v1', '{"model":"text-embedding-3-small"}');
        INSERT INTO chunks VALUES ('1', 'MEMORY.md', 'old', '[]');
        PRAGMA writable_schema = ON;
        INSERT INTO sqlite_schema VALUES ('table', 'chunks_vec', 'chunks_vec', 0,
            'CREATE VIRTUAL TABLE chunks_vec USING vec0(id TEXT PRIMARY KEY)');"""
    )
    db.close()
    assert "another program" in place.check()


def test_row_42_damaged_wal_loses_only_its_content(place: Place) -> None:
    for seed in range(12):
        chance = random.Random(seed)
        other = place.memory()  # holds the log open, as a process that is killed leaves it
        with place.memory() as memory:
            memory.sync(force=True)
            log = place.database.with_name("main.sqlite-wal")
            kept = {file.name: file.read_bytes() for file in place.database.parent.iterdir()}
        other.close()
        place.restore()
        for name, data in kept.items():
            if not name.endswith("-shm"):
                (place.database.parent / name).write_bytes(data)
        log.write_bytes(flipped(log.read_bytes() or b"\0" * 64, chance, 3))
        with place.memory() as memory:
            memory.sync()
            assert place.ask(memory) == place.answers
        place.restore()


def test_row_42_locked_by_other_process_raises(place: Place) -> None:
    holder = apsw.Connection(str(place.database))
    holder.execute("BEGIN IMMEDIATE")
    changed = place.folder / "memory" / "new.md"
    changed.write_text("- a new lighthouse", encoding="utf-8")
    try:
        with place.memory() as memory, open_index(place.database, busy_ms=20) as index:
            with pytest.raises(StateInUseError, match="another process"):
                index.sync(find_notes(place.folder))
            assert place.ask(memory) == place.answers
            assert not says(memory, "lighthouse")
            holder.execute("ROLLBACK")
            assert index.sync(find_notes(place.folder)).indexed == ("memory/new.md",)
            assert memory.search("lighthouse")[0].path == "memory/new.md"
    finally:
        holder.close()
        changed.unlink()


def test_row_42_locked_without_changes_succeeds(place: Place) -> None:
    holder = apsw.Connection(str(place.database))
    holder.execute("BEGIN IMMEDIATE")
    with open_index(place.database, busy_ms=20) as index:
        assert index.sync(find_notes(place.folder)).unchanged == 24
    holder.close()


def test_index_programming_error_is_not_treated_as_damage(place: Place) -> None:
    """What vectors cost is in there, too: it is not thrown away because we cannot count."""
    with open_index(place.database) as index:
        with pytest.raises(ValueError, match="a bug"), index.reading():
            raise ValueError("a bug of ours")
        with pytest.raises(StoreError, match="no such column") as caught, index.reading() as db:
            db.execute("SELECT missing FROM lines")
        assert not isinstance(caught.value, CorruptDataError)
        assert index.sync(find_notes(place.folder)).unchanged == 24
    assert place.check() == ""


def test_index_disk_full_keeps_previous_generation(place: Place) -> None:
    changed = place.folder / "memory" / "new.md"
    changed.write_text("- a new lighthouse\n" * 30_000, encoding="utf-8")
    try:
        with open_index(place.database) as index, place.memory() as memory:
            ((pages,),) = index.db.execute("PRAGMA page_count").fetchall()
            index.db.execute(f"PRAGMA max_page_count = {int(str(pages)) + 20}")
            with pytest.raises(DiskFullError):
                index.sync(find_notes(place.folder))
            assert place.ask(memory) == place.answers
            index.db.execute("PRAGMA max_page_count = 1000000")
            assert index.sync(find_notes(place.folder)).indexed == ("memory/new.md",)
            assert memory.search("lighthouse")
    finally:
        changed.unlink()


def test_index_unwritable_location_is_reported(place: Place) -> None:
    file = place.folder / "file"
    file.write_bytes(b"")
    with pytest.raises(StoreError, match=r"main\.sqlite"):
        NoteSearch(place.folder, file / "main.sqlite")
    folder = place.folder / "folder" / "main.sqlite"
    folder.mkdir(parents=True)
    with pytest.raises(StoreError, match=r"main\.sqlite"):
        NoteSearch(place.folder, folder)
    file.unlink()
