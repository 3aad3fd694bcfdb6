"""Block streaming of a run: when blocks enter the outbox, and what follows an interruption."""

import asyncio
import itertools
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from homarus.agent.reply.block_delivery import BlockDelivery
from homarus.agent.reply.block_stream import BlockStream
from homarus.agent.reply.blocks import Block, BlockLimits, ChunkLimits, CoalesceLimits
from homarus.agent.reply.builder import ReplyBuilder, make_reply_builder
from homarus.agent.reply.settings import ReplySettings
from homarus.agent.reply.wording import ANSWER_RESTARTED
from homarus.agent.run import RunOutcome
from homarus.config import schema
from homarus.core.errors import DiskFullError, OverloadedError, ProviderError
from homarus.core.event import TextAdded
from homarus.core.message import Address, Message, Origin, Outbound, Text, ToolCall
from homarus.plugins.hooks import hook
from homarus.plugins.values import Refusal
from homarus.providers.base import AttemptRetried, Delta, ModelRequest, TextDelta
from homarus.store.journal import UNFINISHED_ANSWER, InboxRecord, OutboxRecord
from homarus.testing.clock import FakeClock
from homarus.testing.fakes import Hang, assistant_message
from tests.unit.agent.harness import KEY, Harness, make_interrupted_record, message
from tests.unit.agent.test_run_reply import Shown
from tests.waiting import settle, until

FIRST, SECOND, THIRD = "The first paragraph.", "The second paragraph.", "The third."
LIMITS = {
    "blockStreamingChunk": {"minChars": 10, "maxChars": 40},
    "blockStreamingCoalesce": {"minChars": 1},
}
RETRIED = AttemptRetried("p", "m", "provider.overloaded", "busy", "p/m")
LS = ToolCall("c", "ls", {})


class Pause:
    """A model that stops writing until the test lets it go on."""

    def __init__(self) -> None:
        self.is_over = asyncio.Event()


class PacedProvider:
    """A provider that writes its answers piece by piece."""

    name = api = "paced"

    def __init__(self, *answers: list[str | Pause | AttemptRetried | ProviderError]) -> None:
        self._answers = iter(answers)

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
        texts = list[str]()
        for step in next(self._answers):
            if isinstance(step, Pause):
                await step.is_over.wait()
            elif isinstance(step, ProviderError):
                raise step
            elif isinstance(step, AttemptRetried):
                texts.clear()
                yield step
            else:
                texts.append(step)
                yield TextDelta(step)
        origin = Origin("paced", "p", request.model)
        yield Message("assistant", (Text("".join(texts)),), 0, origin)

    async def close(self) -> None:
        return None


def stream_blocks(harness: Harness, **defaults: Any) -> None:
    """Switch block streaming on, with small blocks."""
    set_config(harness, **{"blockStreamingDefault": "on", **LIMITS, **defaults})


def set_config(harness: Harness, **defaults: Any) -> None:
    config = schema.Config.model_validate({"agents": {"defaults": defaults}})
    harness.replace_services(
        make_builder=lambda session, inbound, thinking, _new: make_reply_builder(
            config, session, inbound, thinking=thinking
        )
    )


def records(harness: Harness) -> list[OutboxRecord]:
    return [*asyncio.run(harness.store.journal.outbox_records())]


async def wait_for_texts(harness: Harness, *texts: str) -> None:
    """Wait until the outbox has these texts; the timeout of the test ends a wait in vain."""
    while [one.text for one in await harness.store.journal.outbox_records()] != [*texts]:
        await settle(1)


async def open_answers(harness: Harness) -> frozenset[str]:
    return await harness.store.journal.open_calls("r1")


async def run_paused(
    harness: Harness, pause: Pause, *texts: str, then: Callable[[], object] | None = None
) -> RunOutcome:
    """Run a message until these texts are in the outbox, then end the pause, or call `then`."""
    record = await harness.accept(message())
    async with asyncio.TaskGroup() as group:
        running = group.create_task(harness.runs.start(harness.key, [record]))
        await wait_for_texts(harness, *texts)
        assert await open_answers(harness) == {UNFINISHED_ANSWER}
        (then or pause.is_over.set)()
    return running.result()


def test_blocks_enter_outbox_while_model_writes(tmp_path: Path) -> None:
    harness, pause = Harness(tmp_path), Pause()
    harness.provider = PacedProvider([f"{FIRST}\n\n{SECOND}\n\nThe", pause, " third."])
    stream_blocks(harness)
    outcome = asyncio.run(run_paused(harness, pause, FIRST))
    assert outcome.text == f"{FIRST}\n\n{SECOND}\n\n{THIRD}"
    assert [(one.id, one.text) for one in records(harness)] == [
        ("r1:0", FIRST), ("r1:1", SECOND), ("r1:2", THIRD),
    ]  # fmt: skip
    assert harness.record().state == "answered"
    assert asyncio.run(open_answers(harness)) == frozenset()


