"""The keys of the interface, on a gateway of dictionaries."""

from pathlib import Path

import pytest
from textual import events

from homarus.cli.tui.approval_panel import ApprovalPanel
from homarus.cli.tui.composer import Composer
from tests.unit.cli.tui.harness import (
    MAIN,
    NOW_MS,
    FakeGateway,
    answer,
    called,
    screen_text,
    shown,
    type_text,
    until_shown,
    user,
)
from tests.waiting import until

OTHER = "agent:main:other"


def approval(detail: str = "command: ls", **more: object) -> dict[str, object]:
    request = {"title": "Run this command?", "detail": detail, "sessionKey": MAIN, **more}
    expires_ms = NOW_MS + 60_000
    return {"id": "a1", "request": request, "createdAtMs": NOW_MS, "expiresAtMs": expires_ms}


async def test_message_is_sent_and_its_answer_streams(tmp_path: Path) -> None:
    gateway = FakeGateway()
    async with shown(gateway, tmp_path) as (app, pilot):
        await type_text(pilot, "hello")
        await pilot.press("enter")
        await until(lambda: gateway.params_of("chat.send"))
        run_id = str(gateway.params_of("chat.send")[0]["idempotencyKey"])
        gateway.agent("assistant", run_id, text="Hi **the", delta="Hi **the")
        await until_shown(app, "Hi **the", "answering")
        gateway.agent("assistant", run_id, text="Hi **there**", delta="re**")
        await until_shown(app, "Hi there")
        stored = user("hello", 1, idempotencyKey=f"{run_id}:user")
        gateway.messages[MAIN] = [stored, answer("Hi **there**", 2)]
        gateway.send("chat", {"runId": run_id, "sessionKey": MAIN, "state": "final"})
        await until(lambda: not app.view.conversation.runs)
        text = screen_text(app)
        assert text.count("hello") == 1
        assert text.count("Hi there") == 1


async def test_text_typed_right_after_enter_is_kept(tmp_path: Path) -> None:
    gateway = FakeGateway()
    async with shown(gateway, tmp_path) as (app, _pilot):
        for key in ("a", "enter", "b", "c"):  # before any of it is handled
            app.composer.post_message(events.Key(key, key if key != "enter" else "\r"))
        await until(lambda: gateway.params_of("chat.send"))
        assert gateway.params_of("chat.send")[0]["message"] == "a"
        await until(lambda: app.composer.text == "bc")


async def test_escape_stops_the_active_run(tmp_path: Path) -> None:
    gateway = FakeGateway()
    async with shown(gateway, tmp_path) as (app, pilot):
        gateway.agent("assistant", text="Working on it", delta="Working on it")
        await until_shown(app, "Esc stops")
        await pilot.press("escape")
        await until(lambda: gateway.params_of("chat.abort"))
        gateway.send("chat", {"runId": "run-1", "sessionKey": MAIN, "state": "aborted"})
        await until(lambda: not app.view.conversation.active_run)


async def test_tool_card_shows_live_output_and_opens(tmp_path: Path) -> None:
    gateway = FakeGateway()
    async with shown(gateway, tmp_path) as (app, pilot):
        call = {"name": "exec", "toolCallId": "c1"}
        gateway.agent("tool", phase="start", **call, args={"command": "make all"})
        output = {"content": [{"type": "text", "text": "one\ntwo\nthree\nfour"}]}
        gateway.agent("tool", phase="update", **call, partialResult=output)
        text = await until_shown(app, "exec make all", "running", "│ four")
        assert "│ one" not in text
        await pilot.press("ctrl+o")
        await until_shown(app, "command: make all", "│ one")


async def test_thinking_is_hidden_and_shown(tmp_path: Path) -> None:
    gateway = FakeGateway()
    async with shown(gateway, tmp_path) as (app, pilot):
        gateway.agent("thinking", text="First\nsecond", delta="First\nsecond")
        await until_shown(app, "┆ second")
        await pilot.press("ctrl+t")
        await until_shown(app, "✻ First second")


