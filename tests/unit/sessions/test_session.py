import asyncio
import gc
import json
import shutil
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from homarus.core.errors import ConflictError, DiskFullError, UserError
from homarus.core.message import (
    Message,
    Origin,
    Part,
    StopReason,
    Text,
    ToolCall,
    ToolResult,
    Usage,
    user_message,
)
from homarus.sessions import transcript
from homarus.sessions.session import Session, SessionRepository, parse_session_label
from homarus.sessions.transcript import NewEntry
from homarus.store.base import Store, Transaction, TranscriptEntry
from homarus.store.sqlite import SqliteStore, open_store
from homarus.testing.clock import START_MS, FakeClock
from homarus.testing.memory_store import MemoryStore

SAMPLES = Path(__file__).parents[2] / "data/samples"
KEY = "agent:main:main"


def answer(
    text: str, *, usage: Usage | None = None, stop: StopReason = "stop", calls: str = ""
) -> Message:
    parts: tuple[Part, ...] = (Text(text), *(ToolCall(one, "read", {}) for one in calls))
    origin = Origin("openai-completions", "mock", "mock-1", stop, usage or Usage(10, 2))
    return Message("assistant", parts, 9, origin)


def result(call_id: str) -> Message:
    return Message("tool", (ToolResult(call_id, "read", (Text("done"),)),), 9)


async def ask(session: Session, text: str, *, model: str = "mock-1", thinking: str = "off") -> None:
    await session.start_turn(
        user_message(text, at_ms=8), provider="mock", model=model, thinking=thinking
    )


async def run(body: Callable[[Store, FakeClock], Awaitable[None]]) -> None:
    await _run(body)


async def _run(body: Callable[[Store, FakeClock], Awaitable[None]]) -> None:
    await body(MemoryStore(), FakeClock())


def spoken(session: Session) -> list[str]:
    return [message.text for message in session.messages]


async def kinds(store: Store, session: Session) -> list[str]:
    return [entry.type for entry in await store.entries(session.session_id)]


async def test_new_session_is_stored_with_first_message() -> None:
    async def body(store: Store, clock: FakeClock) -> None:
        session = await SessionRepository(store, clock).load(KEY, "main", cwd="/w")
        assert (session.key, session.messages, session.model, session.thinking) == (
            KEY, [], None, None,
        )  # fmt: skip
        assert await store.session(KEY) is None
        await ask(session, "hello")
        record = await store.session(KEY)
        assert record is not None and record.session_id == session.session_id
        assert record.updated_ms == START_MS and record.data["chatType"] == "direct"
        header = await store.header(session.session_id)
        assert header is not None and (header.cwd, header.version) == ("/w", 3)
        assert await kinds(store, session) == ["model_change", "thinking_level_change", "message"]
        entries = await store.entries(session.session_id)
        assert [entry.parent for entry in entries] == [None, entries[0].id, entries[1].id]
        assert entries[-1].data["message"]["content"] == [{"type": "text", "text": "hello"}]

    await run(body)


async def test_turn_takes_two_transactions() -> None:
    class Counted(MemoryStore):
        commits = 0

        @asynccontextmanager
        async def transaction(self) -> AsyncIterator[Transaction]:
            self.commits += 1
            async with super().transaction() as unit:
                yield unit

    store = Counted()
    session = await SessionRepository(store, FakeClock()).load(KEY, "main")
    await ask(session, "one")
    await session.append(answer("two"))
    assert store.commits == 2


async def test_answer_updates_usage_in_record() -> None:
    async def body(store: Store, clock: FakeClock) -> None:
        session = await Session.load(store, clock, KEY, "main")
        await session.start_turn(user_message("hi"), provider="mock", model="mock-1", window=1000)
        await session.append(answer("", usage=Usage(100, 1, cache_read=50), calls="1"))
        await session.append(result("1"))
        await clock.advance(5)
        await session.append(answer("done", usage=Usage(20, 3, cache_read=150)))
        record = await store.session(KEY)
        assert record is not None and record.updated_ms == START_MS + 5000
        expected = {
            "inputTokens": 120,
            "outputTokens": 4,
            "totalTokens": 170,
            "totalTokensFresh": True,
            "modelProvider": "mock",
            "model": "mock-1",
            "contextTokens": 1000,
            "systemSent": True,
            "abortedLastRun": False,
        }
        assert expected.items() <= record.data.items()
        assert session.context_tokens == 170
        await ask(session, "again")
        await session.append(answer("", stop="aborted", usage=Usage()))
        record = await store.session(KEY)
        assert record is not None and record.data["abortedLastRun"] is True
        assert record.data["totalTokens"] == 170
        await ask(session, "and again")
        assert session.record.data["abortedLastRun"] is False
        await session.append(answer("x", usage=Usage(7, 1)))
        assert session.record.data["inputTokens"] == 7

    await run(body)


