"""Files that OpenClaw 2026.9 would import are in a folder of our own."""

import json
from pathlib import Path

import pytest

from homarus.channels.pairing import PairingStore
from homarus.config.approvals_file import FILE, add_allowed, read_approvals
from homarus.config.paths import Paths, is_sqlite_home, openclaw_files_dir
from homarus.config.schema import Config
from homarus.core.clock import SystemClock
from homarus.providers.credentials import profile_file
from homarus.store.openclaw_database import read_exec_approvals
from homarus.tools.exec.exec_rules import read_exec_rules
from tests.openclaw_databases import make_state_database


@pytest.fixture
def state(tmp_path: Path) -> Path:
    make_state_database(tmp_path / ".openclaw", {})
    return tmp_path / ".openclaw"


def test_files_are_next_to_openclaws_only_in_an_older_home(tmp_path: Path, state: Path) -> None:
    assert is_sqlite_home(state) and openclaw_files_dir(state) == state / "homarus"
    older = tmp_path / "older"
    assert not is_sqlite_home(older) and openclaw_files_dir(older) == older


def test_allowed_commands_are_written_to_our_folder(state: Path) -> None:
    (state / FILE).write_text('{"defaults": {"security": "full"}}')
    add_allowed(state, "main", {"pattern": "ls", "cwd": "/w"})
    assert read_approvals(state)["agents"]["main"]["allowlist"][0]["pattern"] == "ls"
    assert (state / "homarus" / FILE).is_file()
    assert "agents" not in (state / FILE).read_text()


def test_pairings_and_credentials_are_in_our_folder(state: Path) -> None:
    folder = state / "homarus" / "credentials"
    folder.mkdir(parents=True)
    (folder / "telegram-pairing.json").write_text('{"version": 1, "requests": []}')
    (state / "credentials").mkdir()
    (state / "credentials" / "irc-pairing.json").write_text('{"version": 1, "requests": []}')
    assert PairingStore(state, SystemClock()).channels() == ("telegram",)
    paths = Paths.find({}, state.parent)
    found = profile_file(Config(), {}, paths, "main")
    assert found.path == state / "homarus/agents/main/agent/auth-profiles.json"


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], {}),
        ([{"defaults": {"security": "allowlist"}}], {"defaults": {"security": "allowlist"}}),
        (["broken"], {"defaults": {"security": "deny"}}),
        ([{}, {}], {"defaults": {"security": "deny"}}),
    ],
)
def test_rules_for_commands_of_openclaw_are_read(
    state: Path, rows: list[object], expected: dict[str, object]
) -> None:
    make_state_database(state, {}, approvals=[json.dumps(each) for each in rows])
    assert read_exec_approvals(state) == expected
    assert read_exec_rules(state) == [{}, expected]


def test_rules_for_commands_that_cannot_be_read_deny_all(state: Path) -> None:
    (state / "state/openclaw.sqlite").write_bytes(b"no database" * 200)
    assert read_exec_approvals(state) == {"defaults": {"security": "deny"}}