@pytest.mark.parametrize(
    ("key", "decision"), [("y", "allow-once"), ("a", "allow-always"), ("n", "deny")]
)
async def test_approval_is_answered_by_a_key(tmp_path: Path, key: str, decision: str) -> None:
    gateway = FakeGateway()
    async with shown(gateway, tmp_path) as (app, pilot):
        gateway.send("exec.approval.requested", approval(always="ls"))
        await until_shown(app, "a  always")
        await pilot.pause(0.35)  # keys of this time are meant for something else
        await pilot.press(key)
        await until(lambda: gateway.params_of("exec.approval.resolve"))
        assert gateway.params_of("exec.approval.resolve") == [{"id": "a1", "decision": decision}]
        await until(lambda: app.focused is app.composer)


async def test_approval_counts_no_early_key_and_no_paste(tmp_path: Path) -> None:
    gateway = FakeGateway()
    async with shown(gateway, tmp_path, answer_delay_s=60.0) as (app, pilot):
        gateway.send("exec.approval.requested", approval())
        await until(lambda: app.panel.has_focus)
        await pilot.press("y")
        app.panel.post_message(events.Paste("y"))
        await pilot.pause(0.05)
        assert not gateway.params_of("exec.approval.resolve")


async def test_approval_takes_no_key_while_a_message_is_typed(tmp_path: Path) -> None:
    gateway = FakeGateway()
    async with shown(gateway, tmp_path) as (app, pilot):
        await type_text(pilot, "wh")
        gateway.send("exec.approval.requested", approval())
        await until_shown(app, "F2 answers")
        await type_text(pilot, "y")
        assert app.composer.text == "why"
        assert not gateway.params_of("exec.approval.resolve")
        await pilot.press("f2")
        await until(lambda: app.panel.has_focus)


async def test_long_plan_is_allowed_after_its_end_was_seen(tmp_path: Path) -> None:
    gateway = FakeGateway()
    async with shown(gateway, tmp_path) as (app, pilot):
        plan = "\n".join(f"line {n}" for n in range(30))
        gateway.send("exec.approval.requested", approval(plan))
        await until_shown(app, "more lines first")
        await pilot.pause(0.35)
        await pilot.press("y")
        await pilot.pause(0.35)
        assert not gateway.params_of("exec.approval.resolve")
        await pilot.press("pagedown", "pagedown", "pagedown")
        await until_shown(app, "line 29", "y  allow once")
        await pilot.press("y")
        await until(lambda: gateway.params_of("exec.approval.resolve"))


async def test_approval_answered_elsewhere_is_removed(tmp_path: Path) -> None:
    gateway = FakeGateway()
    async with shown(gateway, tmp_path) as (app, _pilot):
        gateway.send("exec.approval.requested", approval())
        await until_shown(app, "allow once")
        resolved = {"id": "a1", "decision": "deny", "resolvedBy": "the page"}
        gateway.send("exec.approval.resolved", resolved)
        await until_shown(app, "denied by the page")
        await until(lambda: not app.panel.display)


async def test_question_is_answered_by_number_and_by_text(tmp_path: Path) -> None:
    gateway = FakeGateway()
    gateway.more["question.resolve"] = lambda _params: {"status": "answered"}
    asked = {"question": "Which one?", "options": [{"label": "red"}], "isOther": True}
    question = {"id": "q1", "questions": [asked], "sessionKey": MAIN, "agentId": "main"}
    async with shown(gateway, tmp_path) as (app, pilot):
        gateway.send("question.requested", question)
        await until_shown(app, "Which one?", "1. red", "t  type an answer")
        await pilot.pause(0.35)
        await pilot.press("t", "b", "l", "u", "e", "enter")
        await until(lambda: gateway.params_of("question.resolve"))
        assert "blue" in str(gateway.params_of("question.resolve"))


async def test_session_is_picked_by_a_search(tmp_path: Path) -> None:
    gateway = FakeGateway()
    gateway.messages[OTHER] = [user("Something else", 1)]
    async with shown(gateway, tmp_path) as (app, pilot):
        await pilot.press("ctrl+p")
        await until_shown(app, "main:other")
        await type_text(pilot, "other")
        await until(lambda: "main:main " not in screen_text(app))
        await pilot.press("enter")
        await until_shown(app, "Something else")
        assert app.view.conversation.key == OTHER