def test_message_before_a_tool_is_not_sent_again_with_the_answer(tmp_path: Path) -> None:
    text = f"{FIRST}\n\n{SECOND}\n\nAnd at last comes a third paragraph."
    harness = Harness(tmp_path, assistant_message(text, LS), assistant_message("Done."))
    stream_blocks(harness)
    harness.run(message())
    assert harness.replies() == [*text.split("\n\n"), "Done."]


async def test_short_block_is_sent_when_the_model_is_idle(tmp_path: Path) -> None:
    harness, pause, clock = Harness(tmp_path), Pause(), FakeClock()
    harness.provider = PacedProvider([f"{FIRST}\n\nThe", pause, " third."])
    stream_blocks(harness, blockStreamingCoalesce={"minChars": 500, "idleMs": 700})
    harness.replace_services(clock=clock)
    record = await harness.accept(message())
    async with asyncio.TaskGroup() as group:
        group.create_task(harness.runs.start(harness.key, [record]))
        await until(lambda: clock.sleepers)
        await clock.advance(0.6)
        assert not await harness.store.journal.outbox_records()
        await clock.advance(0.2)
        await wait_for_texts(harness, FIRST)
        pause.is_over.set()
    assert [one.text for one in await harness.store.journal.outbox_records()] == [FIRST, THIRD]


def test_retried_attempt_is_announced_before_its_text(tmp_path: Path) -> None:
    harness, pause = Harness(tmp_path), Pause()
    start, again = f"{FIRST}\n\n{SECOND}", "Another start.\n\nAnother end."
    harness.provider = PacedProvider([start, pause, RETRIED, again])
    stream_blocks(harness)
    asyncio.run(run_paused(harness, pause, FIRST))
    assert harness.replies() == [FIRST, ANSWER_RESTARTED, *again.split("\n\n")]
    assert asyncio.run(open_answers(harness)) == frozenset()


