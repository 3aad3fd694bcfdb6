import asyncio
from collections.abc import Awaitable, Callable

import pytest

from homarus.core.message import Address, Inbound
from homarus.sessions.inbox import Inbox

WHERE = Address(channel="test", chat="1")


def message(text: str) -> Inbound:
    return Inbound(text, WHERE, "ann", text)


class Runs:
    """Runs that wait for a word, and record what they answered."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.gate = asyncio.Event()
        self.inbox: Inbox[str]
        self.take_at_the_end = False

    async def __call__(self, session: str, inbound: Inbound) -> str:
        self.started.append(inbound.text)
        await self.gate.wait()
        taken = self.inbox.take(session) if self.take_at_the_end else []
        return "+".join([inbound.text, *(m.text for m in taken)])


def in_inbox(body: Callable[[Inbox[str], Runs], Awaitable[None]]) -> None:
    async def main() -> None:
        runs = Runs()
        async with asyncio.TaskGroup() as group:
            runs.inbox = Inbox(runs, group)
            await body(runs.inbox, runs)

    asyncio.run(main())


def test_a_message_starts_a_run_and_is_told_its_outcome() -> None:
    async def body(inbox: Inbox[str], runs: Runs) -> None:
        runs.gate.set()
        assert await inbox.put("s", message("one")) == "one"

    in_inbox(body)


def test_two_sessions_run_side_by_side() -> None:
    async def body(inbox: Inbox[str], runs: Runs) -> None:
        first, second = inbox.put("a", message("one")), inbox.put("b", message("two"))
        await asyncio.sleep(0)
        assert runs.started == ["one", "two"]
        runs.gate.set()
        assert (await first, await second) == ("one", "two")

    in_inbox(body)


def test_a_live_run_takes_what_waits_and_answers_for_it() -> None:
    async def body(inbox: Inbox[str], runs: Runs) -> None:
        runs.take_at_the_end = True
        first, second = inbox.put("s", message("one")), inbox.put("s", message("two"))
        await asyncio.sleep(0)
        runs.gate.set()
        assert (await first, await second) == ("one+two", "one+two")
        assert runs.started == ["one"]

    in_inbox(body)


def test_what_comes_after_the_last_look_gets_a_run_of_its_own_in_order() -> None:
    async def body(inbox: Inbox[str], runs: Runs) -> None:
        promises = [inbox.put("s", message(text)) for text in ("one", "two", "three")]
        await asyncio.sleep(0)
        runs.gate.set()
        assert [await promise for promise in promises] == ["one", "two", "three"]
        assert runs.started == ["one", "two", "three"]

    in_inbox(body)


@pytest.mark.filterwarnings("default")
def test_a_bug_in_one_run_reaches_its_sender_and_leaves_the_others_alone() -> None:
    async def broken(session: str, inbound: Inbound) -> str:
        if inbound.text == "bad":
            raise ZeroDivisionError
        return inbound.text

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            inbox: Inbox[str] = Inbox(broken, group)
            bad, good = inbox.put("a", message("bad")), inbox.put("b", message("good"))
            with pytest.raises(ZeroDivisionError):
                await bad
            assert await good == "good"
            assert await inbox.put("a", message("again")) == "again"

    asyncio.run(main())


def test_what_waits_can_be_given_up_whole_or_by_its_run() -> None:
    async def body(inbox: Inbox[str], runs: Runs) -> None:
        first = inbox.put("s", message("first"))
        named = [
            inbox.put("s", Inbound(name, WHERE, "ann", name, run_id=name))
            for name in ("a", "b", "c")
        ]
        await asyncio.sleep(0)
        assert inbox.drop("s", "b") == ("b",)
        assert inbox.drop("s", "none") == ()
        assert inbox.drop("other") == ()
        assert [promise.cancelled() for promise in named] == [False, True, False]
        assert inbox.drop("s") == ("a", "c")
        runs.gate.set()
        assert await first == "first"
        assert runs.started == ["first"]

    in_inbox(body)
