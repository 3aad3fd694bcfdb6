"""A key counts only after the first second of the exec question; a gone terminal denies."""

import asyncio
import io
import os
import sys
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from homarus.cli import approval_prompt
from homarus.cli.approval_prompt import ApprovalPrompt
from homarus.cli.terminal import LineReader, TerminalView
from homarus.policy.approvals import ApprovalDecision
from tests.waiting import until


class Person:
    """The other end of the terminal, and what the program printed there."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keyboard, self._child = os.openpty()
        monkeypatch.setattr(sys, "stdin", os.fdopen(self._child, closefd=False))
        self.out = io.StringIO()
        self.prompt = ApprovalPrompt(TerminalView(self.out, colour=False), LineReader())

    def press(self, keys: bytes) -> None:
        os.write(self.keyboard, keys)

    async def wait_for(self, text: str) -> None:
        await until(lambda: text in self.out.getvalue())

    def close(self) -> None:
        for descriptor in (self.keyboard, self._child):
            if descriptor >= 0:
                os.close(descriptor)


@asynccontextmanager
async def question(
    monkeypatch: pytest.MonkeyPatch, *, offers_always: bool = False
) -> AsyncIterator[tuple[Person, "asyncio.Task[ApprovalDecision]"]]:
    person = Person(monkeypatch)
    try:
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            asking = group.create_task(
                person.prompt.decide(
                    "Run this command?", "command:\n    ls", offers_always=offers_always
                )
            )
            await asyncio.sleep(0)
            assert "Run this command?" in person.out.getvalue()
            yield person, asking
            asking.cancel()
    finally:
        person.close()


async def test_question_ignores_keys_of_its_first_second(monkeypatch: pytest.MonkeyPatch) -> None:
    assert approval_prompt.ANSWER_DELAY_S == 1.0
    started_s = asyncio.get_running_loop().time()
    async with question(monkeypatch) as (person, asking):
        person.press(b"yes\n")
        await person.wait_for("Allow? [y/N]")
        assert asyncio.get_running_loop().time() - started_s >= 0.99
        assert "What was typed before this line was ignored." in person.out.getvalue()
        assert not asking.done()
        person.press(b"y\n")
        assert await asking == "allow-once"


async def test_question_waits_for_the_end_of_a_text_that_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(approval_prompt, "ANSWER_DELAY_S", 0.1)
    monkeypatch.setattr(approval_prompt, "_QUIET_S", 2.0)  # a busy machine pauses between two keys
    async with question(monkeypatch) as (person, asking):
        for _ in range(4):
            person.press(b"y\n")
            await asyncio.sleep(0.1)
        assert "Allow?" not in person.out.getvalue()
        await person.wait_for("Allow? [y/N]")
        assert not asking.done()


async def test_question_that_is_cancelled_leaves_later_lines_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with question(monkeypatch) as (person, asking):
        person.prompt.cancel()
        assert await asking == "deny"
        person.press(b"next line\n")
        assert os.read(sys.stdin.fileno(), 100) == b"next line\n"
        assert termios.tcgetattr(sys.stdin)[3] & termios.ECHO


async def test_question_at_a_terminal_that_is_closed_is_denied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with question(monkeypatch) as (person, asking):
        os.close(person.keyboard)
        person.keyboard = -1
        assert await asking == "deny"


async def test_always_counts_after_the_first_second(monkeypatch: pytest.MonkeyPatch) -> None:
    async with question(monkeypatch, offers_always=True) as (person, asking):
        person.press(b"a\n")
        await person.wait_for("[y/a/N]")
        assert not asking.done()
        person.press(b"a\n")
        assert await asking == "allow-always"
