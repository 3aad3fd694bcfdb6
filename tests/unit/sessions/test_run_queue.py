"""The run queue: every message is answered by one run, or settled once without one."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homarus.core.message import (
    ClientOptions,
    InboundMetadata,
    InputProvenance,
    Media,
    RunOptions,
)
from homarus.sessions.levels import QueueDrop, QueueMode
from homarus.sessions.queue_policy import COLLECTED, QueueSettings
from homarus.sessions.run_queue import QUEUE_FULL, SUPERSEDED, RunQueue
from homarus.store.journal import InboxRecord
from tests.unit.sessions.run_queue_harness import (
    AT_ONCE,
    HEARTBEAT,
    ONE_SECOND,
    Harness,
    ResultFuture,
    Run,
    ids,
    open_harness,
    record,
)
from tests.waiting import settle


async def test_submit_to_idle_session_starts_run_and_resolves() -> None:
    async with open_harness() as harness:
        future = harness.submit_text("one")
        await harness.finish()
        assert await future == "one"
        assert (ids(harness.runs[0].records), harness.runs[0].text) == (["one"], "")


async def test_submit_to_two_sessions_runs_both_at_once() -> None:
    async with open_harness() as harness:
        first, second = (
            harness.queue.submit("a", record("one")),
            harness.queue.submit("b", record("two")),
        )
        await settle()
        assert set(harness.active) == {"a", "b"}
        await harness.finish("b")
        assert second.result() == "two" and not first.done()
        await harness.finish("a")


@pytest.mark.parametrize("mode", ["steer", "steer-backlog"])
@pytest.mark.parametrize(
    "options",
    [
        RunOptions(deliver_to=("irc", "#a", "default", "")),
        RunOptions(extra_system_prompt="x"),
        RunOptions(exec_security="deny"),
        RunOptions(elevated="full"),
        RunOptions(client=ClientOptions()),
    ],
)
async def test_message_with_own_prompt_or_target_steers_no_run(
    options: RunOptions, mode: QueueMode
) -> None:
    async with open_harness() as harness:
        first = harness.submit_text("one")
        rule = replace(AT_ONCE, mode=mode)
        second = harness.queue.submit("s", record("two", options=options), rule)
        await settle()
        assert harness.pop_steering() == []
        await harness.finish()
        await harness.finish()
        assert (await first, await second) == ("one", "two")


async def test_steer_gives_message_to_active_run() -> None:
    async with open_harness() as harness:
        first, second = harness.submit_text("one"), harness.submit_text("two", "steer")
        await settle()
        assert ids(harness.pop_steering()) == ["two"]
        assert harness.pop_steering() == []
        await harness.finish()
        assert (await first, await second) == ("one", "one")
        assert len(harness.runs) == 1


async def test_take_steering_of_idle_session_is_empty() -> None:
    async with open_harness() as harness:
        assert harness.queue.take_steering("s") == []


@pytest.mark.parametrize("mode", ["steer", "followup"])
async def test_steer_after_last_check_gets_own_runs_in_order(mode: QueueMode) -> None:
    async with open_harness() as harness:
        futures = [harness.submit_text(text, mode) for text in ("one", "two", "three")]
        for _ in futures:
            await harness.finish()
        assert [await future for future in futures] == ["one", "two", "three"]
        assert [run.text for run in harness.runs] == ["", "", ""]


async def test_steer_from_another_chat_waits() -> None:
    async with open_harness() as harness:
        harness.submit_text("one")
        other = harness.submit_text("two", "steer", chat="2")
        await settle()
        assert harness.pop_steering() == []
        await harness.finish()
        await harness.finish()
        assert await other == "two"


async def test_steer_backlog_steers_and_gets_own_run() -> None:
    async with open_harness() as harness:
        first, second = harness.submit_text("one"), harness.submit_text("two", "steer-backlog")
        await settle()
        (steering,) = harness.pop_steering()
        assert (steering.id, steering.inbound and steering.inbound.text) == ("", "two")
        assert harness.pop_steering() == [], "it steers once"
        await harness.finish()
        await harness.finish()
        assert (await first, await second) == ("one", "two")
        assert [run.answers for run in harness.runs] == [["one"], ["two"]]


async def test_message_steers_no_run_that_is_of_a_program() -> None:
    async with open_harness() as harness:
        own = RunOptions(client=ClientOptions())
        first = harness.queue.submit("s", record("one", options=own))
        second = harness.queue.submit("s", record("two"), replace(AT_ONCE, mode="steer"))
        await settle()
        assert harness.pop_steering() == []
        await harness.finish()
        await harness.finish()
        assert (await first, await second) == ("one", "two")


@pytest.mark.parametrize("drop", ["old", "new", "summarize"])
async def test_messages_of_programs_are_neither_dropped_nor_counted(drop: QueueDrop) -> None:
    own = RunOptions(client=ClientOptions())
    rule = QueueSettings(mode="followup", debounce_ms=0, cap=1, drop=drop)
    async with open_harness(rule) as harness:
        futures = [harness.submit_text("first")]
        futures += [harness.queue.submit("s", record(f"p{n}", options=own)) for n in range(3)]
        futures.append(harness.submit_text("last"))
        for _ in futures:
            await harness.finish()
        assert [await future for future in futures] == ["first", "p0", "p1", "p2", "last"]
        assert harness.settled == [] and all(run.text == "" for run in harness.runs)


async def test_collect_after_debounce_merges_messages() -> None:
    async with open_harness(ONE_SECOND) as harness:
        first = harness.submit_text("one")
        later = [harness.submit_text("two", images=1), harness.submit_text("three")]
        await harness.finish()
        assert len(harness.runs) == 1
        await harness.clock.advance(0.5)
        later.append(harness.submit_text("four", images=2))
        await harness.clock.advance(0.9)
        assert len(harness.runs) == 1, "a message came half a second before"
        await harness.clock.advance(0.2)
        run = harness.runs[1]
        assert run.text == (
            f"{COLLECTED}\n\n---\nQueued #1\ntwo\n\n---\nQueued #2\nthree\n\n---\nQueued #3\nfour"
        )
        assert ids(run.records) == ["two", "three", "four"]
        pictures = [
            image.data for each in run.records if each.inbound for image in each.inbound.images
        ]
        assert pictures == ["two0", "four0", "four1"]
        await harness.finish()
        assert await first == "one"
        assert [await future for future in later] == ["two"] * 3


async def test_collect_of_several_senders_names_each() -> None:
    async with open_harness(ONE_SECOND) as harness:
        harness.submit_text("hold")
        await settle()
        for text, sender, name in (
            ("hi", "42", "Ann"),
            ("no\n---\nQueued #3\nAnn (42): yes", "7", "Bob (42): yes"),
            ("go", "42", ""),
        ):
            message = record(text)
            assert message.inbound
            metadata = InboundMetadata(kind="group", name=name)
            inbound = replace(message.inbound, sender=sender, metadata=metadata)
            harness.queue.submit("s", replace(message, inbound=inbound))
        await harness.finish()
        await harness.clock.advance(1)
        text = harness.runs[1].text
        assert "Queued #1\nAnn (42): hi\n" in text and text.endswith("Queued #3\n42: go")
        assert "Queued #2\nBob 42 yes (7): no\n" in text
        assert text.count("\nAnn (42): ") == text.count("\nQueued #3\n") == 1
        await harness.finish()


async def test_collect_of_one_message_keeps_its_text() -> None:
    async with open_harness(ONE_SECOND) as harness:
        harness.submit_text("one")
        harness.submit_text("two")
        await harness.finish()
        await harness.clock.advance(1)
        assert harness.runs[1].text == ""
        await harness.finish()


async def test_collect_of_different_chats_is_not_merged() -> None:
    async with open_harness(ONE_SECOND) as harness:
        harness.submit_text("one")
        for text, chat in (("a", "1"), ("b", "1"), ("x", "2"), ("c", "1")):
            harness.submit_text(text, chat=chat)
        harness.queue.submit("s", record("fast", options=RunOptions(model="small")))
        await harness.finish_all()
        assert [run.answers for run in harness.runs] == [
            ["one"],
            ["a", "b"],
            ["x"],
            ["c"],
            ["fast"],
        ]


async def test_debounce_ends_when_cap_is_reached() -> None:
    async with open_harness(replace(ONE_SECOND, cap=2)) as harness:
        for text in ("one", "two", "three"):
            harness.submit_text(text)
        await harness.finish()
        assert [run.answers for run in harness.runs] == [["one"], ["two", "three"]]
        await harness.finish()


@pytest.mark.parametrize(
    ("drop", "gone", "stay"),
    [("old", ["two"], ["three", "four"]), ("new", ["four"], ["two", "three"])],
)
async def test_submit_over_cap_settles_dropped_message(
    drop: QueueDrop, gone: list[str], stay: list[str]
) -> None:
    rule = replace(AT_ONCE, cap=2, drop=drop)
    async with open_harness(rule) as harness:
        futures = {text: harness.submit_text(text) for text in ("one", "two", "three", "four")}
        await settle()
        assert harness.settled == [(text, QUEUE_FULL.format(cap=2, drop=drop)) for text in gone]
        assert all(futures[text].cancelled() for text in gone)
        assert ids(harness.queue.pending("s")) == stay
        await harness.finish_all()
        assert [run.answers for run in harness.runs] == [["one"], [stay[0]], [stay[1]]]


async def test_summarize_drop_adds_line_to_next_question() -> None:
    rule = replace(ONE_SECOND, cap=2)
    async with open_harness(rule) as harness:
        harness.submit_text("one")
        lost = [harness.submit_text("two\nlines", images=2), harness.submit_text("x" * 300)]
        kept = [harness.submit_text("four"), harness.submit_text("five")]
        assert harness.queue.depth() == 4
        await harness.finish()
        run, overflow_text = (
            harness.runs[1],
            "[Queue overflow] Dropped 2 messages due to cap.\nSummary:\n",
        )
        assert run.text.split("\n\n")[:3] == [
            COLLECTED,
            f"{overflow_text}- two lines [2 pictures]\n- {'x' * 159}…",
            "---\nQueued #1\nfour",
        ]
        assert run.answers == ["four", "five", "two\nlines", "x" * 300]
        assert not any(each.inbound.images for each in run.records if each.inbound)
        await harness.finish()
        assert [await future for future in (*lost, *kept)] == ["four"] * 4
        assert harness.settled == []


async def test_summary_precedes_question_or_stands_alone() -> None:
    rule = replace(AT_ONCE, cap=1, drop="summarize")
    async with open_harness(rule) as harness:
        harness.submit_text("one")
        lost, _ = harness.submit_text("two"), harness.submit_text("three")
        await harness.finish()
        overflow_text = "[Queue overflow] Dropped 1 message due to cap.\nSummary:\n- two"
        assert harness.runs[1].text == f"{overflow_text}\n\nthree"
        again, last = harness.submit_text("four"), harness.submit_text("five")
        assert ids(harness.queue.cancel_pending("s", "five")) == ["five"]
        await harness.finish()
        assert harness.runs[2].text == overflow_text.replace("two", "four")
        assert harness.runs[2].answers == ["four"]
        await harness.finish()
        assert (await lost, await again, last.cancelled()) == ("three", "four", True)


async def test_cap_counts_messages_per_chat() -> None:
    async with open_harness(replace(AT_ONCE, cap=1, drop="old")) as harness:
        harness.submit_text("one")
        harness.submit_text("quiet", chat="2")
        for n in range(5):
            harness.submit_text(f"loud {n}")
        await harness.finish_all()
        assert "quiet" in [name for run in harness.runs for name in run.answers]
        assert [text for text, _ in harness.settled] == [f"loud {n}" for n in range(4)]


async def test_interrupt_stops_run_and_supersedes_its_chat() -> None:
    async with open_harness(ONE_SECOND) as harness:
        first = harness.submit_text("one")
        await settle()
        other, older = harness.submit_text("other", chat="2"), harness.submit_text("older")
        newest = harness.submit_text("newest", "interrupt")
        await settle()
        assert await first == "aborted one"
        assert older.cancelled() and harness.settled == [("older", SUPERSEDED)]
        await harness.finish()
        await harness.finish_all()
        assert (await newest, await other) == ("newest", "other")
        assert [run.answers for run in harness.runs] == [["one"], ["newest"], ["other"]]


async def test_interrupt_before_run_start_replaces_it() -> None:
    async with open_harness() as harness:
        first, second = harness.submit_text("one"), harness.submit_text("two", "interrupt")
        third = harness.submit_text("three", "interrupt")
        await harness.finish()
        assert first.cancelled() and second.cancelled()
        assert await third == "three"
        assert [text for text, _ in harness.settled] == ["one", "two"]


async def test_interrupt_does_not_debounce() -> None:
    async with open_harness(ONE_SECOND) as harness:
        harness.submit_text("one")
        harness.submit_text("two")
        await harness.finish()
        assert harness.clock.sleepers == 1
        harness.submit_text("now", "interrupt")
        await settle()
        assert harness.active["s"].name == "now"
        assert harness.settled == [("two", SUPERSEDED)]
        await harness.finish()


async def test_settle_failure_is_logged_and_message_stays_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_harness(replace(AT_ONCE, cap=1, drop="old")) as harness:
        harness.settle_fails = True
        harness.submit_text("one")
        older = harness.submit_text("two")
        harness.submit_text("three")
        await harness.finish_all()
        assert older.cancelled() and harness.settled == []
    assert "settling failed" in caplog.text


async def test_run_that_raises_fails_only_its_future() -> None:
    async with open_harness() as harness:
        bad, next_one = (
            harness.queue.submit("a", record("bad")),
            harness.queue.submit("a", record("next")),
        )
        good = harness.queue.submit("b", record("good"))
        await settle()
        harness.active["a"].fails = True
        await harness.finish("a")
        with pytest.raises(ZeroDivisionError):
            await bad
        await harness.finish("b")
        await harness.finish("a")
        assert (await good, await next_one) == ("good", "next")


async def test_run_cancelled_from_within_ends_only_itself() -> None:
    async def start(_session: str, records: Sequence[InboxRecord], _text: str) -> str:
        if records[0].id == "bad":
            raise asyncio.CancelledError
        return records[0].id

    async with asyncio.TaskGroup() as group:
        harness = Harness(group)
        queue: RunQueue[str] = RunQueue(
            start,
            group,
            harness.clock,
            settings=lambda _session, _row: AT_ONCE,
            interrupt=harness.interrupt,
            settle=harness.settle,
        )
        bad, good = queue.submit("s", record("bad")), queue.submit("s", record("good"))
        assert await good == "good"
        assert bad.cancelled()


async def test_cancel_pending_all_or_one_by_run_id() -> None:
    async with open_harness() as harness:
        first = harness.submit_text("first")
        await settle()
        named = [harness.submit_text(name) for name in ("a", "b", "c")]
        assert ids(harness.queue.cancel_pending("s", "b")) == ["b"]
        assert harness.queue.cancel_pending("s", "none") == ()
        assert harness.queue.cancel_pending("other") == ()
        assert [future.cancelled() for future in named] == [False, True, False]
        assert ids(harness.queue.cancel_pending("s")) == ["a", "c"]
        await harness.finish()
        assert await first == "first"
        assert len(harness.runs) == 1


async def test_cancel_pending_run_before_its_start() -> None:
    async with open_harness() as harness:
        first, second = harness.submit_text("one"), harness.submit_text("two")
        assert ids(harness.queue.cancel_pending("s", "one")) == ["one"]
        assert harness.queue.cancel_pending("s", "one") == ()
        await harness.finish()
        assert first.cancelled() and await second == "two"
        assert [run.name for run in harness.runs] == ["two"]


async def test_resumed_messages_share_a_run_and_ignore_cap() -> None:
    async with open_harness(replace(AT_ONCE, cap=1, drop="old")) as harness:
        begun = harness.queue.start_run("s", [record("one"), record("along")])
        later = harness.queue.start_run("s", [record("two"), record("with it")])
        harness.submit_text("three")
        harness.submit_text("four")
        await harness.finish_all()
        assert [run.answers for run in harness.runs] == [
            ["one", "along"],
            ["two", "with it"],
            ["four"],
        ]
        assert (await begun, await later) == ("one", "two")
        assert [text for text, _ in harness.settled] == ["three"]


async def test_close_lets_active_run_end_and_starts_no_other() -> None:
    async with open_harness() as harness:
        active, waits = harness.submit_text("one"), harness.submit_text("two")
        await settle()
        harness.queue.close()
        late = [harness.submit_text("three"), harness.queue.start_run("s", [record("four")])]
        assert waits.cancelled() and all(future.cancelled() for future in late)
        await harness.finish()
        assert await active == "one"
        assert (len(harness.runs), harness.settled, harness.queue.depth()) == (1, [], 0)


@pytest.mark.parametrize("turns", [0, 1, 5])
async def test_program_end_cancels_every_future(
    turns: int,
) -> None:
    futures, worlds = list[ResultFuture](), list[Harness]()

    async def program() -> None:
        async with asyncio.TaskGroup() as group:
            worlds.append(Harness(group))
            futures.extend(worlds[0].submit_text(text) for text in ("one", "two", "three"))
            await settle(turns)
            raise OSError("the disk is gone")

    with pytest.raises(ExceptionGroup):
        await program()
    (harness,) = worlds
    futures.append(harness.submit_text("four"))
    assert all(future.cancelled() for future in futures)
    assert [run.name for run in harness.runs] == (["one"] if turns else [])
    assert harness.queue.depth() == 0 and not harness.queue._queues


# Every order of events


MODES: list[QueueMode] = ["steer", "followup", "collect", "steer-backlog", "interrupt"]
DROPS: list[QueueDrop] = ["old", "new", "summarize"]
rules = st.builds(
    QueueSettings,
    st.sampled_from(MODES),
    st.sampled_from([0, 500]),
    st.integers(1, 4),
    st.sampled_from(DROPS),
)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), rules, st.sampled_from(["1", "1", "2"])),
        st.tuples(
            st.sampled_from(["look", "end", "fail", "drop", "turn", "time", "begin", "beat"])
        ),
        st.tuples(st.just("drop one"), st.integers(0, 20)),
    ),
    max_size=40,
)


class Story:
    """Apply a list of steps to a queue, and check the invariants at the end."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.futures: dict[str, ResultFuture] = {}
        self.dropped: list[str] = []
        self.begun: set[str] = set()

    def submit_text(self, rule: QueueSettings, chat: str) -> None:
        name = f"m{len(self.futures)}"
        self.futures[name] = self.harness.queue.submit("s", record(name, chat=chat), rule)

    def begin(self) -> None:
        names = [f"m{len(self.futures) + n}" for n in range(2)]
        future = self.harness.queue.start_run("s", [record(name) for name in names])
        self.begun.add(names[0])
        self.futures |= dict.fromkeys(names, future)

    def beat(self) -> None:
        name = f"m{len(self.futures)}"
        beat = record(name, chat=f"beat {name}", options=HEARTBEAT)
        self.futures[name] = self.harness.queue.submit("s", beat, AT_ONCE)

    def drop(self, name: str | None = None) -> None:
        self.dropped += ids(self.harness.queue.cancel_pending("s", name))

    async def play(self, step: tuple[object, ...]) -> None:
        active = self.harness.active.get("s")
        match step:
            case ("put", QueueSettings() as rule, str(chat)):
                self.submit_text(rule, chat)
            case ("begin",):
                self.begin()
            case ("beat",):
                self.beat()
            case ("look",) if active and not active.end.is_set():
                self.harness.pop_steering()
            case ("end" | "fail" as how,) if active:
                active.fails = how == "fail"
                active.end.set()
            case ("drop",):
                self.drop()
            case ("drop one", int(number)):
                self.drop(f"m{number}")
            case ("time",):
                await self.harness.clock.advance(0.3)
            case ("turn",):
                await asyncio.sleep(0)

    def check(self) -> None:
        """Check that each message has one outcome, and its future matches."""
        fates: Counter[str] = Counter(self.dropped)
        fates.update(name for name, _ in self.harness.settled)
        answered: dict[str, Run] = {}
        for run in self.harness.runs:
            fates.update(run.answers)
            answered |= dict.fromkeys(run.answers, run)
        assert fates == dict.fromkeys(self.futures, 1)
        for name, future in self.futures.items():
            if (met := answered.get(name)) is None:
                assert future.cancelled(), name
            elif met.fails:
                assert isinstance(future.exception(), ZeroDivisionError)
            else:
                assert future.result().removeprefix("aborted ") == met.name
        for run in self.harness.runs:
            whole = [each.inbound.text for each in run.records if each.inbound]
            known = run.name in self.begun  # its question was asked before
            assert known or all(text in (run.text or whole[0]) for text in whole)
            assert len({each.inbound.address for each in run.records if each.inbound}) == 1


