"""The `chat.*` methods: send, history, abort and inject."""

import asyncio
import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.config.schema import Config
from homarus.core.errors import BadRequestError, InvalidRequestError, UnavailableError, UserError
from homarus.core.message import Address, Image, Inbound, Message, Text, user_message
from homarus.gateway.attachments import max_image_bytes, read_images
from homarus.gateway.history import MAX_BYTES, newest_path, show_history
from homarus.gateway.run_tracker import RunFailedError
from homarus.plugins.hooks import hook
from homarus.plugins.values import HookContext
from homarus.sessions.transcript import message_draft
from homarus.store.base import TranscriptEntry, TranscriptHeader
from homarus.testing.fakes import Hang
from homarus.testing.memory_store import MemoryStore
from tests.unit.gateway.app_harness import CONFIG, answer, run
from tests.unit.tools.sandbox_builders import SandboxHarness
from tests.waiting import until

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"x" * 20).decode()


def sent(text: str, run_id: str = "r", **more: Any) -> dict[str, Any]:
    return {"sessionKey": "main", "message": text, "idempotencyKey": run_id, **more}


async def test_chat_send_returns_at_once_and_replies_by_event(tmp_path: Path) -> None:
    async with run(tmp_path, answer("Hello")) as it:
        assert await it.send("hi") == {"runId": "run-1", "status": "started"}
        (final,) = [c for c in it.gateway.chats("run-1") if c["state"] == "final"]
        assert final["message"]["content"] == [{"type": "text", "text": "Hello"}]
        assert final["sessionKey"] == "agent:main:main"


async def test_run_start_event_has_thinking_level(tmp_path: Path) -> None:
    async with run(tmp_path, answer("a")) as it:
        await it.send("hi", "r1", thinking="low")
        events = [payload for name, payload in it.gateway.broadcasts if name == "agent"]
        start = next(one["data"] for one in events if one["data"].get("phase") == "start")
        assert start["thinkingLevel"] == "low"


async def test_chat_send_adds_time_for_the_model_only(tmp_path: Path) -> None:
    async with run(tmp_path, answer("Friday")) as it:
        await it.send("what day is it?")
        said = it.model.requests[0].messages[-1].text
        assert said.startswith("[Fri 2027-01-15 ") and said.endswith("] what day is it?")
        shown = await it.ask("chat.history", sessionKey="main")
        assert shown["messages"][0]["content"][0]["text"] == "what day is it?"


async def test_chat_send_twice_starts_one_run(tmp_path: Path) -> None:
    async with run(tmp_path, Hang()) as it:
        await it.ask("chat.send", sent("hi"))
        await it.asked(1)
        assert await it.ask("chat.send", sent("hi")) == {"runId": "r", "status": "in_flight"}
        await it.ask("chat.abort", sessionKey="main", runId="r")
        await it.ended("r")
        assert await it.ask("chat.send", sent("hi")) == {"runId": "r", "status": "ok"}
        assert len(it.model.requests) == 1


async def test_chat_send_repeated_after_failure_raises_reason(tmp_path: Path) -> None:
    async with run(tmp_path, BadRequestError("no such model")) as it:
        await it.send("hi", "r")
        (event,) = [c for c in it.gateway.chats("r") if c["state"] == "error"]
        assert "no such model" in event["errorMessage"]
        with pytest.raises(RunFailedError, match="no such model") as failed:
            await it.ask("chat.send", sent("hi"))
        assert failed.value.payload["status"] == "error"


async def test_chat_send_steering_active_run_gets_final_event(tmp_path: Path) -> None:
    async with run(tmp_path, answer("one"), answer("two")) as it:
        await (await it.app.control.load(it.app.control.resolve_key())).update(queueMode="steer")
        await it.ask("chat.send", sent("first", "a"))
        await it.ask("chat.send", sent("second", "b"))
        await it.ended("a")
        await it.ended("b")
        finals = [c for run_id in "ab" for c in it.gateway.chats(run_id) if c["state"] == "final"]
        assert len(finals) == 2
        assert await it.ask("chat.send", sent("second", "b")) == {"runId": "b", "status": "ok"}


