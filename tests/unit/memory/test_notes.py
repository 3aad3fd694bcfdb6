"""Notes by name: read word for word, never through a link, and only by who may see them."""

import os
import socket
import threading
from contextlib import suppress
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.config.memory import MemorySearchConfig
from homarus.core.errors import HomarusError, ToolDeniedError, ToolError
from homarus.memory.base import NoteExcerpt
from homarus.memory.note_writer import MAX_TEXT_CHARS, write_note
from homarus.memory.notes import MAX_BYTES, read_excerpt
from homarus.memory.spec import MemorySpec
from homarus.memory.view import view_for

MAIN = "agent:main:main"
GROUP = "agent:main:telegram:group:7"
SECRET = "TOPSECRET"


def at(workspace: Path, *extra: str) -> MemorySpec:
    workspace.mkdir(exist_ok=True)
    search = MemorySearchConfig.model_validate({"extraPaths": list(extra)})
    state = workspace.parent / "state"
    return MemorySpec("main", workspace, state / "m.sqlite", state, state, state, search)


@pytest.fixture
def spec(tmp_path: Path) -> MemorySpec:
    """A workspace with notes, beside things that are none of its business."""
    made = at(tmp_path / "ws")
    outside = tmp_path / "outside"
    for file in (outside / "secret.md", made.workspace / "secret.md"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(SECRET)
    (made.workspace / "MEMORY.md").write_text("# Memory\n\n- Ada likes tea.\n")
    notes = made.workspace / "memory"
    (notes / "deep" / "er").mkdir(parents=True)
    (notes / "2026-01-31.md").write_text("one\ntwo\nthree\nfour")
    (notes / "deep" / "er" / "x.md").write_text("deep\n")
    (notes / "plain.txt").write_text(SECRET)
    (notes / "folder.md").mkdir()
    (notes / "link.md").symlink_to(outside / "secret.md")
    (notes / "inner.md").symlink_to("2026-01-31.md")
    (notes / "out").symlink_to(outside)
    (notes / "in").symlink_to("deep")
    os.link(outside / "secret.md", notes / "hard.md")
    os.mkfifo(notes / "pipe.md")
    (notes / "binary.md").write_bytes(SECRET.encode() + b"\0\1\2")
    return made


def test_read_excerpt_lines_are_verbatim(spec: MemorySpec) -> None:
    path = "memory/2026-01-31.md"
    assert read_excerpt(spec, path) == NoteExcerpt(path, "one\ntwo\nthree\nfour", 1, 4)
    assert read_excerpt(spec, path, 2, 2) == NoteExcerpt(path, "two\nthree", 2, 2, more=True)
    assert read_excerpt(spec, path, 4, 9) == NoteExcerpt(path, "four", 4, 1)
    assert read_excerpt(spec, "MEMORY.md", 3, 1).text == "- Ada likes tea."
    assert read_excerpt(spec, "memory/deep/er/x.md").text == "deep"


def test_read_excerpt_beyond_end_is_empty(spec: MemorySpec) -> None:
    found = read_excerpt(spec, "memory/2026-01-31.md", 5)
    assert (found.text, found.lines, found.more) == ("", 0, False)
    (spec.workspace / "memory" / "empty.md").write_text("")
    assert read_excerpt(spec, "memory/empty.md").lines == 0


@pytest.mark.parametrize(
    "path",
    ["./MEMORY.md", "memory//2026-01-31.md", "memory/./2026-01-31.md", "{ws}/memory/2026-01-31.md"],
)
def test_read_excerpt_other_spelling_returns_canonical_name(spec: MemorySpec, path: str) -> None:
    found = read_excerpt(spec, path.format(ws=spec.workspace))
    assert found.path in {"MEMORY.md", "memory/2026-01-31.md"} and found.text


@pytest.mark.parametrize(
    "path",
    [
        "", ".", "..", "/", "memory", "memory/", "memory/deep", "memory/folder.md", "secret.md",
        "../outside/secret.md", "memory/../secret.md", "memory/../../outside/secret.md",
        "memory/deep/../../secret.md", "memory/out/secret.md", "memory/in/er/x.md",
        "memory/link.md", "memory/inner.md", "memory/hard.md", "memory/pipe.md",
        "memory/binary.md", "memory/plain.txt", "memory/plain.txt.md/../plain.txt",
        "memory\\..\\secret.md", "..\\secret.md", "memory/..\\secret.md", "C:\\secret.md",
        "memory/2026-01-31.md\0.txt", "memory/2026-01-31.md\0", "memory/\0/../x.md",
        "%2e%2e/outside/secret.md", "memory/\uff0e\uff0e/secret.md", "memory/... /secret.md",
        "memory/\u2025/secret.md", "memory/…/secret.md", "memory/.\u200b./secret.md",
        "memory/2026-01-31.md.", "memory/2026-01-31.md ", "memory/2026-01-31.md/",
        "memory/2026-01-31.MD", "MEMORY.MD", "Memory.md", "memory./2026-01-31.md",
        "~/secret.md", "~root/x.md", "file:///{out}/secret.md", "{out}/secret.md",
        "{ws}/secret.md", "{ws}/../outside/secret.md", "{ws}-evil/x.md", "/dev/stdin",
        "/proc/self/environ", "/dev/fd/0.md", "memory/" + "a" * 300 + ".md", "memory/" * 2000,
        "memory/\ud800.md", "bank", "bank/../secret.md", ".openclaw/x.md", "memory/.openclaw/x.md",
        "sessions/../secret.md", "qmd/../secret.md", "sessions/x.md", "@memory/x.md",
    ],
)  # fmt: skip
def test_read_excerpt_non_note_is_refused(spec: MemorySpec, path: str) -> None:
    outside = spec.workspace.parent / "outside"
    path = path.format(ws=spec.workspace, out=outside) if "{" in path else path
    with pytest.raises(HomarusError) as caught:
        read_excerpt(spec, path)
    assert SECRET not in str(caught.value)
    before = {p: p.read_bytes() for p in spec.workspace.parent.rglob("*.md") if p.is_file()}
    with pytest.raises(HomarusError):
        write_note(spec, "pwned", path or "..")
    for file, data in before.items():
        assert file.read_bytes() == data
    assert not list(spec.workspace.parent.rglob("*.tmp"))


@given(st.text("./\\ ~%emory\0abMEMORY2\u200d\uff0e", max_size=40))
def test_read_excerpt_any_name_stays_inside_memory(path: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        spec = at(Path(folder) / "ws")
        for name in ("ws/secret.md", "secret.md", "ws/e.md", "ws/memory.txt", "ws/a/b.md"):
            file = Path(folder, name)
            file.parent.mkdir(exist_ok=True)
            file.write_text(SECRET)
        (spec.workspace / "memory").mkdir()
        try:
            found = read_excerpt(spec, path)
        except HomarusError:
            return
        assert SECRET not in found.text


def test_read_excerpt_socket_and_device_are_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = at(tmp_path / "ws")
    notes = spec.workspace / "memory"
    notes.mkdir()
    monkeypatch.chdir(notes)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind("s.md")
        with pytest.raises(ToolError):
            read_excerpt(spec, "memory/s.md")
    try:
        os.mknod("zero.md", 0o020666, os.makedev(1, 5))
    except OSError:  # only root makes devices
        return
    with pytest.raises(ToolError):
        read_excerpt(spec, "memory/zero.md")


def test_read_excerpt_long_line_or_file_is_paged(spec: MemorySpec) -> None:
    notes = spec.workspace / "memory"
    (notes / "long.md").write_text("é" * MAX_BYTES + "\nlast")
    found = read_excerpt(spec, "memory/long.md")
    assert set(found.text) == {"é"} and found.more and len(found.text.encode()) <= MAX_BYTES
    assert read_excerpt(spec, "memory/long.md", 2).text == "last"
    (notes / "many.md").write_text("line\n" * 9_000)
    found = read_excerpt(spec, "memory/many.md", lines=8_000)
    assert found.more and found.lines == 2_000
    with (notes / "huge.md").open("wb") as file:
        file.truncate(33 << 20)
    with pytest.raises(ToolError, match="larger than 32 MB"):
        read_excerpt(spec, "memory/huge.md")


def test_read_excerpt_invalid_utf8_keeps_other_bytes(spec: MemorySpec) -> None:
    (spec.workspace / "memory" / "odd.md").write_bytes(b"\xef\xbb\xbfgood \xff\r\nnext")
    assert read_excerpt(spec, "memory/odd.md").text == "good \ufffd\r\nnext"


def test_read_excerpt_missing_note_suggests_nearest(spec: MemorySpec) -> None:
    with pytest.raises(ToolError, match=r"no memory/2026-01-30\.md .*2026-01-31\.md"):
        read_excerpt(spec, "memory/2026-01-30.md")
    with pytest.raises(ToolError, match="there is no memory/2026-01-31"):
        read_excerpt(spec, "memory/2026-01-31.md/x.md")


def test_read_excerpt_extra_path_is_read_by_result_name(tmp_path: Path) -> None:
    for name in ("lib/a.md", "lib/in/b.md", "one.md", "ws/notes/c.md", "lib.md/d.md", "up/e.md"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    (tmp_path / "other.md").write_text(SECRET)
    (tmp_path / "lib" / "link.md").symlink_to(tmp_path / "other.md")
    (tmp_path / "linked").symlink_to(tmp_path / "lib")
    extra = [f"{tmp_path}/lib", f"{tmp_path}/one.md", "notes", "../up", f"{tmp_path}/linked"]
    spec = at(tmp_path / "ws", *extra)
    read = [f"{tmp_path}/lib/a.md", f"{tmp_path}/lib/in/b.md", f"{tmp_path}/one.md"]
    for path in (*read, "notes/c.md", "../up/e.md"):
        assert read_excerpt(spec, path).text == path.removeprefix("../").removeprefix(
            f"{tmp_path}/"
        ).replace("notes/", "ws/notes/")
    for path in (
        f"{tmp_path}/lib/../other.md", f"{tmp_path}/lib/link.md", f"{tmp_path}/other.md",
        f"{tmp_path}/library.md", f"{tmp_path}/lib.md/d.md", "../up/../other.md",
        f"{tmp_path}/linked/a.md", "../other.md",
    ):  # fmt: skip
        with pytest.raises(ToolError):
            read_excerpt(spec, path)
        with pytest.raises(ToolError):
            write_note(spec, "pwned", path)
    with pytest.raises(ToolDeniedError):
        write_note(spec, "pwned", f"{tmp_path}/lib/a.md")


def test_read_excerpt_other_source_reads_own_prefix(spec: MemorySpec) -> None:
    asked: list[str] = []

    def look(name: str, view: object) -> bytes | None:
        asked.append(name)
        return b"User: hello\nAssistant: hi\n" if name == "s1.md" else None

    found = read_excerpt(spec, "sessions/s1.md", 2, others={"sessions": look})
    assert (found.path, found.text) == ("sessions/s1.md", "Assistant: hi")
    for path in ("sessions/s2.md", "sessions", "sessions/", "sessions/../s1.md", "sessions//x/.."):
        with pytest.raises(ToolError):
            read_excerpt(spec, path, others={"sessions": look})
    assert set(asked) == {"s1.md", "s2.md"}


def test_read_excerpt_private_and_missing_note_look_alike_to_group(
    spec: MemorySpec,
) -> None:
    view = view_for(GROUP)
    told = []
    for path in ("memory/2026-01-31.md", "memory/link.md", "memory/pipe.md", "memory/hard.md"):
        with pytest.raises(ToolError) as caught:
            read_excerpt(spec, path, view=view)
        told.append(str(caught.value).replace(path, "X"))
    with pytest.raises(ToolError) as caught:
        read_excerpt(spec, "memory/nothing.md", view=view)
    assert {*told, str(caught.value).replace("memory/nothing.md", "X")} == {told[0]}
    assert read_excerpt(spec, "memory/2026-01-31.md", view=view_for(MAIN)).text
    write_note(spec, "the party is on Friday", "memory/shared/plans.md")
    assert "Friday" in read_excerpt(spec, "memory/shared/plans.md", view=view).text


def test_write_note_goes_to_daily_or_named_note(spec: MemorySpec) -> None:
    day = date(2026, 4, 15)
    first = write_note(spec, "Ann moved to Kiel. ", day=day)
    assert (first.path, first.start_line, first.end_line) == ("memory/2026-04-15.md", 3, 3)
    second = write_note(
        spec, "* She likes it.\n\n  because of the sea\n## Later\nand a dog", day=day
    )
    assert (second.start_line, second.end_line, second.added) == (4, 7, True)
    assert (spec.workspace / first.path).read_text() == (
        "# 2026-04-15\n\n- Ann moved to Kiel.\n* She likes it.\n  because of the sea\n## Later\n"
        "- and a dog\n"
    )
    named = write_note(spec, "Bob: plumber", "bank/people.md")
    assert (spec.workspace / named.path).read_text() == "- Bob: plumber\n"
    assert write_note(spec, "more", "MEMORY.md").start_line == 4
    read = read_excerpt(spec, named.path, named.start_line, named.end_line)
    assert read.text == "- Bob: plumber"


def test_write_note_same_text_is_written_once(spec: MemorySpec) -> None:
    day = date(2026, 4, 15)
    write_note(spec, "Ann moved to Kiel.\nShe likes it.", day=day)
    file = spec.workspace / "memory/2026-04-15.md"
    before = file.read_bytes()
    for again in ("- Ann  moved to\tKiel.", "* Ann moved to Kiel.", "  3. Ann moved to Kiel."):
        found = write_note(spec, again, day=day)
        assert (found.added, found.start_line, found.end_line) == (False, 3, 3)
    both = write_note(spec, "She likes it.\nAnn moved to Kiel.", day=day)
    assert (both.added, both.start_line, both.end_line) == (False, 3, 4)
    assert file.read_bytes() == before
    some = write_note(spec, "She likes it.\nnew\nnew\n- new", day=day)
    assert (some.added, some.start_line, some.end_line) == (True, 5, 5)
    assert file.read_bytes() == before + b"- new\n"


def test_write_note_invalid_text_is_refused_with_reason(spec: MemorySpec) -> None:
    key = "-----BEGIN OPENSSH PRIVATE KEY-----\nabcdefgh\n-----END OPENSSH PRIVATE KEY-----"
    for text, why in (
        ("", "nothing to note"),
        (" \n\t\n", "nothing to note"),
        ("\0\1", "nothing to note"),
        ("x" * (MAX_TEXT_CHARS + 1), "too many"),
        ("half \ud83d", "half a character"),
        (key, "private key"),
    ):
        with pytest.raises(ToolError, match=why):
            write_note(spec, text)
    (spec.workspace / "memory/full.md").write_bytes(b"x\n" * 499_995)
    with pytest.raises(ToolError, match="is full"):
        write_note(spec, "one more word", "memory/full.md")
    (spec.workspace / "memory/2026-01-31.md").chmod(0o444)
    with pytest.raises(ToolError, match="read-only"):
        write_note(spec, "x", "memory/2026-01-31.md")
    with pytest.raises(ToolError, match="is not text"):
        write_note(spec, "x", "memory/binary.md")


def test_write_note_invisible_characters_are_removed(spec: MemorySpec) -> None:
    done = write_note(spec, "a\0b\x1b[31mc\r\nd\u2028e", "memory/odd.md")
    assert (spec.workspace / done.path).read_bytes() == b"- ab[31mc\n- d\n- e\n"


def test_write_note_keeps_existing_bytes(spec: MemorySpec) -> None:
    file = spec.workspace / "memory/2026-04-15.md"
    file.write_bytes(b"mine, \xff and no newline")
    done = write_note(spec, "more", day=date(2026, 4, 15))
    assert file.read_bytes() == b"mine, \xff and no newline\n- more\n"
    assert (done.start_line, done.end_line) == (2, 2)
    file.chmod(0o600)
    write_note(spec, "again", day=date(2026, 4, 15))
    assert file.stat().st_mode & 0o777 == 0o600


def test_write_note_percent_signs_are_literal(spec: MemorySpec) -> None:
    (spec.workspace / "memory/%2e%2e").mkdir()
    (spec.workspace / "memory/%2e%2e/x.md").write_text("just a name")
    assert read_excerpt(spec, "memory/%2e%2e/x.md").text == "just a name"
    with pytest.raises(ToolError, match="there is no"):
        read_excerpt(spec, "memory/%2e%2e/secret.md")


def test_write_note_folder_link_leading_out_is_refused(tmp_path: Path) -> None:
    spec = at(tmp_path / "ws")
    outside = tmp_path / "outside"
    outside.mkdir()
    (spec.workspace / "memory").symlink_to(outside)
    with pytest.raises(ToolError, match="link"):
        write_note(spec, "x")
    with pytest.raises(ToolError):
        write_note(at(tmp_path / "new"), "x", "bank/../../out.md")
    assert list(outside.iterdir()) == []


def test_write_note_workspace_may_be_link_with_any_name(tmp_path: Path) -> None:
    (tmp_path / "my notes ☃").mkdir()
    (tmp_path / "way in").symlink_to("my notes ☃")
    linked = at(tmp_path / "way in")
    written = write_note(linked, "Ada likes tea.", "memory/people.md")
    assert read_excerpt(linked, written.path).text == "- Ada likes tea."
    assert read_excerpt(linked, f"{linked.workspace}/memory/people.md").path == written.path
    assert (tmp_path / "my notes ☃" / "memory" / "people.md").exists()


def test_write_note_missing_workspace_is_reported(tmp_path: Path) -> None:
    spec = at(tmp_path / "ws")
    spec.workspace.rmdir()
    with pytest.raises(ToolError, match="cannot be opened"):
        write_note(spec, "x")
    with pytest.raises(ToolError):
        read_excerpt(spec, "MEMORY.md")


def test_read_excerpt_folder_swapped_for_link_leaks_nothing(spec: MemorySpec) -> None:
    notes, outside = spec.workspace / "memory", spec.workspace.parent / "outside"
    (notes / "race").mkdir()
    (notes / "race" / "secret.md").write_text("mine")
    (notes / "away").symlink_to(outside)
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            (notes / "race").rename(notes / "kept")
            (notes / "away").rename(notes / "race")
            (notes / "race").rename(notes / "away")
            (notes / "kept").rename(notes / "race")

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for _ in range(500):
            with suppress(ToolError):
                assert read_excerpt(spec, "memory/race/secret.md").text == "mine"
    finally:
        done.set()
        swapping.join()


def test_write_note_file_swapped_for_link_is_not_followed(spec: MemorySpec) -> None:
    notes, outside = spec.workspace / "memory", spec.workspace.parent / "outside"
    note, other = notes / "race.md", notes / "other"
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            other.symlink_to(outside / "secret.md")
            other.replace(note)
            other.write_text("mine\n")
            other.replace(note)

    swapping = threading.Thread(target=swap)
    swapping.start()
    try:
        for turn in range(200):
            with suppress(ToolError):
                write_note(spec, f"turn {turn}", "memory/race.md")
    finally:
        done.set()
        swapping.join()
    assert [file.read_text() for file in outside.iterdir()] == [SECRET]
    assert SECRET not in note.read_text()