async def test_start_turn_records_model_and_thinking_changes() -> None:
    async def body(store: Store, clock: FakeClock) -> None:
        session = await Session.load(store, clock, KEY, "main")
        await ask(session, "1")
        await session.append(answer("1"))
        await ask(session, "2")
        await session.append(answer("2"))
        await ask(session, "3", model="mock-2")
        await session.append(answer("3"))
        await ask(session, "4", model="mock-2", thinking="high")
        assert await kinds(store, session) == [
            "model_change", "thinking_level_change", "message", "message", "message", "message",
            "model_change", "message", "message", "thinking_level_change", "message",
        ]  # fmt: skip
        again = await Session.load(store, clock, KEY, "main")
        await again.append(answer("4"))
        before = len(await kinds(store, again))
        await ask(again, "5", model="mock-2", thinking="high")
        assert len(await kinds(store, again)) == before + 1

    await run(body)


async def test_start_turn_with_api_records_model_snapshot() -> None:
    async def body(store: Store, clock: FakeClock) -> None:
        session = await Session.load(store, clock, KEY, "main")
        await session.start_turn(
            user_message("hi"), provider="p", model="m", api="openai-completions"
        )
        entries = await store.entries(session.session_id)
        assert entries[2].data["customType"] == "model-snapshot"
        assert entries[2].data["data"]["modelApi"] == "openai-completions"

    await run(body)


async def test_repository_reuses_session_until_external_write() -> None:
    async def body(store: Store, clock: FakeClock) -> None:
        sessions = SessionRepository(store, clock)
        session = await sessions.load(KEY, "main")
        assert await sessions.load(KEY, "main") is session
        await ask(session, "one")
        await session.append(answer("two"))
        assert await sessions.load(KEY, "main") is session
        other = await Session.load(store, clock, KEY, "main")
        await other.update(label="x")
        reloaded = await sessions.load(KEY, "main")
        assert reloaded is not session and reloaded.label == "x"
        async with store.transaction() as unit:  # another writer, and no new version
            unit.append(
                session.session_id, TranscriptEntry("ffffffff", reloaded.leaf, "custom", 5, {})
            )
        again = await sessions.load(KEY, "main")
        assert again is not reloaded and again.leaf == "ffffffff"
        assert spoken(again) == ["one", "two"]

    await run(body)


async def test_repository_evicts_least_recently_used() -> None:
    async def body(store: Store, clock: FakeClock) -> None:
        sessions = SessionRepository(store, clock, max_cached=2)
        first = await sessions.load("agent:main:a", "main")
        await ask(first, "hi")
        for name in ("b", "c"):
            await sessions.load(f"agent:main:{name}", "main")
        assert await sessions.load("agent:main:a", "main") is first, "a caller holds it"
        held = weakref.ref(first)
        del first
        for name in ("b", "c"):
            await sessions.load(f"agent:main:{name}", "main")
        gc.collect()
        assert held() is None and sessions.entry("agent:main:a") == {}
        assert spoken(await sessions.load("agent:main:a", "main")) == ["hi"]

    await run(body)


async def test_start_turn_leaves_unanswered_message_on_branch() -> None:
    async def body(store: Store, clock: FakeClock) -> None:
        session = await Session.load(store, clock, KEY, "main")
        await ask(session, "one")
        await session.append(answer("1"))
        await ask(session, "lost")
        again = await Session.load(store, clock, KEY, "main")
        assert spoken(again) == ["one", "1", "lost"]
        await ask(again, "two")
        assert spoken(again) == ["one", "1", "two"]
        assert spoken(await Session.load(store, clock, KEY, "main")) == ["one", "1", "two"]
        first = await Session.load(store, clock, "agent:main:b", "main")
        await ask(first, "lost")
        await ask(first, "found")
        assert spoken(first) == ["found"]
        assert spoken(await Session.load(store, clock, "agent:main:b", "main")) == ["found"]

    await run(body)