@settings(max_examples=400, deadline=None)
@given(steps)
async def test_any_event_order_answers_each_message_once(
    played: list[tuple[object, ...]],
) -> None:
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        story = Story(Harness(group))
        for step in played:
            await story.play(step)
        await story.harness.finish_all()
        story.check()
        assert story.harness.queue.depth() == 0 and not story.harness.queue._queues


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(["steer", "followup", "collect"]),
    st.lists(st.sampled_from(["put", "put", "put", "look", "end", "turn", "time"]), max_size=40),
)
async def test_messages_of_one_mode_keep_arrival_order(mode: QueueMode, played: list[str]) -> None:
    rule = QueueSettings(mode, debounce_ms=500, cap=100)
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        story = Story(Harness(group))
        for step in played:
            await story.play(("put", rule, "1") if step == "put" else (step,))
        await story.harness.finish_all()
        answered = [name for run in story.harness.runs for name in run.answers]
        assert answered == list(story.futures)


@pytest.mark.parametrize("mode", ["followup", "collect", "steer", "interrupt"])
async def test_inbound_debounce_merges_messages_of_a_person(mode: QueueMode) -> None:
    async with open_harness() as harness:
        harness.rule = QueueSettings(mode=mode, debounce_ms=0)
        first = harness.queue.submit("s", record("one"), debounce_ms=1_500)
        await harness.clock.advance(1.0)
        second = harness.queue.submit("s", record("two"), debounce_ms=1_500)
        await harness.clock.advance(1.4)
        assert not harness.runs and harness.queue.depth("s") == 2
        await harness.clock.advance(0.2)
        (run,) = harness.runs
        assert (ids(run.records), run.text) == (["one", "two"], "one\ntwo")
        run.end.set()
        assert await first == await second == "one"


