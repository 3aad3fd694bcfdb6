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


class IndexFixture:
    """A workspace with notes, its index, and the answers that the undamaged index gives."""

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
        self.backup = folder / "backup"
        shutil.copytree(self.database.parent, self.backup)
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
        shutil.copytree(self.backup, self.database.parent)

    def check(self) -> str:
        """Check the answers without a sync; return why the index was rebuilt."""
        with self.memory() as memory:
            assert self.ask(memory) == self.answers
            assert self.ask(memory) == self.answers
            assert self.hash_notes() == self.hashes
            return memory.rebuilt


def says(memory: NoteSearch, word: str) -> bool:
    """Whether a search for a word finds it."""
    return any(word in one.snippet for one in memory.search(word))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> IndexFixture:
    return IndexFixture(tmp_path_factory.mktemp("damage"))


@pytest.fixture
def sample(made: IndexFixture) -> Iterator[IndexFixture]:
    made.restore()
    yield made
    assert made.hash_notes() == made.hashes


def flipped(data: bytes, chance: random.Random, times: int) -> bytes:
    changed = bytearray(data)
    for _ in range(times):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def test_row_42_intact_index_is_not_rebuilt(sample: IndexFixture) -> None:
    assert sample.check() == ""


def test_row_42_bits_flipped_between_uses_rebuilds(sample: IndexFixture) -> None:
    chance = random.Random(1)
    for _ in range(30):
        changed = flipped(sample.bytes, chance, chance.choice((1, 1, 2, 20)))
        sample.database.write_bytes(changed)
        assert (sample.check() != "") == (changed != sample.bytes)
        sample.restore()


def test_row_42_bits_flipped_during_use_rebuilds(sample: IndexFixture) -> None:
    chance = random.Random(2)
    with sample.memory() as memory:
        for turn in range(20):
            data = sample.database.read_bytes()
            with sample.database.open("r+b") as file:
                file.write(flipped(data, chance, 3))
            os.utime(sample.database, (1_700_000_000 + turn, 1_700_000_000))
            assert sample.ask(memory) == sample.answers


def test_row_42_bits_flipped_without_checksum_rebuilds(sample: IndexFixture) -> None:
    """A writer was killed, and then a bit rotted: nothing breaks, and nothing is written."""
    chance = random.Random(3)
    for _ in range(30):
        sample.database.write_bytes(flipped(sample.bytes, chance, chance.choice((1, 5, 50))))
        sample.database.with_name("main.sqlite-seal").unlink()
        with sample.memory() as memory:
            sample.ask(memory)
            memory.sync(force=True)
            assert sample.ask(memory) == sample.answers
        sample.restore()


@pytest.mark.parametrize("size", [0, 1, 99, 4096, 20_000, -4096, -1])
def test_row_42_truncated_file_rebuilds(sample: IndexFixture, size: int) -> None:
    os.truncate(sample.database, size if size >= 0 else len(sample.bytes) + size)
    assert "damaged" in sample.check()


def test_row_42_truncated_during_use_rebuilds(sample: IndexFixture) -> None:
    with sample.memory() as memory:
        assert sample.ask(memory) == sample.answers
        os.truncate(sample.database, 30_000)
        assert sample.ask(memory) == sample.answers
        assert "damaged" in memory.rebuilt


@pytest.mark.parametrize("data", [b"not a database at all", b"\0" * 9000, b"SQLite format 3\0"])
def test_row_42_other_content_rebuilds(sample: IndexFixture, data: bytes) -> None:
    sample.database.write_bytes(data)
    assert "damaged" in sample.check()
    sample.database.write_bytes(data)
    sample.database.with_name("main.sqlite-seal").unlink()
    sample.check()


def test_row_42_deleted_between_uses_rebuilds(sample: IndexFixture) -> None:
    sample.database.unlink()
    sample.check()


def test_row_42_deleted_during_use_rebuilds(sample: IndexFixture) -> None:
    with sample.memory() as memory:
        assert sample.ask(memory) == sample.answers
        sample.database.unlink()
        assert sample.ask(memory) == sample.answers
        assert "gone" in memory.rebuilt
        shutil.rmtree(sample.database.parent)
        assert memory.sync().indexed
        assert sample.ask(memory) == sample.answers


def test_row_42_rebuilt_by_other_process_during_use_is_reopened(sample: IndexFixture) -> None:
    with sample.memory() as memory:
        assert sample.ask(memory) == sample.answers
        os.truncate(sample.database, 30_000)
        assert "damaged" in sample.check()
        assert sample.ask(memory) == sample.answers
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
def test_row_42_other_schema_rebuilds(sample: IndexFixture, sql: str, is_sealed: bool) -> None:
    db = apsw.Connection(str(sample.database))
    db.execute(sql)
    db.close()
    if not is_sealed:
        sample.database.with_name("main.sqlite-seal").unlink()
    assert "damaged" in sample.check()


