"""Every run of a year, in zones that change their clocks, against a brute-force oracle."""

from bisect import bisect_right
from functools import lru_cache
from itertools import islice, pairwise
from random import Random
from zoneinfo import ZoneInfo

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from homarus.schedule.cron_expression import CronExpression
from tests.unit.schedule.expressions import EXPRESSIONS, ZONES, random_expression
from tests.unit.schedule.oracle import MINUTE, minutes_of_year, runs_of_year

YEAR = 2026
FAST_ZONES = ("America/New_York", "Europe/Berlin", "Australia/Lord_Howe")


def our_runs(text: str, zone: ZoneInfo) -> list[int]:
    """Return the runs in a local year."""
    expression, runs = CronExpression.parse(text), []
    occurs = minutes_of_year(zone, YEAR)
    moments = [at for local, at in occurs.items() if local.year == YEAR]
    after_ms = round(moments[0][0].timestamp() * 1000) - 1
    end_ms = round(moments[-1][-1].timestamp() * 1000)
    while (found := expression.next_after(after_ms, zone)) is not None and found <= end_ms:
        assert found > after_ms
        runs.append(after_ms := found)
    return runs


def check_year(text: str, name: str) -> None:
    zone = ZoneInfo(name)
    expected = runs_of_year(text, zone, YEAR)
    assert our_runs(text, zone) == expected, (text, name)


@lru_cache(16)
def changes_ms(zone: ZoneInfo) -> list[int]:
    """Return when the clocks of a zone go forward or back."""
    moments = sorted(
        (at, local) for local, found in minutes_of_year(zone, YEAR).items() for at in found
    )
    pairs = pairwise(moments)
    return [
        round(at.timestamp() * 1000)
        for (_, before), (at, local) in pairs
        if local - before != MINUTE
    ]


def check_starts(text: str, name: str, random: Random) -> None:
    """Ask at random moments, most of them within two hours of a change of clocks."""
    zone, expression = ZoneInfo(name), CronExpression.parse(text)
    runs = runs_of_year(text, zone, YEAR)
    if not runs:
        return
    changes = changes_ms(zone)
    for _ in range(20):
        start_ms = random.randint(runs[0] - 1, runs[-1] - 1)
        if changes and random.random() < 0.7:
            start_ms = random.choice(changes) + random.randint(-7_200_000, 7_200_000)
        place = bisect_right(runs, start_ms)
        if place < len(runs):
            assert expression.next_after(start_ms, zone) == runs[place], (text, name, start_ms)


@pytest.mark.parametrize("name", FAST_ZONES)
def test_cron_sample_of_a_year_matches_the_oracle(name: str) -> None:
    random = Random(name)
    rare = [text for text in EXPRESSIONS if not text.startswith("*/")]
    for text in (*random.sample(rare, 6), "30 2 * * *", "*/10 1-3 * * *"):
        check_year(text, name)
        check_starts(text, name, random)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32), st.sampled_from(FAST_ZONES))
def test_cron_generated_expression_matches_the_oracle(seed: int, name: str) -> None:
    text = random_expression(Random(seed))
    runs = runs_of_year(text, ZoneInfo(name), YEAR)
    zone, expression = ZoneInfo(name), CronExpression.parse(text)
    for before, run in islice(pairwise(runs), 200):
        assert expression.next_after(before, zone) == run, (text, name, before)
    check_starts(text, name, Random(seed))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", ZONES)
def test_cron_all_expressions_of_a_year_match_the_oracle(name: str) -> None:
    random = Random(f"all {name}")
    generated = (random_expression(random) for _ in range(40))
    for text in (*EXPRESSIONS, "* * * * *", *generated):
        check_year(text, name)
        check_starts(text, name, random)
