"""croner, which OpenClaw uses: our cron expressions run at the same times.

Three of its answers are mistakes that are not repeated here. Each has a test, which fails when a
later croner answers otherwise: it returns times in the past during a repeated hour, forgets a
shifted run if it is asked between the change of the clocks and that run, and misses the first
days of a month after a short one, because it takes them for the 29th to 31st of that.
"""

import json
import subprocess
from calendar import monthrange
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import TypeAlias
from zoneinfo import ZoneInfo

import pytest

from homarus.schedule.cron_expression import CronExpression
from homarus.schedule.cron_fields import CronExpressionError
from tests.peers.install import npm, run
from tests.unit.schedule.expressions import EXPRESSIONS, ZONES, random_expression

pytestmark = [pytest.mark.peers, pytest.mark.timeout(900)]  # the first run installs it

Query: TypeAlias = tuple[str, str, list[int]]
Answer: TypeAlias = list[int | None] | str

HOUR = 3_600_000
FOLDER = Path(__file__).parent / "croner"
ALL_ZONES = (*ZONES, "UTC", "Pacific/Auckland", "America/Havana", "Asia/Tokyo", "Antarctica/Troll")
UNCHANGING = ("UTC", "Asia/Tokyo", "Asia/Kolkata")
SECONDS = ("*/7 * * * * *", "0,30 */9 2 * * *", "59 59 23 L * *", "15 0 0 1 1 * 2027-2035/2")
REFUSED = (
    "", "nope", "* * * *", "* * * * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *",
    "* * 32 * *", "* * * 0 *", "* * * 13 *", "* * * * 8", "*/0 * * * *", "*/61 * * * *",
    "* */25 * * *", "* * */32 * *", "* * * */13 *", "* * * * */8", "5/15 * * * *", "/10 * * * *",
    "1/2/3 * * * *", "22-2 * * * *", "* * * NOV-FEB *", "* * * * SAT-MON", "1-2-3 * * * *",
    "-1 * * * *", "1- * * * *", "1,,2 * * * *", "a * * * *", "1.5 * * * *", "٣ * * * *",
    "** * * * *", "*-5 * * * *", "* * * * L", "* * * * *#1", "* * * * 5#6", "* * * * 5#0",
    "* * * * 5W", "* * W * *", "* * 1-5W * *", "* * */5W * *", "* * L-2 * *", "* * LW,1 * *",
    "L * * * *", "* * * * +", "* * * * ++5", "* * +1 * *", "* * * JANUARY *", "* * * * MONDAY",
    "* * MON * *", "@every 5m", "@reboot", "@minutely", "0 0 0 1 1 * 0", "0 0 0 1 1 * 10000",
    "0 0 0 1 1 * */4", "0 0 0 1 1 * L", "2027-01-01",
)  # fmt: skip


@pytest.fixture(scope="module")
def croner() -> Path:
    """The folder in which croner is installed, with the program that runs it."""
    folder = npm(FOLDER)
    (folder / "next_runs.mjs").write_bytes((FOLDER / "next_runs.mjs").read_bytes())
    run("node", "--check", str(folder / "next_runs.mjs"))
    return folder


def query(croner: Path, queries: Sequence[Query]) -> list[Answer]:
    """Return the next run after each start, or the error of the expression."""
    done = subprocess.run(
        ["node", "next_runs.mjs"],
        cwd=croner,
        input=json.dumps(queries),
        capture_output=True,
        text=True,
        timeout=600,
        check=True,
    )
    found: list[Answer] = json.loads(done.stdout)
    return found


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def is_near_a_change(at_ms: int, zone: ZoneInfo) -> bool:
    """Return whether clocks change around a time, when croner's answer depends on the start."""
    return len({offset(at, zone) for at in (at_ms - 3 * HOUR, at_ms, at_ms + 3 * HOUR)}) > 1


def offset(at_ms: int, zone: ZoneInfo) -> timedelta | None:
    return datetime.fromtimestamp(at_ms / 1000, zone).utcoffset()


def test_croner_random_expressions_run_at_the_same_times(croner: Path) -> None:
    random, queries = Random(10), list[Query]()
    texts = [
        *EXPRESSIONS,
        *SECONDS,
        *(random_expression(random, plain_days=True) for _ in range(400)),
    ]
    for text in texts:
        name = random.choice(ALL_ZONES)
        zone = ZoneInfo(name)
        starts = [random.randint(ms("2024-01-01T00Z"), ms("2034-01-01T00Z")) for _ in range(15)]
        queries.append((text, name, [at for at in starts if not is_near_a_change(at, zone)]))
    compared = mistakes = 0
    for (text, name, starts), answer in zip(queries, query(croner, queries), strict=True):
        zone = ZoneInfo(name)
        for at, theirs in zip(starts, answer, strict=True):
            ours = CronExpression.parse(text).next_after(at, zone)
            if ours != theirs and is_after_a_short_month(ours, zone):
                mistakes += 1
                continue
            assert ours == theirs, (text, name, at)
            compared += 1
    assert compared > 5_000 and mistakes < compared / 100