async def test_chat_send_during_run_gets_own_run(tmp_path: Path) -> None:
    async with run(tmp_path, answer("one"), answer("two")) as it:
        await it.ask("chat.send", sent("first", "a"))
        await it.ask("chat.send", sent("second", "b"))
        await it.ended("a")
        assert it.gateway.chats("b") == []
        await it.clock.advance(2)
        await it.ended("b")
        said = [c["message"]["content"][0]["text"] for c in it.gateway.chats("b")]
        assert set(said) == {"two"}


@pytest.mark.parametrize("word", ["stop", "/stop", " ABORT ", "esc"])
async def test_chat_send_stop_word_stops_every_run(word: str, tmp_path: Path) -> None:
    async with run(tmp_path, Hang()) as it:
        await it.ask("chat.send", sent("long", "a"))
        await it.asked(1)
        await it.ask("chat.send", sent("more", "b"))
        stopped = await it.ask("chat.send", sent(word, "c"))
        assert stopped == {"ok": True, "aborted": True, "runIds": ["a", "b"]}
        assert it.app.control.active_runs() == ()
        assert [c["state"] for c in it.gateway.chats("b")] == ["aborted"]
        again = await it.ask("chat.send", sent(word, "d"))
        assert again == {"ok": True, "aborted": False, "runIds": []}


@pytest.mark.parametrize("is_client", [True, False])
async def test_stop_does_not_wait_for_a_slow_hook(is_client: bool, tmp_path: Path) -> None:
    async with run(tmp_path, Hang()) as it:

        class SlowPlugin:
            @hook
            async def command(self, where: HookContext, name: str, text: str) -> str | None:
                await until(lambda: not it.app.control.active_runs(where.session_key))
                return f"{name}{text}: noted"

        it.app.hooks.register(SlowPlugin(), "slow")
        await it.ask("chat.send", sent("long", "a"))
        await it.asked(1)
        if is_client:
            await it.ask("chat.send", sent("/stop", "b"))
        else:
            inbound = Inbound("b", Address("cli", "x"), "ann", "/stop", authority="owner")
            outcome = await it.app.control.ask("agent:main:main", inbound)
            assert outcome.text.endswith("\nstop: noted")
        assert not it.app.control.active_runs()


@pytest.mark.parametrize("by", ["rpc", "stop-command"])
async def test_stopped_answer_records_who_stopped_it(by: str, tmp_path: Path) -> None:
    async with run(tmp_path, Hang()) as it:
        await it.ask("chat.send", sent("go on", "a"))
        await it.asked(1)
        if by == "rpc":
            await it.ask("chat.abort", sessionKey="main", runId="a")
        else:
            await it.ask("chat.send", sent("/stop", "b"))
        await it.ended("a")
        shown = await it.ask("chat.history", sessionKey="main")
        last = shown["messages"][-1]
        assert last["content"] == [{"type": "text", "text": "I was saying"}]
        assert (last["stopReason"], last["idempotencyKey"]) == ("aborted", "a:assistant")
        assert last["openclawAbort"] == {"aborted": True, "origin": by, "runId": "a"}
        record = await it.app.store.session("agent:main:main")
        assert record
        entry = (await it.app.store.entries(record.session_id))[-1]
        assert entry.data["message"]["openclawAbort"] == last["openclawAbort"]


async def test_answer_cut_by_shutdown_records_no_stop(tmp_path: Path) -> None:
    async with run(tmp_path, Hang()) as it:
        await it.ask("chat.send", sent("go on", "a"))
        await it.asked(1)
        it.app.control.stop_now("agent:main:main")  # as a gateway does that is told to end
        await it.ended("a")
        shown = await it.ask("chat.history", sessionKey="main")
        assert shown["messages"][-1]["stopReason"] == "aborted"
        assert "openclawAbort" not in shown["messages"][-1]


