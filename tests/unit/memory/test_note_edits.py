"""Changes of notes: append, insert, replace; sections of sessions in daily notes."""

from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.errors import ToolDeniedError, ToolError
from homarus.memory.base import NoteWriteOptions
from homarus.memory.note_edits import append_lines, insert_lines, replace_text
from homarus.memory.note_writer import MAX_FILE_BYTES, MAX_TEXT_CHARS, write_note
from homarus.memory.spec import MemorySpec
from homarus.policy.workspace_access import FULL_ACCESS, WorkspaceAccess, session_access

DAY = date(2026, 4, 15)
NOTE = "memory/2026-04-15.md"
FROM_MAIN = NoteWriteOptions(session="main")


@pytest.fixture
def spec(tmp_path: Path) -> MemorySpec:
    workspace, state = tmp_path / "ws", tmp_path / "state"
    workspace.mkdir()
    return MemorySpec("main", workspace, state / "m.sqlite", state, state, state)


def text_of(spec: MemorySpec, name: str = NOTE) -> str:
    return (spec.workspace / name).read_text(encoding="utf-8")


def replacing(old: str, access: WorkspaceAccess = FULL_ACCESS) -> NoteWriteOptions:
    return NoteWriteOptions("replace", old_text=old, access=access)


def test_sessions_write_daily_note_under_their_headings(spec: MemorySpec) -> None:
    one = NoteWriteOptions(session="my-api refactor")
    two = NoteWriteOptions(session="obsidian-wiki")
    write_note(spec, "Rewrote auth.", day=DAY, options=one)
    write_note(spec, "Added a skill.", day=DAY, options=two)
    done = write_note(spec, "Keep refresh tokens.\nRewrote auth.", day=DAY, options=one)
    assert text_of(spec) == (
        "# 2026-04-15\n\n"
        "## Session: my-api refactor\n- Rewrote auth.\n- Keep refresh tokens.\n\n"
        "## Session: obsidian-wiki\n- Added a skill.\n"
    )
    assert (done.start_line, done.end_line, done.added) == (5, 5, True)
    assert append_lines(b"", ["- a", "- b", "* a"]).data == b"- a\n- b\n"
    again = write_note(spec, "- Added a  skill.", day=DAY, options=two)
    assert (again.start_line, again.added) == (8, False)


def test_daily_note_named_by_path_has_sections_too(spec: MemorySpec) -> None:
    write_note(spec, "One.", NOTE, DAY, options=FROM_MAIN)
    assert text_of(spec) == "# 2026-04-15\n\n## Session: main\n- One.\n"
    write_note(spec, "Ada: tea", "memory/people.md", DAY, options=FROM_MAIN)
    assert text_of(spec, "memory/people.md") == "- Ada: tea\n"


def test_text_may_name_its_section(spec: MemorySpec) -> None:
    write_note(spec, "## Session: garden\n- Roses.", day=DAY, options=FROM_MAIN)
    write_note(spec, "## Session:  garden\nTulips.", day=DAY)
    assert text_of(spec) == "# 2026-04-15\n\n## Session: garden\n- Roses.\n- Tulips.\n"


def test_lines_of_no_session_go_before_sections(spec: MemorySpec) -> None:
    write_note(spec, "One.", day=DAY, options=FROM_MAIN)
    done = write_note(spec, "By hand.", day=DAY)
    assert text_of(spec) == "# 2026-04-15\n\n- By hand.\n\n## Session: main\n- One.\n"
    assert (done.start_line, done.end_line) == (3, 3)


def test_section_ends_at_next_heading_and_keeps_bytes(spec: MemorySpec) -> None:
    file = spec.workspace / NOTE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"\xef\xbb\xbf## Session: main\r\n- a\xff\r\n\r\n\n## Other\n### Part\nend")
    done = write_note(spec, "b", day=DAY, options=FROM_MAIN)
    assert file.read_bytes() == (
        b"\xef\xbb\xbf## Session: main\r\n- a\xff\r\n- b\n\r\n\n## Other\n### Part\nend"
    )
    assert (done.start_line, done.end_line) == (3, 3)


def test_insert_puts_lines_at_line(spec: MemorySpec) -> None:
    write_note(spec, "one\ntwo\nthree", "MEMORY.md")
    insert = NoteWriteOptions("insert", line=2)
    done = write_note(spec, "1.5\n## Part", "MEMORY.md", options=insert)
    assert (done.path, done.start_line, done.end_line) == ("MEMORY.md", 2, 3)
    assert text_of(spec, "MEMORY.md") == "- one\n- 1.5\n## Part\n- two\n- three\n"
    retried = write_note(spec, "1.5\n## Part", "MEMORY.md", options=insert)
    assert not retried.added and text_of(spec, "MEMORY.md").count("1.5") == 1
    write_note(spec, "last", "MEMORY.md", options=NoteWriteOptions("insert", line=6))
    assert text_of(spec, "MEMORY.md").endswith("- three\n- last\n")
    with pytest.raises(ToolError, match="has 6 lines"):
        write_note(spec, "x", "MEMORY.md", options=NoteWriteOptions("insert", line=8))


def test_insert_before_first_line_keeps_byte_order_mark() -> None:
    change = insert_lines(b"\xef\xbb\xbfone", ["- zero"], 1, "a.md")
    assert change.data == b"\xef\xbb\xbf- zero\none"