def is_after_a_short_month(at_ms: int | None, zone: ZoneInfo) -> bool:
    """Return whether a run is on a day that croner takes for the 29th to 31st of the last month."""
    if at_ms is None:
        return False
    local = datetime.fromtimestamp(at_ms / 1000, zone)
    return local.day + monthrange(local.year, local.month - 1 or 12)[1] <= 31


@pytest.mark.parametrize(
    "name", [name for name in ALL_ZONES if not name.startswith(("UTC", "Asia"))]
)
def test_croner_runs_across_every_change_of_clocks(croner: Path, name: str) -> None:
    """Follow both from before a change, run by run, until it is over."""
    zone, random = ZoneInfo(name), Random(name)
    texts = ["30 2 * * *", "*/15 * * * *", "*/10 1-3 * * *", "15,35 2 * * *", "45 0,1,2 * * *"]
    texts += [random_expression(random, plain_days=True) for _ in range(25)]
    hours = range(ms("2026-01-01T00Z"), ms("2027-01-01T00Z"), HOUR)
    changes = [at for at in hours if offset(at, zone) != offset(at - HOUR, zone)]
    queries = list[Query]()
    for text in texts:
        for change in changes:
            chain, at = [change - 24 * HOUR], change - 24 * HOUR
            while len(chain) < 400 and at < change + 48 * HOUR:
                found = CronExpression.parse(text).next_after(at, zone)
                if found is None:
                    break
                chain.append(at := found)
            queries.append((text, name, chain))
    assert len(queries) >= 2 * len(texts)
    for (text, _, chain), answer in zip(queries, query(croner, queries), strict=True):
        assert isinstance(answer, list), (text, answer)
        assert answer[:-1] == list(chain[1:]), (text, name)


def test_croner_refuses_what_we_refuse(croner: Path) -> None:
    answers = query(croner, [(text, "UTC", [0]) for text in REFUSED])
    for text, answer in zip(REFUSED, answers, strict=True):
        assert isinstance(answer, str), (text, answer)
        with pytest.raises(CronExpressionError):
            CronExpression.parse(text)


def test_croner_accepts_what_we_accept(croner: Path) -> None:
    """Delete, insert and replace characters; whatever we still accept, croner accepts too."""
    random, kept = Random(3), list[Query]()
    for _ in range(40_000):
        letters = list(random_expression(random, plain_days=True))
        for _ in range(random.randint(1, 3)):
            place = random.randrange(len(letters))
            letters[place : place + random.randint(0, 1)] = random.choice("0123456789*,-/?#LW+ AJ")
        text = "".join(letters)
        try:
            CronExpression.parse(text)
        except CronExpressionError:
            continue
        kept.append((text, "UTC", [ms("2026-06-10T00Z")]))
    assert len(kept) > 2_000
    for (text, _, starts), answer in zip(kept, query(croner, kept), strict=True):
        assert not isinstance(answer, str), (text, answer)
        ours = CronExpression.parse(text).next_after(starts[0], UTC)
        assert answer == [ours] or is_after_a_short_month(ours, ZoneInfo("UTC")), text


def test_croner_mistakes_are_still_there(croner: Path) -> None:
    cases = [
        ("*/15 * * * *", "America/New_York", "2026-11-01T06:15Z", "2026-11-01T05:30Z"),
        ("30 2 * * *", "America/New_York", "2026-03-08T07:10Z", "2026-03-09T06:30Z"),
        ("0 0 31,1 * *", "UTC", "2026-02-17T00:00Z", "2026-03-31T00:00Z"),
    ]
    ours = ["2026-11-01T07:00Z", "2026-03-08T07:30Z", "2026-03-01T00:00Z"]
    answers = query(croner, [(text, zone, [ms(start)]) for text, zone, start, _ in cases])
    assert answers == [[ms(theirs)] for *_, theirs in cases]
    for (text, zone, start, _), expected in zip(cases, ours, strict=True):
        assert CronExpression.parse(text).next_after(ms(start), ZoneInfo(zone)) == ms(expected)
