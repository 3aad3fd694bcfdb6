"""Sessions that meet others: keys in use, conversations that went on, damaged and foreign files."""

import asyncio
import os
from pathlib import Path

import pytest

from homarus.importing import session_source
from homarus.store.base import SessionRecord, TranscriptEntry, TranscriptHeader
from homarus.store.sqlite import open_store
from tests.unit.importing.source_homes import (
    message,
    notes,
    outcomes,
    read_target,
    rows,
    run_import,
    session_texts,
    transcript,
    write,
)

MAIN = "agent:main:main"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    write(tmp_path / "old/agents/main/sessions/sessions.json", {MAIN: entry("s-1")})
    write(sessions(tmp_path / "old") / "s-1.jsonl", transcript("s-1", "one"))
    return tmp_path / "old"


def sessions(source: Path) -> Path:
    return source / "agents/main/sessions"


def entry(session_id: str) -> dict[str, object]:
    return {"sessionId": session_id, "updatedAt": 10}


def continue_here(home: Path, key: str, session_id: str, text: str, parent: str | None) -> None:
    """Append an entry to a session of the target, which is made if it is missing."""
    body = {"role": "user", "content": [{"type": "text", "text": text}]}
    ours = TranscriptEntry(f"ours-{text}", parent, "message", 1, {"message": body})

    async def main() -> None:
        async with open_store(home / ".openclaw") as store, store.transaction() as transaction:
            transaction.open_transcript(TranscriptHeader(session_id, "main", 1))
            transaction.append(session_id, ours)
            transaction.put_session(SessionRecord(key, "main", session_id, 99))

    asyncio.run(main())


def test_session_whose_key_is_in_use_gets_another_key(home: Path, source: Path) -> None:
    continue_here(home, MAIN, "mine", "hello", None)
    report = run_import(home, source)
    assert outcomes(report, "sessions") == {"source": 1, "before": 1, "keptBeside": 1, "after": 2}
    assert session_texts(home, MAIN) == ["hello"]
    assert session_texts(home, "agent:main:imported:s-1") == ["one"]
    assert "imported as agent:main:imported:s-1: agent:main:main is in use here" in notes(report)
    again = run_import(home, source)
    assert outcomes(again, "sessions") == {"source": 1, "before": 2, "present": 1, "after": 2}


def test_session_continued_here_stays_as_it_is(home: Path, source: Path) -> None:
    run_import(home, source)
    continue_here(home, MAIN, "s-1", "more", "e-one")
    report = run_import(home, source)
    assert outcomes(report, "sessions")["present"] == 1
    assert session_texts(home, MAIN) == ["one", "more"]


def test_session_continued_in_the_source_gets_the_rest(home: Path, source: Path) -> None:
    run_import(home, source)
    write(sessions(source) / "s-1.jsonl", transcript("s-1", "one", "two"))
    report = run_import(home, source)
    assert outcomes(report, "sessions") == {"source": 1, "before": 1, "updated": 1, "after": 1}
    assert session_texts(home, MAIN) == ["one", "two"]


def test_session_continued_in_both_is_kept_twice(home: Path, source: Path) -> None:
    run_import(home, source)
    continue_here(home, MAIN, "s-1", "mine", "e-one")
    write(sessions(source) / "s-1.jsonl", transcript("s-1", "one", "two"))
    assert outcomes(run_import(home, source), "sessions")["keptBeside"] == 1
    assert outcomes(run_import(home, source), "sessions")["present"] == 1
    assert session_texts(home, MAIN) == ["one", "mine"]
    assert session_texts(home, "agent:main:imported:s-1-imported") == ["one", "two"]


def test_other_conversation_with_the_same_id_is_kept(home: Path, source: Path) -> None:
    continue_here(home, "agent:main:other", "s-1", "hello", None)
    assert outcomes(run_import(home, source), "sessions")["imported"] == 1
    assert outcomes(run_import(home, source), "sessions")["present"] == 1
    assert session_texts(home, "agent:main:other") == ["hello"]
    assert session_texts(home, MAIN) == ["one"]


def test_session_that_was_reset_here_is_not_imported_again(home: Path, source: Path) -> None:
    run_import(home, source)
    continue_here(home, MAIN, "s-2", "after the reset", None)
    report = run_import(home, source)
    assert outcomes(report, "sessions") == {"source": 1, "before": 1, "present": 1, "after": 1}


def test_two_keys_of_one_session_are_both_imported(home: Path, source: Path) -> None:
    index = {MAIN: entry("s-1"), "telegram:dm:7": entry("s-1")}
    write(sessions(source) / "sessions.json", index)
    run_import(home, source)
    stored = read_target(home)["sessions"]
    assert stored.keys() == {MAIN, "agent:main:telegram:direct:7"}
    assert {one[0] for one in stored.values()} == {"s-1"}


def test_session_without_a_transcript_is_imported_once(home: Path, source: Path) -> None:
    (sessions(source) / "s-1.jsonl").unlink()
    assert outcomes(run_import(home, source), "sessions")["imported"] == 1
    assert outcomes(run_import(home, source), "sessions")["present"] == 1


