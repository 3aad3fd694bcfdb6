"""The `sessions.*` methods."""

import json
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import HomarusError, InvalidRequestError
from homarus.core.message import Message, Text, ToolCall, ToolResult, user_message
from homarus.gateway.session_rows import SessionDefaults, row_kind, session_row, status_row
from homarus.store.base import SessionRecord
from homarus.testing.fakes import Hang
from tests.unit.gateway.app_harness import Harness, answer, run


async def put(it: Harness, key: str, at_ms: int, **data: Any) -> None:
    async with it.app.store.transaction() as unit:
        agent = key.split(":")[1] if key.startswith("agent:") else "main"
        unit.put_session(SessionRecord(key, agent, f"id-{at_ms}", at_ms, data))


def exists(path: str) -> bool:
    return Path(path).exists()


def keys(listed: dict[str, Any]) -> list[str]:
    return [str(row["key"]).removeprefix("agent:main:") for row in listed["sessions"]]


async def test_sessions_list_applies_filters(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        now_ms = it.app.clock.now_ms()
        await put(it, "agent:main:old", now_ms - 3_600_000, label="Taxes", spawnedBy="x")
        await put(it, "agent:main:new", now_ms - 60_000, displayName="Garden party")
        await put(it, "agent:main:cron:j:run:1", now_ms)
        await put(it, "agent:main:telegram:group:5", now_ms - 5, subject="Family")
        await put(it, "global", now_ms)
        await put(it, "unknown", now_ms)
        listed = await it.ask("sessions.list")
        assert keys(listed) == ["telegram:group:5", "new", "old"]
        assert [row["kind"] for row in listed["sessions"]] == ["group", "direct", "direct"]

        async def found(**asked: Any) -> list[str]:
            return keys(await it.ask("sessions.list", **asked))

        assert await found(limit=1) == ["telegram:group:5"]
        assert await found(activeMinutes=30) == ["telegram:group:5", "new"]
        assert await found(label="Taxes") == ["old"]
        assert await found(spawnedBy="x") == ["old"]
        assert await found(search="PARTY") == ["new"]
        assert await found(search="family") == ["telegram:group:5"]
        assert await found(agentId="ops") == []
        assert await found(includeGlobal=True, includeUnknown=True, limit=2) == [
            "unknown",
            "global",
        ]
        with pytest.raises(InvalidRequestError, match="limit"):
            await found(limit=0)


async def test_sessions_list_reads_titles_only_on_request(tmp_path: Path) -> None:
    async with run(tmp_path, answer("Gladly.")) as it:
        await it.send("Plan the garden " + "very " * 40 + "carefully", "a")
        (plain,) = (await it.ask("sessions.list"))["sessions"]
        assert "derivedTitle" not in plain and "lastMessagePreview" not in plain
        asked = {"includeDerivedTitles": True, "includeLastMessage": True}
        (row_,) = (await it.ask("sessions.list", asked))["sessions"]
        assert row_["derivedTitle"].startswith("Plan the garden very")
        assert len(row_["derivedTitle"]) <= 60
        assert row_["lastMessagePreview"] == "Gladly."


async def test_title_of_a_session_has_no_paths_of_files(tmp_path: Path) -> None:
    line = "[media attached: /srv/media/inbound/ab12.csv (text/csv, people.csv)]"
    async with run(tmp_path, answer("Ada is."), answer("Two files.")) as it:
        await it.send(f"Who is in it?\n\n{line}", "a", "agent:main:x")
        await it.send(line, "b", "agent:main:y")
        rows = (await it.ask("sessions.list", includeDerivedTitles=True))["sessions"]
        titles = {one["key"]: one["derivedTitle"] for one in rows}
        assert titles["agent:main:x"] == "Who is in it?"
        assert titles["agent:main:y"].startswith("[media attached: ")


async def test_sessions_list_reads_no_transcript(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        async with it.app.store.transaction() as unit:
            for n in range(3_000):
                unit.put_session(SessionRecord(f"agent:main:s{n}", "main", f"i{n}", n, {"a": "b"}))
        read: list[str] = []
        entries = it.app.store.entries

        async def counted(session_id: str, **asked: Any) -> Any:
            read.append(session_id)
            return await entries(session_id, **asked)

        it.app.store.entries = counted  # type: ignore[method-assign] # counted, not replaced
        listed = await it.ask("sessions.list")
        assert len(listed["sessions"]) == 200
        assert len((await it.ask("sessions.list", limit=10**9))["sessions"]) == 2_000
        assert (await it.ask("health", probe=True))["sessions"]["count"] == 3_000
        assert (await it.ask("status"))["sessions"]["count"] == 3_000
        assert read == []
        await it.ask("sessions.list", includeDerivedTitles=True, limit=2_000)
        assert len(read) == 100


@pytest.mark.parametrize(
    "data",
    [
        {"totalTokens": float("nan"), "inputTokens": -5, "contextTokens": 10**400},
        {"label": 5, "origin": "x", "systemSent": "yes", "totalTokens": True, "model": []},
        {"label": "x" * 100_000, "displayName": "y" * 100_000},
    ],
)
def test_session_row_accepts_any_stored_record(data: dict[str, Any]) -> None:
    record = SessionRecord("agent:main:x", "main", "i", 5, data)
    defaults = SessionDefaults("mock", "mock-1", 100)
    for shown in (session_row(record, defaults), status_row(record, defaults, 10)):
        assert len(json.dumps(shown, allow_nan=False)) < 3_000
        assert (shown["model"], shown["contextTokens"]) == ("mock-1", 100)
        assert shown["totalTokensFresh"] is False


@pytest.mark.parametrize(
    ("key", "agent", "kind"),
    [
        ("global", "main", "global"),
        ("agent:work:global", "work", "global"),
        ("unknown", "main", "unknown"),
        ("agent:work:main", "work", "direct"),
        ("agent:work:telegram:group:-1", "work", "group"),
    ],
)
def test_session_row_kind_follows_the_key(key: str, agent: str, kind: str) -> None:
    assert row_kind(SessionRecord(key, agent, "i", 5)) == kind


def test_session_row_shows_context_usage() -> None:
    data = {"totalTokens": 25, "totalTokensFresh": True, "contextTokens": 200, "systemSent": True}
    shown = status_row(
        SessionRecord("agent:main:x", "main", "i", 5, data), SessionDefaults("m", "m", 100), 10
    )
    assert (shown["totalTokens"], shown["remainingTokens"], shown["percentUsed"]) == (25, 175, 12)
    assert shown["flags"] == ["system", "id:i"]


async def test_sessions_preview_shows_truncated_last_messages(tmp_path: Path) -> None:
    async with run(tmp_path, answer("w" * 500)) as it:
        await it.send("a question", "a", "agent:main:x")
        await put(it, "agent:main:empty", 5)
        wanted = ["agent:main:x", "x", "agent:main:empty", "agent:main:none"]
        shown = (await it.ask("sessions.preview", keys=wanted, limit=2, maxChars=20))["previews"]
        assert [one["status"] for one in shown] == ["ok", "ok", "empty", "missing"]
        assert shown[0]["items"] == [
            {"role": "user", "text": "a question"},
            {"role": "assistant", "text": "w" * 17 + "..."},
        ]
        many = await it.ask("sessions.preview", keys=[f"k{n}" for n in range(500)])
        assert len(many["previews"]) == 64
        wrong_ones: list[dict[str, Any]] = [
            {"keys": []},
            {"keys": ["a"], "maxChars": 5},
            {"keys": ["a"], "limit": 0},
        ]
        for wrong in wrong_ones:
            with pytest.raises(InvalidRequestError):
                await it.ask("sessions.preview", wrong)


async def test_sessions_resolve_needs_exactly_one_name(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        await put(it, "agent:main:x", 7, label="Taxes")
        for asked in ({"key": "x"}, {"sessionId": "id-7"}, {"label": "Taxes"}):
            assert await it.ask("sessions.resolve", asked) == {"ok": True, "key": "agent:main:x"}
        for asked in ({}, {"key": "x", "label": "Taxes"}, {"key": "y"}, {"label": "none"},
                      {"key": "x", "spawnedBy": "z"}):  # fmt: skip
            with pytest.raises(InvalidRequestError):
                await it.ask("sessions.resolve", asked)


async def test_sessions_patch_applies_rules_of_settings(tmp_path: Path) -> None:
    async with run(tmp_path) as it:

        async def patch(**fields: Any) -> dict[str, Any]:
            entry: dict[str, Any] = (await it.ask("sessions.patch", key="x", **fields))["entry"]
            return entry

        entry = await patch(
            label=" Taxes ", thinkingLevel="max", verboseLevel="yes", elevatedLevel="off",
            responseUsage="on", sendPolicy="deny", execAsk="always",
        )  # fmt: skip
        assert entry["label"] == "Taxes"
        assert entry["thinkingLevel"] == "high"
        assert entry["verboseLevel"] == "on"
        assert entry["elevatedLevel"] == "off"
        assert entry["responseUsage"] == "tokens"
        assert entry["sendPolicy"] == "deny"
        entry = await patch(label=None, thinkingLevel=None, responseUsage="off", sendPolicy=None)
        assert not {"label", "thinkingLevel", "responseUsage", "sendPolicy"} & {*entry}
        assert entry["verboseLevel"] == "on"
        assert "reasoningLevel" not in await patch(reasoningLevel="off")


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"thinkingLevel": "hardest"}, "invalid thinkingLevel"),
        ({"thinkingLevel": "xhigh"}, "xhigh is not supported by mock/mock-1"),
        ({"execHost": "moon"}, "invalid execHost"),
        ({"execHost": "sandbox"}, "conversation has no sandbox"),
        ({"execHost": "node"}, "no commands on nodes"),
        ({"execNode": "laptop"}, "no commands on nodes"),
        ({"execSecurity": "none"}, "invalid execSecurity"),
        ({"model": "nobody/knows"}, "unknown provider"),
        ({"spawnedBy": "y"}, "only for sessions of subagents"),
        ({"label": "Taken"}, "label already in use"),
        ({"label": "  "}, "invalid label: empty"),
        ({"sendPolicy": "maybe"}, "sendPolicy"),
        ({"owner": True}, "owner"),
    ],
)
async def test_sessions_patch_invalid_value_changes_nothing(
    fields: dict[str, Any], why: str, tmp_path: Path
) -> None:
    async with run(tmp_path) as it:
        await put(it, "agent:main:other", 5, label="Taken")
        with pytest.raises(HomarusError, match=why):
            await it.ask("sessions.patch", {"key": "x", "verboseLevel": "on", **fields})
        assert await it.app.store.session("agent:main:x") is None


