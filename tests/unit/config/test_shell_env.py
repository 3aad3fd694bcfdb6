"""Variables of the login shell: imported once, in time, and only where they are missing."""

import json
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from homarus.config import shell_env
from homarus.config.load import load_config, resolve_env
from homarus.config.paths import Paths
from homarus.config.shell_env import extend_by_shell, parse_variables, preload_shell
from homarus.core.errors import ConfigError


@pytest.fixture(autouse=True)
def _no_cache() -> Iterator[None]:
    shell_env._read_shell.cache_clear()
    yield
    shell_env._read_shell.cache_clear()


def fake_shell(folder: Path, script: str) -> str:
    """Return the path of a shell that runs a script, then the command it is given."""
    file = folder / "shell"
    file.write_text(f'#!/bin/sh\necho run >> "{folder}/runs"\n{script}\n')
    file.chmod(0o700)
    return str(file)


def runs(folder: Path) -> int:
    file = folder / "runs"
    return len(file.read_text().splitlines()) if file.exists() else 0


RUN_COMMAND = 'exec /bin/sh -c "$3"'


def write_config(paths: Paths, **shell: object) -> None:
    paths.config.parent.mkdir(parents=True, exist_ok=True)
    provider = {"baseUrl": "http://127.0.0.1:9", "apiKey": "${OWN_VALUE}", "models": [{"id": "m"}]}
    tree = {"env": {"shellEnv": shell}, "models": {"providers": {"p": provider}}}
    paths.config.write_text(json.dumps(tree))


def test_shell_env_missing_names_come_from_login_shell(paths: Paths, tmp_path: Path) -> None:
    script = (
        "sleep 60 &\necho Welcome; printf 'A_KEY=no\\0'\n"
        "export OWN_VALUE=mine A_KEY=shell B_KEY=other PS9=x\n" + RUN_COMMAND
    )
    env = {"SHELL": fake_shell(tmp_path, script), "A_KEY": "own"}
    write_config(paths, enabled=True)
    loaded = load_config(paths, env)
    assert loaded.config.models.providers["p"].api_key == "mine"
    assert (loaded.env["A_KEY"], loaded.env["B_KEY"]) == ("own", "other")
    assert loaded.env.get("PS9") is None and "C_KEY" not in loaded.env
    again = load_config(paths, loaded.env)  # as a reload does
    assert again.env["B_KEY"] == "other"
    assert runs(tmp_path) == 1


def test_shell_env_is_off_by_default_and_lazy(paths: Paths, tmp_path: Path) -> None:
    env = {"SHELL": fake_shell(tmp_path, RUN_COMMAND), "OWN_VALUE": "set"}
    write_config(paths)
    assert type(load_config(paths, env).env) is dict
    write_config(paths, enabled=True)
    loaded = load_config(paths, env)
    assert dict(loaded.env)["OWN_VALUE"] == "set"
    assert loaded.env.get("LS_COLORS") is None
    assert runs(tmp_path) == 0
    preload_shell(loaded.env)
    assert runs(tmp_path) == 1


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("sleep 60 & sleep 60", "did not end within 0.3 s"),
        ("exit 3", "status 3"),
        ("echo nothing", "did not print its variables"),
        ("head -c 2000000 /dev/zero", "printed too much"),
    ],
)
def test_shell_env_failing_shell_imports_nothing_in_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, script: str, reason: str
) -> None:
    tree = {"env": {"shellEnv": {"enabled": True, "timeoutMs": 300}}}
    env = extend_by_shell(tree, {"SHELL": fake_shell(tmp_path, script)})
    started_s = time.monotonic()
    with caplog.at_level(logging.WARNING):
        assert env.get("A_KEY") is None
        assert env.get("B_KEY") is None
    assert time.monotonic() - started_s < 30
    assert caplog.text.count(reason) == 1 and runs(tmp_path) == 1


def test_shell_env_unusable_shell_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    tree = {"env": {"shellEnv": {"enabled": True}}}
    for shell in ("zsh", "/nowhere/zsh"):
        assert extend_by_shell(tree, {"SHELL": shell}).get("A_KEY") is None
        assert shell in caplog.text


def test_shell_env_wrong_values_are_config_errors(paths: Paths) -> None:
    for wrong in ({"enabled": "yes"}, {"enabled": True, "timeoutMs": -1}, {"enabld": True}):
        write_config(paths, **wrong)
        with pytest.raises(ConfigError, match="shellEnv"):
            load_config(paths, {"OWN_VALUE": "x"})


def test_shell_env_real_login_shell_answers(paths: Paths, tmp_path: Path) -> None:
    (tmp_path / ".profile").write_text("echo hello\nexport REAL_TOKEN=t1\n")
    tree = {"env": {"shellEnv": {"enabled": True}}}
    env, _ = resolve_env(paths, {"SHELL": "/bin/sh", "HOME": str(tmp_path)}, tree)
    assert env.get("REAL_TOKEN") == "t1"
    assert "REAL_TOKEN" not in os.environ


def test_parse_variables_untrusted_output_is_filtered() -> None:
    output = b"A=1\0lower=2\0B\xff=3\0C=\xff\0D=x=y\nz\0=5\0E\0F= \0G=" + b"g" * 40_000 + b"\0"
    assert parse_variables(output) == {"A": "1", "D": "x=y\nz"}
