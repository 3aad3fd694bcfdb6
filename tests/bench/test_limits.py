"""The bench judges by its limits; the figures themselves are never part of a test."""

import re
import tomllib

from bench.__main__ import BENCHES, LIMITS, judge, table
from bench.figure import ROOT, Figure

TEXT = LIMITS.read_text(encoding="utf-8")


def test_a_figure_over_its_limit_is_told_with_both_numbers() -> None:
    limits = {"a.cpu_s": {"most": 0.03}, "b.rate": {"least": 100.0}}
    figures = [Figure("a.cpu_s", 0.05, "CPU-s"), Figure("b.rate", 99, "per s")]
    assert judge(figures, limits) == [
        "a.cpu_s is 0.05 CPU-s, most 0.03",
        "b.rate is 99 per s, least 100.0",
    ]


def test_a_figure_at_its_limit_or_without_one_is_fine() -> None:
    limits = {"a.cpu_s": {"most": 0.03}, "b.rate": {"least": 100.0}}
    figures = [Figure("a.cpu_s", 0.03, "s"), Figure("b.rate", 100, "/s"), Figure("c", 9e9, "s")]
    assert judge(figures, limits) == []


def test_the_table_shows_each_figure_beside_its_limit() -> None:
    shown = table([Figure("a.cpu_s", 0.05, "CPU-s", "best of 3")], {"a.cpu_s": {"most": 0.03}})
    assert re.search(r"a\.cpu_s +0\.05 CPU-s +≤ 0\.03 +best of 3", shown)


def test_every_limit_has_a_bound_and_says_which_promise_it_keeps() -> None:
    for name, limit in tomllib.loads(TEXT).items():
        assert set(limit) in ({"most"}, {"least"}), name
        assert re.search(rf'^# .+\n\["{re.escape(name)}"\]', TEXT, re.MULTILINE), name


def test_every_limit_names_a_figure_that_some_bench_measures() -> None:
    sources = "".join((ROOT / "bench" / f"{n}.py").read_text(encoding="utf-8") for n in BENCHES)
    for name in tomllib.loads(TEXT):
        start = re.fullmatch(r"start\.(\w+)_cpu_s", name)
        assert name in sources or (start and f'"{start[1]}": [' in sources), name