async def test_chat_send_updates_last_route(tmp_path: Path) -> None:
    async with run(tmp_path, answer("one"), answer("two"), answer("three")) as it:
        await it.send("hi", "a", "page")
        params = {"message": "hi", "sessionKey": "program", "idempotencyKey": "b"}
        await it.ask("agent", params)
        listed = await it.ask("sessions.list")
        rows = {row["key"]: row for row in listed["sessions"]}
        page, program = rows["agent:main:page"], rows["agent:main:program"]
        assert page["lastChannel"] == "webchat"
        assert page["deliveryContext"] == {"channel": "webchat"}
        assert page["origin"] == {
            "provider": "webchat", "surface": "webchat", "chatType": "direct",
        }  # fmt: skip
        assert not {"origin", "lastChannel", "deliveryContext"} & program.keys()
        params = {"message": "hi", "sessionKey": "page", "idempotencyKey": "c"}
        await it.ask("agent", params)
        again = await it.ask("sessions.list", search="page")
        assert again["sessions"][0]["lastChannel"] == "webchat"  # a program's run leaves it


async def test_chat_abort_right_after_send_stops_run(tmp_path: Path) -> None:
    async with run(tmp_path, Hang()) as it:
        async with asyncio.TaskGroup() as group:
            group.create_task(it.ask("chat.send", sent("long", "a")))
            stopping = group.create_task(it.ask("chat.abort", sessionKey="main", runId="a"))
        assert stopping.result()["aborted"] is True
        await it.ended("a")
        assert it.gateway.chats("a")[-1]["state"] == "aborted"


async def test_chat_abort_twice_is_allowed(tmp_path: Path) -> None:
    async with run(tmp_path, Hang()) as it:
        await it.ask("chat.send", sent("long", "a"))
        await it.asked(1)
        for _ in range(3):
            await it.ask("chat.abort", sessionKey="main")
        await it.ended("a")


async def test_chat_abort_of_other_session_run_is_refused(tmp_path: Path) -> None:
    async with run(tmp_path, Hang()) as it:
        await it.ask("chat.send", sent("long", "a"))
        await it.asked(1)
        with pytest.raises(InvalidRequestError, match=r"^runId does not match sessionKey$"):
            await it.ask("chat.abort", sessionKey="other", runId="a")
        assert it.app.control.active_runs() == ("a",)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("/help", "/model"),
        ("/status", "mock/mock-1"),
        ("/model", "mock/mock-1"),
        ("/whoami", "You may give every command"),
        ("/new", "A new conversation."),
        ("/reset", "A new conversation."),
        ("/approve 1 allow-once", "no approval"),
        ("/t high", "Thinking: high."),
        ("/model nobody/knows", "unknown"),
    ],
)
async def test_chat_send_command_uses_no_model(text: str, told: str, tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        assert await it.send(text) == {"runId": "run-1", "status": "started"}
        event = it.gateway.chats("run-1")[-1]
        said = event.get("errorMessage") or event["message"]["content"][0]["text"]
        assert told in said
        assert not it.model.requests


async def test_command_reply_is_stored_without_usage(tmp_path: Path) -> None:
    async with run(tmp_path, answer("Hello")) as it:
        await it.send("hi", "a")
        await it.send("/status", "b")
        shown = await it.ask("chat.history", sessionKey="main")
        assert [m["role"] for m in shown["messages"]] == ["user", "assistant", "assistant"]
        assert shown["messages"][-1]["model"] == "gateway-injected"
        record = await it.app.store.session("agent:main:main")
        assert record and record.data["model"] == "mock-1"


async def test_chat_send_new_with_text_resets_and_answers(tmp_path: Path) -> None:
    async with run(tmp_path, answer("one"), answer("two")) as it:
        await it.send("hi", "a")
        before = (await it.app.control.load("agent:main:main")).session_id
        await it.send("/new what now?", "b")
        session = await it.app.control.load("agent:main:main")
        assert session.session_id != before
        assert [m.role for m in session.messages] == ["user", "assistant"]
        assert it.model.requests[1].messages[-1].text.endswith("] what now?")


async def test_model_command_sets_and_clears_model(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        await it.send("/model openai/gpt-5.2", "a")
        assert (await it.app.control.load("agent:main:main")).model == "openai/gpt-5.2"
        await it.send("/model default", "b")
        assert (await it.app.control.load("agent:main:main")).model is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"message": ""}, "message or attachment required"),
        ({"message": "  \n"}, "message or attachment required"),
        ({"message": "a\0b"}, "null bytes"),
        ({"sessionKey": "agent:nobody:main"}, "unknown agent"),
        ({"sessionKey": "agent::"}, "names no conversation"),
        ({"sessionKey": "a\u202eb"}, r"U\+202E"),
        ({"sessionKey": "x" * 600}, "512"),
        ({"idempotencyKey": "a\nb"}, "idempotencyKey"),
        ({"idempotencyKey": "x" * 300}, "idempotencyKey"),
        ({"thinking": "hardest of all"}, "unknown thinking level"),
        ({"timeoutMs": 10**30}, "timeoutMs"),
        ({"timeoutMs": -1}, "timeoutMs"),
        ({"attachments": ["x"]}, "must be an object"),
        ({"attachments": [{"content": 5}]}, "base64 text"),
        ({"attachments": [{"content": "!!!"}]}, "invalid base64"),
        ({"attachments": [{"content": PNG}] * 21}, "at most 20"),
    ],
)
async def test_chat_send_invalid_params_start_nothing(
    change: dict[str, Any], why: str, tmp_path: Path
) -> None:
    async with run(tmp_path) as it:
        with pytest.raises((InvalidRequestError, UserError), match=why):
            await it.ask("chat.send", {**sent("hi"), **change})
        assert not it.model.requests and not it.gateway.runs.for_session("agent:main:main")


