"""Several write the same note at once: every line is kept, and each stands there once."""

import subprocess
import sys
import threading
from datetime import date
from pathlib import Path

from homarus.core.errors import ToolError
from homarus.memory.note_writer import write_note
from homarus.memory.spec import MemorySpec
from homarus.tools.rooted_fs import RootedFs

DAY = date(2026, 4, 15)
NAME = "memory/2026-04-15.md"
OTHER = """
import sys
from datetime import date
from pathlib import Path
from homarus.memory.note_writer import write_note
from homarus.memory.spec import MemorySpec
state = Path(sys.argv[1]) / "state"
spec = MemorySpec("main", Path(sys.argv[1]), state / "m.sqlite", state, state, state)
for n in range(15):
    write_note(spec, f"{sys.argv[2]}{n}", day=date(2026, 4, 15))
    write_note(spec, f"both {n}", day=date(2026, 4, 15))
"""


def at(workspace: Path) -> MemorySpec:
    state = workspace / "state"
    return MemorySpec("main", workspace, state / "m.sqlite", state, state, state)


def together(*work: threading.Thread) -> None:
    for each in work:
        each.start()
    for each in work:
        each.join()


def test_write_note_concurrent_threads_lose_nothing(tmp_path: Path) -> None:
    spec, failed = at(tmp_path), list[ToolError]()

    def write(who: str) -> None:
        try:
            for n in range(10):
                write_note(spec, f"{who}{n}", day=DAY)
                write_note(spec, f"both {n}", day=DAY)
        except ToolError as exc:
            failed.append(exc)

    together(*(threading.Thread(target=write, args=(who,)) for who in "abcd"))
    assert failed == []
    wanted = {f"- {who}{n}" for who in "abcd" for n in range(10)} | {
        f"- both {n}" for n in range(10)
    }
    lines = (tmp_path / NAME).read_text().splitlines()
    assert lines[:2] == ["# 2026-04-15", ""] and sorted(lines[2:]) == sorted(wanted)


def test_write_note_concurrent_processes_lose_nothing(tmp_path: Path) -> None:
    asked = [[sys.executable, "-c", OTHER, str(tmp_path), who] for who in "ab"]
    running = [subprocess.Popen(each) for each in asked]
    assert [one.wait(60) for one in running] == [0, 0]
    lines = (tmp_path / NAME).read_text().splitlines()[2:]
    assert len(lines) == len(set(lines)) == 45


def test_write_note_during_file_tool_edit_keeps_both(tmp_path: Path) -> None:
    spec, folder = at(tmp_path), RootedFs(tmp_path)
    write_note(spec, "begin", day=DAY)
    edited = list[str]()

    def edit() -> None:
        while len(edited) < 20:
            line = f"- edit {len(edited)}"
            try:
                with folder.open_read(NAME) as opened:
                    data = opened.file.read() + line.encode() + b"\n"
                    folder.write_atomic(NAME, data, seen=opened.stat)
            except ToolError:
                continue  # somebody was faster: it is read again
            edited.append(line)

    def write() -> None:
        for n in range(20):
            write_note(spec, f"note {n}", day=DAY)

    together(threading.Thread(target=edit), threading.Thread(target=write))
    lines = (tmp_path / NAME).read_text().splitlines()[2:]
    wanted = {"- begin", *edited, *(f"- note {n}" for n in range(20))}
    assert sorted(lines) == sorted(wanted)
