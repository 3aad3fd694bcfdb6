"""Secrets in a variable, a file, or printed by a program."""

import os
import sys
import time
from pathlib import Path

import pytest

from homarus.core.errors import AuthError
from homarus.providers.secret import (
    SecretRef,
    fetch_secret,
    mask,
    parse_secret,
    secret_from_profile,
)

SECRET = "sk-0123456789abcdef"


async def got(source: SecretRef, home: Path, **env: str) -> str:
    return await fetch_secret(source, {"PATH": os.environ["PATH"], **env}, home)


async def refused(source: SecretRef, home: Path, **env: str) -> AuthError:
    with pytest.raises(AuthError) as caught:
        await got(source, home, **env)
    assert SECRET not in str(caught.value)
    assert caught.value.fix
    return caught.value


def command(code: str, *words: str, timeout_s: float = 30.0) -> SecretRef:
    return SecretRef("exec", "", (sys.executable, "-I", "-S", "-c", code, *words), timeout_s)


async def test_parse_secret_plain_key_or_variable_reference(tmp_path: Path) -> None:
    assert await got(parse_secret(f"  {SECRET}\n"), tmp_path) == SECRET
    assert parse_secret("${OPENAI_API_KEY}") == SecretRef("env", "OPENAI_API_KEY")
    assert await got(parse_secret("${K}"), tmp_path, K=f"{SECRET}\n") == SECRET
    assert parse_secret("x${K}").place == "plain"
    assert "K" in (await refused(parse_secret("${K}"), tmp_path)).message


async def test_file_secret_is_its_first_line(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(f"\n{SECRET}  \nlogin: me\n")
    assert await got(SecretRef("file", "~/key"), tmp_path) == SECRET
    assert await got(SecretRef("file", str(tmp_path / "key")), tmp_path) == SECRET


@pytest.mark.parametrize("content", ["", " \n\n", "two words", "k\u00e9y", "a\x00b", "k\x1b[2Jy"])
async def test_invalid_key_is_not_sent(tmp_path: Path, content: str) -> None:
    (tmp_path / "key").write_text(content)
    await refused(SecretRef("file", "~/key"), tmp_path)


async def test_unreadable_secret_file_is_reported(tmp_path: Path) -> None:
    assert "No such file" in (await refused(SecretRef("file", "~/nothing"), tmp_path)).message
    assert "cannot be read" in (await refused(SecretRef("file", "~"), tmp_path)).message
    await refused(SecretRef("file", "a\0b"), tmp_path)
    os.mkfifo(tmp_path / "pipe")
    assert "regular" in (await refused(SecretRef("file", "~/pipe"), tmp_path)).message


async def test_command_secret_runs_without_shell(tmp_path: Path) -> None:
    words = ("$(touch pwned)", "; touch pwned")
    source = command("import sys; print(len(sys.argv), sys.argv[1:] == %r)" % [*words], *words)
    await refused(source, tmp_path)  # it prints two words
    source = command(f"import sys; assert sys.argv[1:] == {[*words]!r}; print('{SECRET}')", *words)
    assert await got(source, tmp_path) == SECRET
    assert not list(tmp_path.iterdir())


async def test_command_secret_ignores_other_output(tmp_path: Path) -> None:
    code = f"import sys; print('{SECRET}\\nnotes'); sys.stderr.write('x' * 100_000)"
    assert await got(command(code), tmp_path) == SECRET


async def test_command_failure_gives_no_key_and_hides_output(tmp_path: Path) -> None:
    told = await refused(command(f"print('{SECRET}'); raise SystemExit(3)"), tmp_path)
    assert "status 3" in told.message
    assert (
        "could not be started"
        in (await refused(SecretRef("exec", "", ("/no/such",)), tmp_path)).message
    )
    assert "no key" in (await refused(command("pass"), tmp_path)).message


async def test_command_timeout_kills_process_group(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time;"
        f"p = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(300)']);"
        f"open({str(tmp_path / 'pid')!r}, 'w').write(str(p.pid)); time.sleep(300)"
    )
    told = await refused(command(code, timeout_s=3.0), tmp_path)
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


async def test_command_endless_output_is_bounded(tmp_path: Path) -> None:
    code = "import sys\nwhile True: sys.stdout.write('x' * 65536 + '\\n')"
    await refused(command(code, timeout_s=1.0), tmp_path)


def test_profile_may_name_variable_or_file_but_no_command() -> None:
    assert secret_from_profile({"source": "env", "name": "K"}) == SecretRef("env", "K")
    assert secret_from_profile({"source": "file", "path": "~/k"}) == SecretRef("file", "~/k")
    for entry in (
        {"source": "exec", "command": ["touch", "pwned"]},
        {"source": "env"},
        {"source": "file", "path": ""},
        {"source": "file", "path": ["x"]},
        {},
    ):
        assert secret_from_profile(entry) is None


def test_secret_ref_repr_never_shows_secret() -> None:
    assert mask(SECRET) == "sk-…cdef"
    assert mask("short") == "…"
    assert mask("") == ""
    assert SecretRef("plain", SECRET).masked == "sk-…cdef"
    assert SecretRef("env", "K").masked == "${K}"
    assert SecretRef("file", "~/k").masked == "file ~/k"
    assert SecretRef("exec", "", ("pass", "show", SECRET)).masked == "command pass"
    assert SECRET not in repr(SecretRef("plain", SECRET)) + repr(SecretRef("exec", "", (SECRET,)))