def test_retried_attempt_without_sent_block_is_not_announced(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.provider = PacedProvider(["The fi", RETRIED, "Another start."])
    stream_blocks(harness)
    harness.run(message())
    assert harness.replies() == ["Another start."]


def test_stream_error_after_blocks_sends_the_rest_and_the_error(tmp_path: Path) -> None:
    harness, pause = Harness(tmp_path), Pause()
    harness.provider = PacedProvider([f"{FIRST}\n\nThe sec", pause, OverloadedError("busy")])
    stream_blocks(harness)
    asyncio.run(run_paused(harness, pause, FIRST))
    first, rest, error = harness.replies()
    assert (first, rest) == (FIRST, "The sec") and "overloaded" in error.lower()
    assert harness.record().state == "reported"
    assert asyncio.run(open_answers(harness)) == frozenset()


def test_stopped_run_sends_nothing_more(tmp_path: Path) -> None:
    harness, pause = Harness(tmp_path), Pause()
    harness.provider = PacedProvider([f"{FIRST}\n\n{SECOND[:-1]}", pause])
    stream_blocks(harness)
    outcome = asyncio.run(run_paused(harness, pause, FIRST, then=lambda: harness.runs.stop(KEY)))
    assert outcome.status == "aborted" and harness.replies() == [FIRST]
    assert asyncio.run(open_answers(harness)) == frozenset()


def interrupt(harness: Harness) -> InboxRecord:
    """Return the record of a run that was killed after a block of its answer was sent."""
    record = make_interrupted_record(harness, started=[UNFINISHED_ANSWER])

    async def main() -> None:
        async with harness.store.journal.transaction() as transaction:
            old = OutboxRecord("r1:0", "r1", Address("test", "1"), FIRST, 0, 10)
            transaction.enqueue(old)

    asyncio.run(main())
    return record


@pytest.mark.parametrize("is_on", [True, False])
def test_interrupted_answer_is_announced_once_and_repeated(tmp_path: Path, is_on: bool) -> None:
    """Also when block streaming was switched off meanwhile; its ids are not used again."""
    harness = Harness(tmp_path, assistant_message("Another start."))
    record = interrupt(harness)
    if is_on:
        stream_blocks(harness)
    asyncio.run(harness.runs.start(KEY, [record]))
    assert [(one.id, one.text) for one in records(harness)] == [
        ("r1:0", FIRST), ("r1:10000", ANSWER_RESTARTED), ("r1:10001", "Another start."),
    ]  # fmt: skip
    assert asyncio.run(open_answers(harness)) == frozenset()


def test_notice_is_not_repeated_by_another_interruption(tmp_path: Path) -> None:
    harness = Harness(tmp_path, Hang(), assistant_message("Another start."))
    stream_blocks(harness)
    record = interrupt(harness)

    async def die_and_resume() -> None:
        async with asyncio.TaskGroup() as group:
            running = group.create_task(harness.runs.start(KEY, [record]))
            await wait_for_texts(harness, FIRST, ANSWER_RESTARTED)
            running.cancel()
        again = await harness.store.journal.inbox_record("r1")
        assert again is not None and again.state == "running"
        await harness.runs.start(KEY, [again])

    asyncio.run(die_and_resume())
    assert harness.replies() == [FIRST, ANSWER_RESTARTED, "Another start."]


def test_clean_stop_while_blocks_are_sent_leads_to_a_notice(tmp_path: Path) -> None:
    harness, pause = Harness(tmp_path), Pause()
    harness.provider = PacedProvider([f"{FIRST}\n\nThe sec", pause], ["Another start."])
    stream_blocks(harness)
    harness.replace_services(is_shutting_down=lambda: True)

    async def stop_and_resume() -> None:
        record = await harness.accept(message())
        async with asyncio.TaskGroup() as group:
            running = group.create_task(harness.runs.start(KEY, [record]))
            await wait_for_texts(harness, FIRST)
            running.cancel()
        again = await harness.store.journal.inbox_record("r1")
        assert again is not None and again.state == "running"
        await harness.runs.start(KEY, [again])

    asyncio.run(stop_and_resume())
    assert harness.replies() == [FIRST, ANSWER_RESTARTED, "Another start."]


def test_sending_hook_is_called_once_for_each_block(tmp_path: Path) -> None:
    seen = list[str]()

    class Censor:
        @hook
        def message_sending(self, outbound: Outbound) -> str | Refusal:
            seen.append(outbound.text)
            if outbound.text == SECOND:
                return Refusal("no")
            return outbound.text.upper()

    harness, pause = Harness(tmp_path), Pause()
    harness.provider = PacedProvider([f"{FIRST}\n\nThe", pause, f"{SECOND[3:]}\n\n{THIRD}"])
    stream_blocks(harness)
    harness.hooks.register(Censor(), "censor")
    asyncio.run(run_paused(harness, pause, FIRST.upper()))
    assert seen == [FIRST, SECOND, THIRD]
    assert harness.replies() == [FIRST.upper(), THIRD.upper()]


def test_human_delay_is_between_streamed_blocks(tmp_path: Path) -> None:
    harness, pause = Harness(tmp_path), Pause()
    harness.provider = PacedProvider([f"{FIRST}\n\nThe", pause, " third."])
    stream_blocks(harness, humanDelay={"mode": "custom", "minMs": 1_000, "maxMs": 1_000})
    asyncio.run(run_paused(harness, pause, FIRST))
    first, second = records(harness)
    assert first.not_before_ms == 0 and second.not_before_ms == harness.clock.now_ms() + 1_000


async def test_block_that_could_not_be_stored_is_sent_with_its_message() -> None:
    """Its record is the same, so that it is sent once if it was stored after all."""
    builder, failures = ReplyBuilder(ReplySettings(), sends_on_save=True), list[OutboxRecord]()
    clock, chat = FakeClock(), Address("test", "1")
    stream = BlockStream(BlockLimits(ChunkLimits(10, 40), CoalesceLimits(1)), clock.monotonic)
    builder.set_stream(stream)
    numbers = itertools.count()

    async def make_records(blocks: Sequence[Block]) -> list[OutboxRecord]:
        return [OutboxRecord(f"r1:{next(numbers)}", "r1", chat, one.text, 0, 9) for one in blocks]

    async def fail(outbox: Sequence[OutboxRecord]) -> None:
        failures.extend(outbox)
        raise DiskFullError("no room to write", fix="free some")

    delivery = BlockDelivery(builder, stream, clock, make_records=make_records, enqueue=fail)

    async def write() -> list[OutboxRecord]:
        added = TextAdded(f"{FIRST}\n\nThe")
        builder.feed(added)
        delivery.on_event(added)
        await until(lambda: failures)
        _, outbox = await delivery.end_run(assistant_message(f"{FIRST}\n\n{THIRD}"))
        return outbox

    outbox = await delivery.run_during(write())
    assert outbox[0] == failures[0] and [one.text for one in outbox] == [FIRST, THIRD]


def test_live_reply_shows_no_preview_of_streamed_text(tmp_path: Path) -> None:
    shown, harness = Shown(), Harness(tmp_path, assistant_message(f"{FIRST}\n\n{SECOND}"))
    stream_blocks(harness)
    harness.replace_services(start_live_reply=shown.present)
    harness.run(message())
    assert shown.seen == [] and "typing" in shown.calls


def test_run_without_block_streaming_imports_no_stream() -> None:
    code = (
        "import sys, homarus.agent.run_preparation, homarus.agent.reply.builder\n"
        "print([name for name in sys.modules if 'block_' in name and 'homarus' in name])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"