async def test_agent_model_and_level_are_picked(tmp_path: Path) -> None:
    gateway = FakeGateway()
    gateway.messages["agent:work:main"] = [user("At work", 1)]
    async with shown(gateway, tmp_path) as (app, pilot):
        await pilot.press("ctrl+l")
        await until_shown(app, "anthropic/claude")
        await pilot.press("down", "enter")
        await until(lambda: gateway.params_of("sessions.patch"))
        assert gateway.params_of("sessions.patch")[0]["model"] == "anthropic/claude"
        await until(lambda: len(app.screen_stack) == 1)
        await pilot.press("ctrl+r")
        await until_shown(app, "medium")
        await pilot.press("down", "enter")
        await until(lambda: len(gateway.params_of("sessions.patch")) == 2)
        assert gateway.params_of("sessions.patch")[1]["thinkingLevel"] == "medium"
        await until(lambda: len(app.screen_stack) == 1)
        await pilot.press("ctrl+g")
        await until_shown(app, "Agents", "Work")
        await pilot.press("down", "enter")
        await until_shown(app, "At work")


async def test_command_is_completed_and_unknown_one_is_not_sent(tmp_path: Path) -> None:
    gateway = FakeGateway()
    async with shown(gateway, tmp_path) as (app, pilot):
        await type_text(pilot, "/stat")
        await until_shown(app, "Show the model")
        await pilot.press("tab")
        assert app.composer.text == "/status"
        await pilot.press("enter")
        await until(lambda: gateway.params_of("chat.send"))
        assert gateway.params_of("chat.send")[0]["message"] == "/status"
        await type_text(pilot, "/nonsense now")
        await pilot.press("enter")
        await until_shown(app, "there is no command /nonsense", "› /nonsense now")
        assert len(gateway.params_of("chat.send")) == 1


async def test_earlier_messages_return_with_the_arrows(tmp_path: Path) -> None:
    gateway = FakeGateway()
    async with shown(gateway, tmp_path) as (app, pilot):
        for text in ("one", "two"):
            await type_text(pilot, text)
            await pilot.press("enter")
        await type_text(pilot, "draft")
        await pilot.press("up")
        assert app.composer.text == "two"
        await pilot.press("up", "down", "down")
        assert app.composer.text == "draft"
    async with shown(FakeGateway(), tmp_path) as (app, pilot):  # they are stored
        await pilot.press("up")
        assert app.composer.text == "two"


async def test_paste_of_10000_lines_is_one_word_until_it_is_sent(tmp_path: Path) -> None:
    gateway = FakeGateway()
    pasted = "\n".join(f"line {n} \x1b[31m\x07" for n in range(10_000))
    async with shown(gateway, tmp_path) as (app, pilot):
        await type_text(pilot, "see ")
        app.composer.post_message(events.Paste(pasted))
        await until_shown(app, "see [pasted #1: 10,000 lines]")
        await pilot.press("enter")
        await until(lambda: gateway.params_of("chat.send"))
        sent = str(gateway.params_of("chat.send")[0]["message"])
        assert sent.startswith("see line 0 [31m\nline 1")
        assert sent.count("\n") == 9_999
        assert "\x1b" not in sent


async def test_pasted_path_is_attached_and_removed(tmp_path: Path) -> None:
    gateway = FakeGateway()
    file = tmp_path / "my notes.txt"
    file.write_text("hello")
    async with shown(gateway, tmp_path) as (app, pilot):
        app.composer.post_message(events.Paste(str(file).replace(" ", "\\ ")))
        await until_shown(app, "📎 my notes.txt (5 B)")
        await pilot.press("backspace")
        await until(lambda: "notes.txt" not in screen_text(app))
        await type_text(pilot, f"/attach {file}")
        await pilot.press("enter")
        await until_shown(app, "📎 my notes.txt (5 B)")
        await type_text(pilot, "read it")
        await pilot.press("enter")
        await until(lambda: gateway.params_of("chat.send"))
        sent = gateway.params_of("chat.send")[0]["attachments"]
        assert sent == [{"type": "file", "mimeType": "text/plain", "fileName": "my notes.txt",
                         "content": "aGVsbG8="}]  # fmt: skip