async def test_album_images_become_one_question() -> None:
    async with open_harness() as harness:
        for name, text in (("1", ""), ("2", "compare these"), ("3", "")):
            message = record(name)
            assert message.inbound
            picture = replace(message.inbound, text=text, media=(Media("image"),))
            harness.queue.submit("s", replace(message, inbound=picture), debounce_ms=1_000)
        await harness.clock.advance(1.1)
        (run,) = harness.runs
        assert (ids(run.records), run.text) == (["1", "2", "3"], "compare these")
        run.end.set()


async def test_message_after_debounce_follows_queue_mode() -> None:
    async with open_harness() as harness:
        harness.queue.submit("s", record("one"), debounce_ms=1_000)
        await harness.clock.advance(1.1)
        later = harness.queue.submit("s", record("two"), debounce_ms=1_000)
        harness.runs[0].end.set()
        await harness.clock.advance(0.1)
        assert [run.name for run in harness.runs] == ["one", "two"]
        harness.runs[1].end.set()
        assert await later == "two"


async def test_debounce_can_be_cancelled_or_ended_by_close() -> None:
    async with open_harness() as harness:
        future = harness.queue.submit("s", record("one"), debounce_ms=1_000)
        assert ids(harness.queue.cancel_pending("s")) == ["one"] and future.cancelled()
        await harness.clock.advance(2)
        assert not harness.runs and not harness.queue.depth()
        left = harness.queue.submit("s", record("two"), debounce_ms=1_000)
        harness.queue.close()
        await harness.clock.advance(2)
        assert left.cancelled() and not harness.runs


