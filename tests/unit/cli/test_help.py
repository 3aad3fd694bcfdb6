"""The help of every command: examples, defaults, one vocabulary, and suggestions."""

import re
import shlex
import sys
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from homarus.cli.command_group import CommandGroup, command_help, command_summary
from homarus.cli.main import COMMANDS, CONTEXT_SETTINGS, GROUPS, describe_usage_error, group, run
from homarus.cli.options import RenamedOption, Seconds


def walk(ctx: click.Context, *, hidden: bool = False) -> Iterator[click.Context]:
    """Return the contexts of all commands that help shows."""
    yield ctx
    if isinstance(ctx.command, click.Group):
        for name in ctx.command.list_commands(ctx):
            found = ctx.command.get_command(ctx, name)
            assert found is not None
            if hidden or not found.hidden:
                yield from walk(click.Context(found, info_name=name, parent=ctx), hidden=hidden)


ROOT = click.Context(group, info_name="homarus", **CONTEXT_SETTINGS)
ALL = list(walk(ROOT))
BY_PATH = {ctx.command_path: ctx for ctx in ALL}
OPTIONS = [
    (ctx, option)
    for ctx in ALL
    for option in ctx.command.params
    if isinstance(option, click.Option) and not option.hidden
]


def fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str) -> str:
    """Run a command line that is wrong, and return its message."""
    monkeypatch.setattr(sys, "argv", shlex.split(line))
    with pytest.raises(SystemExit) as ended:
        run()
    assert ended.value.code == 2
    return capsys.readouterr().err


def test_every_command_has_an_example_that_parses() -> None:
    for ctx in ALL:
        lines = command_help(ctx.command)[1]
        assert lines, f"{ctx.command_path} has no example"
        for line in lines:
            assert len(line) <= 76, f"{line!r} is wider than a terminal"
            assert f"{ctx.command_path} " in f"{line} " or ctx.parent is None, line
            parse(line)


def parse(line: str) -> None:
    """Check the command, the options and the values of an example."""
    words = shlex.split(
        line.rsplit("| ", maxsplit=1)[-1].split(" < ", maxsplit=1)[0].split(" > ", maxsplit=1)[0]
    )
    words = shlex.split(words[-1].strip("$()")) if words[0] == "eval" else words
    ctx = ROOT
    assert words.pop(0) == "homarus", line
    while isinstance(ctx.command, click.Group) and words:
        name, command, words = ctx.command.resolve_command(ctx, words)
        assert command is not None, line
        ctx = command.make_context(name, list(words), parent=ctx)
        words = [*ctx._protected_args, *ctx.args]


def test_every_example_is_shown_in_help() -> None:
    for ctx in ALL:
        shown = ctx.get_help()
        for line in command_help(ctx.command)[1]:
            assert f"\n    {line}\n" in f"{shown}\n", ctx.command_path


def test_every_default_is_shown_in_help() -> None:
    for ctx, option in OPTIONS:
        value = option.get_default(ctx)
        if not isinstance(value, str | int | float) or value == "" or option.is_flag:
            continue
        record = option.get_help_record(ctx)
        assert record and "[default: " in record[1], f"{ctx.command_path} {option.opts}"
        number = isinstance(value, int | float)
        assert (f"{value:g}" if number else str(value)) in record[1]


def test_every_summary_is_one_plain_sentence() -> None:
    odd = re.compile(r"\b(say|look|mend|nobody|somebody|fare|usual|anew|whoever)\b", re.I)
    for ctx in ALL:
        assert ctx.command.help
        line = command_summary(ctx.command)
        assert line.endswith(".") and len(line) <= 90, f"{ctx.command_path}: {line}"
        for text in (ctx.command.help, *(option.help or "" for option in options_of(ctx))):
            assert not odd.search(text), f"{ctx.command_path}: {text}"


def options_of(ctx: click.Context) -> list[click.Option]:
    return [one for one in ctx.command.params if isinstance(one, click.Option)]


def test_root_help_lists_every_command_in_its_group() -> None:
    shown = CliRunner().invoke(group, ["--help"]).output
    for title, rows in GROUPS.items():
        section = shown.split(f"\n{title}:\n")[1].split("\n\n")[0]
        names = [line.split()[0] for line in section.splitlines() if line.startswith("  ")]
        assert names == list(rows)
    assert len(COMMANDS) == sum(map(len, GROUPS.values()))
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_every_group_suggests_close_names() -> None:
    for ctx in walk(ROOT, hidden=True):
        if isinstance(ctx.command, click.Group):
            assert isinstance(ctx.command, CommandGroup), ctx.command_path


