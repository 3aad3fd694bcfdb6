"""The tool `ask_user`: a question waits as an approval does, and is answered once."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from homarus.agent.approval_ports import ApproverIdentity
from homarus.channels.base import Capabilities, InboundHandler, Receipt
from homarus.core.errors import ApprovalResolvedError, UserError
from homarus.core.message import Address, Inbound, InboundMetadata, Message, Outbound, ToolCall
from homarus.gateway.question_payloads import (
    ShownQuestion,
    make_resolve_params,
    parse_question,
    parse_question_list,
)
from homarus.tools.catalog import builtin_tools
from tests.unit.gateway.app_harness import Harness, answer, run, world
from tests.waiting import until

KEY = "agent:main:main"
ASKED = {"question": "Which colour?", "choices": ["Red", "Blue"]}
ANNA = ApproverIdentity("anna")


def asks(**args: Any) -> Message:
    return answer(ToolCall("c1", "ask_user", {**ASKED, **args}))


class TextChannel:
    """A chat service without buttons and without edits, of this test."""

    name, account = "irc", "default"
    capabilities = Capabilities()

    def __init__(self) -> None:
        self.sent: list[Outbound] = []

    async def run(self, receive: InboundHandler) -> None:
        receive.mark_connected()
        await asyncio.Event().wait()

    async def send(self, message: Outbound) -> Receipt:
        self.sent.append(message)
        return Receipt(str(len(self.sent)))


async def ask(it: Harness) -> Any:
    """Send a message whose run asks, and return the question as clients see it."""
    it.app.approval_ports.reach.append(lambda _record: True)
    params = {"sessionKey": "main", "message": "paint it", "idempotencyKey": "r"}
    await it.ask("chat.send", params)
    await until(lambda: any(n == "question.requested" for n, _ in it.gateway.broadcasts))
    return next(payload for name, payload in it.gateway.broadcasts if name == "question.requested")


async def suspend(it: Harness, key: str = KEY) -> None:
    async with asyncio.timeout(10):
        while not it.app.control.has_suspended(key):
            await it.clock.advance(1)


def told(it: Harness) -> str:
    """Return what the model was told last."""
    return str(it.model.requests[-1].messages[-1])


async def test_question_is_answered_while_the_run_waits(tmp_path: Path) -> None:
    async with run(tmp_path, asks(), answer("Blue it is.")) as it:
        question = await ask(it)
        shown = ShownQuestion(question["id"], "Which colour?", ("Red", "Blue"), False, "main", KEY)
        assert parse_question(question) == shown and question["status"] == "pending"
        assert await it.ask("exec.approval.list", {}, "approvals") == []
        listed = await it.ask("question.list", {}, "approvals")
        assert listed == {"questions": [question]} and parse_question_list(listed) == [shown]
        given = make_resolve_params(question["id"], "2")
        answered = await it.ask("question.resolve", given, "approvals")
        assert answered == {"status": "answered", "answers": {"answers": {"answer": ["Blue"]}}}
        await it.ended("r")
        assert "The person answered: Blue" in told(it) and not it.app.control.has_suspended(KEY)
        name, payload = next(b for b in it.gateway.broadcasts if b[0] == "question.resolved")
        assert payload == {"id": question["id"], **answered} and name


async def test_question_suspends_its_run_and_resumes_it(tmp_path: Path) -> None:
    async with run(tmp_path, asks(), answer("Red it is.")) as it:
        question = await ask(it)
        await suspend(it)
        await it.app.approvals().answer(question["id"], "red", ANNA)
        await it.ended("r")
        assert "The person answered: Red" in told(it)


async def test_question_takes_one_answer_and_names_who_gave_it(tmp_path: Path) -> None:
    async with run(tmp_path, asks(), answer("Red.")) as it:
        question = await ask(it)
        service = it.app.approvals()
        await service.answer(question["id"], "1", ANNA)
        with pytest.raises(ApprovalResolvedError, match="already answered by anna: Red"):
            await service.answer(question["id"], "2", ApproverIdentity("bob"))
        with pytest.raises(ApprovalResolvedError, match="already answered by anna: Red"):
            await service.resolve(question["id"], "deny", ApproverIdentity("bob"))
        await it.ended("r")


@pytest.mark.parametrize("text", ["3", "0", "Green", "allow-once", "²"])
async def test_question_refuses_what_is_no_choice(tmp_path: Path, text: str) -> None:
    async with run(tmp_path, asks(), answer("Red.")) as it:
        question = await ask(it)
        with pytest.raises(UserError, match="1 Red, 2 Blue"):
            await it.app.approvals().answer(question["id"], text, ANNA)
        with pytest.raises(UserError, match="is a question"):
            await it.app.approvals().resolve(question["id"], "allow-once", ANNA)
        given = make_resolve_params(question["id"], text)
        with pytest.raises(UserError):
            await it.ask("question.resolve", given, "approvals")
        await it.app.approvals().answer(question["id"], "1", ANNA)
        await it.ended("r")


async def test_question_that_is_dismissed_or_expires_says_so(tmp_path: Path) -> None:
    async with run(tmp_path, asks(), answer("Fine."), asks(), answer("Pity.")) as it:
        question = await ask(it)
        await it.ask("question.resolve", make_resolve_params(question["id"], ""), "approvals")
        await it.ended("r")
        assert "dismissed the question" in told(it)
        await it.ask("chat.send", sessionKey="main", message="again", idempotencyKey="r2")
        await suspend(it)
        await it.clock.advance(24 * 3600)
        await it.ended("r2")
        assert "the question expired without an answer" in told(it)


async def test_question_with_free_text_accepts_any_text(tmp_path: Path) -> None:
    async with run(tmp_path, asks(freeText=True), answer("Good.")) as it:
        question = await ask(it)
        await it.app.approvals().answer(question["id"], " a dark green ", ANNA)
        await it.ended("r")
        assert "The person answered: a dark green" in told(it)


async def test_question_without_a_person_is_not_waited_for(tmp_path: Path) -> None:
    async with run(tmp_path, asks(), answer("I decide.")) as it:
        await it.send("paint it", "r")
        assert "no person can be reached" in told(it)
        assert await it.store.journal.approvals() == []


async def test_answer_to_a_question_allows_no_command(tmp_path: Path) -> None:
    command = answer(ToolCall("c2", "exec", {"command": "touch x"}))
    async with run(tmp_path, asks(), command, answer("Done.")) as it:
        question = await ask(it)
        await it.app.approvals().answer(question["id"], "Red", ANNA)
        await until(lambda: any(n == "exec.approval.requested" for n, _ in it.gateway.broadcasts))
        (waiting,) = await it.ask("exec.approval.list", {}, "approvals")
        with pytest.raises(UserError, match="is no question"):
            await it.app.approvals().answer(waiting["id"], "1", ANNA)
        await it.ask("exec.approval.resolve", {"id": waiting["id"], "decision": "deny"})
        await it.ended("r")


async def say(it: Harness, number: int, text: str, **given: Any) -> str:
    """Send a message of the chat; return what it was answered with at once, as a command."""
    sender, metadata = (
        given.get("sender", "anna"),
        InboundMetadata(kind=given.get("kind", "direct")),
    )
    chat = given.get("chat", "anna")
    authority = given.get("authority", "owner")
    inbound = Inbound(
        f"m{number}", Address("irc", chat), sender, text, at_ms=1,
        authority=authority, metadata=metadata,
    )  # fmt: skip
    record = (await it.app.control.accept(KEY, inbound)).record
    future = it.app.control.submit(KEY, record)
    if given.get("waits", True):
        outcome = await future
        return outcome.text or str(outcome.error or "")
    return ""


async def test_question_in_a_chat_is_answered_by_the_next_message(tmp_path: Path) -> None:
    channel = TextChannel()
    script = (asks(), answer("Blue it is."))
    async with world(tmp_path, script, channels=[channel]) as it:
        await until(lambda: bool(it.app.messenger.accounts()))
        await say(it, 1, "paint it", waits=False)
        await until(lambda: bool(channel.sent))
        prompt = channel.sent[0].text
        assert "Which colour?" in prompt and "1. Red" in prompt and "2. Blue" in prompt
        await suspend(it)
        (question,) = await it.store.journal.approvals("pending")
        refused = await say(
            it, 2, f"/approve {question.id} 1", sender="eve", authority="authorised"
        )
        assert "not yours to answer" in refused
        await say(it, 3, "2")
        await until(lambda: any("Blue it is." in each.text for each in channel.sent))
        assert not any("was answered" in each.text for each in channel.sent)
        stored = await it.store.journal.approval(question.id)
        assert stored and stored.answer == "Blue" and stored.resolved_by == "irc:anna"
        again = await say(it, 4, f"/approve {question.id} 1")
        assert "already answered by irc:anna: Blue" in again


@pytest.mark.parametrize(
    "given",
    [{"chat": "#room", "kind": "group"},
     {"sender": "eve", "chat": "eve", "authority": "authorised"},
     {"sender": "eve", "authority": "stranger"}],
)  # fmt: skip
async def test_message_of_another_person_or_chat_answers_nothing(
    tmp_path: Path, given: dict[str, Any]
) -> None:
    channel = TextChannel()
    async with world(tmp_path, (asks(), answer("Hm."), answer("Hm.")), channels=[channel]) as it:
        await until(lambda: bool(it.app.messenger.accounts()))
        await say(it, 1, "paint it", waits=False)
        await until(lambda: bool(channel.sent))
        await suspend(it)
        await say(it, 2, "2", waits=False, **given)
        await until(lambda: len(it.model.requests) > 1)
        (question,) = await it.store.journal.approvals()
        assert question.state == "pending"


async def test_notification_is_sent_to_the_chat_and_does_not_wait(tmp_path: Path) -> None:
    channel, call = TextChannel(), ToolCall("c1", "ui_notify", {"question": "It is done."})
    async with world(tmp_path, (answer(call), answer("Bye.")), channels=[channel]) as it:
        await until(lambda: bool(it.app.messenger.accounts()))
        await say(it, 1, "tell me", waits=False)
        async with asyncio.timeout(20):
            while len(channel.sent) < 2:
                await it.clock.advance(0.1)
        assert [each.text for each in channel.sent] == ["It is done.", "Bye."]
        assert await it.store.journal.approvals() == []


@pytest.mark.parametrize(
    "args",
    [{"choices": ["one"]}, {"choices": list("abcdefg")}, {"choices": ["A", "a"]},
     {"choices": ["a", " "]}, {"question": " "}, {"question": "x" * 1001}],
)  # fmt: skip
async def test_question_of_the_wrong_form_is_refused(tmp_path: Path, args: Any) -> None:
    async with run(tmp_path, asks(**args), answer("I see.")) as it:
        await it.send("paint it", "r")
        assert it.model.requests[-1].messages[-1].role == "tool" and "Which" not in told(it)
        assert await it.store.journal.approvals() == []


def test_ask_user_specification_is_small() -> None:
    spec = builtin_tools().get("ask_user").spec
    sent = {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
    assert len(json.dumps(sent, separators=(",", ":"))) <= 480
