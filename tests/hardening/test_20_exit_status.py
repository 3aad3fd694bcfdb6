"""A condition that passes does not keep the service down: only a wrong config exits with 2."""

import errno
import os
import plistlib
import re
import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from homarus.cli.gateway import command
from homarus.config.paths import Paths
from homarus.core.errors import (
    ConfigError,
    CorruptDataError,
    DiskFullError,
    HomarusError,
    MissingExtraError,
    StateInUseError,
    StoreError,
    UserError,
)
from homarus.gateway.exit_status import TRANSIENT, WRONG_CONFIG, is_transient
from homarus.gateway.service_unit import launchd_plist, make_service, systemd_unit
from homarus.store.lock import StateLock
from tests.e2e.program import Home


def test_gateway_with_its_port_in_use_exits_with_75(home: Home) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = home.run("gateway", "run", "--port", str(port))
    assert done.status == TRANSIENT == 75, done
    assert f"port {port}: Address already in use" in done.err and "→" in done.err


def test_gateway_with_its_state_directory_in_use_exits_with_75(home: Home) -> None:
    lock = StateLock(home.state)
    try:
        done = home.run("gateway", "run", "--port", "0")
    finally:
        lock.release()
    assert done.status == TRANSIENT, done
    assert f"process {os.getpid()} uses the state directory" in done.err


def test_gateway_with_an_address_that_is_not_there_yet_exits_with_75(home: Home) -> None:
    token = {"mode": "token", "token": "t" * 32}
    home.configure({"gateway": {"auth": token, "bind": "custom", "customBindHost": "192.0.2.1"}})
    done = home.run("gateway", "run", "--port", "0")
    assert done.status == TRANSIENT and "192.0.2.1" in done.err, done


@pytest.mark.parametrize(
    "config",
    [
        {"gateway": {"port": "many"}},
        {"gateway": {"bind": "custom", "customBindHost": "nonsense"}},
        {"agentz": {}},
    ],
)
def test_gateway_with_a_wrong_config_exits_with_2(home: Home, config: object) -> None:
    home.configure(config)
    done = home.run("gateway", "run", "--port", "0")
    assert done.status == WRONG_CONFIG == 2, done
    assert home.run("gateway", "run", "--port", "x").status == WRONG_CONFIG


def caused_by(error: HomarusError, cause: BaseException) -> HomarusError:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        StateInUseError("held"),
        DiskFullError("full"),
        caused_by(UserError("no port"), OSError(errno.EADDRINUSE, "in use")),
        caused_by(UserError("no address"), OSError(errno.EADDRNOTAVAIL, "not there")),
        caused_by(UserError("no workspace"), OSError(errno.ENOSPC, "full")),
        caused_by(UserError("no workspace"), OSError(errno.EROFS, "read-only")),
        caused_by(ConfigError("unreadable"), OSError(errno.EIO, "the disk")),
        caused_by(ConfigError("unreadable"), OSError(errno.EMFILE, "too many files")),
        caused_by(UserError("no host"), socket.gaierror(socket.EAI_AGAIN, "no name server yet")),
        caused_by(StoreError("x"), caused_by(UserError("y"), TimeoutError("slow"))),
    ],
    ids=str,
)
def test_condition_that_passes_is_transient(error: HomarusError) -> None:
    assert is_transient(error)


@pytest.mark.parametrize(
    "error",
    [
        ConfigError("wrong"),
        MissingExtraError("this", "extra"),
        CorruptDataError("damaged"),
        caused_by(UserError("no port"), PermissionError(errno.EACCES, "a port of the system")),
        caused_by(ConfigError("no file"), FileNotFoundError(errno.ENOENT, "gone")),
        caused_by(ConfigError("no number"), ValueError("x")),
    ],
    ids=str,
)
def test_condition_that_stays_is_not_transient(error: HomarusError) -> None:
    assert not is_transient(error)


def test_unit_restarts_after_every_status_but_that_of_a_wrong_config(tmp_path: Path) -> None:
    program = make_service("/usr/bin/python3", Paths.find({"HOME": str(tmp_path)}), {})
    lines = systemd_unit(program).split("\n")
    assert "Restart=always" in lines and "StartLimitIntervalSec=0" in lines
    (prevented,) = [line for line in lines if line.startswith("RestartPreventExitStatus=")]
    assert prevented == f"RestartPreventExitStatus={WRONG_CONFIG}"
    assert not any(line.startswith("SuccessExitStatus=") for line in lines)
    assert plistlib.loads(launchd_plist(program).encode())["KeepAlive"] is True


def test_help_of_gateway_run_names_the_exit_statuses() -> None:
    shown = CliRunner().invoke(command, ["run", "--help"]).output
    assert {"0", "1", "2", "75"} <= set(re.findall(r"\d+", shown))