async def test_load_adds_results_to_unpaired_calls() -> None:
    async def body(store: Store, clock: FakeClock) -> None:
        session = await Session.load(store, clock, KEY, "main")
        await ask(session, "go")
        await session.append(answer("", calls="12"))
        await session.append(result("2"))
        again = await Session.load(store, clock, KEY, "main")
        await ask(session, "next")
        for loaded in (session, again):
            assert transcript.pair_calls(loaded.messages) == loaded.messages
            roles = [message.role for message in loaded.messages[:4]]
            assert roles == ["user", "assistant", "tool", "tool"]
        assert len(await store.entries(session.session_id)) == 6

    await run(body)


async def test_session_overrides_are_set_and_removed() -> None:
    async def body(store: Store, clock: FakeClock) -> None:
        session = await SessionRepository(store, clock).load(KEY, "main")
        await session.set_model("openai", "gpt-5")
        await session.update(thinkingLevel="high")
        await session.set_label("  My chat ")
        again = await Session.load(store, clock, KEY, "main")
        assert (again.model, again.thinking, again.label) == ("openai/gpt-5", "high", "My chat")
        assert again.record.data["providerOverride"] == "openai"
        await again.set_model(None, None)
        await again.update(thinkingLevel=None)
        last = await Session.load(store, clock, KEY, "main")
        assert (last.model, last.thinking) == (None, None)
        assert "modelOverride" not in last.record.data
        await last.update(never="there", modelOverride="alone")
        assert last.model == "alone"

    await run(body)


async def test_reset_starts_new_transcript_and_keeps_settings() -> None:
    async def body(store: Store, clock: FakeClock) -> None:
        sessions = SessionRepository(store, clock)
        session = await sessions.load(KEY, "main")
        await session.set_model("openai", "gpt-5")
        await ask(session, "one")
        await session.append(answer("two"))
        old = session.session_id
        await session.reset()
        assert session.session_id != old and session.messages == [] and session.leaf is None
        record = await store.session(KEY)
        assert record is not None and record.session_id == session.session_id
        assert "totalTokens" not in record.data and record.data["modelOverride"] == "gpt-5"
        assert len(await store.entries(old)) == 4
        assert await sessions.load(KEY, "main") is session
        await ask(session, "fresh")
        assert await kinds(store, session) == ["model_change", "thinking_level_change", "message"]
        new = await sessions.load("agent:main:unused", "main")
        await new.reset()
        assert await store.session("agent:main:unused") is None

    await run(body)


async def test_save_after_external_write_keeps_both() -> None:
    async def body(store: Store, clock: FakeClock) -> None:
        sessions = SessionRepository(store, clock)
        session = await sessions.load(KEY, "main")
        await ask(session, "one")
        other = await Session.load(store, clock, KEY, "main")
        await other.update(label="theirs")
        await other.append(NewEntry("custom_message", {"customType": "x", "content": "psst"}))
        await session.append(answer("two"))
        record = await store.session(KEY)
        assert record is not None
        assert (record.data["label"], record.data["model"]) == ("theirs", "mock-1")
        reloaded = await sessions.load(KEY, "main")
        assert spoken(reloaded) == ["one", "psst", "two"]

    await run(body)


async def test_save_after_external_reset_raises_conflict() -> None:
    async def body(store: Store, clock: FakeClock) -> None:
        session = await Session.load(store, clock, KEY, "main")
        await ask(session, "one")
        await (await Session.load(store, clock, KEY, "main")).reset()
        with pytest.raises(ConflictError):
            await session.append(answer("two"))

    await run(body)


async def test_failed_save_leaves_memory_unchanged() -> None:
    class Full(MemoryStore):
        full = False

        @asynccontextmanager
        async def transaction(self) -> AsyncIterator[Transaction]:
            if self.full:
                raise DiskFullError("no room")
            async with super().transaction() as unit:
                yield unit

    store = Full()
    session = await Session.load(store, FakeClock(), KEY, "main")
    await ask(session, "one")
    store.full = True
    for _ in range(2):
        with pytest.raises(DiskFullError):
            await ask(session, "two")
    assert spoken(session) == ["one"]
    store.full = False
    await ask(session, "three")
    assert spoken(session) == ["three"]


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("agent:main:main", "direct"),
        ("agent:main:telegram:group:-1", "group"),
        ("agent:main:slack:channel:c1:thread:17.1", "channel"),
    ],
)
async def test_new_record_has_chat_type_of_key(key: str, expected: str) -> None:
    async def body(store: Store, clock: FakeClock) -> None:
        session = await Session.load(store, clock, key, "main")
        assert session.record.data["chatType"] == expected

    await run(body)


