"""dev.py: the check of the version, Ctrl-C, and environments that a stopped set-up left."""

import ast
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import dev_commands
from tests.style.rules import ROOT

DEV = ROOT / "dev.py"
PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"


@pytest.fixture
def venv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment's place, with steps of the set-up that only make the environment."""
    folder = tmp_path / "venv"
    monkeypatch.setattr(dev_commands, "VENV", folder)
    monkeypatch.setattr(dev_commands, "PYTHON", folder / "bin/python")
    monkeypatch.setattr(dev_commands, "STAMP", folder / ".homarus-stamp")
    monkeypatch.setattr(dev_commands, "run_step", make_step(folder))
    return folder


def make_step(folder: Path) -> Callable[..., None]:
    def run_step(command: list[str | Path], **_options: object) -> None:
        words = [str(word) for word in command]
        if "venv" in words:
            shutil.rmtree(folder, ignore_errors=True)
            (folder / "bin").mkdir(parents=True)
            (folder / "pyvenv.cfg").write_text("home = /usr\n")
            (folder / "made").write_text("")
            python = folder / "bin/python"
            python.write_text(
                f"#!/bin/sh\nexec {sys.executable} -c 'import sys; print(sys.version)'\n"
            )
            python.chmod(0o755)

    return run_step


def set_up(folder: Path) -> bool:
    """Set up the environment; return whether it was made, and not only completed."""
    (folder / "made").unlink(missing_ok=True)
    dev_commands.install("run.lock")
    return (folder / "made").exists()


# The version of Python


def old_pythons() -> list[Path]:
    """Return the Pythons before 3.11 that pyenv has."""
    found = sorted(PYENV.glob("*/bin/python"))
    return [one for one in found if re.match(r"2\.|3\.\d\.|3\.10\.", one.parts[-3])]


def test_dev_parses_as_the_oldest_python_3() -> None:
    tree = ast.parse(DEV.read_text(encoding="utf-8"), feature_version=(3, 4))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr | ast.AnnAssign)]
    assert DEV.read_text(encoding="utf-8").isascii()


@pytest.mark.skipif(not old_pythons(), reason="no Python before 3.11 under pyenv")
def test_dev_on_old_python_says_which_is_needed() -> None:
    for python in old_pythons():
        done = subprocess.run(
            [python, DEV, "run"], capture_output=True, text=True, check=False, env={"PATH": "/bin"}
        )
        assert done.returncode == 1 and not done.stdout
        assert done.stderr.startswith("Homarus needs Python 3.11 or newer; this is ")
        assert "SyntaxError" not in done.stderr and "  -> " in done.stderr


def test_dev_without_command_lists_every_command() -> None:
    done = subprocess.run([sys.executable, DEV], capture_output=True, text=True, check=False)
    listed = re.findall(r"^([a-z-]+) +\w", done.stderr, re.MULTILINE)
    assert done.returncode == 1 and listed == list(dev_commands.COMMANDS)


# Ctrl-C


