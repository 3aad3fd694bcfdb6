"""`homarus memory`, without a gateway and mostly without a config."""

import asyncio
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from homarus.cli.memory import command
from homarus.cli.memory_output import ProgressBar
from homarus.cli.status import command as status_command
from homarus.core.errors import HomarusError, UnknownNameError, UserError

NOTE = """# Monday

- Ada: I moved to Kiel last week, the flat has a view of the harbour.
- Ben: And the ferry to Oslo leaves from there.

- Ada: My sister Grace plays the cello in an orchestra.
"""


WORDS = {"agents": {"defaults": {"memorySearch": {"provider": "none"}}}}


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A workspace that is no agent's."""
    folder = tmp_path / "notes"
    (folder / "memory").mkdir(parents=True)
    (folder / "memory" / "2026-03-02.md").write_text(NOTE, encoding="utf-8")
    (folder / "MEMORY.md").write_text("- Ada is allergic to walnuts.\n", encoding="utf-8")
    return folder


@pytest.fixture
def bare(home: Path, notes: Path, tmp_path: Path) -> tuple[str, ...]:
    """A workspace and a state, and nothing else."""
    return ("--workspace", str(notes), "--state", str(tmp_path / "state"))


@pytest.fixture
def there(bare: tuple[str, ...], tmp_path: Path) -> tuple[str, ...]:
    """The same, by words: whatever makes vectors on this machine."""
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "openclaw.json").write_text(json.dumps(WORDS))
    return bare


def run(*args: str, text: str | bytes = "") -> Result:
    return CliRunner().invoke(command, args, input=text, standalone_mode=False)


def done(*args: str, text: str | bytes = "") -> Result:
    result = run(*args, text=text)
    assert result.exception is None, result.exception
    return result


def told(*args: str) -> Any:
    return json.loads(done(*args, "--json").stdout)


def refused(*args: str, text: str = "") -> HomarusError:
    error = run(*args, text=text).exception
    assert isinstance(error, HomarusError), error
    return error


def test_memory_command_any_folder_without_config_is_searchable(
    bare: tuple[str, ...], tmp_path: Path
) -> None:
    shown = done("index", *bare).stdout
    assert shown.startswith("2 files indexed, 0 unchanged, ")
    assert (tmp_path / "state" / "memory" / "main.homarus.sqlite").exists()
    assert not (tmp_path / ".openclaw" / "memory").exists()
    found = told("search", "Where does Ada live now, Kiel?", *bare)
    best = found["results"][0]
    assert best["path"] == "memory/2026-03-02.md" and best["startLine"] == 3
    assert "moved to Kiel" in best["snippet"] and best["citation"].startswith(
        "memory/2026-03-02.md#L3"
    )
    assert {"results", "provider", "model", "backend", "fallback", "mode"} <= found.keys()


def test_memory_search_indexes_new_notes_first(there: tuple[str, ...], notes: Path) -> None:
    assert told("search", "cello", *there)["results"]
    (notes / "memory" / "later.md").write_text("The zeppelin is parked in Bremen.\n")
    (best, *_) = told("search", "zeppelin", *there)["results"]
    assert best["citation"] == "memory/later.md#L1"


