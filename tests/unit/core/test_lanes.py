"""Lanes: first come first served, never wider than allowed, and no place is lost or doubled."""

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from homarus.core.lanes import LanePlace, Lanes
from tests.waiting import settle

WIDTHS = {"main": 1, "session:0": 1, "session:1": 3}


class Crowd:
    """Workers that go through a session's lane and then through `main`, and what was seen."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.lanes = Lanes(WIDTHS)
        self.widths = dict(WIDTHS)
        self.group = group
        self.tasks: list[asyncio.Task[None]] = []
        self.doors: list[asyncio.Event] = []
        self.inside: Counter[str] = Counter()
        self.entered: dict[str, list[int]] = {}
        self.working: list[int] = []

    def start(self, session: str) -> None:
        number = len(self.tasks)
        self.doors.append(asyncio.Event())
        self.tasks.append(self.group.create_task(self._work(number, session)))

    def leave(self, pick: int) -> None:
        if self.working:
            self.doors[self.working[pick % len(self.working)]].set()

    def cancel(self, pick: int) -> None:
        if alive := [task for task in self.tasks if not task.done()]:
            alive[pick % len(alive)].cancel()

    def resize(self, width: int) -> None:
        """Make `main` wider or narrower, when no task is between admission and entry."""
        self.lanes.resize("main", width)
        self.widths["main"] = width

    async def _work(self, number: int, session: str) -> None:
        async with self.lanes.enter(session):
            self._enter(session, number)
            try:
                async with self.lanes.enter("main"):
                    self._enter("main", number)
                    self.working.append(number)
                    try:
                        await self.doors[number].wait()
                    finally:
                        self.working.remove(number)
                        self.inside["main"] -= 1
            finally:
                self.inside[session] -= 1

    def _enter(self, lane: str, number: int) -> None:
        self.inside[lane] += 1
        assert self.inside[lane] <= self.widths[lane], f"{lane} is too full"
        self.entered.setdefault(lane, []).append(number)

    def check(self) -> None:
        """What must hold whenever nothing more can happen by itself."""
        for lane in {"main", *self.entered}:
            if self.lanes.depth(lane):
                assert self.inside[lane] >= self.widths[lane], f"{lane} waits with room left"
        # The order of arrival, seen where one at a time enters: two who are let in together may
        # wake in either order.
        assert self.entered.get("session:0", []) == sorted(self.entered.get("session:0", []))


# A place is handed over within two turns of the loop: the steps stay that fine, and a cancellation
# often hits the one who waits longest.
step = st.one_of(
    st.tuples(st.just("start"), st.integers(0, 1)),
    st.tuples(st.sampled_from(["leave", "cancel"]), st.sampled_from([0, 0, 1, 1, 2, 5])),
    st.tuples(st.just("turn"), st.integers(1, 2)),
    st.tuples(st.just("settle"), st.just(0)),
    st.tuples(st.just("resize"), st.integers(1, 4)),
)


@settings(max_examples=300)
@given(st.integers(2, 6), st.lists(step, min_size=10, max_size=40))
async def test_lanes_any_interleaving_keeps_the_number_of_places(
    early: int, later: list[tuple[str, int]]
) -> None:
    steps = [*[("start", number % 2) for number in range(early)], ("settle", 0), *later]

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            crowd = Crowd(group)
            acts: dict[str, Callable[[int], None]] = {
                "start": lambda n: crowd.start(f"session:{n}"),
                "leave": crowd.leave,
                "cancel": crowd.cancel,
            }
            for name, number in steps:
                if name in acts:
                    acts[name](number)
                elif name == "resize":
                    await settle(30)
                    crowd.resize(number)
                else:
                    await settle(number or 30)
                    if name == "settle":
                        crowd.check()
            for door in crowd.doors:
                door.set()
            await settle(30 + 10 * len(crowd.tasks))
            assert all(task.done() for task in crowd.tasks), "someone still waits"
        assert not any(task.exception() for task in crowd.tasks if not task.cancelled())
        assert not crowd.lanes._lanes, "an idle lane was kept"

    await main()


async def test_lane_admits_in_order_of_arrival() -> None:
    lanes, served = Lanes(), list[int]()

    async def worker(number: int) -> None:
        async with lanes.enter("one"):
            served.append(number)
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for number in range(20):
            group.create_task(worker(number))
    assert served == list(range(20))


async def test_lane_new_waiter_does_not_overtake_admitted_one() -> None:
    lanes, served = Lanes(), list[str]()
    first, go = lanes.enter("one"), asyncio.Event()

    async def worker(name: str) -> None:
        async with lanes.enter("one"):
            served.append(name)
            await go.wait()

    async with asyncio.TaskGroup() as group:
        await first.__aenter__()
        group.create_task(worker("waited"))
        await settle()
        await first.__aexit__(None, None, None)  # the place is handed over, not yet taken
        group.create_task(worker("newcomer"))
        await settle()
        assert served == ["waited"]
        assert lanes.depth("one") == 1
        go.set()
    assert served == ["waited", "newcomer"]


async def test_lane_release_after_cancellation_keeps_it_cancelled() -> None:
    lanes, served = Lanes(), list[str]()
    holder = lanes.enter("one")

    async def worker(name: str) -> None:
        async with lanes.enter("one"):
            served.append(name)

    async with asyncio.TaskGroup() as group:
        await holder.__aenter__()
        gone = group.create_task(worker("gone"))
        group.create_task(worker("next"))
        await settle()
        gone.cancel()
        await holder.__aexit__(None, None, None)
    assert gone.cancelled()
    assert served == ["next"]


async def test_lanes_cancelled_at_second_lane_release_the_first() -> None:
    lanes = Lanes({"main": 1})

    async def worker() -> None:
        async with lanes.enter("session:a", "main"):
            raise AssertionError("main is taken")

    async with asyncio.TaskGroup() as group, lanes.enter("main"):
        waiting = group.create_task(worker())
        await settle()
        assert lanes.depth("main") == 1
        waiting.cancel()
        await settle()
        async with asyncio.timeout(5), lanes.enter("session:a"):
            assert lanes.depth("main") == 0


async def test_lane_error_inside_releases_the_place() -> None:
    lanes = Lanes()
    with pytest.raises(RuntimeError):
        async with lanes.enter("session:a", "main"):
            raise RuntimeError("inside")
    async with asyncio.timeout(5), lanes.enter("session:a", "main"):
        pass


async def test_lanes_with_different_names_are_independent() -> None:
    lanes = Lanes()
    async with asyncio.timeout(5), lanes.enter("session:a"), lanes.enter("session:b"):
        assert lanes.depth("session:a") == 0


@pytest.mark.parametrize("width", [0, -3])
def test_lane_width_zero_raises_value_error(width: int) -> None:
    with pytest.raises(ValueError, match="main"):
        Lanes({"main": width})


async def test_lane_resized_wider_admits_waiters() -> None:
    lanes, inside, go = Lanes({"main": 1}), list[int](), asyncio.Event()

    async def worker(number: int) -> None:
        async with lanes.enter("main"):
            inside.append(number)
            await go.wait()

    async with asyncio.TaskGroup() as group:
        for number in range(5):
            group.create_task(worker(number))
        await settle()
        assert inside == [0]
        lanes.resize("main", 3)
        await settle()
        assert inside == [0, 1, 2] and lanes.depth("main") == 2
        go.set()
    assert inside == [0, 1, 2, 3, 4]


async def test_lane_resized_narrower_keeps_holders_and_then_limits() -> None:
    lanes, doors, inside = Lanes({"main": 3}), list[asyncio.Event](), list[int]()

    async def worker(number: int) -> None:
        async with lanes.enter("main"):
            inside.append(number)
            await doors[number].wait()

    async with asyncio.TaskGroup() as group:
        for number in range(4):
            doors.append(asyncio.Event())
            group.create_task(worker(number))
        await settle()
        lanes.resize("main", 1)
        for number in range(2):
            doors[number].set()
            await settle()
            assert inside == [0, 1, 2], "two are inside, or one: there is no room"
        doors[2].set()
        await settle()
        assert inside == [0, 1, 2, 3]
        doors[3].set()


async def test_lane_resized_while_idle_uses_new_width() -> None:
    lanes = Lanes({"main": 1})
    lanes.resize("main", 2)
    async with asyncio.timeout(5), lanes.enter("main"), lanes.enter("main"):
        assert lanes.depth("main") == 0
    with pytest.raises(ValueError, match="main"):
        lanes.resize("main", 0)


async def test_lane_holders_have_task_names() -> None:
    lanes, go = Lanes(), asyncio.Event()

    async def worker() -> None:
        async with lanes.enter("session:a", "main"):
            await go.wait()

    async with asyncio.TaskGroup() as group:
        group.create_task(worker(), name="run a")
        group.create_task(worker(), name="run b")
        await settle()
        assert [one.task_name for one in lanes.holders("main")] == ["run a"]
        assert all(one.held_s >= 0 for one in lanes.holders("session:a"))
        assert lanes.snapshot()["main"] == (1, 0, 4)
        assert lanes.depth("session:a") == 1
        go.set()
    assert lanes.holders("main") == ()
    assert lanes.snapshot()["main"] == (0, 0, 4)


def test_lanes_snapshot_shows_default_widths() -> None:
    lanes = Lanes({"main": 2})
    assert {name: width for name, (_, _, width) in lanes.snapshot().items()} == {
        "main": 2,
        "subagent": 8,
        "cron": 1,
        "nested": 1,
        "heartbeat": 1,
    }


async def test_lane_slow_wait_logs_the_holders(caplog: pytest.LogCaptureFixture) -> None:
    lanes, go = Lanes(slow_wait_s=0.01), asyncio.Event()

    async def worker() -> None:
        async with lanes.enter("one"):
            await go.wait()

    async with asyncio.timeout(60), asyncio.TaskGroup() as group:
        group.create_task(worker(), name="run a")
        group.create_task(worker(), name="run b")
        while not caplog.records:  # noqa: ASYNC110 - logging wakes no task
            await asyncio.sleep(0.005)
        go.set()
    assert [record.getMessage() for record in caplog.records] == [
        "run b waits for lane one; inside: run a for 0 s"
    ]


async def test_lane_short_wait_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    lanes = Lanes(slow_wait_s=0.2)

    async def worker() -> None:
        async with lanes.enter("one"):
            await asyncio.sleep(0)

    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(worker())
    loop = asyncio.get_running_loop()
    passed = loop.create_future()
    loop.call_later(0.3, passed.set_result, None)
    await passed
    assert caplog.records == []


async def test_place_given_up_is_had_back_once_by_parallel_waits() -> None:
    lanes, go = Lanes({"main": 1}), asyncio.Event()

    async def wait(place: LanePlace) -> None:
        async with place.given_up():
            await go.wait()

    async with asyncio.timeout(60), lanes.open_place("main") as place:
        await place.acquire(resumes=False)
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                group.create_task(wait(place))
            async with lanes.enter("main"):  # others work meanwhile
                go.set()
        assert place.is_held and len(lanes.holders("main")) == 1
    async with asyncio.timeout(60), lanes.enter("main"):  # no place is lost
        assert lanes.depth("main") == 0
