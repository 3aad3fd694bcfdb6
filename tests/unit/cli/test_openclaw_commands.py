"""Every command of OpenClaw is here, or is listed with a reason; what prints data has --json."""

import json
import shlex
from pathlib import Path

import click
from click.testing import CliRunner

from homarus.cli.main import group
from homarus.cli.unsupported import UNSUPPORTED
from tests.unit.cli.test_help import ALL, ROOT

FILE = Path(__file__).parents[2] / "data" / "openclaw_commands.txt"
LEAVES = [line for line in FILE.read_text().splitlines() if line and not line.startswith("#")]
MISSING = {row.path for row in UNSUPPORTED}
# Leaves that print no data: they act on a terminal, start a program, or print one fixed text.
WITHOUT_JSON = {
    "chat": "it is a conversation",
    "completion": "it prints a script for a shell",
    "config schema": "it prints JSON",
    "configure": "it asks at a terminal",
    "gateway restart": "it only acts",
    "gateway run": "it is the gateway",
    "gateway stop": "it only acts",
    "hub serve": "it is a server",
    "mcp serve": "it speaks MCP on standard output",
    "models auth add": "it only stores a secret",
    "models auth login": "it asks at a terminal",
    "models auth order clear": "it only acts",
    "models auth order set": "it only acts",
    "models auth paste-token": "it only stores a secret",
    "models auth setup-token": "it only stores a secret",
    "models pull": "it shows the progress of a download",
    "sandbox recreate": "it only acts",
    "tui": "it is a conversation",
    "uninstall": "it asks, and lists what it removes for people",
}


def find(path: str) -> click.Command | None:
    """Return the command of a path, None if there is none."""
    ctx = ROOT
    for name in path.split():
        if not isinstance(ctx.command, click.Group):
            return None
        found = ctx.command.get_command(ctx, name)
        if found is None:
            return None
        ctx = click.Context(found, info_name=name, parent=ctx)
    return ctx.command


def test_every_openclaw_command_is_here_or_is_listed() -> None:
    assert len(LEAVES) == len({*LEAVES}) > 200
    for path in LEAVES:
        found = find(path)
        does_something = found is not None
        if isinstance(found, click.Group):
            # `storage` has subcommands only, in OpenClaw too.
            does_something = found.invoke_without_command or path == "browser storage"
        assert does_something != (path in MISSING), path


def test_unsupported_commands_are_few_and_have_reasons() -> None:
    assert {*LEAVES} >= MISSING and len(MISSING) == len(UNSUPPORTED)
    assert len(MISSING) <= 0.15 * len(LEAVES)
    for row in UNSUPPORTED:
        assert len(row.reason.split()) >= 3, row.path


def test_what_to_use_instead_exists() -> None:
    docs = Path(__file__).parents[3] / "docs"
    for row in UNSUPPORTED:
        words = shlex.split(row.instead)
        if words[:1] == ["homarus"]:
            path = [word for word in words[1:] if word.islower() and not word.startswith("-")]
            assert find(" ".join(path)) is not None, row.path
        elif words[:1] and words[0].startswith("docs/"):
            assert (docs / words[0].removeprefix("docs/").rstrip(":")).is_file(), row.path


def test_help_unsupported_lists_reason_and_replacement() -> None:
    shown = CliRunner().invoke(group, ["help", "unsupported"]).output
    told = json.loads(CliRunner().invoke(group, ["help", "unsupported", "--json"]).output)
    assert told["count"] == len(UNSUPPORTED)
    for row in UNSUPPORTED:
        assert row.path in shown and row.reason in shown and row.instead in shown
    assert "unsupported" in CliRunner().invoke(group, ["help", "--help"]).output
    wrong = CliRunner().invoke(group, ["help", "models", "--json"])
    assert wrong.exit_code == 2


def test_every_leaf_that_prints_data_has_json() -> None:
    leaves = {
        ctx.command_path.removeprefix("homarus "): ctx.command
        for ctx in ALL
        if not isinstance(ctx.command, click.Group)
    }
    without = {
        path
        for path, one in leaves.items()
        if not any("--json" in option.opts for option in one.params)
    }
    assert without == {*WITHOUT_JSON}
