"""`homarus security audit`: files that others may read, and settings that let others in."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from homarus.cli.security import command


@pytest.fixture
def state(home: Path) -> Path:
    state = home / ".openclaw"
    state.chmod(0o700)
    (state / "openclaw.json").write_text("{}")
    (state / "openclaw.json").chmod(0o600)
    return state


def audit(*args: str) -> tuple[int, list[dict[str, Any]]]:
    done = CliRunner().invoke(command, ["audit", "--json", *args])
    return done.exit_code, json.loads(done.stdout)["findings"]


def texts(rows: list[dict[str, Any]], about: str) -> str:
    return "\n".join(row["text"] for row in rows if row["about"] == about)


def test_private_home_has_no_bad_findings(state: Path) -> None:
    status, rows = audit()
    assert status == 0 and "private" in texts(rows, "files")
    assert "only programs of this machine" in texts(rows, "gateway")


def test_readable_credentials_are_bad_until_fixed(state: Path) -> None:
    file = state / "credentials" / "telegram" / "default.json"
    file.parent.mkdir(parents=True, mode=0o700)
    (state / "credentials").chmod(0o700)
    file.write_text("token")
    file.chmod(0o644)
    status, rows = audit()
    assert status == 1 and rows[0]["state"] == "bad"
    assert "default.json" in rows[0]["text"] and rows[0]["fix"].endswith("--fix")
    status, _ = audit("--fix")
    assert status == 0 and file.stat().st_mode & 0o777 == 0o600
    assert audit()[0] == 0


def test_link_to_another_file_is_not_changed(state: Path, home: Path) -> None:
    other = home / "other"
    other.write_text("x")
    other.chmod(0o644)
    (state / "credentials").mkdir(mode=0o700)
    (state / "credentials" / "link").symlink_to(other)
    assert audit("--fix")[0] == 0 and other.stat().st_mode & 0o777 == 0o644


def test_open_gateway_and_open_channel_are_named(state: Path) -> None:
    config = {
        "gateway": {"bind": "lan"},
        "channels": {"telegram": {"botToken": "1:x", "dmPolicy": "open", "allowFrom": ["*"]}},
    }
    (state / "openclaw.json").write_text(json.dumps(config))
    _, rows = audit("--deep")
    assert "without TLS" in texts(rows, "gateway")
    assert "everyone may write" in texts(rows, "channel telegram:default")


def test_invalid_configuration_is_bad(state: Path) -> None:
    (state / "openclaw.json").write_text('{"gateway": {"port": "x"}}')
    status, rows = audit()
    assert status == 1 and "invalid" in texts(rows, "config")
    shown = CliRunner().invoke(command, ["audit"]).stdout
    assert "✗ config" in shown and "→ homarus doctor" in shown
