"""Fields of sessions are kept as OpenClaw keeps them; its changes are seen without a gateway."""

import json
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from homarus.cli.sessions import command as sessions
from homarus.core.message import Address, RunOptions
from homarus.sessions.last_route import last_address, route_fields
from homarus.store.lock import StateLock
from tests.unit.gateway.app_harness import answer, run

KEY = "agent:main:main"
WEB = Address("webchat", KEY)
ENTRY = {
    "lastChannel": "telegram",
    "lastTo": "telegram:42",
    "lastAccountId": "work",
    "lastThreadId": "7",
    "deliveryContext": {"channel": "telegram", "to": "telegram:42", "accountId": "work"},
}


def test_message_from_web_page_keeps_chat_and_account() -> None:
    fields = route_fields(ENTRY, WEB, key=KEY)
    assert fields["lastChannel"] == "webchat"
    assert (fields["lastTo"], fields["lastAccountId"]) == ("telegram:42", "work")
    context = {"channel": "webchat", "to": "telegram:42", "accountId": "work"}
    assert fields["deliveryContext"] == context
    assert fields["lastThreadId"] is None
    assert last_address(fields) == Address("webchat", "", "work")  # no chat to write to


def test_message_from_same_chat_keeps_spelling_of_openclaw() -> None:
    fields = route_fields(ENTRY, Address("telegram", "42", "work"))
    assert (fields["lastTo"], fields["lastAccountId"]) == ("telegram:42", "work")
    other = route_fields(ENTRY, Address("telegram", "43"))
    assert (other["lastTo"], other["lastAccountId"]) == ("43", "default")


@pytest.mark.parametrize(
    ("channel", "to", "chat"),
    [
        ("telegram", "telegram:42", "42"),
        ("telegram", "telegram:group:-100", "-100"),
        ("telegram", "42", "42"),
        ("irc", "#room", "#room"),
        ("matrix", "room:!a:example.org", "!a:example.org"),
    ],
)
def test_last_address_reads_chat_as_openclaw_writes_it(channel: str, to: str, chat: str) -> None:
    assert last_address({"lastChannel": channel, "lastTo": to}).chat == chat


async def test_agent_thinking_is_kept_for_the_session(tmp_path: Path) -> None:
    async with run(tmp_path, answer("a"), answer("b")) as it:
        ask = {"message": "hi", "sessionKey": KEY}
        await it.ask("agent", {**ask, "idempotencyKey": "1", "thinking": "high"})
        await it.ask("agent", {**ask, "idempotencyKey": "2"})
        first, second = it.model.requests
        assert first.thinking == second.thinking == "high"
        assert (await it.app.control.load(KEY)).record.data["thinkingLevel"] == "high"


async def test_local_agent_thinking_is_kept_for_the_session(tmp_path: Path) -> None:
    from homarus.cli.session_client import LocalSessionClient

    async with run(tmp_path, answer("a")) as it:
        client = LocalSessionClient(it.app.control, it.app.models, it.clock, KEY)
        await client.run("hi", RunOptions(thinking="high"))
        assert (await it.app.control.load(KEY)).record.data["thinkingLevel"] == "high"


# Changes of OpenClaw without a gateway of ours


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / ".openclaw/agents/main/sessions"
    folder.mkdir(parents=True)
    for name in ("OPENCLAW_STATE_DIR", "OPENCLAW_CONFIG_PATH", "OPENCLAW_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder / "sessions.json"


def save(index: Path, *names: str) -> None:
    now_ms = time.time_ns() // 1_000_000
    entries = {
        f"agent:main:{name}": {"sessionId": f"id-{name}", "updatedAt": now_ms + number}
        for number, name in enumerate(names)
    }
    index.write_text(json.dumps(entries))


def listed() -> set[str]:
    rows = json.loads(CliRunner().invoke(sessions, ["--json"]).stdout)["sessions"]
    return {row["key"].rpartition(":")[2] for row in rows}


def test_sessions_command_sees_what_openclaw_changed(index: Path) -> None:
    save(index, "a")
    assert listed() == {"a"}
    save(index, "a", "b")
    assert listed() == {"a", "b"}
    save(index, "b")
    assert listed() == {"b"}
    assert listed() == {"b"}


def test_sessions_command_reads_while_a_process_holds_the_state(index: Path) -> None:
    save(index, "a")
    assert listed() == {"a"}
    save(index, "a", "b")
    lock = StateLock(index.parents[3])
    try:
        assert listed() == {"a"}  # that process imports it
    finally:
        lock.release()
    assert listed() == {"a", "b"}
