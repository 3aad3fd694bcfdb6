"""What a command loads: start-up time is mostly imports, so they are counted, not timed."""

import inspect
import subprocess
import sys
from pathlib import Path

import click
import pytest

from homarus.cli.main import COMMANDS, group

VENDORS = {"apsw", "httpx2", "openai", "pydantic", "rich", "textual", "xllamacpp"}

PROBE = """
import atexit, sys
sys.argv = ["homarus", *sys.argv[1:]]
atexit.register(lambda: sys.stderr.write("\\n" + " ".join(sys.modules)))
from homarus.__main__ import main
main()
"""


def loaded(home: Path, *args: str) -> set[str]:
    """The top-level modules in memory when the command ends."""
    env = {"HOME": str(home), "OPENCLAW_STATE_DIR": str(home / "state"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *args],
        env=env,
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    names = done.stderr.splitlines()[-1].split()
    return {name.split(".")[0] for name in names} | {n for n in names if n.startswith("homarus.")}


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_version_is_printed_without_imports(tmp_path: Path, flag: str) -> None:
    heavy = {"click", "asyncio", "json", "re", "importlib.metadata", "typing", "dataclasses"}
    assert not loaded(tmp_path, flag) & (VENDORS | heavy)


def test_help_imports_click_and_no_command(tmp_path: Path) -> None:
    names = loaded(tmp_path, "--help")
    assert "click" in names
    assert not names & (VENDORS | {"asyncio"})
    own = {"homarus.cli.main", "homarus.cli.command_group"}
    assert not {n for n in names if n.startswith("homarus.cli.")} - own


def test_config_get_imports_no_server_database_or_model(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    config = tmp_path / "state" / "openclaw.json"
    config.write_text("{agents: {defaults: {workspace: '~/w'}}}", encoding="utf-8")
    names = loaded(tmp_path, "config", "get", "agents.defaults.workspace")
    assert not names & {"apsw", "httpx2", "rich", "xllamacpp", "openai"}


def test_package_import_imports_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import homarus; print(set(sys.modules) - before)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "{'homarus'}"


@pytest.mark.parametrize("name", COMMANDS)
def test_command_table_matches_each_command(name: str) -> None:
    module, line = COMMANDS[name]
    command = group.get_command(click.Context(group), name)
    assert command is not None
    assert command.name in (name, "command")
    assert inspect.cleandoc(command.help or "").splitlines()[0] == line
    folder = Path(inspect.getfile(group.__class__)).parent
    assert (folder / f"{module.replace('.', '/')}.py").exists()


def test_command_table_lists_every_command_module() -> None:
    folder = Path(inspect.getfile(group.__class__)).parent
    has = {
        ".".join(p.relative_to(folder).with_suffix("").parts)
        for p in folder.rglob("*.py")
        if "def command(" in p.read_text(encoding="utf-8")
    }
    assert has == {module for module, _ in COMMANDS.values()}