async def test_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    async with shown(FakeGateway(), tmp_path) as (app, pilot):
        await type_text(pilot, "/attach /nowhere/x.txt")
        await pilot.press("enter")
        await until_shown(app, "x.txt cannot be read")


async def test_search_finds_what_is_not_loaded_yet(tmp_path: Path) -> None:
    gateway = FakeGateway()
    gateway.messages[MAIN] = [user(f"message {n}", n) for n in range(700)]
    gateway.messages[MAIN][3] = user("the needle", 3)
    async with shown(gateway, tmp_path) as (app, pilot):
        await pilot.press("ctrl+f")
        await type_text(pilot, "needle")
        await pilot.press("enter")
        await until_shown(app, "the needle")
        await pilot.press("enter")
        await until_shown(app, "no more")
        await pilot.press("escape")
        await until(lambda: app.focused is app.composer)


async def test_lost_connection_keeps_text_and_sends_it_later(tmp_path: Path) -> None:
    gateway = FakeGateway()
    gateway.messages[MAIN] = [user("before", 1)]
    async with shown(gateway, tmp_path) as (app, pilot):
        gateway.stop()
        await until_shown(app, "reconnecting", "before")
        await type_text(pilot, "later")
        await pilot.press("enter")
        await type_text(pilot, "draft")
        await until_shown(app, "waits for the connection")
        gateway.is_down = False
        await until(lambda: gateway.params_of("chat.send"))
        assert gateway.params_of("chat.send")[0]["message"] == "later"
        assert app.composer.text == "draft"
        await until_shown(app, "gateway")


async def test_control_c_clears_then_leaves(tmp_path: Path) -> None:
    async with shown(FakeGateway(), tmp_path) as (app, pilot):
        await type_text(pilot, "text")
        await pilot.press("ctrl+c")
        assert app.composer.text == ""
        await until_shown(app, "Press Ctrl-C again to leave.")
        await pilot.press("ctrl+c")
        await until(lambda: not app.is_running)


async def test_control_d_leaves_with_an_empty_line_only(tmp_path: Path) -> None:
    async with shown(FakeGateway(), tmp_path) as (app, pilot):
        await type_text(pilot, "x")
        await pilot.press("ctrl+d")
        assert app.is_running
        await pilot.press("backspace", "ctrl+d")
        await until(lambda: not app.is_running)


async def test_queue_state_and_other_approvals_are_shown(tmp_path: Path) -> None:
    gateway = FakeGateway()
    async with shown(gateway, tmp_path, columns=120) as (app, _pilot):
        row = {**gateway.row, "queueDepth": 2, "queueMode": "steer", "hasActiveRun": True}
        gateway.send("sessions.changed", {"sessionKey": MAIN, "session": row})
        other = approval()
        other["request"]["sessionKey"] = OTHER  # type: ignore[index]  # built above
        gateway.send("exec.approval.requested", other)
        await until_shown(app, "2 queued · steer", "1 approvals elsewhere")
        assert not app.query_one(ApprovalPanel).display


async def test_screen_survives_every_size(tmp_path: Path) -> None:
    gateway = FakeGateway()
    gateway.messages[MAIN] = [
        user("日本語 " * 20, 1), called("exec", "c", 2, command="x" * 300),
        answer("| a | b |\n|-|-|\n| 1 | 2 |", 3),
    ]  # fmt: skip
    async with shown(gateway, tmp_path) as (app, pilot):
        for columns, rows in ((20, 5), (1, 1), (200, 60), (40, 15)):
            await pilot.resize_terminal(columns, rows)
            await pilot.pause()
        await until_shown(app, "Message", "日本語")
        assert app.query_one(Composer).display


@pytest.mark.parametrize(("tokens", "cost_usd"), [(0, None), (10, 0.0)])
async def test_cost_is_shown_once_a_model_was_called(
    tmp_path: Path, tokens: int, cost_usd: float | None
) -> None:
    gateway = FakeGateway()
    async with shown(gateway, tmp_path) as (app, _pilot):
        usage = {"totalTokens": tokens, "totalCost": 0, "missingCostEntries": 0}
        gateway.more["sessions.usage"] = lambda _: {"sessions": [{"usage": usage}]}
        await app.view.load_spent()
        assert app.view.spent_usd == cost_usd