# The vocabulary: a name has the same meaning in every command.
FORBIDDEN = {
    *("--max", "--max-results", "--count", "--lines", "--num", "--number", "-n"),
    *("--session-key", "--session-id", "--timeout-ms", "--interval-ms", "--timeout-seconds"),
    *("--assume-yes", "-y", "--agent-id", "--format"),
}
METAVARS = {
    "--agent": "ID",
    "--session": "KEY",
    "--channel": "NAME",
    "--account": "ID",
    "--limit": "COUNT",
    "--timeout": "SECONDS",
    "--interval": "SECONDS",
    "--model": "REF",
    "--workspace": "DIR",
    "--url": "URL",
}
PROVIDER_OWN_ID = ("homarus onboard", "--model")  # where the provider is another option
# OpenClaw's word for where a job runs: main or isolated.
JOB_TARGETS = {("homarus cron add", "--session"), ("homarus cron edit", "--session")}
FLAGS = {"--json", "--yes", "--all", "--local", "--force", "--probe", "--deep", "--fix"}


def test_options_use_one_vocabulary() -> None:
    for ctx, option in OPTIONS:
        where = f"{ctx.command_path} {option.opts}"
        assert not FORBIDDEN & {*option.opts}, where
        for name in option.opts:
            if (ctx.command_path, name) == PROVIDER_OWN_ID:
                assert option.metavar == "ID"
            elif (ctx.command_path, name) in JOB_TARGETS:
                assert option.metavar == "TARGET"
            elif name in METAVARS and not option.is_flag:
                assert option.metavar == METAVARS[name], where
            assert option.is_flag or name not in FLAGS, where


def test_times_are_in_seconds() -> None:
    for ctx, option in OPTIONS:
        if {"--timeout", "--interval"} & {*option.opts}:
            assert isinstance(option.type, Seconds), ctx.command_path
            assert "seconds" in (option.help or "").lower(), ctx.command_path
        assert "millisecond" not in (option.help or "").lower(), ctx.command_path


def test_milliseconds_are_refused_with_the_unit(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = fails(monkeypatch, capsys, "homarus health --timeout 10000")
    assert "it is in seconds: 10000 milliseconds are 10" in shown
    assert "seconds" in fails(monkeypatch, capsys, "homarus logs --interval soon")


@pytest.mark.parametrize(
    ("path", "name", "old"),
    [
        ("agent", "--session", "--session-key"),
        ("chat", "--session", "--session-key"),
        ("memory search", "--limit", "--max-results"),
        ("channels logs", "--limit", "--lines"),
        ("agents delete", "--yes", "--force"),
    ],
)
def test_former_option_name_works_and_is_not_shown(path: str, name: str, old: str) -> None:
    ctx = BY_PATH[f"homarus {path}"]
    (option,) = [one for one in options_of(ctx) if name in one.opts]
    assert isinstance(option, RenamedOption) and old in option.old_names
    assert old not in ctx.get_help()
    parser = ctx.command.make_parser(ctx)
    value = [] if option.is_flag else ["7"]
    assert parser.parse_args([old, *value])[0] == parser.parse_args([name, *value])[0]


@pytest.mark.parametrize(
    ("line", "nearest"),
    [
        ("homarus modles", "homarus models"),
        ("homarus models auht", "homarus models auth"),
        ("homarus models auth order gte", "homarus models auth order get"),
        ("homarus help models lst", "homarus models list"),
        ("homarus status --jsno", "--json"),
        ("homarus models auth add --key-fil x", "--key-file"),
        ("homarus --profil dev", "--profile"),
    ],
)
def test_mistyped_name_suggests_the_closest(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, nearest: str
) -> None:
    assert f"did you mean {nearest}" in fails(monkeypatch, capsys, line)


def test_name_like_no_other_refers_to_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "homarus models --help" in fails(monkeypatch, capsys, "homarus models xyzzy")
    assert "homarus status --help" in fails(monkeypatch, capsys, "homarus status --xyzzy")
    assert "homarus logs --help" in fails(monkeypatch, capsys, "homarus help logs xyzzy")


def test_help_command_shows_the_help_of_a_path() -> None:
    asked = CliRunner().invoke(group, ["help", "models", "auth", "add"], prog_name="homarus")
    same = CliRunner().invoke(group, ["models", "auth", "add", "--help"], prog_name="homarus")
    assert asked.exit_code == 0 and asked.output == same.output
    root = CliRunner().invoke(group, ["help"], prog_name="homarus").output
    assert root == CliRunner().invoke(group, ["--help"], prog_name="homarus").output


def test_internal_command_is_hidden_and_can_be_called() -> None:
    assert "homarus memory bench-stdio" not in BY_PATH
    assert "bench-stdio" not in BY_PATH["homarus memory"].get_help()
    shown = CliRunner().invoke(group, ["memory", "bench-stdio", "--help"])
    assert shown.exit_code == 0 and "--limit" in shown.output


def test_option_without_its_value_names_the_help_of_its_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.argv", ["homarus", "agent", "--model"])
    error = click.BadOptionUsage("--model", "Option '--model' requires an argument.")
    assert describe_usage_error(error)[1] == "see homarus agent --help"