def test_label_is_stripped_and_bounded() -> None:
    assert parse_session_label("  ok ") == "ok"
    assert parse_session_label("x" * 64) == "x" * 64
    for raw, said in (
        ("", "invalid label: empty"),
        ("   ", "invalid label: empty"),
        ("x" * 65, "invalid label: too long (max 64)"),
        (5, "invalid label: must be a string"),
    ):
        with pytest.raises(UserError) as caught:
            parse_session_label(raw)
        assert caught.value.message == said


# --- with files --------------------------------------------------------------------------------


@asynccontextmanager
async def with_files(state: Path) -> AsyncIterator[tuple[SqliteStore, SessionRepository]]:
    async with open_store(state) as store:
        yield store, SessionRepository(store, FakeClock())


def home(state: Path) -> Path:
    return state / "agents/main/sessions"


async def test_openclaw_session_is_continued_in_its_format(tmp_path: Path) -> None:
    home(tmp_path).mkdir(parents=True)
    shutil.copy(SAMPLES / "sessions.json", home(tmp_path) / "sessions.json")
    file = home(tmp_path) / "8136150e-1a5d-4101-acfa-93b2c4a7b496.jsonl"
    shutil.copy(SAMPLES / "transcript-tool.jsonl", file)
    before = file.read_bytes()
    async with with_files(tmp_path) as (_store, sessions):
        session = await sessions.load("agent:main:cap-tool", "main")
        assert len(session.messages) == 8 and session.context_tokens == 13061
        await ask(session, "go on")
        await session.append(answer("", calls="1"))
        await session.append(result("1"))
        await session.append(answer("done"))
    after = file.read_bytes()
    assert after.startswith(before)
    new = [json.loads(line) for line in after[len(before) :].splitlines()]
    old = [json.loads(line) for line in before.splitlines()]
    assert [line["type"] for line in new] == ["message"] * 4  # same model: nothing to note
    assert new[0]["parentId"] == old[-1]["id"]
    by_role = {line["message"]["role"]: line for line in old if line["type"] == "message"}
    for line in new:
        like = by_role[line["message"]["role"]]
        assert list(line) == list(like)
        optional = {"details"}
        assert set(line["message"]) - optional == set(like["message"]) - optional
        for name, value in line["message"].items():
            assert type(value) is type(like["message"][name]), name
    usage = new[-1]["message"]["usage"]
    assert shape(usage) == shape(by_role["assistant"]["message"]["usage"])
    index = json.loads((home(tmp_path) / "sessions.json").read_text())
    original = json.loads((SAMPLES / "sessions.json").read_text())
    assert list(index) == list(original)
    assert shape(index["agent:main:cap-tool"]) == shape(original["agent:main:cap-tool"])
    assert index["agent:main:cap-chat"] == original["agent:main:cap-chat"]


def shape(value: object) -> object:
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    return type(value)


async def test_file_edit_is_seen_at_next_load(tmp_path: Path) -> None:
    async with with_files(tmp_path) as (store, sessions):
        session = await sessions.load(KEY, "main")
        await ask(session, "one")
        await session.append(answer("two"))
        await store.flush()
        assert await sessions.load(KEY, "main") is session
        file = home(tmp_path) / f"{session.session_id}.jsonl"
        file.write_text(file.read_text().replace('"two"', '"TWO"'))
        again = await sessions.load(KEY, "main")
        assert again is not session and spoken(again) == ["one", "TWO"]


async def test_reset_archives_old_file(tmp_path: Path) -> None:
    async with with_files(tmp_path) as (store, sessions):
        session = await sessions.load(KEY, "main")
        await ask(session, "one")
        old = session.session_id
        await session.reset()
        await ask(session, "two")
        await store.flush()
        names = sorted(path.name for path in home(tmp_path).iterdir())
        assert names == sorted([
            f"{old}.jsonl.reset.2027-01-15T08-00-00.000Z",
            f"{session.session_id}.jsonl",
            "sessions.json",
        ])  # fmt: skip
        index = json.loads((home(tmp_path) / "sessions.json").read_text())
        assert index[KEY]["sessionFile"].endswith(f"{session.session_id}.jsonl")