def test_row_42_other_schema_during_use_rebuilds(sample: IndexFixture) -> None:
    with sample.memory() as memory:
        assert sample.ask(memory) == sample.answers
        db = apsw.Connection(str(sample.database))
        db.execute("DROP TABLE lines")
        db.close()
        assert sample.ask(memory) == sample.answers
        assert "damaged" in memory.rebuilt


def test_row_42_openclaw_index_is_replaced(sample: IndexFixture) -> None:
    shutil.rmtree(sample.database.parent)
    sample.database.parent.mkdir()
    db = apsw.Connection(str(sample.database))
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
    assert "another program" in sample.check()


def test_row_42_damaged_wal_loses_only_its_content(sample: IndexFixture) -> None:
    for seed in range(12):
        chance = random.Random(seed)
        other = sample.memory()  # holds the log open, as a process that is killed leaves it
        with sample.memory() as memory:
            memory.sync(force=True)
            log = sample.database.with_name("main.sqlite-wal")
            kept = {file.name: file.read_bytes() for file in sample.database.parent.iterdir()}
        other.close()
        sample.restore()
        for name, data in kept.items():
            if not name.endswith("-shm"):
                (sample.database.parent / name).write_bytes(data)
        log.write_bytes(flipped(log.read_bytes() or b"\0" * 64, chance, 3))
        with sample.memory() as memory:
            memory.sync()
            assert sample.ask(memory) == sample.answers
        sample.restore()


def test_row_42_locked_by_other_process_raises(sample: IndexFixture) -> None:
    holder = apsw.Connection(str(sample.database))
    holder.execute("BEGIN IMMEDIATE")
    changed = sample.folder / "memory" / "new.md"
    changed.write_text("- a new lighthouse", encoding="utf-8")
    try:
        with sample.memory() as memory, open_index(sample.database, busy_ms=20) as index:
            with pytest.raises(StateInUseError, match="another process"):
                index.sync(lambda: find_notes(sample.folder))
            assert sample.ask(memory) == sample.answers
            assert not says(memory, "lighthouse")
            holder.execute("ROLLBACK")
            assert index.sync(lambda: find_notes(sample.folder)).indexed == ("memory/new.md",)
            assert memory.search("lighthouse")[0].path == "memory/new.md"
    finally:
        holder.close()
        changed.unlink()


def test_row_42_locked_without_changes_succeeds(sample: IndexFixture) -> None:
    holder = apsw.Connection(str(sample.database))
    holder.execute("BEGIN IMMEDIATE")
    with open_index(sample.database, busy_ms=20) as index:
        assert index.sync(lambda: find_notes(sample.folder)).unchanged == 24
    holder.close()


def test_index_programming_error_is_not_treated_as_damage(sample: IndexFixture) -> None:
    """What vectors cost is in there, too: it is not thrown away because we cannot count."""
    with open_index(sample.database) as index:
        with pytest.raises(ValueError, match="a bug"), index.database.reading():
            raise ValueError("a bug of ours")
        with (
            pytest.raises(StoreError, match="no such column") as caught,
            index.database.reading() as db,
        ):
            db.execute("SELECT missing FROM lines")
        assert not isinstance(caught.value, CorruptDataError)
        assert index.sync(lambda: find_notes(sample.folder)).unchanged == 24
    assert sample.check() == ""


def test_index_disk_full_keeps_previous_generation(sample: IndexFixture) -> None:
    changed = sample.folder / "memory" / "new.md"
    changed.write_text("- a new lighthouse\n" * 30_000, encoding="utf-8")
    try:
        with open_index(sample.database) as index, sample.memory() as memory:
            ((pages,),) = index.database.db.execute("PRAGMA page_count").fetchall()
            index.database.db.execute(f"PRAGMA max_page_count = {int(str(pages)) + 20}")
            with pytest.raises(DiskFullError):
                index.sync(lambda: find_notes(sample.folder))
            assert sample.ask(memory) == sample.answers
            index.database.db.execute("PRAGMA max_page_count = 1000000")
            assert index.sync(lambda: find_notes(sample.folder)).indexed == ("memory/new.md",)
            assert memory.search("lighthouse")
    finally:
        changed.unlink()


def test_index_unwritable_location_is_reported(sample: IndexFixture) -> None:
    file = sample.folder / "file"
    file.write_bytes(b"")
    with pytest.raises(StoreError, match=r"main\.sqlite"):
        NoteSearch(sample.folder, file / "main.sqlite")
    folder = sample.folder / "folder" / "main.sqlite"
    folder.mkdir(parents=True)
    with pytest.raises(StoreError, match=r"main\.sqlite"):
        NoteSearch(sample.folder, folder)
    file.unlink()