async def test_chat_send_image_size_limit_is_exact(tmp_path: Path) -> None:
    async with run(tmp_path, answer("I see")) as it:
        largest = b"\xff\xd8\xff" + b"x" * 4_999_997
        await it.send("look", "a", attachments=[{"content": base64.b64encode(largest).decode()}])
        (image,) = [p for p in it.model.requests[0].messages[-1].parts if isinstance(p, Image)]
        assert image.mime == "image/jpeg"
        over = base64.b64encode(largest + b"y").decode()
        with pytest.raises(InvalidRequestError, match="size limit"):
            await it.ask("chat.send", sent("look", "b", attachments=[{"content": over}]))


async def test_chat_send_image_over_media_limit_is_refused() -> None:
    config = Config.model_validate({"agents": {"defaults": {"mediaMaxMb": 0.001}}})
    assert max_image_bytes(config) == 1_000
    assert max_image_bytes(Config()) == 5_000_000
    data = base64.b64encode(b"\xff\xd8\xff" + b"x" * 998).decode()
    with pytest.raises(InvalidRequestError, match="1001 > 1000"):
        read_images([{"content": data}], max_image_bytes(config))


async def test_chat_send_image_type_is_detected_from_bytes(tmp_path: Path) -> None:
    async with run(tmp_path, answer("I see")) as it:
        lying = {"content": f"data:image/jpeg;base64,{PNG}", "mimeType": "image/jpeg"}
        await it.send("", "a", attachments=[lying])
        (image,) = [p for p in it.model.requests[0].messages[-1].parts if isinstance(p, Image)]
        assert image == Image(PNG, "image/png")
        shown = await it.ask("chat.history", sessionKey="main")
        part = shown["messages"][0]["content"][-1]
        assert part == {"type": "image", "mimeType": "image/png", "omitted": True, "bytes": 28}


async def test_chat_send_file_is_stored_and_named_to_the_model(tmp_path: Path) -> None:
    async with run(tmp_path, answer("read")) as it:
        content = base64.b64encode(b"name,age\nAda,36\n").decode()
        file = {"mimeType": "text/csv", "fileName": "people.csv", "content": content}
        await it.send("what is this?", "r", attachments=[file])
        said = it.model.requests[0].messages[-1].text
        path = said.partition("[media attached: ")[2].partition(" (")[0]
        assert Path(path).read_bytes() == b"name,age\nAda,36\n"
        assert "(text/csv, people.csv)]" in said and "Ada,36" in said


