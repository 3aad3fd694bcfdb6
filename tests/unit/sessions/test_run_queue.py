"""The run queue: every message is answered by one run, or settled once without one."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homarus.core.message import Address, Image, Inbound, InboundMetadata, Media, RunOptions
from homarus.sessions.levels import QueueDrop, QueueMode
from homarus.sessions.queue_policy import COLLECTED, QueueSettings
from homarus.sessions.run_queue import QUEUE_FULL, SUPERSEDED, RunQueue
from homarus.store.journal import InboxRecord
from homarus.testing.clock import FakeClock
from tests.waiting import settle

ONE_SECOND = QueueSettings()
AT_ONCE = QueueSettings(mode="followup", debounce_ms=0)


def row(
    text: str, *, chat: str = "1", images: int = 0, wishes: RunOptions | None = None
) -> InboxRecord:
    pictures = tuple(Image(f"{text}{n}", "image/png") for n in range(images))
    inbound = Inbound(
        text,
        Address("test", chat),
        "ann",
        text,
        pictures,
        options=wishes or RunOptions(),
        run_id=text,
    )
    return InboxRecord(text, "s", "test", "default", text, "ann", text, 1, inbound=inbound)


def ids(rows: Sequence[InboxRecord]) -> list[str]:
    return [each.id for each in rows]


@dataclass(slots=True)
class Run:
    """A run that ends, and checks for steering, when the test says so."""

    session: str
    rows: Sequence[InboxRecord]
    text: str
    told: list[InboxRecord] = field(default_factory=list)
    end: asyncio.Event = field(default_factory=asyncio.Event)
    fails: bool = False
    aborted: bool = False

    @property
    def name(self) -> str:
        return self.rows[0].id

    @property
    def answers(self) -> list[str]:
        return [*ids(self.rows), *(each.id for each in self.told if each.id)]


class Harness:
    """A run queue, the runs it started, and the messages it settled."""

    def __init__(self, group: asyncio.TaskGroup, rule: QueueSettings = AT_ONCE) -> None:
        self.clock = FakeClock()
        self.rule = rule
        self.runs: list[Run] = []
        self.live: dict[str, Run] = {}
        self.settled: list[tuple[str, str]] = []
        self.settle_fails = False
        self.inbox: RunQueue[str] = RunQueue(
            self.start,
            group,
            self.clock,
            settings=lambda _session, _row: self.rule,
            interrupt=self.interrupt,
            settle=self.settle,
        )

    async def start(self, session: str, rows: Sequence[InboxRecord], text: str) -> str:
        run = Run(session, rows, text)
        assert session not in self.live, "two runs at once"
        self.live[session] = run
        self.runs.append(run)
        try:
            await run.end.wait()
            if run.fails:
                raise ZeroDivisionError
            return f"aborted {run.name}" if run.aborted else run.name
        finally:
            del self.live[session]

    def interrupt(self, session: str) -> None:
        run = self.live[session]
        run.aborted = True
        run.end.set()

    async def settle(self, rows: Sequence[InboxRecord], why: str) -> None:
        await asyncio.sleep(0)
        if self.settle_fails:
            raise OSError("no room")
        self.settled += [(each.id, why) for each in rows]

    def put(self, text: str, mode: QueueMode | None = None, **more: object) -> "Promise":
        chat, images = str(more.get("chat", "1")), int(str(more.get("images", 0)))
        rule = replace(self.rule, mode=mode) if mode else None
        return self.inbox.submit("s", row(text, chat=chat, images=images), rule)

    def look(self, session: str = "s") -> list[InboxRecord]:
        news = self.inbox.take_steering(session)
        self.live[session].told += news
        return news

    async def finish(self, session: str = "s") -> None:
        await settle()
        self.live[session].end.set()
        await settle()

    async def finish_all(self) -> None:
        for _ in range(200):
            await self.clock.advance(60)
            if not self.live:
                return
            for run in list(self.live.values()):
                run.end.set()
        raise AssertionError("it never comes to rest")


Promise = asyncio.Future[str]


@asynccontextmanager
async def in_world(rule: QueueSettings = AT_ONCE) -> AsyncIterator[Harness]:
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        yield Harness(group, rule)


async def test_submit_to_idle_session_starts_run_and_resolves() -> None:
    async with in_world() as world:
        promise = world.put("one")
        await world.finish()
        assert await promise == "one"
        assert (ids(world.runs[0].rows), world.runs[0].text) == (["one"], "")


async def test_submit_to_two_sessions_runs_both_at_once() -> None:
    async with in_world() as world:
        first, second = world.inbox.submit("a", row("one")), world.inbox.submit("b", row("two"))
        await settle()
        assert set(world.live) == {"a", "b"}
        await world.finish("b")
        assert second.result() == "two" and not first.done()
        await world.finish("a")


async def test_steer_gives_message_to_active_run() -> None:
    async with in_world() as world:
        first, second = world.put("one"), world.put("two", "steer")
        await settle()
        assert ids(world.look()) == ["two"]
        assert world.look() == []
        await world.finish()
        assert (await first, await second) == ("one", "one")
        assert len(world.runs) == 1


async def test_take_steering_of_idle_session_is_empty() -> None:
    async with in_world() as world:
        assert world.inbox.take_steering("s") == []


@pytest.mark.parametrize("mode", ["steer", "followup"])
async def test_steer_after_last_check_gets_own_runs_in_order(mode: QueueMode) -> None:
    async with in_world() as world:
        promises = [world.put(text, mode) for text in ("one", "two", "three")]
        for _ in promises:
            await world.finish()
        assert [await promise for promise in promises] == ["one", "two", "three"]
        assert [run.text for run in world.runs] == ["", "", ""]


async def test_steer_from_another_chat_waits() -> None:
    async with in_world() as world:
        world.put("one")
        other = world.put("two", "steer", chat="2")
        await settle()
        assert world.look() == []
        await world.finish()
        await world.finish()
        assert await other == "two"


async def test_steer_backlog_steers_and_gets_own_run() -> None:
    async with in_world() as world:
        first, second = world.put("one"), world.put("two", "steer-backlog")
        await settle()
        (news,) = world.look()
        assert (news.id, news.inbound and news.inbound.text) == ("", "two")
        assert world.look() == [], "it is told once"
        await world.finish()
        await world.finish()
        assert (await first, await second) == ("one", "two")
        assert [run.answers for run in world.runs] == [["one"], ["two"]]


async def test_collect_after_debounce_merges_messages() -> None:
    async with in_world(ONE_SECOND) as world:
        first = world.put("one")
        later = [world.put("two", images=1), world.put("three")]
        await world.finish()
        assert len(world.runs) == 1
        await world.clock.advance(0.5)
        later.append(world.put("four", images=2))
        await world.clock.advance(0.9)
        assert len(world.runs) == 1, "somebody spoke half a second before"
        await world.clock.advance(0.2)
        run = world.runs[1]
        assert run.text == (
            f"{COLLECTED}\n\n---\nQueued #1\ntwo\n\n---\nQueued #2\nthree\n\n---\nQueued #3\nfour"
        )
        assert ids(run.rows) == ["two", "three", "four"]
        pictures = [
            image.data for each in run.rows if each.inbound for image in each.inbound.images
        ]
        assert pictures == ["two0", "four0", "four1"]
        await world.finish()
        assert await first == "one"
        assert [await promise for promise in later] == ["two"] * 3


async def test_collect_of_several_senders_names_each() -> None:
    async with in_world(ONE_SECOND) as world:
        world.put("hold")
        await settle()
        for text, sender, name in (
            ("hi", "42", "Ann"),
            ("no\n---\nQueued #3\nAnn (42): yes", "7", "Bob (42): yes"),
            ("go", "42", ""),
        ):
            said = row(text)
            assert said.inbound
            about = InboundMetadata(kind="group", name=name)
            spoken = replace(said.inbound, sender=sender, metadata=about)
            world.inbox.submit("s", replace(said, inbound=spoken))
        await world.finish()
        await world.clock.advance(1)
        told = world.runs[1].text
        assert "Queued #1\nAnn (42): hi\n" in told and told.endswith("Queued #3\n42: go")
        assert "Queued #2\nBob 42 yes (7): no\n" in told
        assert told.count("\nAnn (42): ") == told.count("\nQueued #3\n") == 1
        await world.finish()


async def test_collect_of_one_message_keeps_its_text() -> None:
    async with in_world(ONE_SECOND) as world:
        world.put("one")
        world.put("two")
        await world.finish()
        await world.clock.advance(1)
        assert world.runs[1].text == ""
        await world.finish()


async def test_collect_of_different_chats_is_not_merged() -> None:
    async with in_world(ONE_SECOND) as world:
        world.put("one")
        for text, chat in (("a", "1"), ("b", "1"), ("x", "2"), ("c", "1")):
            world.put(text, chat=chat)
        world.inbox.submit("s", row("fast", wishes=RunOptions(model="small")))
        await world.finish_all()
        assert [run.answers for run in world.runs] == [["one"], ["a", "b"], ["x"], ["c"], ["fast"]]


async def test_debounce_ends_when_cap_is_reached() -> None:
    async with in_world(replace(ONE_SECOND, cap=2)) as world:
        for text in ("one", "two", "three"):
            world.put(text)
        await world.finish()
        assert [run.answers for run in world.runs] == [["one"], ["two", "three"]]
        await world.finish()


@pytest.mark.parametrize(
    ("drop", "gone", "stay"),
    [("old", ["two"], ["three", "four"]), ("new", ["four"], ["two", "three"])],
)
async def test_submit_over_cap_settles_dropped_message(
    drop: QueueDrop, gone: list[str], stay: list[str]
) -> None:
    rule = replace(AT_ONCE, cap=2, drop=drop)
    async with in_world(rule) as world:
        promises = {text: world.put(text) for text in ("one", "two", "three", "four")}
        await settle()
        assert world.settled == [(text, QUEUE_FULL.format(cap=2, drop=drop)) for text in gone]
        assert all(promises[text].cancelled() for text in gone)
        assert ids(world.inbox.pending("s")) == stay
        await world.finish_all()
        assert [run.answers for run in world.runs] == [["one"], [stay[0]], [stay[1]]]


async def test_summarize_drop_adds_line_to_next_question() -> None:
    rule = replace(ONE_SECOND, cap=2)
    async with in_world(rule) as world:
        world.put("one")
        lost = [world.put("two\nlines", images=2), world.put("x" * 300)]
        kept = [world.put("four"), world.put("five")]
        assert world.inbox.depth() == 4
        await world.finish()
        run, told = world.runs[1], "[Queue overflow] Dropped 2 messages due to cap.\nSummary:\n"
        assert run.text.split("\n\n")[:3] == [
            COLLECTED,
            f"{told}- two lines [2 pictures]\n- {'x' * 159}…",
            "---\nQueued #1\nfour",
        ]
        assert run.answers == ["four", "five", "two\nlines", "x" * 300]
        assert not any(each.inbound.images for each in run.rows if each.inbound)
        await world.finish()
        assert [await promise for promise in (*lost, *kept)] == ["four"] * 4
        assert world.settled == []


async def test_summary_precedes_question_or_stands_alone() -> None:
    rule = replace(AT_ONCE, cap=1, drop="summarize")
    async with in_world(rule) as world:
        world.put("one")
        lost, _ = world.put("two"), world.put("three")
        await world.finish()
        told = "[Queue overflow] Dropped 1 message due to cap.\nSummary:\n- two"
        assert world.runs[1].text == f"{told}\n\nthree"
        again, last = world.put("four"), world.put("five")
        assert ids(world.inbox.cancel_pending("s", "five")) == ["five"]
        await world.finish()
        assert world.runs[2].text == told.replace("two", "four")
        assert world.runs[2].answers == ["four"]
        await world.finish()
        assert (await lost, await again, last.cancelled()) == ("three", "four", True)


async def test_cap_counts_messages_per_chat() -> None:
    async with in_world(replace(AT_ONCE, cap=1, drop="old")) as world:
        world.put("one")
        world.put("quiet", chat="2")
        for n in range(5):
            world.put(f"loud {n}")
        await world.finish_all()
        assert "quiet" in [name for run in world.runs for name in run.answers]
        assert [text for text, _ in world.settled] == [f"loud {n}" for n in range(4)]


async def test_interrupt_stops_run_and_supersedes_its_chat() -> None:
    async with in_world(ONE_SECOND) as world:
        first = world.put("one")
        await settle()
        other, older = world.put("other", chat="2"), world.put("older")
        newest = world.put("newest", "interrupt")
        await settle()
        assert await first == "aborted one"
        assert older.cancelled() and world.settled == [("older", SUPERSEDED)]
        await world.finish()
        await world.finish_all()
        assert (await newest, await other) == ("newest", "other")
        assert [run.answers for run in world.runs] == [["one"], ["newest"], ["other"]]


async def test_interrupt_before_run_start_replaces_it() -> None:
    async with in_world() as world:
        first, second = world.put("one"), world.put("two", "interrupt")
        third = world.put("three", "interrupt")
        await world.finish()
        assert first.cancelled() and second.cancelled()
        assert await third == "three"
        assert [text for text, _ in world.settled] == ["one", "two"]


async def test_interrupt_does_not_debounce() -> None:
    async with in_world(ONE_SECOND) as world:
        world.put("one")
        world.put("two")
        await world.finish()
        assert world.clock.sleepers == 1
        world.put("now", "interrupt")
        await settle()
        assert world.live["s"].name == "now"
        assert world.settled == [("two", SUPERSEDED)]
        await world.finish()


async def test_settle_failure_is_logged_and_message_stays_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with in_world(replace(AT_ONCE, cap=1, drop="old")) as world:
        world.settle_fails = True
        world.put("one")
        older = world.put("two")
        world.put("three")
        await world.finish_all()
        assert older.cancelled() and world.settled == []
    assert "settling failed" in caplog.text


async def test_run_that_raises_fails_only_its_future() -> None:
    async with in_world() as world:
        bad, next_one = world.inbox.submit("a", row("bad")), world.inbox.submit("a", row("next"))
        good = world.inbox.submit("b", row("good"))
        await settle()
        world.live["a"].fails = True
        await world.finish("a")
        with pytest.raises(ZeroDivisionError):
            await bad
        await world.finish("b")
        await world.finish("a")
        assert (await good, await next_one) == ("good", "next")


async def test_run_cancelled_from_within_ends_only_itself() -> None:
    async def start(_session: str, rows: Sequence[InboxRecord], _text: str) -> str:
        if rows[0].id == "bad":
            raise asyncio.CancelledError
        return rows[0].id

    async with asyncio.TaskGroup() as group:
        world = Harness(group)
        inbox: RunQueue[str] = RunQueue(
            start,
            group,
            world.clock,
            settings=lambda _session, _row: AT_ONCE,
            interrupt=world.interrupt,
            settle=world.settle,
        )
        bad, good = inbox.submit("s", row("bad")), inbox.submit("s", row("good"))
        assert await good == "good"
        assert bad.cancelled()


async def test_cancel_pending_all_or_one_by_run_id() -> None:
    async with in_world() as world:
        first = world.put("first")
        await settle()
        named = [world.put(name) for name in ("a", "b", "c")]
        assert ids(world.inbox.cancel_pending("s", "b")) == ["b"]
        assert world.inbox.cancel_pending("s", "none") == ()
        assert world.inbox.cancel_pending("other") == ()
        assert [promise.cancelled() for promise in named] == [False, True, False]
        assert ids(world.inbox.cancel_pending("s")) == ["a", "c"]
        await world.finish()
        assert await first == "first"
        assert len(world.runs) == 1


async def test_cancel_pending_run_before_its_start() -> None:
    async with in_world() as world:
        first, second = world.put("one"), world.put("two")
        assert ids(world.inbox.cancel_pending("s", "one")) == ["one"]
        assert world.inbox.cancel_pending("s", "one") == ()
        await world.finish()
        assert first.cancelled() and await second == "two"
        assert [run.name for run in world.runs] == ["two"]


async def test_resumed_messages_share_a_run_and_ignore_cap() -> None:
    async with in_world(replace(AT_ONCE, cap=1, drop="old")) as world:
        begun = world.inbox.start_run("s", [row("one"), row("along")])
        later = world.inbox.start_run("s", [row("two"), row("with it")])
        world.put("three")
        world.put("four")
        await world.finish_all()
        assert [run.answers for run in world.runs] == [
            ["one", "along"],
            ["two", "with it"],
            ["four"],
        ]
        assert (await begun, await later) == ("one", "two")
        assert [text for text, _ in world.settled] == ["three"]


async def test_close_lets_active_run_end_and_starts_no_other() -> None:
    async with in_world() as world:
        live, waits = world.put("one"), world.put("two")
        await settle()
        world.inbox.close()
        late = [world.put("three"), world.inbox.start_run("s", [row("four")])]
        assert waits.cancelled() and all(promise.cancelled() for promise in late)
        await world.finish()
        assert await live == "one"
        assert (len(world.runs), world.settled, world.inbox.depth()) == (1, [], 0)


@pytest.mark.parametrize("turns", [0, 1, 5])
async def test_program_end_cancels_every_future(
    turns: int,
) -> None:
    promises, worlds = list[Promise](), list[Harness]()

    async def program() -> None:
        async with asyncio.TaskGroup() as group:
            worlds.append(Harness(group))
            promises.extend(worlds[0].put(text) for text in ("one", "two", "three"))
            await settle(turns)
            raise OSError("the disk is gone")

    with pytest.raises(ExceptionGroup):
        await program()
    (world,) = worlds
    promises.append(world.put("four"))
    assert all(promise.cancelled() for promise in promises)
    assert [run.name for run in world.runs] == (["one"] if turns else [])
    assert world.inbox.depth() == 0 and not world.inbox._queues


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
        st.tuples(st.sampled_from(["look", "end", "fail", "drop", "turn", "time", "begin"])),
        st.tuples(st.just("drop one"), st.integers(0, 20)),
    ),
    max_size=40,
)


class Story:
    """Apply a list of steps to a queue, and check the invariants at the end."""

    def __init__(self, world: Harness) -> None:
        self.world = world
        self.promises: dict[str, Promise] = {}
        self.dropped: list[str] = []
        self.begun: set[str] = set()

    def put(self, rule: QueueSettings, chat: str) -> None:
        name = f"m{len(self.promises)}"
        self.promises[name] = self.world.inbox.submit("s", row(name, chat=chat), rule)

    def begin(self) -> None:
        names = [f"m{len(self.promises) + n}" for n in range(2)]
        promise = self.world.inbox.start_run("s", [row(name) for name in names])
        self.begun.add(names[0])
        self.promises |= dict.fromkeys(names, promise)

    def drop(self, name: str | None = None) -> None:
        self.dropped += ids(self.world.inbox.cancel_pending("s", name))

    async def play(self, step: tuple[object, ...]) -> None:
        live = self.world.live.get("s")
        match step:
            case ("put", QueueSettings() as rule, str(chat)):
                self.put(rule, chat)
            case ("begin",):
                self.begin()
            case ("look",) if live and not live.end.is_set():
                self.world.look()
            case ("end" | "fail" as how,) if live:
                live.fails = how == "fail"
                live.end.set()
            case ("drop",):
                self.drop()
            case ("drop one", int(number)):
                self.drop(f"m{number}")
            case ("time",):
                await self.world.clock.advance(0.3)
            case ("turn",):
                await asyncio.sleep(0)

    def check(self) -> None:
        """Check that each message has one outcome, and its future matches."""
        fates: Counter[str] = Counter(self.dropped)
        fates.update(name for name, _ in self.world.settled)
        answered: dict[str, Run] = {}
        for run in self.world.runs:
            fates.update(run.answers)
            answered |= dict.fromkeys(run.answers, run)
        assert fates == dict.fromkeys(self.promises, 1)
        for name, promise in self.promises.items():
            if (met := answered.get(name)) is None:
                assert promise.cancelled(), name
            elif met.fails:
                assert isinstance(promise.exception(), ZeroDivisionError)
            else:
                assert promise.result().removeprefix("aborted ") == met.name
        for run in self.world.runs:
            whole = [each.inbound.text for each in run.rows if each.inbound]
            known = run.name in self.begun  # its question was asked before
            assert known or all(text in (run.text or whole[0]) for text in whole)
            assert len({each.inbound.address for each in run.rows if each.inbound}) == 1


@settings(max_examples=400, deadline=None)
@given(steps)
async def test_any_event_order_answers_each_message_once(
    played: list[tuple[object, ...]],
) -> None:
    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        story = Story(Harness(group))
        for step in played:
            await story.play(step)
        await story.world.finish_all()
        story.check()
        assert story.world.inbox.depth() == 0 and not story.world.inbox._queues


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
        await story.world.finish_all()
        told = [name for run in story.world.runs for name in run.answers]
        assert told == list(story.promises)


@pytest.mark.parametrize("mode", ["followup", "collect", "steer", "interrupt"])
async def test_inbound_debounce_merges_messages_of_a_person(mode: QueueMode) -> None:
    async with in_world() as world:
        world.rule = QueueSettings(mode=mode, debounce_ms=0)
        first = world.inbox.submit("s", row("one"), debounce_ms=1_500)
        await world.clock.advance(1.0)
        second = world.inbox.submit("s", row("two"), debounce_ms=1_500)
        await world.clock.advance(1.4)
        assert not world.runs and world.inbox.depth("s") == 2
        await world.clock.advance(0.2)
        (run,) = world.runs
        assert (ids(run.rows), run.text) == (["one", "two"], "one\ntwo")
        run.end.set()
        assert await first == await second == "one"


async def test_album_images_become_one_question() -> None:
    async with in_world() as world:
        for name, text in (("1", ""), ("2", "compare these"), ("3", "")):
            said = row(name)
            assert said.inbound
            picture = replace(said.inbound, text=text, media=(Media("image"),))
            world.inbox.submit("s", replace(said, inbound=picture), debounce_ms=1_000)
        await world.clock.advance(1.1)
        (run,) = world.runs
        assert (ids(run.rows), run.text) == (["1", "2", "3"], "compare these")
        run.end.set()


async def test_message_after_debounce_follows_queue_mode() -> None:
    async with in_world() as world:
        world.inbox.submit("s", row("one"), debounce_ms=1_000)
        await world.clock.advance(1.1)
        later = world.inbox.submit("s", row("two"), debounce_ms=1_000)
        world.runs[0].end.set()
        await world.clock.advance(0.1)
        assert [run.name for run in world.runs] == ["one", "two"]
        world.runs[1].end.set()
        assert await later == "two"


async def test_debounce_can_be_cancelled_or_ended_by_close() -> None:
    async with in_world() as world:
        promise = world.inbox.submit("s", row("one"), debounce_ms=1_000)
        assert ids(world.inbox.cancel_pending("s")) == ["one"] and promise.cancelled()
        await world.clock.advance(2)
        assert not world.runs and not world.inbox.depth()
        left = world.inbox.submit("s", row("two"), debounce_ms=1_000)
        world.inbox.close()
        await world.clock.advance(2)
        assert left.cancelled() and not world.runs