def test_memory_search_waits_limited_time_for_indexing(
    there: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_args: object, **_named: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("homarus.memory.agent_memory.AgentMemory.sync", never)
    monkeypatch.setattr("homarus.cli.memory._SYNC_TIMEOUT_S", 0.05)
    assert told("search", "walnuts", *there)["results"][0]["path"] == "MEMORY.md"


def test_memory_write_first_note_creates_workspace(home: Path) -> None:
    done("write", "Ada moved to Kiel")
    written = list((home / ".openclaw" / "workspace" / "memory").glob("*.md"))
    assert [note.read_text("utf-8").splitlines()[-1] for note in written] == ["- Ada moved to Kiel"]


def test_memory_search_prints_citations(there: tuple[str, ...]) -> None:
    shown = done("search", "walnuts", *there, "--max-results", "1").stdout
    head, snippet, *_ = shown.splitlines()
    assert head.startswith("MEMORY.md#L1  ") and float(head.split()[1]) > 0
    assert snippet == "  - Ada is allergic to walnuts."
    assert "1 result, words" in shown


def test_memory_search_no_results_prints_next_steps(there: tuple[str, ...]) -> None:
    shown = done("search", "qwertzuiop", *there).stdout
    assert "Nothing found for 'qwertzuiop'." in shown
    assert "homarus memory status" in shown and "homarus memory index --force" in shown
    assert told("search", "qwertzuiop", *there)["results"] == []


def test_memory_search_escapes_control_characters_of_notes(
    there: tuple[str, ...], notes: Path
) -> None:
    (notes / "memory" / "bad.md").write_text("A \x1b[2J zebra crossed the road.\n")
    shown = done("search", "zebra", *there).stdout
    assert "\x1b" not in shown and "zebra crossed" in shown
    assert "\x1b[2J" in told("search", "zebra", *there)["results"][0]["snippet"]  # as it stands


def test_memory_search_max_results_is_respected(there: tuple[str, ...]) -> None:
    many = told("search", "Ada", *there)["results"]
    assert len(many) > 1
    assert len(told("search", "Ada", *there, "--max-results", "1")["results"]) == 1
    assert len(told("search", "Ada", *there, "--max-chars", "1")["results"]) == 1
    whole = told("search", "Ada moved", *there, "--mode", "passages")["results"][0]
    assert whole["snippet"].count("\n") > 2


@pytest.mark.parametrize(
    "flags",
    [("--max-results", "0"), ("--min-score", "2"), ("--mode", "pages"), ("--max-chars", "-1")],
)
def test_memory_search_invalid_options_are_rejected(
    there: tuple[str, ...], flags: tuple[str, ...]
) -> None:
    assert run("search", "Ada", *there, *flags).exception is not None


def test_memory_index_again_reads_nothing_and_force_reads_all(
    there: tuple[str, ...], notes: Path
) -> None:
    first = told("index", *there)
    assert first["indexed"] == ["MEMORY.md", "memory/2026-03-02.md"] and first["tookMs"] >= 0
    again = told("index", *there)
    assert again["indexed"] == [] and again["unchanged"] == 2
    assert len(told("index", *there, "--force")["indexed"]) == 2
    (notes / "MEMORY.md").unlink()
    assert told("index", *there)["removed"] == ["MEMORY.md"]


def test_memory_index_names_skipped_files(there: tuple[str, ...], notes: Path) -> None:
    (notes / "memory" / "link.md").symlink_to(notes / "MEMORY.md")
    (notes / "memory" / "junk.md").write_bytes(b"\0\1\2" * 100)
    shown = done("index", *there).stdout
    assert "2 files skipped:" in shown
    assert "  memory/link.md  is a link" in shown and "  memory/junk.md  is not text" in shown
    assert "memory/link.md  is a link" in done("status", *there).stdout
    (agent,) = told("status", "--index", *there)["agents"]
    assert {one["path"] for one in agent["skipped"]} == {"memory/link.md", "memory/junk.md"}


def test_memory_index_damaged_index_is_rebuilt_and_reported(
    there: tuple[str, ...], tmp_path: Path
) -> None:
    done("index", *there)
    database = tmp_path / "state" / "memory" / "main.homarus.sqlite"
    for file in database.parent.iterdir():
        file.unlink()
    database.write_bytes(b"no database at all " * 500)
    result = done("index", *there)
    assert "made anew" in (result.stdout + result.stderr).lower()
    assert told("search", "walnuts", *there)["results"]


def test_memory_status_prints_index_state(there: tuple[str, ...], notes: Path) -> None:
    done("index", *there)
    shown = done("status", *there).stdout
    rows = dict(line.split(maxsplit=1) for line in shown.splitlines())
    assert rows["agent"] == "main" and rows["backend"] == "builtin"
    assert rows["holds"].startswith("2 files, ")
    (agent,) = told("status", *there)["agents"]
    assert agent["agentId"] == "main" and agent["workspaceDir"] == str(notes)
    assert agent["files"] == 2 and agent["dbBytes"] > 0 and agent["skipped"] == []


def test_memory_status_lists_every_agent(home: Path) -> None:
    config = {"agents": {"list": [{"id": "main"}, {"id": "work", "workspace": "~/work"}]}}
    (home / ".openclaw" / "openclaw.json").write_text(json.dumps(config))
    (home / "work").mkdir()
    main, work = told("status")["agents"]
    assert main["problem"] and work["agentId"] == "work" and not work["problem"]
    assert [row["agentId"] for row in told("status", "--agent", "Work")["agents"]] == ["work"]
    assert "homarus setup" in done("status").stdout


def test_memory_status_agent_without_memory_keeps_others(home: Path, notes: Path) -> None:
    off = {"id": "off", "workspace": str(notes), "memorySearch": {"enabled": False}}
    nowhere = {"store": {"path": str(notes / "MEMORY.md" / "x.sqlite")}}
    lost = {"id": "lost", "workspace": str(notes), "memorySearch": nowhere}
    listed = [off, lost, {"id": "on", "workspace": str(notes)}]
    config = {"agents": {"list": listed, **WORDS["agents"]}}
    (home / ".openclaw" / "openclaw.json").write_text(json.dumps(config))
    first, second, third = told("status", "--index")["agents"]
    assert "switched off" in first["problem"] and third["files"] == 2
    assert "x.homarus.sqlite" in second["problem"]
    assert "switched off" in refused("search", "x", "--agent", "off").message


def test_memory_status_says_whether_sync_is_needed(there: tuple[str, ...], notes: Path) -> None:
    assert "nothing is indexed yet: homarus memory index" in done("status", *there).stdout
    (notes / "MEMORY.md").unlink()
    (notes / "memory" / "2026-03-02.md").unlink()
    done("index", *there)
    assert "there are no notes yet" in done("status", *there).stdout


def test_memory_search_uses_default_limits(home: Path, notes: Path) -> None:
    config = {"memory": {"qmd": {"limits": {"maxResults": 1}}}, **WORDS}
    (home / ".openclaw" / "openclaw.json").write_text(json.dumps(config))
    assert len(told("search", "Ada", "--workspace", str(notes))["results"]) == 1
    assert (
        len(told("search", "Ada", "--workspace", str(notes), "--max-results", "2")["results"]) == 2
    )


def test_memory_status_deep_tries_embedder(there: tuple[str, ...], tmp_path: Path) -> None:
    (agent,) = told("status", "--deep", *there)["agents"]
    assert agent["embedding"]["ok"] and "nothing to try" in agent["embedding"]["told"]
    gone = {"provider": "openai", "remote": {"baseUrl": "http://127.0.0.1:9/v1", "apiKey": "k"}}
    config = {"agents": {"defaults": {"memorySearch": gone}}}
    (tmp_path / "state" / "openclaw.json").write_text(json.dumps(config))
    (agent,) = told("status", "--deep", *there)["agents"]
    assert not agent["embedding"]["ok"] and "127.0.0.1:9" in agent["embedding"]["told"]
    assert "trial" in done("status", "--deep", *there).stdout


def test_memory_other_workspace_keeps_agents_index(home: Path, notes: Path) -> None:
    (home / ".openclaw" / "openclaw.json").write_text(json.dumps(WORDS))
    own = home / ".openclaw" / "workspace"
    own.mkdir()
    (own / "MEMORY.md").write_text("Mine are the marmots.\n")
    assert told("search", "marmots")["results"]
    assert told("search", "walnuts", "--workspace", str(notes))["results"]
    assert not told("search", "walnuts")["results"] and told("search", "marmots")["results"]
    names = {file.name for file in (home / ".openclaw" / "memory").glob("*.sqlite")}
    assert "main.homarus.sqlite" in names and len(names) == 2
    told("index", "--workspace", str(own))  # which is its own
    assert {file.name for file in (home / ".openclaw" / "memory").glob("*.sqlite")} == names
    shown = CliRunner().invoke(status_command, standalone_mode=False).stdout
    assert shown.count("memory    main: index of ") == 1


def test_memory_other_workspace_is_searched_alone(home: Path, notes: Path, tmp_path: Path) -> None:
    (tmp_path / "more.md").write_text("- Walnuts are in my extra notes.\n")
    search = {"provider": "none", "extraPaths": [str(tmp_path / "more.md")]}
    config = {"agents": {"defaults": {"memorySearch": search}}, "memory": {"backend": "qmd"}}
    (home / ".openclaw" / "openclaw.json").write_text(json.dumps(config))
    found = told("search", "walnuts", "--workspace", str(notes))
    assert [one["path"] for one in found["results"]] == ["MEMORY.md"]
    assert not found["fallback"] and not (home / ".openclaw" / "agents" / "main" / "qmd").exists()


def test_memory_command_uses_existing_config(home: Path, notes: Path) -> None:
    config = {
        "agents": {
            "defaults": {"memorySearch": {"provider": "none", "query": {"maxResults": 1}}},
            "list": [{"id": "work", "workspace": str(notes)}],
        },
        "channels": {"telegram": {"botToken": "${NOT_SET_IN_THIS_SHELL}"}},
    }
    (home / ".openclaw" / "openclaw.json").write_text(json.dumps(config))
    assert len(told("search", "Ada")["results"]) == 1
    assert (home / ".openclaw" / "memory" / "work.homarus.sqlite").exists()


def test_memory_command_mistakes_print_reason_and_fix(home: Path, notes: Path) -> None:
    (home / "file").write_text("")
    at = ("--workspace", str(notes))
    for args, message, fix in (
        (("search", "  ", *at), "nothing to look for", "homarus memory search"),
        (("search", "x", "--workspace", str(home / "no")), "no workspace at ~/no", "there"),
        (("search", "x", "--workspace", ""), "no workspace", "there"),
        (("search", "x"), "no workspace at ~/.openclaw/workspace", "homarus setup"),
        (("index", *at, "--state", str(home / "file")), "~/file is not a folder", "--state"),
        (("index", *at, "--state", str(home / "file" / "x")), "~/file is not a folder", "--state"),
        (("index", *at, "--state", ""), "names no folder", "--state"),
        (("write", " ", *at), "nothing to write", "homarus memory write"),
    ):
        error = refused(*args)
        assert isinstance(error, UserError) and message in error.message, error
        assert fix in error.fix
    unknown = refused("search", "x", "--agent", "mian", *at)
    assert isinstance(unknown, UnknownNameError) and unknown.nearest == ("main",)


def test_memory_command_unwritable_state_is_reported(
    home: Path, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = home / "closed"
    closed.mkdir(mode=0o500)
    if os.geteuid() == 0:  # who may write anywhere
        monkeypatch.setattr(os, "access", lambda path, mode: not (mode & os.W_OK))
    error = refused("index", "--workspace", str(notes), "--state", str(closed))
    assert "cannot be written" in error.message


def ask(there: tuple[str, ...], *lines: str | bytes) -> list[dict[str, Any]]:
    text = b"".join(line.encode() if isinstance(line, str) else line for line in lines)
    return [json.loads(line) for line in done("bench-stdio", *there, text=text).stdout.splitlines()]


def test_bench_stdio_answers_like_search(there: tuple[str, ...]) -> None:
    queries = ["Where does Ada live?", "cello", "ferry to Oslo", "nothing of that sort xyzzy"]
    lines = [json.dumps({"id": n, "query": q, "k": 4}) + "\n" for n, q in enumerate(queries)]
    answers = ask(there, *lines)
    assert [one["id"] for one in answers] == [0, 1, 2, 3]
    for answer, query in zip(answers, queries, strict=True):
        searched = told("search", query, *there, "--max-results", "4")
        assert answer["results"] == searched["results"] and answer["ms"] > 0


def test_bench_stdio_continues_after_invalid_line(there: tuple[str, ...]) -> None:
    bad: list[str | bytes] = [
        "nonsense\n", "[1]\n", "null\n", b"\xff\xfe\n", "[" * 100_000 + "\n", "\n",
        '{"id": "a"}\n', '{"id": "b", "query": " "}\n', '{"id": "c", "query": 7}\n',
        '{"id": "d", "query": "x", "k": 0}\n', '{"id": "e", "query": "x", "k": true}\n',
        '{"id": "f", "query": "x", "k": 1e9}\n', "x" * 2_500_000 + "\n",
        '{"id": "g", "query": "cello"}',
    ]  # fmt: skip
    answers = ask(there, *bad)
    assert [one["id"] for one in answers] == [
        None, None, None, None, None, "a", "b", "c", "d", "e", "f", None, "g",
    ]  # fmt: skip
    assert all("error" in one for one in answers[:-1])
    assert answers[-1]["results"]


async def test_bench_stdio_writes_each_answer_before_next_query(there: tuple[str, ...]) -> None:

    from homarus.cli.memory_stdio import serve
    from homarus.cli.memory_target import MemoryTarget, open_memory, resolve_memory
    from homarus.memory.base import SearchOptions

    out = io.StringIO()

    class Questions(io.BytesIO):
        def readline(self, size: int | None = -1, /) -> bytes:
            lines = out.getvalue().count("\n")
            return json.dumps({"id": lines, "query": "Ada"}).encode() + b"\n" if lines < 3 else b""

    place = resolve_memory(MemoryTarget(workspace=there[1], state=there[3]))
    async with open_memory(place) as memory:
        await serve(memory, SearchOptions(), Questions(), out)
    assert [json.loads(line)["id"] for line in out.getvalue().splitlines()] == [0, 1, 2]


def test_progress_bar_shows_only_on_terminal_for_long_work(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr("homarus.cli.memory_output.time.monotonic", lambda: now_s)
    dumb, bar = ProgressBar(live=False), ProgressBar(live=True)
    dumb(1, 10, "a.md")
    bar(1, 10, "a.md")
    assert capsys.readouterr().err == ""
    now_s = 5.0
    dumb(5, 10, "b.md")
    bar(5, 10, "memory/\x1bb.md")
    bar(6, 10, "too soon")
    shown = capsys.readouterr().err
    assert shown.startswith("\r[############............] 5 of 10  memory/") and "\x1b" not in shown
    assert "too soon" not in shown
    bar.clear()
    assert capsys.readouterr().err.strip(" \r") == ""