def test_command_interrupted_exits_130_without_traceback() -> None:
    # The child stays in the background of no terminal: only the parent gets the signal.
    code = (
        "import dev_commands, sys; dev_commands.END_S = 0.01;"
        "dev_commands.COMMANDS['x'] = lambda: dev_commands.sh("
        "sys.executable, '-c', 'import time; print(1, flush=True); time.sleep(9)');"
        "dev_commands.run_command('x')"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == "\nStopped.\n"


# Incomplete environments


def test_set_up_is_done_once(venv: Path) -> None:
    assert set_up(venv) is True
    assert set_up(venv) is False


def test_set_up_of_venv_without_stamp_starts_again(venv: Path) -> None:
    set_up(venv)
    (venv / ".homarus-stamp").unlink()
    (venv / "left").write_text("")
    assert set_up(venv) is True
    assert not (venv / "left").exists()


def test_set_up_of_venv_with_folders_alone_starts_again(venv: Path) -> None:
    (venv / "lib/python3.11").mkdir(parents=True)  # killed before its first file
    assert set_up(venv) is True


def test_set_up_of_venv_whose_python_is_gone_starts_again(venv: Path) -> None:
    set_up(venv)
    (venv / "bin/python").unlink()
    (venv / "bin/python").symlink_to(venv / "gone/python3")
    assert set_up(venv) is True


def test_set_up_of_moved_venv_starts_again(venv: Path) -> None:
    set_up(venv)
    stamp = venv / ".homarus-stamp"
    stamp.write_text(stamp.read_text().replace(str(venv), "/elsewhere/.venv"))
    assert set_up(venv) is True


def test_set_up_after_a_new_lock_keeps_the_venv(venv: Path) -> None:
    set_up(venv)
    stamp = venv / ".homarus-stamp"
    stamp.write_text(f"{'0' * 64}\nat {venv}")
    assert set_up(venv) is False
    assert "0" * 64 not in stamp.read_text()


def test_set_up_stopped_during_a_new_lock_has_no_stamp(
    venv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_up(venv)
    (venv / ".homarus-stamp").write_text(f"{'0' * 64}\nat {venv}")

    def stop(*_args: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(dev_commands, "run_step", stop)
    with pytest.raises(KeyboardInterrupt):
        dev_commands.install("run.lock")
    assert not (venv / ".homarus-stamp").exists()


def test_set_up_in_folder_of_other_files_is_refused(venv: Path) -> None:
    venv.mkdir()
    (venv / "thesis.txt").write_text("years of work")
    with pytest.raises(SystemExit, match="no virtual environment"):
        set_up(venv)
    assert (venv / "thesis.txt").exists()


# Progress


def test_pip_output_counts_packages(venv: Path) -> None:
    output = dev_commands.PipOutput("a==1 \\\nb-c==2 ; sys_platform == 'win32' \\\nd[e]==3 \\\n")
    output.read("Ignoring b-c: markers 'sys_platform == \"win32\"' don't match\n")
    output.read("Collecting a==1 (from -r run.lock (line 1))\n")
    output.read("  Downloading a-1-py3-none-any.whl (3 kB)\n")
    assert str(output) == "1 of 2 packages downloaded"
    output.read("Requirement already satisfied: d[e]==3 in ./lib\n")
    assert str(output) == "2 of 2 packages downloaded"
    output.read("Installing collected packages: a, d\n")
    info = venv / "lib/python3.11/site-packages/a-1.dist-info"
    info.mkdir(parents=True)
    (info / "RECORD").write_text("")
    assert str(output) == "1 of 2 packages installed"


def test_progress_without_terminal_is_a_line_per_step(capsys: pytest.CaptureFixture[str]) -> None:
    line = dev_commands.ProgressLine("Setting up .venv")
    line.step("downloading packages")
    for count in range(100):
        line.show(f"{count} of 100")
    line.close(".venv is ready.")
    assert capsys.readouterr().out == "Setting up .venv: downloading packages\n.venv is ready.\n"


# What the package says of itself


def test_classifiers_name_the_versions_that_ci_runs() -> None:
    ci = (ROOT / ".ci/run").read_text(encoding="utf-8")
    oldest, newest = min(declared := dev_commands.declared_pythons()), max(declared)
    assert (
        oldest
        == (3, 11)
        == tuple(ast.literal_eval(re.findall(r"^OLDEST = (.*)", DEV.read_text(), re.M)[0]))
    )
    assert 'requires-python = ">=3.11"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    # `check` and `test` run on the oldest, test-newest on the newest: the two, and no other.
    assert declared == {oldest, newest} and "dev.py test-newest" in ci


def test_newest_python_without_classifier_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dev_commands, "newest_python", lambda: ("python3.99", (3, 99)))
    monkeypatch.setattr(dev_commands, "sh", lambda *command, **env: None)
    with pytest.raises(SystemExit, match=r"3\.99; the classifiers in pyproject.toml name"):
        dev_commands.test_newest()
