"""What systemd and launchd are told to keep running, whatever the paths are called."""

import os
import plistlib
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.config.paths import Paths
from homarus.core.errors import UserError
from homarus.gateway.service_unit import (
    ServiceDefinition,
    launchd_label,
    launchd_plist,
    make_service,
    systemd_unit,
    unit_name,
)

GOLDEN = Path(__file__).parent / "golden"
PLAIN = ServiceDefinition(
    "/opt/homarus/bin/python3",
    "/home/ann/.openclaw-work",
    {
        "PATH": "/home/ann/.local/bin:/usr/bin",
        "OPENCLAW_PROFILE": "work",
        "OPENCLAW_STATE_DIR": "/home/ann/.openclaw-work",
    },
    "work",
    18800,
)
HOSTILE = (
    "/a b",
    "/50%",
    "/%h/%%",
    '/say "hi"',
    "/it's",
    "/back\\slash\\n",
    "/new\nline",
    "/tab\there",
    "/$HOME/${HOME}",
    "/x;y#z=é💥",
    "/[Service]\nExecStart=/bin/evil",
    "/trailing\\",
    '/"" "\\"',
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("homarus-gateway-work.service", systemd_unit(PLAIN)),
        ("launchd.plist", launchd_plist(PLAIN)),
    ],
)
def test_unit_and_plist_have_the_expected_text(name: str, text: str) -> None:
    assert text == (GOLDEN / name).read_text(encoding="utf-8")


def test_profile_has_its_own_unit_name_and_label() -> None:
    assert unit_name("") == "homarus-gateway.service"
    assert unit_name("work") == "homarus-gateway-work.service"
    assert (launchd_label(""), launchd_label("work")) == (
        "ai.homarus.gateway",
        "ai.homarus.gateway.work",
    )


def read_words(line: str) -> list[str]:
    """Words as systemd.syntax(7) reads them: quotes, C escapes, `%%` for a percent sign."""
    words = re.findall(r'"((?:[^"\\]|\\.)*)"', line)
    assert " ".join(f'"{word}"' for word in words) == line, "a word that is not quoted"
    escapes = {"n": "\n", "t": "\t"}
    plain = [re.sub(r"\\(.)", lambda m: escapes.get(m[1], m[1]), word) for word in words]
    for word in plain:
        assert "%" not in word.replace("%%", ""), "a specifier"
    return [word.replace("%%", "%") for word in plain]


def read_unit(text: str) -> tuple[list[str], dict[str, str]]:
    """The command that would run, as its program gets it, and its environment."""
    lines = text.splitlines()
    assert all(re.fullmatch(r"[A-Z]\w+=.+|\[\w+\]|#.*|", line) for line in lines)
    (command,) = (line.removeprefix("ExecStart=") for line in lines if line.startswith("ExecStart"))
    program, *rest = read_words(command)
    assert not set(program) & set("\\\"'$\n\t"), "systemd does not run such a program"
    assert "$" not in " ".join(rest).replace("$$", ""), "a variable"
    argv = [program, *(word.replace("$$", "$") for word in rest)]
    if argv[:3] == ["/bin/sh", "-c", 'exec "$0" "$@"']:
        argv = argv[3:]
    pairs = [read_words(line.removeprefix("Environment=")) for line in lines if line[:4] == "Envi"]
    return argv, dict(pair[0].split("=", 1) for pair in pairs)


def found(path: str) -> ServiceDefinition:
    paths = Paths(Path("/home/ann"), Path(f"{path}/state"), Path(f"{path}/c.json"), Path("/c"))
    env = {"PATH": f"{path}/bin:relative::/usr/bin:/usr/bin", "OPENCLAW_CONFIG_PATH": "c.json"}
    return make_service(f"{path}/bin/python3", paths, env)