@pytest.mark.parametrize(
    ("kind", "head"), [("webm", b"\x1aE\xdf\xa3"), ("mp4", b"\x00\x00\x00\x24ftypisom")]
)
async def test_chat_send_recording_of_browser_is_sound(
    tmp_path: Path, kind: str, head: bytes
) -> None:
    async with run(tmp_path, answer("heard")) as it:
        content = base64.b64encode(head + b"x" * 40).decode()
        name, mime = f"note.{kind}", f"audio/{kind};codecs=opus"
        file = {"mimeType": mime, "fileName": name, "content": content}
        await it.send("", "r", attachments=[file])
        assert f"(audio/{kind}, {name})]" in it.model.requests[0].messages[-1].text


async def test_chat_send_file_over_media_limit_is_refused(tmp_path: Path) -> None:
    config = {**CONFIG, "agents": {"defaults": {"mediaMaxMb": 0.001}}}
    async with run(tmp_path, config=config) as it:
        content = base64.b64encode(b"x" * 1_001).decode()
        with pytest.raises(InvalidRequestError, match="exceeds the size limit"):
            await it.ask("chat.send", sent("hi", attachments=[{"content": content}]))
        assert not (tmp_path / "media").exists()


async def test_chat_history_with_ids_has_usage_and_details(tmp_path: Path) -> None:
    async with run(tmp_path, answer("Hello", tokens=100)) as it:
        await it.send("hi")
        shown = await it.ask("chat.history", sessionKey="main", maxChars=1000)
        assert shown["messages"][1]["usage"]["totalTokens"] > 0
        plain = await it.ask("chat.history", sessionKey="main")
        assert "usage" not in plain["messages"][1]


async def test_chat_send_removes_control_characters(tmp_path: Path) -> None:
    async with run(tmp_path, answer("ok")) as it:
        await it.send("a\x1b[31mb\tc\nd")
        assert it.model.requests[0].messages[-1].text.endswith("] a[31mb\tc\nd")


async def test_chat_inject_reaches_transcript_and_clients(tmp_path: Path) -> None:
    async with run(tmp_path, answer("Hello"), answer("ok")) as it:
        with pytest.raises(InvalidRequestError, match="session not found"):
            await it.ask("chat.inject", sessionKey="main", message="note")
        await it.send("hi", "a")
        told = await it.ask("chat.inject", sessionKey="main", message="note", label="Cron\njob")
        event = it.gateway.broadcasts[-1][1]
        assert event["runId"] == f"inject-{told['messageId']}"
        assert event["message"]["content"][0]["text"] == "[Cron job]\n\nnote"
        await it.send("and now?", "b")
        texts = [m.text for m in it.model.requests[1].messages]
        assert "[Cron job]\n\nnote" in texts


def entries(*messages: Message) -> list[TranscriptEntry]:
    made: list[TranscriptEntry] = []
    for n, message in enumerate(messages):
        parent = made[-1].id if made else None
        made.append(message_draft(message, 1_000 + n).at(f"{n:08x}", parent, 1_000 + n))
    return made


def test_chat_history_keeps_newest_within_budget() -> None:
    long = [user_message("x" * 11_000, at_ms=n + 1) for n in range(1_000)]
    shown = show_history(entries(*long), 1_000)
    assert 100 < len(shown) < 1_000
    assert len(json.dumps(shown)) <= MAX_BYTES + 10_000
    assert shown[-1]["timestamp"] == 1_000
    assert len(show_history(entries(*long), 7)) == 7


def test_chat_history_truncates_large_messages() -> None:
    parts = tuple(Text("y" * 12_000) for _ in range(100))
    (large,) = show_history(entries(Message("user", parts, 1)), 10)
    assert large["content"] == [{"type": "text", "text": "[message left out: too large to show]"}]
    (cut,) = show_history(entries(user_message("z" * 50_000, at_ms=1)), 10)
    assert len(cut["content"][0]["text"]) < 12_100