async def test_damaged_index_entry_gets_new_transcript(tmp_path: Path) -> None:
    home(tmp_path).mkdir(parents=True)
    (home(tmp_path) / "sessions.json").write_text(
        json.dumps({KEY: {"sessionId": "../../x", "updatedAt": 5, "label": "kept"}})
    )
    async with with_files(tmp_path) as (_store, sessions):
        session = await sessions.load(KEY, "main")
        assert session.label == "kept" and session.messages == []
        await ask(session, "hello")
        assert spoken(await sessions.load(KEY, "main")) == ["hello"]
    assert not (tmp_path / "x.jsonl").exists()


async def test_turn_cancelled_during_save_is_saved_once(tmp_path: Path) -> None:
    async with with_files(tmp_path) as (_store, sessions):
        session = await sessions.load(KEY, "main")
        async with asyncio.TaskGroup() as group:
            task = group.create_task(ask(session, "one"))
            await asyncio.sleep(0)
            task.cancel()
        again = await sessions.load(KEY, "main")
        assert spoken(again) == ["one"]
        await ask(again, "two")
        await again.append(answer("2"))
        assert spoken(await sessions.load(KEY, "main")) == ["two", "2"]


async def test_record_keeps_unknown_fields() -> None:
    async def body(store: Store, clock: FakeClock) -> None:
        session = await Session.load(store, clock, KEY, "main")
        session.record = replace(session.record, data={**session.record.data, "odd": [1]})
        await ask(session, "hi")
        again = await Session.load(store, clock, KEY, "main")
        await ask(again, "there")
        record = await store.session(KEY)
        assert record is not None and record.data["odd"] == [1]

    await run(body)


async def test_left_turn_is_on_a_branch_and_no_use() -> None:
    store, clock = MemoryStore(), FakeClock()
    session = await Session.load(store, clock, KEY, "main")
    await ask(session, "hello")
    await session.append(answer("hi"))
    before, leaf = session.record, session.leaf
    await clock.advance(3600)
    await session.start_turn(
        user_message("beat", at_ms=9), provider="mock", model="mock-2", is_use=False
    )
    question = session.leaf
    assert question is not None
    await session.append(answer("", calls="c"), result("c"), is_use=False)
    await session.leave_turn(question, answer("HEARTBEAT_OK"), extra_writes=lambda _t, _e: None)
    assert (session.leaf, [m.text for m in session.messages]) == (leaf, ["hello", "hi"])
    assert (session.record.updated_ms, session.record.data) == (before.updated_ms, before.data)
    stored = await Session.load(store, clock, KEY, "main")
    assert (stored.leaf, stored.messages) == (leaf, session.messages)
    entries = await store.entries(session.session_id)
    assert [entry.parent for entry in entries if entry.type == "model_change"][-1] == leaf
    await ask(session, "still there?")
    assert [m.text for m in session.messages] == ["hello", "hi", "still there?"]


async def test_turn_that_others_wrote_into_is_not_left() -> None:
    session = await Session.load(MemoryStore(), FakeClock(), KEY, "main")
    await session.start_turn(
        user_message("beat", at_ms=9), provider="mock", model="mock-1", is_use=False
    )
    question = session.leaf
    assert question is not None
    await session.append(Message("assistant", (Text("a note of a client"),), 9))
    await session.leave_turn(question, answer("HEARTBEAT_OK"), extra_writes=lambda _t, _e: None)
    assert [m.text for m in session.messages] == ["beat", "a note of a client", "HEARTBEAT_OK"]


async def test_first_turn_that_is_left_leaves_an_empty_session() -> None:
    store, clock = MemoryStore(), FakeClock()
    session = await Session.load(store, clock, KEY, "main")
    await session.start_turn(
        user_message("beat", at_ms=9), provider="mock", model="mock-1", is_use=False
    )
    question = session.leaf
    assert question is not None
    await session.leave_turn(question, answer("HEARTBEAT_OK"), extra_writes=lambda _t, _e: None)
    assert (session.leaf, session.messages, session.is_used) == (None, [], False)
    await ask(session, "hello")
    await session.append(answer("hi"))
    assert [m.text for m in session.messages] == ["hello", "hi"]
