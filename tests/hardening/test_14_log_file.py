"""The log is in the state directory, for its owner alone, and nothing planted there stops us."""

import logging
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from homarus.cli.logs import command, read_tail
from homarus.config.log_files import find_log_file, log_file, open_log_to_read
from homarus.config.log_setup import configure_logging
from homarus.config.schema import Config
from homarus.core.errors import UnavailableError
from homarus.process import open_app

log = logging.getLogger("homarus.test")


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The temporary folder of all users."""
    folder = tmp_path / "tmp"
    folder.mkdir(0o777)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def mode(path: Path) -> str:
    return oct(stat.S_IMODE(path.stat().st_mode))


async def test_log_of_the_program_is_in_the_state_directory(tmp_path: Path, shared: Path) -> None:
    async with open_app({"HOME": str(tmp_path)}):
        log.info("hello")
    (file,) = (tmp_path / ".openclaw" / "logs").iterdir()
    assert "hello" in file.read_text()
    assert (mode(file), mode(file.parent)) == ("0o600", "0o700")
    assert list(shared.iterdir()) == []


def test_log_folder_and_file_open_to_others_are_closed(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir(0o755)
    file = log_file(Config(), logs)
    file.write_text("")
    file.chmod(0o666)
    configure_logging(Config(), logs)
    log.info("hello")
    assert "hello" in file.read_text()
    assert (mode(file), mode(logs)) == ("0o600", "0o700")


def plant(kind: str, file: Path) -> None:
    other = file.with_name("other")
    match kind:
        case "fifo":
            os.mkfifo(file)
        case "link":
            other.write_text("mine")
            file.symlink_to(other)
        case "hard link":
            other.write_text("mine")
            file.hardlink_to(other)
        case "folder":
            file.mkdir()
        case _:
            file.write_text("theirs")
            os.chown(file, 65_534, -1)


PLANTED = ["fifo", "link", "hard link", "folder"]
PLANTED += ["foreign"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []


@pytest.mark.timeout(10)
@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.parametrize("is_named", [True, False])
def test_log_planted_in_its_place_is_neither_awaited_nor_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], kind: str, *, is_named: bool
) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    named = {"logging": {"file": str(logs / "a.log")}} if is_named else {}
    config = Config.model_validate(named)
    file = log_file(config, logs)
    plant(kind, file)
    configure_logging(config, logs)
    for _ in range(3):
        log.info("secret")
    assert capsys.readouterr().err.count("no log is written") == 1
    assert not file.is_file() or "secret" not in file.read_text()
    with pytest.raises(OSError, match=r"\w"):
        open_log_to_read(file)
    with pytest.raises(UnavailableError, match="cannot be read"):
        read_tail(file, None, 10)


def test_log_setting_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "named" / "a.log"
    configure_logging(Config.model_validate({"logging": {"file": str(file)}}), tmp_path / "logs")
    log.info("hello")
    assert "hello" in file.read_text() and mode(file) == "0o600"
    assert not (tmp_path / "logs").exists()


def test_log_starts_a_file_per_day_and_deletes_old_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.mktime((2026, 3, 1, 12, 0, 0, 0, 0, -1))
    real = time.strftime
    monkeypatch.setattr(time, "time", lambda: now)
    monkeypatch.setattr(
        time, "strftime", lambda form, at=None: real(form, at or time.localtime(now))
    )
    logs = tmp_path / "logs"
    logs.mkdir()
    for name in ("openclaw-2026-02-01.log", "openclaw-2026-02-26.log", "gateway.log"):
        (logs / name).write_text("old\n")
    configure_logging(Config(), logs)
    log.info("first")
    now += 86_400
    log.info("second")
    today = logs / "openclaw-2026-03-02.log"
    assert "second" in today.read_text() and "first" not in today.read_text()
    assert "first" in (logs / "openclaw-2026-03-01.log").read_text()
    assert not (logs / "openclaw-2026-02-01.log").exists()
    assert (logs / "openclaw-2026-02-26.log").exists() and (logs / "gateway.log").exists()
    assert find_log_file(Config(), logs) == today


def write_openclaws(shared: Path, name: str = "openclaw-2026-01-02.log") -> Path:
    file = shared / "openclaw" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("a line of OpenClaw\n")
    return file


def show_logs(home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(os, "environ", {"HOME": str(home)})
    return CliRunner().invoke(command, catch_exceptions=False).output


def test_logs_command_shows_the_log_of_openclaw_until_there_is_ours(
    tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_openclaws(shared, "openclaw-2026-01-01.log").write_text("older\n")
    write_openclaws(shared)
    assert show_logs(tmp_path, monkeypatch) == "a line of OpenClaw\n"
    ours = tmp_path / ".openclaw" / "logs" / "openclaw-2026-01-01.log"
    ours.parent.mkdir(parents=True)
    ours.write_text("a line of ours\n")
    assert show_logs(tmp_path, monkeypatch) == "a line of ours\n"


@pytest.mark.timeout(10)
@pytest.mark.parametrize("kind", PLANTED)
def test_logs_command_reads_nothing_planted_in_the_shared_folder(
    tmp_path: Path, shared: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    write_openclaws(shared).unlink()
    plant(kind, shared / "openclaw" / "openclaw-2026-01-02.log")
    assert show_logs(tmp_path, monkeypatch) == ""