@pytest.mark.parametrize(
    "message",
    [
        None, 5, [], {}, {"role": 7}, {"role": "user"}, {"role": "user", "content": 5},
        {"role": "user", "content": [None, 5, {"type": 5}, {"type": "text", "text": 5}]},
        {"role": "assistant", "content": [{"type": "toolCall", "arguments": "x"}], "usage": "x"},
        {"role": "user", "content": "plain", "timestamp": float("inf")},
        {"role": "user", "content": "plain", "timestamp": 10**400},
        {"role": "x" * 900, "content": [{"type": "image", "data": 5, "mimeType": 5}]},
    ],
)  # fmt: skip
def test_chat_history_accepts_any_stored_shape(message: Any) -> None:
    shown = show_history([TranscriptEntry("a", None, "message", 5, {"message": message})], 10)
    assert len(json.dumps(shown)) < 1_000


async def test_chat_history_reads_only_end_of_transcript() -> None:
    class Counting(MemoryStore):
        read = 0

        async def entries(self, session_id: str, **asked: Any) -> Any:
            found = await super().entries(session_id, **asked)
            self.read += len(found)
            return found

    async with Counting() as store:
        async with store.transaction() as unit:
            unit.open_transcript(TranscriptHeader("s1", "main", 1))
            unit.append("s1", *entries(*[user_message(f"m{n}", at_ms=n + 1) for n in range(5_000)]))
        path = await newest_path(store, "s1", 20)
        assert [e.id for e in path[-2:]] == [f"{4998:08x}", f"{4999:08x}"]
        assert store.read <= 100
        async with store.transaction() as unit:
            unit.set_leaf("s1", f"{10:08x}")  # back to the beginning
        assert [e.id for e in await newest_path(store, "s1", 5)][-1] == f"{10:08x}"


async def test_chat_history_has_thinking_level_of_session_model(tmp_path: Path) -> None:
    provider = CONFIG["models"]["providers"]["mock"]
    thinker = {"id": "thinker", "name": "T", "contextWindow": 9_000, "reasoning": True}
    providers = {"mock": {**provider, "models": [*provider["models"], thinker]}}
    async with run(tmp_path, config={**CONFIG, "models": {"providers": providers}}) as it:
        await it.ask("sessions.patch", key="main", model="mock/thinker")
        assert (await it.ask("chat.history", sessionKey="main"))["thinkingLevel"] == "low"
        assert (await it.ask("chat.history", sessionKey="other"))["thinkingLevel"] == "off"