@pytest.mark.parametrize("path", HOSTILE)
def test_path_with_special_characters_is_quoted(path: str) -> None:
    program = found(path)
    assert read_unit(systemd_unit(program)) == (list(program.argv), program.environment)
    tree = plistlib.loads(launchd_plist(program).encode())
    assert tree["ProgramArguments"] == list(program.argv)
    assert tree["EnvironmentVariables"] == program.environment
    assert tree["StandardErrorPath"] == f"{path}/state/logs/launchd.log"


@given(st.text(min_size=1, max_size=40))
def test_any_path_is_quoted_or_refused(name: str) -> None:
    if re.search(r"[\0-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", name):
        with pytest.raises(UserError, match="no unit file can"):
            found(f"/{name}")
        return
    program = found(f"/{name}")
    assert read_unit(systemd_unit(program)) == (list(program.argv), program.environment)
    tree = plistlib.loads(launchd_plist(program).encode())
    assert tree["ProgramArguments"] == list(program.argv)


def test_sh_runs_a_program_of_any_name(tmp_path: Path) -> None:
    folder = tmp_path / 'it\'s "$HOME"\n\\'
    folder.mkdir()
    program = folder / "python3"
    program.write_text('#!/bin/sh\nprintf "%s|" "$0" "$@"\n')
    program.chmod(0o755)
    (line,) = (
        line
        for line in systemd_unit(found(str(folder)))
        .replace("/bin/python3", "/python3")
        .splitlines()
        if line.startswith("ExecStart=")
    )
    argv = [word.replace("$$", "$") for word in read_words(line.removeprefix("ExecStart="))]
    printed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert printed == "|".join([str(program), "-P", "-m", "homarus", "gateway", "run", ""])


def test_environment_with_secrets_is_not_copied() -> None:
    env = {
        "PATH": "/usr/bin",
        "TZ": "Europe/Berlin",
        "LANG": " ",
        "OPENAI_API_KEY": "sk-secret",
        "OPENCLAW_GATEWAY_TOKEN": "sk-secret",
        "OPENCLAW_GATEWAY_PASSWORD": "sk-secret",
        "HTTPS_PROXY": "http://me:sk-secret@proxy",
        "OPENCLAW_GATEWAY_PORT": "18801",
    }
    program = make_service("/p", Paths.find({}, Path("/home/ann")), env)
    assert program.environment == {
        "PATH": "/usr/bin",
        "TZ": "Europe/Berlin",
        "OPENCLAW_GATEWAY_PORT": "18801",
        "OPENCLAW_STATE_DIR": "/home/ann/.openclaw",
    }
    assert "sk-secret" not in systemd_unit(program) + launchd_plist(program)


def test_environment_selects_profile_and_config() -> None:
    env = {"OPENCLAW_PROFILE": "work", "OPENCLAW_CONFIG_PATH": "~/c.json", "PATH": "bin"}
    program = make_service("/p", Paths.find(env, Path("/home/ann")), env, 7)
    assert program.environment == {
        "OPENCLAW_PROFILE": "work",
        "OPENCLAW_CONFIG_PATH": "/home/ann/c.json",
        "OPENCLAW_STATE_DIR": "/home/ann/.openclaw-work",
    }
    assert program.argv[-2:] == ("--port", "7") and program.profile == "work"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not on this machine")
@pytest.mark.parametrize("path", ["", *HOSTILE])
def test_systemd_verify_accepts_the_unit(path: str, tmp_path: Path) -> None:
    folder = Path(f"{tmp_path}{path}")
    python = folder / "bin" / "python3"
    python.parent.mkdir(parents=True)
    python.symlink_to("/bin/sh")
    file = tmp_path / "homarus-gateway.service"
    file.write_text(systemd_unit(found(str(folder))), encoding="utf-8")
    done = subprocess.run(
        [str(shutil.which("systemd-analyze")), "verify", "--user", str(file)],
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path), "SYSTEMD_LOG_LEVEL": "warning"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "Failed to initialize manager" in done.stderr:
        pytest.skip("systemd cannot check units here")
    assert done.returncode == 0 and file.name not in done.stderr, done.stderr