def test_empty_session_whose_key_is_in_use_is_left_out(home: Path, source: Path) -> None:
    (sessions(source) / "s-1.jsonl").unlink()
    continue_here(home, MAIN, "mine", "hello", None)
    assert outcomes(run_import(home, source), "sessions")["conflicts"] == 1


def test_transcripts_without_an_index_become_sessions(home: Path, source: Path) -> None:
    (sessions(source) / "sessions.json").unlink()
    write(sessions(source) / "s-2.jsonl", rows("rows"))
    run_import(home, source)
    assert session_texts(home, "agent:main:s-2") == ["rows"]
    assert session_texts(home, "agent:main:s-1") == ["one"]


def test_damaged_index_is_named_and_transcripts_are_kept(home: Path, source: Path) -> None:
    write(sessions(source) / "sessions.json", '{"agent:main')
    report = run_import(home, source)
    assert session_texts(home, "agent:main:s-1") == ["one"]
    assert "damaged, so each transcript becomes a session" in notes(report)


def test_damaged_lines_are_counted_and_left_out(home: Path, source: Path) -> None:
    text = transcript("s-1", "one") + "{torn\n" + "[]\n" + message("e-2", "two", "e-one")
    write(sessions(source) / "s-1.jsonl", text)
    report = run_import(home, source)
    assert report.damaged_lines == 2
    assert session_texts(home, MAIN) == ["one", "two"]


def test_untrusted_keys_and_ids_are_skipped(home: Path, source: Path) -> None:
    index = {
        "agent:main:\x1b[2J": entry("a"),
        "agent:../up:main": entry("b"),
        "agent:main:" + "x" * 600: entry("c"),
        "agent:main:path": entry("../../etc/passwd"),
        "agent:main:none": "text",
        MAIN: entry("s-1"),
    }
    write(sessions(source) / "sessions.json", index)
    report = run_import(home, source)
    counts = outcomes(report, "sessions")
    assert counts == {"source": 6, "imported": 1, "skipped": 5, "after": 1}
    assert "\x1b" not in notes(report)


def test_session_file_outside_its_folder_is_not_followed(home: Path, source: Path) -> None:
    secret = write(source.parent / "secret.jsonl", transcript("s-1", "secret"))
    named = {**entry("s-1"), "sessionFile": str(secret)}
    write(sessions(source) / "sessions.json", {MAIN: named})
    run_import(home, source)
    assert session_texts(home, MAIN) == ["one"]


@pytest.mark.parametrize("kind", ["link", "pipe", "large"])
def test_transcript_that_is_refused_is_skipped(
    home: Path, source: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    file = sessions(source) / "s-1.jsonl"
    if kind == "large":
        monkeypatch.setattr(session_source, "MAX_TRANSCRIPT_BYTES", 10)
    else:
        file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    if kind == "link":
        file.symlink_to(write(source.parent / "elsewhere.jsonl", transcript("s-1", "secret")))
    report = run_import(home, source)
    assert outcomes(report, "sessions") == {"source": 1, "skipped": 1}
    assert "skipped: its transcript is" in notes(report)


def test_link_inside_the_source_is_followed(home: Path, source: Path) -> None:
    file = sessions(source) / "s-1.jsonl"
    file.rename(source / "moved.jsonl")
    file.symlink_to("../../../moved.jsonl")
    run_import(home, source)
    assert session_texts(home, MAIN) == ["one"]


def test_session_folder_of_older_versions_is_read(home: Path, source: Path) -> None:
    (source / "agents/main/sessions").rename(source / "sessions")
    run_import(home, source)
    assert session_texts(home, MAIN) == ["one"]


def test_old_transcripts_are_copied_next_to_different_ones(home: Path, source: Path) -> None:
    name = "s-0.jsonl.reset.2026-04-15T10-00-00.000Z"
    write(sessions(source) / name, transcript("s-0", "old"))
    write(sessions(source) / "s-9.jsonl", transcript("s-9", "theirs"))
    write(sessions(source) / "s-8.jsonl.deleted.2026-04-15T10-00-00.000Z", "deleted")
    ours = write(home / ".openclaw/agents/main/sessions/s-9.jsonl", transcript("s-9", "ours"))
    before = ours.read_bytes()
    report = run_import(home, source)
    assert outcomes(report, "transcripts") == {
        "source": 2, "before": 1, "imported": 1, "keptBeside": 1, "after": 3,
    }  # fmt: skip
    assert ours.read_bytes() == before
    assert len(list(ours.parent.glob("s-9.imported-*.jsonl"))) == 1


def test_topic_with_an_unusual_name_gets_a_short_id(home: Path, source: Path) -> None:
    write(sessions(source) / "s-1-topic-a%20b.jsonl", transcript("s-1", "in a topic"))
    run_import(home, source)
    assert session_texts(home, "agent:main:main:topic:a b") == ["in a topic"]