async def test_sessions_patch_default_model_clears_choice(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        chosen = await it.ask(
            "sessions.patch", key="x", model="openai/gpt-5.2", thinkingLevel="xhigh"
        )
        assert chosen["resolved"] == {"modelProvider": "openai", "model": "gpt-5.2"}
        assert chosen["entry"]["modelOverride"] == "gpt-5.2"
        for usual in ("mock/mock-1", None):
            back = await it.ask("sessions.patch", key="x", model=usual)
            assert back["resolved"] == {"modelProvider": "mock", "model": "mock-1"}
            assert "modelOverride" not in back["entry"]


@pytest.mark.parametrize("usual", ["mock/mock-1", None])
async def test_session_row_shows_the_model_after_a_choice_is_undone(
    tmp_path: Path, usual: str | None
) -> None:
    async with run(tmp_path) as it:
        await it.ask("sessions.patch", key="x", model="openai/gpt-5.2")
        session = await it.app.control.load("agent:main:x")
        await session.update(modelProvider="openai", model="gpt-5.2")  # it has answered
        await it.ask("sessions.patch", key="x", model=usual)
        (row,) = (await it.ask("sessions.list"))["sessions"]
        assert (row["modelProvider"], row["model"]) == ("mock", "mock-1")


async def test_sessions_patch_spawned_by_is_immutable(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        key = "agent:main:subagent:1"
        first = await it.ask("sessions.patch", key=key, spawnedBy="agent:main:main", spawnDepth=1)
        assert first["entry"]["spawnDepth"] == 1
        await it.ask("sessions.patch", key=key, spawnedBy="agent:main:main")
        for change in ({"spawnedBy": "other"}, {"spawnDepth": None}):
            with pytest.raises(InvalidRequestError, match="cannot be changed"):
                await it.ask("sessions.patch", {"key": key, **change})


async def test_sessions_reset_stops_run_and_keeps_settings(tmp_path: Path) -> None:
    async with run(tmp_path, answer("one"), Hang()) as it:
        await it.ask("sessions.patch", key="main", label="Main", thinkingLevel="low")
        await it.send("hi", "a")
        before = (await it.app.control.load("agent:main:main")).session_id
        await it.ask("chat.send", sessionKey="main", message="long", idempotencyKey="b")
        await it.ask("chat.send", sessionKey="main", message="queued", idempotencyKey="c")
        await it.asked(2)
        done = await it.ask("sessions.reset", key="main", reason="new")
        entry = done["entry"]
        assert entry["sessionId"] != before and entry["label"] == "Main"
        assert (entry["thinkingLevel"], entry["totalTokens"]) == ("low", 0)
        assert it.app.control.active_runs() == () and not it.gateway.runs.for_session(
            "agent:main:main"
        )
        assert (await it.app.control.load("agent:main:main")).messages == []
        await it.store.flush()
        folder = it.app.paths.sessions_dir("main")
        assert [f for f in folder.iterdir() if f"{before}.jsonl.reset." in f.name]


async def test_sessions_delete_archives_transcript(tmp_path: Path) -> None:
    async with run(tmp_path, answer("one"), answer("two")) as it:
        await it.send("hi", "a", "agent:main:x")
        gone = await it.ask("sessions.delete", key="agent:main:x")
        assert gone["deleted"] is True
        await it.store.flush()
        (archived,) = gone["archived"]
        assert ".jsonl.deleted." in archived and exists(archived)
        assert await it.app.store.session("agent:main:x") is None
        again = await it.ask("sessions.delete", key="agent:main:x")
        assert again == {"ok": True, "key": "agent:main:x", "deleted": False, "archived": []}
        await it.send("hi again", "b", "agent:main:x")
        assert len((await it.app.control.load("agent:main:x")).messages) == 2


async def test_sessions_delete_can_keep_transcript(tmp_path: Path) -> None:
    async with run(tmp_path, answer("one")) as it:
        await it.send("hi", "a", "agent:main:x")
        record = await it.app.store.session("agent:main:x")
        gone = await it.ask("sessions.delete", key="x", deleteTranscript=False)
        assert gone["deleted"] is True and gone["archived"] == []
        await it.store.flush()
        assert record and exists(str(record.data["sessionFile"]))


@pytest.mark.parametrize("key", ["main", "agent:main:main", "AGENT:MAIN:MAIN"])
async def test_sessions_delete_of_main_session_is_refused(key: str, tmp_path: Path) -> None:
    async with run(tmp_path, answer("one")) as it:
        await it.send("hi", "a")
        with pytest.raises(InvalidRequestError, match="Cannot delete the main session"):
            await it.ask("sessions.delete", key=key)


async def test_sessions_compact_hides_old_messages_from_model(tmp_path: Path) -> None:
    async with run(tmp_path, *[answer("x")] * 7) as it:
        for n in range(6):
            await it.send(f"question {n}", f"r{n}")
        assert (await it.ask("sessions.compact", key="main", maxLines=1_000))["compacted"] is False
        done = await it.ask("sessions.compact", key="main", maxLines=4)
        assert done["compacted"] is True and done["kept"] <= 4
        await it.send("the last", "z")
        told = [m.text for m in it.model.requests[-1].messages]
        assert any("question 5" in text for text in told)
        assert not any("question 0" in text for text in told)
        shown = await it.ask("chat.history", sessionKey="main", limit=100)
        texts = [part["text"] for m in shown["messages"] for part in m["content"]]
        assert "question 0" in texts


async def test_sessions_compact_without_transcript_says_so(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        none = await it.ask("sessions.compact", key="never")
        assert (none["compacted"], none["reason"]) == (False, "no sessionId")
        await put(it, "agent:main:empty", 5)
        assert (await it.ask("sessions.compact", key="empty"))["reason"] == "no transcript"


async def test_message_injected_between_call_and_result_follows_both(tmp_path: Path) -> None:
    async with run(tmp_path, answer("done")) as it:
        session = await it.app.control.load("agent:main:main")
        call = ToolCall("c1", "read", {"path": "x"})
        await session.start_turn(user_message("look", at_ms=1), provider="mock", model="mock-1")
        await session.append(answer(call))
        await it.ask("chat.inject", sessionKey="main", message="note")
        result = ToolResult("c1", "read", (Text("content"),))
        await session.append(Message("tool", (result,), 5))
        await it.send("go on", "a")
        sent = it.model.requests[0].messages
        at = next(n for n, m in enumerate(sent) if m.calls)
        assert sent[at + 1].parts == (result,)
        reloaded = [
            m.role for m in (await it.app.sessions.load("agent:main:main", "main")).messages
        ]
        it.app.sessions._loaded.clear()
        fresh = (await it.app.sessions.load("agent:main:main", "main")).messages
        assert [m.role for m in fresh][:4] == ["user", "assistant", "tool", "assistant"]
        assert len(reloaded) == len(fresh)
