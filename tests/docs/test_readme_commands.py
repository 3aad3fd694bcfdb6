"""Check that every command of the README can be typed as it is printed."""

import re
import shlex

import click
import pytest

import dev_commands
from homarus.cli.main import group
from tests.docs.test_documents import commands_in
from tests.style.rules import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
# What puts `homarus` on the PATH; the tests against third-party programs type these.
INSTALLS = {"pipx install '.[local]'", "uv tool install '.[local]'", ". .venv/bin/activate"}
TYPED = [shlex.join(words) for words in commands_in(README)]
PROSE = re.sub(r"^```.*?^```", "", README, flags=re.MULTILINE | re.DOTALL)
IN_TEXT = re.findall(r"`(homarus(?: [^`\n]+)?)`", PROSE)


def parse(words: list[str]) -> None:
    """Parse a command as the program does, without running it. Raises click.UsageError."""
    command: click.Command = group
    parent: click.Context | None = None
    args = words[1:]
    name = words[0]
    while isinstance(command, click.Group):
        parent = click.Context(command, info_name=name, parent=parent)
        if not args or args[0].startswith("-"):
            break
        found = command.get_command(parent, name := args.pop(0))
        if found is None:
            raise click.UsageError(f"{parent.command_path} has no command {name}")
        command = found
    if not isinstance(command, click.Group):
        command.make_context(name, args, parent=parent).close()


@pytest.mark.parametrize("line", dict.fromkeys([*TYPED, *IN_TEXT]))
def test_readme_command_can_be_typed(line: str) -> None:
    words = shlex.split(line)
    if words[0] == "homarus":
        parse(words)
    elif words[:2] == ["python3", "dev.py"]:
        assert words[2] in dev_commands.COMMANDS
    else:
        assert shlex.join(words) in {shlex.join(shlex.split(one)) for one in INSTALLS}


def test_readme_says_how_homarus_comes_onto_the_path_before_its_use() -> None:
    first = next(index for index, line in enumerate(TYPED) if line.startswith("homarus"))
    assert {shlex.join(shlex.split(one)) for one in INSTALLS} <= set(TYPED[:first])


@pytest.mark.parametrize(
    "line",
    ["homarus chatt", "homarus agent --massage x", "homarus config set", "homarus backup verify"],
)
def test_wrong_command_is_detected(line: str) -> None:
    with pytest.raises(click.UsageError):
        parse(shlex.split(line))
