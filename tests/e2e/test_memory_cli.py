"""`homarus memory` as a person and a script run it: real processes, one state, and a gateway."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from homarus.gateway.client import GatewayClient
from tests.e2e.gateway import EventRecorder, Gateway, connect_client
from tests.e2e.program import Home, Terminal


@pytest.fixture
def notes(home: Home) -> Path:
    folder = home.path / "notes"
    (folder / "memory").mkdir(parents=True)
    for day in range(1, 10):
        lines = [f"- Ada: On day {day} I saw the {word}." for word in ("harbour", f"bird{day}")]
        (folder / "memory" / f"2026-03-0{day}.md").write_text("\n".join(["# Walk", "", *lines, ""]))
    return folder


def at(notes: Path, home: Home) -> tuple[str, ...]:
    return ("--workspace", str(notes), "--state", str(home.path / "elsewhere"))


def test_memory_cli_index_search_and_bench_stdio_work(home: Home, notes: Path) -> None:
    there = at(notes, home)
    index = home.run("memory", "index", *there)
    assert index.status == 0 and "9 files indexed" in index.out and "\r" not in index.err
    found = home.run("memory", "search", "bird3", "--json", "--limit", "2", *there).json
    assert found["results"][0]["path"] == "memory/2026-03-03.md"
    asked = "".join(json.dumps({"id": q, "query": q, "k": 2}) + "\n" for q in ("bird3", "bird7"))
    batch = home.run("memory", "bench-stdio", "--mode", "lines", *there, text=f"{asked}oops\n")
    answers = [json.loads(line) for line in batch.out.splitlines()]
    assert [one["id"] for one in answers] == ["bird3", "bird7", None]
    assert answers[0]["results"] == found["results"] and batch.status == 0
    assert not home.state.exists()  # nothing was written but where it was told


def test_bench_stdio_process_answers_line_by_line(home: Home, notes: Path) -> None:
    command = [sys.executable, "-m", "homarus", "memory", "bench-stdio", *at(notes, home)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=home.env
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        for query in ("bird1", "bird2"):  # each waits for the one before
            process.stdin.write(json.dumps({"id": query, "query": query, "k": 1}) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["id"] == query
        process.stdin.close()
        assert process.wait(timeout=30) == 0


def test_memory_cli_write_get_search_status_of_own_memory(home: Home) -> None:
    assert home.run("setup").status == 0
    written = home.run("memory", "write", "Ada moved to Kiel in March.", "--json").json
    assert written["added"] and written["path"].startswith("memory/")
    again = home.run("memory", "write", "Ada moved to Kiel in March.")
    assert again.status == 0 and "stands there already" in again.out
    assert home.run("memory", "write", "-", "--to", "MEMORY.md", text="Grace plays cello.\n").out
    assert "Grace plays cello." in (home.workspace / "MEMORY.md").read_text()
    got = home.run("memory", "get", written["path"])
    assert "Ada moved to Kiel" in got.out
    line = str(written["startLine"])
    one = home.run("memory", "get", written["path"], "--from", line, "--limit", "1", "--json").json
    assert "Ada moved to Kiel" in one["text"] and one["from"] == written["startLine"]
    found = home.run("memory", "search", "Where did Ada move?")
    assert found.status == 0 and f"{written['path']}#L{line}" in found.out
    status = home.run("memory", "status", "--deep")
    assert status.status == 0 and "~/.openclaw/memory/main.homarus.sqlite" in status.out
    assert "memory    main: index of " in home.run("status").out
    assert "memory main" in home.run("doctor", "--all").out


def test_memory_cli_mistakes_print_reason(home: Home, notes: Path) -> None:
    for args, words in (
        (("search", ""), "nothing to look for"),
        (("search", "x", "--workspace", "nowhere"), "no workspace"),
        (("get", "../secrets.md", *at(notes, home)), "secrets.md"),
        (("get", "memory/none.md", *at(notes, home)), "none.md"),
        (("index", "--agent", "nobody", *at(notes, home)), "unknown agent 'nobody'"),
        (("search", "x", "--state", "/dev/null", "--workspace", str(notes)), "not a folder"),
        (("serach", "x"), "serach"),
    ):
        done = home.run("memory", *args)
        assert done.status != 0 and words in done.err, (args, done)
    told = home.run("memory", "search", "", "--json")
    assert told.json["ok"] is False and told.json["error"]["fix"]


def test_memory_cli_two_processes_index_concurrently(home: Home, notes: Path) -> None:
    command = [sys.executable, "-m", "homarus", "memory", "index", "--json", *at(notes, home)]
    both = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=home.env)
        for _ in range(3)
    ]
    outs = [process.communicate(timeout=60) for process in both]
    assert [process.returncode for process in both] == [0, 0, 0], outs
    found: Any = home.run("memory", "search", "bird5", "--json", *at(notes, home)).json
    assert found["results"][0]["path"] == "memory/2026-03-05.md"


def test_memory_cli_long_indexing_shows_progress_and_can_be_stopped(home: Home) -> None:
    folder = home.path / "large"
    (folder / "memory").mkdir(parents=True)
    for number in range(800):
        words = " ".join(f"w{number % 97} x{number} y{line}" for line in range(12))
        text = "\n".join(f"- {line} {words}" for line in range(250))
        (folder / "memory" / f"{number}.md").write_text(text)
    home.configure({"agents": {"defaults": {"memorySearch": {"provider": "none"}}}})
    where = ("--workspace", str(folder), "--state", str(home.state))
    terminal = Terminal(home, "memory", "index", *where)
    try:
        terminal.wait_for(" of 800  memory/")
        terminal.press_ctrl_c()
        assert terminal.end() == 130
        assert "Traceback" not in terminal.screen
    finally:
        terminal.close()
    (told,) = home.run("memory", "status", "--json", *where).json["agents"]
    assert told["files"] == 0  # all of it, or nothing


async def test_memory_cli_and_gateway_share_one_memory(home: Home, gateway: Gateway) -> None:
    assert home.run("memory", "write", "The zeppelin lands on Friday.").status == 0

    async def scene(client: GatewayClient, _events: EventRecorder) -> None:
        found: Any = await client.call("memory.search", {"query": "zeppelin", "maxResults": 1})
        assert "zeppelin" in found["results"][0]["snippet"]
        written: Any = await client.call("memory.write", {"text": "Grace plays the cello."})
        got: Any = await client.call("memory.get", {"path": written["path"]})
        assert "zeppelin" in got["text"] and "cello" in got["text"]
        status: Any = await client.call("memory.status")
        assert status["files"] >= 1

    async with connect_client(gateway) as (client, _events):
        await scene(client, _events)
    found = home.run("memory", "search", "cello", "--json", "--max-results", "1").json
    assert "cello" in found["results"][0]["snippet"]
