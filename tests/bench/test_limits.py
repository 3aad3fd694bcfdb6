"""How the bench checks its limits; the figures themselves are never part of a test."""

import re
import tomllib
from dataclasses import replace

from bench.__main__ import BENCHES, LIMITS, judge, table
from bench.figure import ROOT, USUAL_MS, Figure, at_usual_pace, slowness

TEXT = LIMITS.read_text(encoding="utf-8")


def test_limit_exceeded_is_reported_with_both_numbers() -> None:
    limits = {"a.cpu_s": {"most": 0.03}, "b.rate": {"least": 100.0}}
    figures = [Figure("a.cpu_s", 0.05, "CPU-s"), Figure("b.rate", 99, "per s")]
    assert judge(figures, limits) == [
        "a.cpu_s is 0.05 CPU-s, most 0.03",
        "b.rate is 99 per s, least 100.0",
    ]


def test_limit_met_or_missing_passes() -> None:
    limits = {"a.cpu_s": {"most": 0.03}, "b.rate": {"least": 100.0}}
    figures = [Figure("a.cpu_s", 0.03, "s"), Figure("b.rate", 100, "/s"), Figure("c", 9e9, "s")]
    assert judge(figures, limits) == []


def test_limit_time_is_scaled_by_machine_pace() -> None:
    turn, rate = Figure("a.cpu_ms", 6.0, "CPU-ms", "best"), Figure("b", 100.0, "turns/s")
    assert at_usual_pace(turn, 1.5).value == 4.0
    assert at_usual_pace(turn, 1.5).note == "6 on a machine 1.50 × as slow as usual; best"
    assert at_usual_pace(rate, 1.5).value == 150.0
    assert at_usual_pace(Figure("c", 20.0, "chunks/CPU-s"), 1.5).value == 30.0
    for other in (Figure("d", 60.0, "MB"), Figure("e", 1.2, "×"), Figure("f", 7, "events")):
        assert at_usual_pace(other, 1.5) == other
    done = replace(turn, is_paced=True)
    assert at_usual_pace(done, 1.5) == done


def test_limit_pace_uses_best_moments_and_gives_fast_machines_nothing() -> None:
    assert slowness([USUAL_MS / 2, USUAL_MS]) == 1
    assert slowness([1.5 * USUAL_MS]) == 1.5
    assert slowness([1.5 * USUAL_MS] * 8 + [9 * USUAL_MS]) == 1.5


def test_table_shows_each_figure_with_its_limit() -> None:
    shown = table([Figure("a.cpu_s", 0.05, "CPU-s", "best of 3")], {"a.cpu_s": {"most": 0.03}})
    assert re.search(r"a\.cpu_s +0\.05 CPU-s +≤ 0\.03 +best of 3", shown)


def test_limits_have_bound_and_name_their_guarantee() -> None:
    for name, limit in tomllib.loads(TEXT).items():
        assert set(limit) in ({"most"}, {"least"}), name
        assert re.search(rf'^# .+\n\["{re.escape(name)}"\]', TEXT, re.MULTILINE), name


def test_limits_name_figures_that_a_bench_measures() -> None:
    sources = "".join((ROOT / "bench" / f"{n}.py").read_text(encoding="utf-8") for n in BENCHES)
    for name in tomllib.loads(TEXT):
        start = re.fullmatch(r"start\.(\w+)_cpu_s", name)
        assert name in sources or (start and f'"{start[1]}": [' in sources), name