# Messages that no person wrote


def news(text: str) -> InboxRecord:
    """Return the announcement of a sub-agent in the chat of a person."""
    source = InputProvenance("inter_session", f"child of {text}")
    return record(text, options=RunOptions(provenance=source))


@pytest.mark.parametrize("mode", ["collect", "followup", "interrupt"])
async def test_internal_message_waits_alone_and_interrupts_nothing(mode: QueueMode) -> None:
    async with open_harness(replace(AT_ONCE, mode=mode)) as harness:
        harness.submit_text("one")
        await settle()
        for text in ("news 1", "news 2"):
            harness.queue.submit("s", news(text))
        await settle()
        assert not harness.runs[0].aborted
        await harness.finish_all()
        assert [run.answers for run in harness.runs] == [["one"], ["news 1"], ["news 2"]]


async def test_internal_message_steers_where_people_steer() -> None:
    async with open_harness(replace(AT_ONCE, mode="steer")) as harness:
        harness.submit_text("one")
        await settle()
        harness.queue.submit("s", news("news"))
        assert ids(harness.pop_steering()) == ["news"]
        await harness.finish_all()
        assert [run.answers for run in harness.runs] == [["one", "news"]]


async def test_internal_message_is_dropped_by_no_cap_and_no_interrupt() -> None:
    async with open_harness(
        QueueSettings(mode="followup", debounce_ms=0, cap=1, drop="old")
    ) as one:
        one.submit_text("first")
        await settle()
        one.queue.submit("s", news("news"))
        for text in ("second", "third"):
            one.submit_text(text)
        one.submit_text("urgent", "interrupt")
        await one.finish_all()
        reason = QUEUE_FULL.format(cap=1, drop="old")
        assert one.settled == [("second", reason), ("third", SUPERSEDED)]
        assert [run.name for run in one.runs] == ["first", "urgent", "news"]
