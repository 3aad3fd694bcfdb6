"""A branch continues a conversation from one of its messages, and leaves the first one alone."""

from pathlib import Path

import pytest

from homarus.core.errors import InvalidRequestError
from homarus.core.message import Json
from tests.unit.gateway.app_harness import Harness, answer, run


async def history(it: Harness, key: str = "main") -> list[dict[str, Json]]:
    shown = await it.ask("chat.history", sessionKey=key, maxChars=1000)
    return list(shown["messages"])


def texts(messages: list[dict[str, Json]]) -> list[str]:
    return [message["content"][0]["text"] for message in messages]


async def test_branch_after_answer_has_what_was_said_before(tmp_path: Path) -> None:
    async with run(tmp_path, answer("one"), answer("two"), answer("three")) as it:
        await it.send("first", "a")
        await it.send("second", "b")
        messages = await history(it)
        made = await it.ask(
            "sessions.branch", key="main", messageId=messages[1]["__openclaw"]["id"], label="Other"
        )
        assert made["key"].startswith("agent:main:web-") and "draft" not in made
        assert texts(await history(it, made["key"])) == ["first", "one"]
        await it.send("third", "c", made["key"])
        assert [m.text.rpartition("] ")[2] for m in it.model.requests[-1].messages] == [
            "first",
            "one",
            "third",
        ]
        assert texts(await history(it)) == ["first", "one", "second", "two"]
        row = await it.ask("sessions.describe", key=made["key"])
        assert row["session"]["label"] == "Other"


async def test_branch_at_message_of_person_returns_it_as_draft(tmp_path: Path) -> None:
    async with run(tmp_path, answer("one"), answer("two")) as it:
        await it.send("first", "a")
        await it.send("second", "b")
        messages = await history(it)
        made = await it.ask(
            "sessions.branch", key="main", messageId=messages[2]["__openclaw"]["id"]
        )
        assert made["draft"] == "second"
        assert texts(await history(it, made["key"])) == ["first", "one"]


async def test_branch_of_unknown_message_is_refused(tmp_path: Path) -> None:
    async with run(tmp_path, answer("one")) as it:
        with pytest.raises(InvalidRequestError, match="session not found"):
            await it.ask("sessions.branch", key="main", messageId="nothing")
        await it.send("first", "a")
        with pytest.raises(InvalidRequestError, match="message not found"):
            await it.ask("sessions.branch", key="main", messageId="nothing")


async def test_branch_at_first_message_is_an_empty_session(tmp_path: Path) -> None:
    async with run(tmp_path, answer("one"), answer("two")) as it:
        await it.send("first", "a")
        messages = await history(it)
        made = await it.ask(
            "sessions.branch", key="main", messageId=messages[0]["__openclaw"]["id"]
        )
        assert made["draft"] == "first"
        await it.send("other", "b", made["key"])
        assert texts(await history(it, made["key"])) == ["other", "two"]