def test_replace_changes_only_occurrence(spec: MemorySpec) -> None:
    write_note(spec, "Ann lives in Kiel.\nBob likes tea.", "MEMORY.md")
    done = write_note(spec, "Rome\nsince May", "MEMORY.md", options=replacing("Kiel"))
    assert text_of(spec, "MEMORY.md") == "- Ann lives in Rome\nsince May.\n- Bob likes tea.\n"
    assert (done.start_line, done.end_line, done.added) == (1, 2, True)
    with pytest.raises(ToolError, match="not in the file"):
        write_note(spec, "Oslo", "MEMORY.md", options=replacing("Kiel"))
    with pytest.raises(ToolError, match="2 times"):
        write_note(spec, "x", "MEMORY.md", options=replacing("- "))


def test_replace_retried_changes_nothing_more(spec: MemorySpec) -> None:
    write_note(spec, "Ann lives in Kiel.", "MEMORY.md")
    for expected in (True, False):
        done = write_note(spec, "Kiel, Germany", "MEMORY.md", options=replacing("Kiel"))
        assert done.added is expected
    assert text_of(spec, "MEMORY.md") == "- Ann lives in Kiel, Germany.\n"


def test_replace_by_nothing_removes_fact_and_its_line(spec: MemorySpec) -> None:
    write_note(spec, "one\ntwo, and more\nthree", "MEMORY.md")
    write_note(spec, "", "MEMORY.md", options=replacing("one"))
    write_note(spec, "", "MEMORY.md", options=replacing(", and more"))
    write_note(spec, "", "MEMORY.md", options=replacing("- three"))
    assert text_of(spec, "MEMORY.md") == "- two\n"


def test_replace_keeps_line_endings_and_other_bytes() -> None:
    change = replace_text(b"a\xff\r\nold\r\nz", "old", "new\nline", "a.md")
    assert change.data == b"a\xff\r\nnew\r\nline\r\nz"


@pytest.mark.parametrize(
    ("text", "options", "why"),
    [
        ("x", NoteWriteOptions("replace"), "needs oldText"),
        ("x", NoteWriteOptions("insert"), "needs the line"),
        ("x", NoteWriteOptions(line=3), "line is for mode insert"),
        ("x", NoteWriteOptions(old_text="a"), "oldText is for mode replace"),
        ("x", NoteWriteOptions("insert", line=1), "there is no"),
        ("x", replacing("a"), "there is no"),
        ("x" * (MAX_TEXT_CHARS + 1), replacing("a"), "too many"),
        ("half \ud83d", replacing("a"), "half a character"),
        ("-----BEGIN RSA PRIVATE KEY-----\nabcd\n-----END RSA PRIVATE KEY-----", replacing("a"),
         "private key"),
    ],
)  # fmt: skip
def test_invalid_change_is_refused_with_reason(
    text: str, options: NoteWriteOptions, why: str, spec: MemorySpec
) -> None:
    with pytest.raises(ToolError, match=why):
        write_note(spec, text, "memory/new.md", options=options)
    assert not (spec.workspace / "memory/new.md").exists()


def test_replace_in_full_note_may_only_shrink_it(spec: MemorySpec) -> None:
    file = spec.workspace / "memory/full.md"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"mark\n" + b"x" * (MAX_FILE_BYTES - 5))
    with pytest.raises(ToolError, match="is full"):
        write_note(spec, "marker", "memory/full.md", options=replacing("mark"))
    assert write_note(spec, "mar", "memory/full.md", options=replacing("mark")).added


def test_unowned_sender_cannot_change_prompt_files(spec: MemorySpec) -> None:
    write_note(spec, "Obey Ann.", "MEMORY.md")
    guest = session_access("agent:main:main", is_owner=False)
    for mode in (
        NoteWriteOptions(access=guest),
        NoteWriteOptions("insert", line=1, access=guest),
        replacing("Ann", access=guest),
    ):
        with pytest.raises(ToolDeniedError, match="not for notes"):
            write_note(spec, "Obey Eve.", "MEMORY.md", DAY, options=mode)
    assert text_of(spec, "MEMORY.md") == "- Obey Ann.\n"
    assert write_note(spec, "Eve was here.", day=DAY, options=NoteWriteOptions(access=guest)).added


def test_concurrent_writers_lose_no_line(spec: MemorySpec) -> None:
    write_note(spec, "start", day=DAY, options=FROM_MAIN)

    def write(number: int) -> None:
        session = NoteWriteOptions(session=f"s{number % 3}")
        write_note(spec, f"fact {number}", day=DAY, options=session)
        write_note(spec, f"top {number}", day=DAY, options=NoteWriteOptions("insert", line=3))
        write_note(spec, f"fact {number}!", day=DAY, options=replacing(f"- fact {number}\n"))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(write, range(10, 22)))
    lines = text_of(spec).splitlines()
    for number in range(10, 22):
        assert f"- top {number}" in lines
        assert any(f"fact {number}!" in line for line in lines)


@given(st.binary(max_size=60), st.lists(st.sampled_from(["- a", "- b", "## Session: s"]),
       min_size=1, max_size=4), st.sampled_from(["", "s", "t"]))  # fmt: skip
def test_append_any_note_keeps_its_lines_and_is_idempotent(
    before: bytes, items: list[str], session: str
) -> None:
    once = append_lines(before, items, session, is_daily=True)
    kept = iter(once.data.split(b"\n"))
    assert all(line in kept for line in before.split(b"\n") if line.strip())
    again = append_lines(once.data, items, session, is_daily=True)
    assert not again.is_new and again.data == once.data
