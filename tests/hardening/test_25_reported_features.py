"""What is set up for features that are not built is named: jobs, heartbeats, allowed commands."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from homarus.cli.doctor import command as doctor
from homarus.cli.status import command as status
from homarus.config.load import load_config
from homarus.config.paths import Paths
from homarus.config.unused_files import find_unused
from homarus.process import serve

JOB = {"id": "1", "name": "Daily report", "enabled": True, "schedule": {"kind": "every"}}
JOBS_TEXT = "1 scheduled job does not run: schedules are not built yet (~/.openclaw/cron/jobs.json"
BEAT_TEXT = "agent main has no heartbeat: heartbeats are not built yet"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    state = tmp_path / ".openclaw"
    (state / "cron").mkdir(parents=True)
    (state / "workspace").mkdir()
    write(state / "openclaw.json", {"logging": {"level": "silent"}})
    write(state / "cron/jobs.json", {"version": 1, "jobs": [JOB, {**JOB, "enabled": False}]})
    (state / "workspace/HEARTBEAT.md").write_text("# Tasks\n- check the mail\n")
    for name in ("OPENCLAW_STATE_DIR", "OPENCLAW_CONFIG_PATH", "OPENCLAW_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def write(file: Path, tree: object) -> None:
    file.write_text(json.dumps(tree), encoding="utf-8")


def unused(home: Path, config: dict[str, Any] | None = None) -> str:
    if config is not None:
        write(home / ".openclaw/openclaw.json", config)
    env = {"HOME": str(home)}
    paths = Paths.find(env)
    loaded = load_config(paths, env)
    return "\n".join(find_unused(loaded.config, loaded.raw, paths))


def test_unused_features_are_named_with_their_file(home: Path) -> None:
    text = unused(home)
    assert all(each in text for each in (JOBS_TEXT, "Daily report", BEAT_TEXT))


@pytest.mark.parametrize("command", [status, doctor])
@pytest.mark.parametrize("as_json", [True, False])
def test_unused_features_are_in_status_and_doctor(home: Path, command: Any, as_json: bool) -> None:
    shown = CliRunner().invoke(command, ["--json"] if as_json else []).stdout
    assert all(each in shown for each in (JOBS_TEXT, BEAT_TEXT))


async def test_unused_features_are_warnings_of_gateway_start(home: Path) -> None:
    warnings = list[str]()

    class EndOfTestError(Exception):
        """Ends the gateway as soon as it serves."""

    def ready(_url: str) -> None:
        raise EndOfTestError

    with pytest.raises((EndOfTestError, ExceptionGroup)):
        await serve({"HOME": str(home)}, port=0, ready=ready, warn=warnings.append)
    assert all(any(text in one for one in warnings) for text in (JOBS_TEXT, BEAT_TEXT))


@pytest.mark.parametrize(
    "content", ["", "# HEARTBEAT.md\n\n## Later\n", "- [ ]\n* \n", "\n\n", "# a\n- [x]\n"]
)
def test_heartbeat_without_content_is_not_reported(home: Path, content: str) -> None:
    (home / ".openclaw/workspace/HEARTBEAT.md").write_text(content)
    assert "heartbeat" not in unused(home)


@pytest.mark.parametrize("every", ["0m", "0", "0s"])
def test_heartbeat_that_is_off_is_not_reported(home: Path, every: str) -> None:
    assert "heartbeat" not in unused(
        home, {"agents": {"defaults": {"heartbeat": {"every": every}}}}
    )


def test_jobs_that_openclaw_would_not_run_are_not_reported(home: Path) -> None:
    assert "scheduled" not in unused(home, {"cron": {"enabled": False}})
    other = home / "jobs.json"
    write(other, {"jobs": [JOB, JOB]})
    assert "2 scheduled jobs do not run" in unused(home, {"cron": {"store": "~/jobs.json"}})
    other.write_text("{")
    assert "scheduled" not in unused(home)
