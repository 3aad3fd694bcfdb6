"""Dispatch chat commands during runs, after crashes, with bugs; and commands that write files."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from homarus.agent.commands.listing import command_handlers
from homarus.core.message import Address, Inbound, ToolCall
from homarus.plugins.commands import CommandContext, CommandReply, command
from homarus.plugins.hooks import hook
from homarus.testing.fakes import Hang
from tests.unit.gateway.app_harness import CONFIG, Harness, answer, run

KEY = "agent:main:main"


def said(it: Harness, run_id: str) -> str:
    event = it.gateway.chats(run_id)[-1]
    return str(event.get("errorMessage") or event["message"]["content"][0]["text"])


def inbound(text: str, run_id: str) -> Inbound:
    address = Address("webchat", KEY)
    return Inbound(run_id, address, "ann", text, at_ms=1, run_id=run_id, authority="owner")


async def settled(it: Harness, run_id: str) -> str:
    """Wait until a message is settled; return its state."""
    async with asyncio.timeout(30):
        while True:
            row = await it.app.store.journal.inbox_record(run_id)
            if row and row.state not in {"accepted", "running"}:
                return row.state
            await asyncio.sleep(0.001)


async def test_command_during_a_run_is_answered(tmp_path: Path) -> None:
    async with run(tmp_path, Hang()) as it:
        await it.ask("chat.send", sessionKey="main", message="long", idempotencyKey="a")
        await it.asked(1)
        await it.send("/status", "b")
        assert "Running: an answer is being made" in said(it, "b")
        await it.send("/model mock/mock-1", "c")
        assert it.app.control.active_runs() == ("a",)


async def test_new_command_stops_run_and_queue_and_answers_its_text(tmp_path: Path) -> None:
    async with run(tmp_path, Hang(), answer("At your service.")) as it:
        await it.ask("chat.send", sessionKey="main", message="long", idempotencyKey="a")
        await it.asked(1)
        await it.ask("chat.send", sessionKey="main", message="more", idempotencyKey="b")
        before = (await it.app.control.load(KEY)).session_id
        await it.send("/new hello", "c")
        assert said(it, "c") == "At your service."
        states = [it.gateway.chats(one)[-1]["state"] for one in "ab"]
        assert states == ["aborted", "aborted"]
        session = await it.app.control.load(KEY)
        assert session.session_id != before
        assert [message.role for message in session.messages] == ["user", "assistant"]


async def test_new_command_with_image_passes_it_to_the_first_turn(tmp_path: Path) -> None:
    picture = {"content": "iVBORw0KGgo=", "mimeType": "image/png"}
    async with run(tmp_path, answer("one"), answer("two"), answer("three")) as it:
        await it.send("hi", "a")
        await it.send("/new what is this?", "b", attachments=[picture])
        last = it.model.requests[-1].messages
        assert [message.role for message in last] == ["user"]
        assert last[0].text.endswith("what is this?") and len(last[0].parts) == 2
        await it.send("/whoami", "c", attachments=[picture])
        assert it.model.requests[-1].messages[-1].text.endswith("/whoami")


@pytest.mark.parametrize("began", [False, True])
async def test_command_interrupted_by_crash_runs_once_after_restart(
    began: bool, tmp_path: Path
) -> None:
    async def after(it: Harness) -> None:
        assert await settled(it, "r") == "answered"
        session = await it.app.control.load(KEY)
        assert session.thinking == "high"
        assert [message.text for message in session.messages] == ["Thinking: high."]
        again = {"sessionKey": "main", "message": "/think high", "idempotencyKey": "r"}
        async with asyncio.timeout(30):
            told = await it.ask("chat.send", again)
            while told["status"] == "in_flight":
                await asyncio.sleep(0.001)
                told = await it.ask("chat.send", again)
        assert told == {"runId": "r", "status": "ok"}
        assert len((await it.app.control.load(KEY)).messages) == 1

    async with run(tmp_path) as it:
        journal = it.app.store.journal
        row = (await it.app.control.accept(KEY, inbound("/think high", "r"))).record
        if began:
            async with journal.lease("command:r") as lease, journal.transaction() as unit:
                unit.mark_running([row.id], lease, run=row.id)
    async with run(tmp_path) as it:
        await after(it)
    async with run(tmp_path) as it:
        await after(it)


async def test_new_command_interrupted_by_crash_resets_once(tmp_path: Path) -> None:
    async with run(tmp_path, answer("one")) as it:
        await it.send("hi", "a")
        await it.app.control.accept(KEY, inbound("/new go on", "r"))
    async with run(tmp_path, answer("Gone.")) as it:
        assert await settled(it, "r") == "answered"
        session = await it.app.control.load(KEY)
        assert [message.text[-5:] for message in session.messages] == ["go on", "Gone."]
        home = it.app.paths.sessions_dir("main")
        await it.store.flush()
        assert len(list(home.glob("*.reset.*"))) == 1


async def test_message_with_model_directive_keeps_it_after_crash(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        await it.app.control.accept(KEY, inbound("/think high well?", "r"))
    async with run(tmp_path, answer("Well.")) as it:
        assert await settled(it, "r") == "answered"
        assert it.model.requests[0].thinking == "high"
        assert it.model.requests[0].messages[-1].text.endswith("well?")


async def test_command_sent_twice_runs_once(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        await it.send("/think high", "r")
        again = {"sessionKey": "main", "message": "/think high", "idempotencyKey": "r"}
        assert await it.ask("chat.send", again) == {"runId": "r", "status": "ok"}
        assert len((await it.app.control.load(KEY)).messages) == 1


async def test_command_with_bug_reports_error_and_next_one_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @command("status")
    async def broken(_context: CommandContext) -> CommandReply:
        raise ZeroDivisionError("secret-in-a-bug")

    monkeypatch.setitem(command_handlers(), "status", broken)
    async with run(tmp_path) as it:
        await it.send("/status", "a")
        assert "met a bug" in said(it, "a") and "secret" not in said(it, "a")
        row = await it.app.store.journal.inbox_record("a")
        assert row and row.state == "reported"
        await it.send("/whoami", "b")
        assert said(it, "b").startswith("Channel: webchat")


async def test_inline_status_that_fails_still_answers_the_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @command("status")
    async def broken(_context: CommandContext) -> CommandReply:
        raise ZeroDivisionError

    monkeypatch.setitem(command_handlers(), "status", broken)
    async with run(tmp_path, answer("Well.")) as it:
        await it.send("well /status", "a")
        assert said(it, "a") == "Well." and await settled(it, "a") == "answered"


async def test_status_shows_thinking_level_of_the_active_model(tmp_path: Path) -> None:
    mock = CONFIG["models"]["providers"]["mock"]
    deep = {"id": "deep", "name": "Deep", "reasoning": True, "contextWindow": 64_000}
    providers = {"mock": {**mock, "models": [*mock["models"], deep]}}
    async with run(tmp_path, answer("hello"), config={"models": {"providers": providers}}) as it:
        await it.send("/think", "a")
        assert said(it, "a").startswith("Thinking: off.")
        await it.send("/model mock/deep", "b")
        await it.send("/think", "c")
        assert said(it, "c").startswith("Thinking: low.")
        await it.send("/status", "d")
        assert "Thinking: low ·" in said(it, "d") and "of 64,000 tokens" in said(it, "d")
        await it.send("hi", "e")
        assert it.model.requests[-1].thinking == "low"


async def test_model_command_with_unknown_number_chooses_none(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        for run_id, number in {"a": "0", "b": "77", "c": "9" * 5_000}.items():
            await it.send(f"/model {number}", run_id)
            assert "in the list" in said(it, run_id)


class Witness:
    """A plugin that records commands and ended sessions."""

    def __init__(self) -> None:
        self.heard = list[str]()

    @hook
    async def command(self, name: str, text: str) -> str:
        self.heard.append(f"{name} {text}".strip())
        return f"(heard {name})"

    @hook
    async def session_end(self, messages: int) -> None:
        self.heard.append(f"over after {messages}")


async def test_command_hooks_are_called_and_may_add_a_line(tmp_path: Path) -> None:
    async with run(tmp_path, answer("hello"), answer("well")) as it:
        witness = Witness()
        it.app.hooks.register(witness, "witness")
        await it.send("hi", "a")
        await it.send("/new", "b")
        assert said(it, "b").endswith("\n(heard new)")
        await it.send("/reset go on", "c")
        assert witness.heard == ["new", "over after 2", "reset go on"]


class Editor:
    """A plugin that changes every prompt, and has a hook that fails."""

    @hook
    def agent_bootstrap(self, files: Mapping[str, str]) -> dict[str, str]:
        return {**files, "SOUL.md": "Speak like a pirate."}

    @hook
    def before_agent_start(self) -> None:
        raise RuntimeError("no ink")


async def test_hook_effects_are_counted_in_context_and_shown_in_status(tmp_path: Path) -> None:
    async with run(tmp_path, answer("hello")) as it:
        it.app.hooks.register(Editor(), "editor")
        await it.send("hi", "a")
        sent = it.model.requests[0].system
        assert "Speak like a pirate." in sent
        await it.send("/context", "b")
        assert f"System prompt: {len(sent):,} characters" in said(it, "b")
        await it.send("/status", "c")
        failed = "Hook before_agent_start of plugin editor: 1 failure, last RuntimeError('no ink')"
        assert failed in said(it, "c")


async def test_restart_command_is_settled_before_the_restart(tmp_path: Path) -> None:
    async with run(tmp_path, config={"commands": {"restart": True}}) as it:
        rung = list[bool]()
        it.app.set_restart(lambda: rung.append(True))
        await it.send("/restart", "r")
        assert await settled(it, "r") == "answered" and rung == [True]
        assert "restarts" in said(it, "r")


async def test_restart_command_without_permission_is_refused(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        it.app.set_restart(lambda: pytest.fail("it was switched off"))
        await it.send("/restart", "r")
        assert "commands.restart" in said(it, "r")


async def test_export_runs_once_and_overwrites_nothing(tmp_path: Path) -> None:
    workspace = tmp_path / "state" / "workspace"
    async with run(tmp_path, answer("<script>alert(1)</script>")) as it:
        await it.send("/export", "a")
        assert "nothing to export" in said(it, "a")
        await it.send("say <b>hi</b>", "b")
        await it.send("/export", "c")
        (page,) = (workspace / "exports").glob("session-*.html")
        text = page.read_text()
        assert "&lt;b&gt;hi" in text and "&lt;script&gt;" in text and "<script>" not in text
        await it.send("/export talk.md", "d")
        assert "## You" in (workspace / "talk.md").read_text()
        for number, (path, why) in enumerate(
            [
                ("AGENTS.md", "is there already"),
                ("../out.md", "outside"),
                ("x.sh", ".html or .md"),
                ("talk.md/", "is a folder"),
                (".openclaw/x.md", ""),
            ]
        ):
            before = (workspace / "AGENTS.md").read_text()
            await it.send(f"/export {path}", f"e{number}")
            assert why in said(it, f"e{number}"), path
            assert it.gateway.chats(f"e{number}")[-1]["state"] == "error", path
            assert (workspace / "AGENTS.md").read_text() == before


async def test_export_by_non_owner_writes_to_one_folder_only(tmp_path: Path) -> None:
    workspace = tmp_path / "state" / "workspace"
    async with run(tmp_path, answer("hello")) as it:
        await it.send("hi", "a")
        for number, path in enumerate(["BOOT.md", "memory/x.md", "../x.md", "..\\x.md"]):
            params = {
                "sessionKey": "main",
                "message": f"/export {path}",
                "idempotencyKey": f"e{number}",
            }
            await it.ask("chat.send", params, "read", "write")
            await it.ended(f"e{number}")
        assert [file.name for file in (workspace / "exports").iterdir()] == ["BOOT.md"]
        assert not (workspace / "BOOT.md").exists() and not (workspace / "memory" / "x.md").exists()
        assert "only the owner" in said(it, "e1")


async def test_context_report_counts_every_injected_character(tmp_path: Path) -> None:
    async with run(tmp_path, answer("hello")) as it:
        await it.send("hi", "a")
        sent = it.model.requests[0]
        await it.send("/context json", "b")
        shown = json.loads(said(it, "b").removeprefix("```json\n").removesuffix("\n```"))
        assert shown["prompt"]["systemPrompt"]["chars"] == len(sent.system)
        parts = [part["chars"] for part in shown["prompt"]["sections"]]
        assert sum(parts) + 2 * (len(parts) - 1) == len(sent.system)
        assert [tool["name"] for tool in shown["prompt"]["tools"]["entries"]] == [
            tool.name for tool in sent.tools
        ]
        await it.send("/context", "c")
        assert f"System prompt: {len(sent.system):,} characters" in said(it, "c")
        await it.send("/context detail", "d")
        assert "Sections:" in said(it, "d") and len(said(it, "d")) > len(said(it, "c"))
        await it.send("/context lots", "e")
        assert "list, detail or json" in said(it, "e")


async def test_compact_command_compacts_the_session(tmp_path: Path) -> None:
    talk = [answer("answer " * 400) for _ in range(4)]
    async with run(tmp_path, *talk, answer("They talked. " * 5)) as it:
        await it.send("/compact", "a")
        assert "nothing to summarise" in said(it, "a")
        for number in range(4):
            await it.send(f"question {number} " + "words " * 400, f"q{number}")
        await it.send("/compact keep the names", "b")
        assert said(it, "b").startswith("Compacted: about ")
        assert "keep the names" in str(it.model.requests[-1])
        await it.send("/status", "c")
        assert "1 compaction" in said(it, "c")


async def test_command_does_not_count_as_session_activity(tmp_path: Path) -> None:
    async with run(tmp_path, answer("hello")) as it:
        await it.send("hi", "a")
        before = await it.app.store.session(KEY)
        await it.clock.advance(60)
        await it.send("/think high", "b")
        after = await it.app.store.session(KEY)
        assert before and after and after.updated_ms == before.updated_ms
        assert after.data["thinkingLevel"] == "high"


async def test_session_after_a_command_still_starts_with_its_notices(tmp_path: Path) -> None:
    class Watcher:
        def __init__(self) -> None:
            self.begun: list[str] = []

        @hook
        def session_start(self, session_id: str) -> None:
            self.begun.append(session_id)

    async with run(tmp_path, answer("one"), answer("two"), answer("three")) as it:
        watcher = Watcher()
        it.app.hooks.register(watcher, "watcher")
        folder = it.app.agent("main").workspace / "memory"
        folder.mkdir(parents=True)
        (folder / f"{it.app.local_date(it.clock.now_ms())}.md").write_text("- We met in Kiel.\n")
        await it.send("/status", "a")
        await it.send("hi", "b")
        await it.send("and now?", "c")
        await it.send("/new", "d")
        await it.send("hi again", "e")
        asked = [request.messages[-1].text for request in it.model.requests]
        assert ["Kiel" in text for text in asked] == [True, False, True]
        assert len(set(watcher.begun)) == 2 == len(watcher.begun)


async def test_command_reply_is_stored_between_two_turns(tmp_path: Path) -> None:
    call = ToolCall("c1", "ls", {"path": "."})
    async with run(tmp_path, answer(call), answer("done"), answer("again")) as it:
        await it.send("list it", "a")
        await it.send("/status", "b")
        await it.send("and again", "c")
        roles = [message.role for message in it.model.requests[-1].messages]
        assert roles == ["user", "assistant", "tool", "assistant", "assistant", "user"]
