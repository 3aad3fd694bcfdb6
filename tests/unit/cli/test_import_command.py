"""`homarus import` at the command line: the table, `--json`, and a rehearsal."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from homarus.cli.import_home import command
from homarus.core.errors import UserError
from tests.unit.importing.source_homes import make_home, read_tree


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return make_home(tmp_path / "old")


def run(*args: str) -> Result:
    return CliRunner().invoke(command, args, standalone_mode=False)


def rows(output: str) -> dict[str, list[str]]:
    """Return the lines of the table: title → numbers."""
    found = [line.split("  ") for line in output.splitlines()[2:8]]
    return {cells[0]: [cell.strip() for cell in cells[1:] if cell.strip()] for cells in found}


def test_import_prints_counts_before_and_after_per_kind(home: Path, source: Path) -> None:
    shown = run(str(source.parent)).output
    first, header = shown.splitlines()[:2]
    assert first == "~/old/.openclaw → ~/.openclaw"
    assert header.split() == ["source", "before", "imported", "after"]
    assert rows(shown)["sessions"] == ["4", "0", "4", "4"]
    assert rows(shown)["cron jobs"] == ["1", "0", "1", "1"]
    assert "Messages in the imported sessions: 6" in shown
    again = run(str(source)).output
    assert again.splitlines()[1].split() == ["source", "before", "imported", "unchanged", "after"]
    assert rows(again)["memory files"] == ["3", "3", "0", "3", "3"]


def test_import_dry_run_says_that_nothing_was_imported(home: Path, source: Path) -> None:
    before = read_tree(home)
    shown = run(str(source), "--dry-run").output
    assert rows(shown)["credentials"] == ["4", "0", "4", "4"]
    assert shown.endswith("Nothing was imported.\n")
    assert read_tree(home) == before


def test_import_json_has_every_kind_and_note(home: Path, source: Path) -> None:
    printed = json.loads(run(str(source), "--json").output)
    assert printed["ok"] is True and printed["dryRun"] is False
    assert printed["kinds"]["approvedSenders"]["after"] == 2
    assert {note["kind"] for note in printed["notes"]} == {"agents", "config"}
    assert "sk-theirs" not in json.dumps(printed)


def test_import_of_an_absent_folder_is_an_error(home: Path) -> None:
    error = run("~/absent").exception
    assert isinstance(error, UserError) and "is no folder" in error.message
