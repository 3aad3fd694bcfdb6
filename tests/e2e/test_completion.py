"""A person presses Tab in bash; the scripts of the other shells are valid."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.program import Home, Terminal

KEY = "agent:main:telegram:direct:42"
HOSTILE = "agent:main:$(touch hostile)"


@pytest.fixture
def bash(home: Home) -> Iterator[Terminal]:
    """A bash with the completion script, in which `homarus` is this program."""
    folder = home.path / "bin"
    folder.mkdir()
    (folder / "homarus").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m homarus "$@"\n')
    (folder / "homarus").chmod(0o755)
    home.env["PATH"] = f"{folder}:{os.environ['PATH']}"
    own = {"baseUrl": "http://127.0.0.1:9/v1", "models": [{"id": "m-1", "name": "m-1"}]}
    agents = {"list": [{"id": "main"}, {"id": "night"}]}
    home.configure({"agents": agents, "models": {"providers": {"mine": own}}})
    sessions = home.state / "agents/main/sessions"
    sessions.mkdir(parents=True)
    (sessions / "sessions.json").write_text(json.dumps({KEY: {}, HOSTILE: {}}))
    shell = Terminal(home, program=(shutil.which("bash") or "bash", "--norc", "--noprofile", "-i"))
    shell.type("PS1='ready$ '")
    shell.type('eval "$(homarus completion bash)"; echo lo""aded')
    shell.wait_for("loaded")
    yield shell
    shell.close()


def clear_line(shell: Terminal) -> None:
    os.write(shell.descriptor, b"\x15\n")  # Ctrl-U
    shell.wait_for("ready$ ")


def press_tab(shell: Terminal, typed: str) -> None:
    os.write(shell.descriptor, f"{typed}\t".encode())


@pytest.mark.skipif(not shutil.which("bash"), reason="bash is not installed")
def test_bash_completes_names_options_and_values(bash: Terminal) -> None:
    for typed, completed in (
        ("homarus mod", "homarus models "),
        ("au", "auth "),
        ("order get --pro", "--provider "),
        ("anthro", "anthropic "),
        ("--agent ni", "--agent night "),
    ):
        press_tab(bash, typed)
        bash.wait_for(completed)
    clear_line(bash)
    press_tab(bash, "homarus chat --session agent:main:t")
    bash.wait_for(f"homarus chat --session {KEY} ")
    clear_line(bash)
    press_tab(bash, "homarus agent --model min")
    bash.wait_for("--model mine/m-1 ")
    clear_line(bash)
    press_tab(bash, "homarus configure work")
    bash.wait_for("configure workspace ")
    clear_line(bash)
    press_tab(bash, "homarus channels logs --channel=mat")
    bash.wait_for("--channel=matrix ")
    clear_line(bash)
    press_tab(bash, "homarus chat --session 'agent:main:$")
    press_tab(bash, "")
    clear_line(bash)
    bash.type("echo en''d")
    bash.wait_for("end")
    assert "hostile" not in bash.screen, "a key that a shell would run is not offered"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_script_is_valid(home: Home, tmp_path: Path, shell: str) -> None:
    done = home.run("completion", shell)
    assert done.status == 0 and f"_HOMARUS_COMPLETE={shell}_complete" in done.out
    assert done.err == "" and "complete" in done.out and "homarus" in done.out
    if program := shutil.which(shell):
        (tmp_path / "script").write_text(done.out)
        subprocess.run([program, "-n", tmp_path / "script"], check=True, capture_output=True)


def test_zsh_and_fish_requests_are_answered(home: Home) -> None:
    zsh = {"COMP_WORDS": "homarus mod", "COMP_CWORD": "1", "_HOMARUS_COMPLETE": "zsh_complete"}
    assert home.run(**zsh).out.split("\n")[:2] == ["plain", "models"]
    fish = {"COMP_WORDS": "homarus mod", "COMP_CWORD": "mod", "_HOMARUS_COMPLETE": "fish_complete"}
    assert home.run(**fish).out.startswith("plain,models\t")
    assert home.run(_HOMARUS_COMPLETE="csh_complete").status == 1
