"""Secrets in a variable, a file, or printed by a program."""

import asyncio
import os
import sys
import time
from pathlib import Path

import pytest

from homarus.core.errors import AuthFailed
from homarus.providers.secret import Source, fetch, kept_elsewhere, mask, written

SECRET = "sk-0123456789abcdef"


def got(source: Source, home: Path, **env: str) -> str:
    return asyncio.run(fetch(source, {"PATH": os.environ["PATH"], **env}, home))


def refused(source: Source, home: Path, **env: str) -> AuthFailed:
    with pytest.raises(AuthFailed) as caught:
        got(source, home, **env)
    assert SECRET not in str(caught.value)
    assert caught.value.fix
    return caught.value


def command(code: str, *words: str, timeout_s: float = 30.0) -> Source:
    return Source("exec", "", (sys.executable, "-I", "-S", "-c", code, *words), timeout_s)


def test_parse_secret_plain_key_or_variable_reference(tmp_path: Path) -> None:
    assert got(written(f"  {SECRET}\n"), tmp_path) == SECRET
    assert written("${OPENAI_API_KEY}") == Source("env", "OPENAI_API_KEY")
    assert got(written("${K}"), tmp_path, K=f"{SECRET}\n") == SECRET
    assert written("x${K}").place == "plain"
    assert "K" in refused(written("${K}"), tmp_path).message


def test_file_secret_is_its_first_line(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"\n{SECRET}  \nlogin: me\n")
    assert got(Source("file", "~/key"), tmp_path) == SECRET
    assert got(Source("file", str(tmp_path / "key")), tmp_path) == SECRET


@pytest.mark.parametrize("content", ["", " \n\n", "two words", "k\u00e9y", "a\x00b", "k\x1b[2Jy"])
def test_invalid_key_is_not_sent(tmp_path: Path, content: str) -> None:
    (tmp_path / "key").write_text(content)
    refused(Source("file", "~/key"), tmp_path)


def test_unreadable_secret_file_is_reported(tmp_path: Path) -> None:
    assert "No such file" in refused(Source("file", "~/nothing"), tmp_path).message
    assert "cannot be read" in refused(Source("file", "~"), tmp_path).message
    refused(Source("file", "a\0b"), tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "regular" in refused(Source("file", "~/pipe"), tmp_path).message


def test_command_secret_runs_without_shell(tmp_path: Path) -> None:
    words = ("$(touch pwned)", "; touch pwned")
    source = command("import sys; print(len(sys.argv), sys.argv[1:] == %r)" % [*words], *words)
    refused(source, tmp_path)  # it prints two words
    source = command(f"import sys; assert sys.argv[1:] == {[*words]!r}; print('{SECRET}')", *words)
    assert got(source, tmp_path) == SECRET
    assert not list(tmp_path.iterdir())


def test_command_secret_ignores_other_output(tmp_path: Path) -> None:
    code = f"import sys; print('{SECRET}\\nnotes'); sys.stderr.write('x' * 100_000)"
    assert got(command(code), tmp_path) == SECRET


def test_command_failure_gives_no_key_and_hides_output(tmp_path: Path) -> None:
    told = refused(command(f"print('{SECRET}'); raise SystemExit(3)"), tmp_path)
    assert "status 3" in told.message
    assert "could not be started" in refused(Source("exec", "", ("/no/such",)), tmp_path).message
    assert "no key" in refused(command("pass"), tmp_path).message


def test_command_timeout_kills_process_group(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time;"
        f"p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)']);"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(p.pid)); time.sleep(300)"
    )
    told = refused(command(code, timeout_s=3.0), tmp_path)
    assert "within 3 s" in told.message
    child = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 10
    while _lives(child) and time.monotonic() < deadline:
        os.sched_yield()
    assert not _lives(child)


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except OSError:
        return False


def test_command_endless_output_is_bounded(tmp_path: Path) -> None:
    code = "import sys\nwhile True: sys.stdout.write('x' * 65536 + '\\n')"
    refused(command(code, timeout_s=1.0), tmp_path)


def test_profile_may_name_variable_or_file_but_no_command() -> None:
    assert kept_elsewhere({"source": "env", "name": "K"}) == Source("env", "K")
    assert kept_elsewhere({"source": "file", "path": "~/k"}) == Source("file", "~/k")
    for entry in (
        {"source": "exec", "command": ["touch", "pwned"]},
        {"source": "env"},
        {"source": "file", "path": ""},
        {"source": "file", "path": ["x"]},
        {},
    ):
        assert kept_elsewhere(entry) is None


def test_secret_ref_repr_never_shows_secret() -> None:
    assert mask(SECRET) == "sk-…cdef"
    assert mask("short") == "…"
    assert mask("") == ""
    assert Source("plain", SECRET).shown == "sk-…cdef"
    assert Source("env", "K").shown == "${K}"
    assert Source("file", "~/k").shown == "file ~/k"
    assert Source("exec", "", ("pass", "show", SECRET)).shown == "command pass"
    assert SECRET not in repr(Source("plain", SECRET)) + repr(Source("exec", "", (SECRET,)))
