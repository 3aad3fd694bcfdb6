"""`homarus approvals` without a gateway: the rules in the file, the answers in the store."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from homarus.cli.approvals import command
from homarus.core.clock import SystemClock
from homarus.core.errors import HomarusError
from homarus.store.approvals import ApprovalRecord
from homarus.store.sqlite import open_store

ID = "4f2a91c0-0000-4000-8000-000000000000"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("OPENCLAW_STATE_DIR", "OPENCLAW_HOME", "OPENCLAW_CONFIG_PATH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / ".openclaw"


def run(*args: str, text: str = "") -> Result:
    return CliRunner().invoke(command, args, input=text)


def add_pending(state: Path, **request: Any) -> None:
    now_ms = SystemClock().now_ms()
    asked = {"detail": "command:\n    touch x\u202e", "sessionKey": "agent:main:main", **request}
    where = ("main", "agent:main:main", "r", "c")
    times = (now_ms, now_ms + 3_600_000)
    record = ApprovalRecord(ID, *where, "exec", "cli:owner", "d", asked, *times)

    async def add() -> None:
        async with open_store(state) as store, store.journal.transaction() as transaction:
            transaction.add_approval(record)

    state.mkdir(mode=0o700, parents=True, exist_ok=True)
    asyncio.run(add())


def stored(state: Path) -> ApprovalRecord:
    async def read() -> ApprovalRecord | None:
        async with open_store(state) as store:
            return await store.journal.approval(ID)

    found = asyncio.run(read())
    assert found is not None
    return found


def test_rules_are_shown_set_and_edited_in_the_file(home: Path) -> None:
    assert "there is none yet" in run("get").output
    assert "is added" in run("allowlist", "add", "/usr/bin/rg", "--agent", "main").output
    assert "was there already" in run("allowlist", "add", "/usr/bin/rg", "--agent", "main").output
    assert "agent main: no rules\n  /usr/bin/rg" in run("get").output
    shown = run("get", "--json").output
    assert "is replaced" in run("set", "--stdin", text=shown).output
    changed = json.loads(
        run("allowlist", "remove", "/usr/bin/rg", "--agent", "main", "--json").output
    )
    assert changed["changed"] and changed["file"]["agents"]["main"]["allowlist"] == []
    assert (home / "exec-approvals.json").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["{", "[]", '{"version": 2}', '{"version": 1, "agents": 5}'])
def test_set_of_invalid_rules_changes_nothing(home: Path, text: str) -> None:
    assert isinstance(run("set", "--stdin", text=text).exception, HomarusError)
    assert not (home / "exec-approvals.json").exists()
    assert run("set").exit_code == 2


def test_list_shows_what_waits_escaped(home: Path) -> None:
    home.mkdir(mode=0o700)
    assert "Nothing waits" in run("list").output or run("list").exception
    add_pending(home, reason="no entry")
    shown = run("list").output
    assert ID[:8] in shown and "touch x\\u{202e}" in shown and "asked because no entry" in shown
    (listed,) = json.loads(run("list", "--json").output)["approvals"]
    assert listed["id"] == ID and listed["request"]["sessionKey"] == "agent:main:main"


def test_answer_is_stored_for_the_next_start(home: Path) -> None:
    add_pending(home)
    always = run("allow", ID[:8], "--always").exception
    assert isinstance(always, HomarusError) and "always" in str(always)
    answered = run("allow", ID[:8])
    assert "is allowed. The next start" in answered.output, answered.exception
    record = stored(home)
    assert (record.state, record.decision, record.resolved_by) == (
        "allowed", "allow-once", "the command line",
    )  # fmt: skip
    late = run("deny", ID).exception
    assert isinstance(late, HomarusError) and "the command line" in str(late)


def test_answer_to_unknown_approval_is_refused(home: Path) -> None:
    add_pending(home)
    for name in ("4f2", "ffffffff"):
        assert isinstance(run("deny", name).exception, HomarusError)
    assert stored(home).state == "pending"


def test_question_is_listed_and_answered_for_the_next_start(home: Path) -> None:
    choices = {"choices": ["Red", "Blue"], "freeText": False}
    add_pending(home, kind="question", title="Which colour?", **choices)
    shown = run("list").output
    assert "Which colour?" in shown and "2. Blue" in shown
    refused = run("answer", ID[:8], "Green").exception
    assert isinstance(refused, HomarusError) and "1 Red, 2 Blue" in str(refused)
    answered = run("answer", ID[:8], "2")
    assert "is answered. The next start" in answered.output, answered.exception
    assert stored(home).answer == "Blue"