async def test_chat_history_of_unknown_session_is_empty(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        shown = await it.ask("chat.history", sessionKey="agent:main:never")
        assert shown == {
            "sessionKey": "agent:main:never", "messages": [], "thinkingLevel": "off"
        }  # fmt: skip
        assert await it.app.store.session("agent:main:never") is None


async def test_chat_send_denied_by_policy_is_refused(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        await it.ask("sessions.patch", key="main", sendPolicy="deny")
        with pytest.raises(InvalidRequestError, match="send blocked by session policy"):
            await it.ask("chat.send", sent("hi"))
        with pytest.raises(InvalidRequestError, match="send blocked by session policy"):
            await it.ask("agent", message="hi", idempotencyKey="b")
        await it.send("/status", "c")


async def test_chat_send_over_pending_limit_is_refused(tmp_path: Path) -> None:
    async with run(tmp_path, Hang(), Hang()) as it:
        for n in range(100):
            await it.ask("chat.send", sent("more", f"r{n}"))
        with pytest.raises(UnavailableError, match="too many messages wait"):
            await it.ask("chat.send", sent("more", "r100"))
        await it.ask("chat.send", {**sent("elsewhere", "other"), "sessionKey": "other"})
        stopped = await it.ask("chat.abort", sessionKey="main")
        assert len(stopped["runIds"]) == 100


async def test_chat_history_of_removed_agent_is_readable(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        shown = await it.ask("chat.history", sessionKey="agent:gone:main")
        assert shown["messages"] == [] and shown["thinkingLevel"] == "off"


async def test_chat_history_before_pages_back_without_gap(tmp_path: Path) -> None:
    async with run(tmp_path, *(answer(f"a{n}") for n in range(5))) as it:
        for n in range(5):
            await it.send(f"q{n}", f"r{n}")
        seen: list[str] = []
        cursor: dict[str, Any] = {}
        has_more = True
        while has_more:
            page = await it.ask("chat.history", sessionKey="main", limit=3, maxChars=50, **cursor)
            messages, has_more = page["messages"], page["hasMore"]
            seen = [message["content"][0]["text"] for message in messages] + seen
            cursor = {"before": messages[0]["__openclaw"]["id"]}
        assert seen == [text for n in range(5) for text in (f"q{n}", f"a{n}")]
        unknown = await it.ask("chat.history", sessionKey="main", before="ffffffff")
        assert unknown["messages"] == []


async def test_chat_history_without_cursor_params_has_no_ids(tmp_path: Path) -> None:
    async with run(tmp_path, answer("x" * 20_000)) as it:
        await it.send("hi")
        for message in (await it.ask("chat.history", sessionKey="main"))["messages"]:
            assert "__openclaw" not in message


async def test_chat_message_get_returns_text_that_history_cuts(tmp_path: Path) -> None:
    async with run(tmp_path, answer("é" * 300_000)) as it:
        await it.send("hi")
        history = await it.ask("chat.history", sessionKey="main", maxChars=100)
        asked, cut = history["messages"]
        assert "truncated" not in asked["__openclaw"] and cut["__openclaw"]["truncated"]
        found = {"sessionKey": "main", "messageId": cut["__openclaw"]["id"]}
        whole = (await it.ask("chat.message.get", found))["message"]
        assert whole["content"] == [{"type": "text", "text": "é" * 300_000}]
        assert "truncated" not in whole["__openclaw"]
        unknown = await it.ask("chat.message.get", sessionKey="main", messageId="ffffffff")
        assert unknown == {"ok": False, "unavailableReason": "not_found"}
        elsewhere = await it.ask("chat.message.get", {**found, "sessionKey": "agent:main:other"})
        assert not elsewhere["ok"]


async def test_chat_message_get_returns_images_of_user_and_agent(tmp_path: Path) -> None:
    async with run(tmp_path, answer("Look:\nMEDIA: chart.png\nMEDIA: /etc/passwd")) as it:
        workspace = it.services.agent("main").workspace
        workspace.mkdir(parents=True, exist_ok=True)
        (workspace / "chart.png").write_bytes(base64.b64decode(PNG))
        await it.ask("chat.send", sent("see", attachments=[{"content": PNG}]))
        await it.ended("r")
        shown = (await it.ask("chat.history", sessionKey="main", maxChars=500))["messages"]
        question, reply = shown
        (picture,) = [part for part in question["content"] if part["type"] == "image"]
        assert picture["omitted"] and "data" not in picture
        found = {"sessionKey": "main", "messageId": question["__openclaw"]["id"]}
        got = await it.ask("chat.message.get", {**found, "index": picture["index"]})
        assert got["image"] == {"type": "image", "mimeType": "image/png", "data": PNG}
        text, *files = reply["content"]
        assert text["text"] == "Look:"
        assert files == [
            {"type": "media", "path": "chart.png"}, {"type": "media", "path": "/etc/passwd"}
        ]  # fmt: skip
        found = {"sessionKey": "main", "messageId": reply["__openclaw"]["id"]}
        got = await it.ask("chat.message.get", {**found, "media": "chart.png"})
        assert got["image"]["data"] == PNG
        for path in ("/etc/passwd", "other.png"):  # no image of the workspace; not in the message
            refused = await it.ask("chat.message.get", {**found, "media": path})
            assert refused == {"ok": False, "unavailableReason": "not_visible"}


async def test_chat_message_get_reads_images_of_the_sessions_sandbox(tmp_path: Path) -> None:
    async with run(tmp_path, answer("MEDIA: /workspace/chart.png")) as it:
        boxes = SandboxHarness(tmp_path, {"mode": "all"})
        it.services = replace(
            it.services,
            open_sandbox=lambda agent, key, access: boxes.registry.open(
                agent.id, key, agent.workspace, access
            ),
        )
        sandbox = boxes.open("agent:main:main")
        sandbox.make_workspace()
        (sandbox.workspace / "chart.png").write_bytes(base64.b64decode(PNG))
        await it.send("see")
        (reply,) = (await it.ask("chat.history", sessionKey="main", maxChars=500))["messages"][1:]
        found = {"sessionKey": "main", "messageId": reply["__openclaw"]["id"]}
        got = await it.ask("chat.message.get", {**found, "media": "/workspace/chart.png"})
        assert got["image"]["data"] == PNG


MARKED = "<think>plan</think>[[reply_to:7]] Look:\n[Tool Call: x]\nMEDIA:./a.png\nBye."


def show_assistant(*parts: Any, provider: str = "p", max_chars: int | None = None) -> Any:
    message = {"role": "assistant", "content": [*parts], "provider": provider}
    stored = TranscriptEntry("a", None, "message", 5, {"message": message})
    return show_history([stored], 10, max_chars)[0]


@pytest.mark.parametrize("max_chars", [None, 4_000])
def test_chat_history_reply_is_cleaned(max_chars: int | None) -> None:
    shown = show_assistant({"type": "text", "text": MARKED}, max_chars=max_chars)
    assert shown["content"] == [
        {"type": "thinking", "thinking": "plan"},
        {"type": "text", "text": "Look:\nBye."},
        {"type": "media", "path": "./a.png"},
    ]
    kept = show_assistant(MARKED.replace("think>", "b>").partition("[[")[0] + "x ")
    assert kept["content"] == [{"type": "text", "text": "<b>plan</b>x "}], "as it is stored"


def test_chat_history_reasoning_over_several_parts_is_cleaned() -> None:
    call = {"type": "toolCall", "id": "c", "name": "read", "arguments": {}}
    image = {"type": "image", "data": "QUJD", "mimeType": "image/png"}
    shown = show_assistant("<think>a", call, "b</think>Done.", image, max_chars=100)
    kinds = [part["type"] for part in shown["content"]]
    assert kinds == ["thinking", "toolCall", "thinking", "text", "image"]
    assert shown["content"][3]["text"] == "Done."
    assert shown["content"][4]["index"] == 3, "the index of the stored part loads it"


def test_chat_history_text_is_cut_after_it_is_cleaned() -> None:
    shown = show_assistant(f"<think>{'x' * 500}</think>Short.", max_chars=20)
    assert shown["content"][-1]["text"] == "Short."
    assert "truncated" not in shown["__openclaw"]


def test_chat_history_final_tag_is_enforced_by_provider() -> None:
    text = "plan <final>answer</final>"
    assert show_assistant(text, provider="minimax")["content"][0]["text"] == "answer"
    assert show_assistant(text)["content"][0]["text"] == "plan answer"


def test_chat_history_stored_part_cannot_name_a_file() -> None:
    shown = show_assistant({"type": "media", "path": "/etc/passwd"}, "Hello.", "[[x]]")
    assert [part["type"] for part in shown["content"]] == ["text", "text"]


async def test_reply_is_cleaned_for_events_and_previews(tmp_path: Path) -> None:
    async with run(tmp_path, answer(MARKED)) as it:
        await it.send("hi", "a")
        final = it.gateway.chats("a")[-1]
        assert [part.get("text", part.get("path")) for part in final["message"]["content"]] == [
            "Look:\nBye.",
            "./a.png",
        ]
        seen = [payload for name, payload, *_ in it.gateway.broadcasts if name == "agent"]
        pieces = [one["data"] for one in seen if one["stream"] == "assistant"]
        assert "".join(one["delta"] for one in pieces) == "Look:\nBye."
        assert [path for one in pieces for path in one.get("mediaUrls", ())] == ["./a.png"]
        thoughts = [one["data"]["delta"] for one in seen if one["stream"] == "thinking"]
        assert "".join(thoughts) == "plan"
        preview = await it.ask("sessions.preview", keys=["main"])
        assert preview["previews"][0]["items"][-1]["text"] == "Look:\nBye."
        stored = (await it.app.control.load("agent:main:main")).messages[-1]
        assert stored.text == MARKED, "the transcript keeps what the model wrote"
