"""Tests of the commands that extend and remove the program, by the tool that installed it."""

import subprocess
import sys
from pathlib import Path

import pytest

from homarus.core import installation
from homarus.core.errors import MissingExtraError


@pytest.fixture
def prefix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The prefix of an environment in which the program is installed as a package."""
    site = tmp_path / "lib/python3.11/site-packages/homarus/core"
    site.mkdir(parents=True)
    monkeypatch.setattr(installation, "__file__", str(site / "installation.py"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin/python"))
    return tmp_path


def test_checkout_is_removed_as_a_folder() -> None:
    found = installation.find_installation()
    assert found.tool == "checkout" and (found.folder / "dev.py").exists()
    assert found.removal == f"delete the folder {found.folder}"


def test_uv_tool_has_commands_of_uv(prefix: Path) -> None:
    (prefix / "uv-receipt.toml").write_text("")
    assert installation.find_installation().removal == "uv tool uninstall homarus"
    command = installation.extra_command("local")
    assert command.startswith(f"uv pip install --python {prefix}/bin/python 'xllamacpp>=")


def test_pipx_has_commands_of_pipx(prefix: Path) -> None:
    (prefix / "pipx_metadata.json").write_text("{}")
    assert installation.find_installation().removal == "pipx uninstall homarus"
    assert installation.extra_command("vectors").startswith("pipx inject homarus 'numpy>=2.1' ")


def test_uvx_has_commands_of_uv(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(prefix / "archive-v0" / "abc"))
    assert installation.find_installation().removal == "uv cache clean homarus"
    assert installation.extra_command("local").startswith("uvx --with 'xllamacpp>=")


def test_pip_is_that_of_the_running_python(prefix: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    python = f"{prefix}/bin/python"
    assert installation.find_installation().removal == f"{python} -m pip uninstall homarus"
    assert installation.extra_command("local") == f"{python} -m pip install 'homarus[local]'"
    (prefix / "bin").mkdir()
    (prefix / "bin/pip").write_text("#!/bin/sh\n")
    (prefix / "bin/pip").chmod(0o755)
    monkeypatch.setenv("PATH", f"{prefix}/bin")
    assert MissingExtraError("this", "local").fix == "run `pip install 'homarus[local]'`"


def test_commands_are_words_of_a_shell(prefix: Path) -> None:
    (prefix / "pipx_metadata.json").write_text("{}")
    command = installation.extra_command("vectors")
    done = subprocess.run(["sh", "-nc", command], capture_output=True, check=False)
    assert done.returncode == 0 and ">=" in command


def test_docs_of_checkout_are_those_of_repository() -> None:
    root = installation.find_installation().folder
    assert installation.find_docs.__wrapped__() == root / "docs"


def test_docs_of_installed_package_are_in_it(prefix: Path) -> None:
    package = prefix / "lib/python3.11/site-packages/homarus"
    (prefix / "lib/python3.11/docs").mkdir()
    (prefix / "lib/python3.11/docs/index.md").write_text("of another program")
    assert installation.find_docs.__wrapped__() is None
    (package / "docs").mkdir()
    (package / "docs/index.md").write_text("# Pages")
    assert installation.find_docs.__wrapped__() == package / "docs"
