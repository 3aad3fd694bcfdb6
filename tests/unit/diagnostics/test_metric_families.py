"""The Prometheus text: read back by a strict parser, and bounded."""

import re

from hypothesis import given
from hypothesis import strategies as st

from homarus.diagnostics.metric_families import (
    MAX_SERIES,
    MetricFamily,
    counter,
    format_families,
    gauge,
)

_SAMPLE = re.compile(r'([a-zA-Z_:][\w:]*)(?:\{((?:\w+="(?:[^"\\\n]|\\["\\n])*",?)*)\})? (\S+)')
_LABEL = re.compile(r'(\w+)="((?:[^"\\\n]|\\["\\n])*)"')


def parse(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Parse the text format strictly: each family has HELP, then TYPE, then its samples."""
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    family = kind = ""
    assert not text or text.endswith("\n")
    for line in text.split("\n")[:-1]:
        if line.startswith("# HELP "):
            family, kind = line.split(" ", 3)[2], ""
            assert family not in found, "a family comes once"
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == family and kind in {"counter", "gauge", "histogram"}
            found[family] = {}
        else:
            match = _SAMPLE.fullmatch(line)
            assert match and kind, line
            base = (
                re.sub(r"_(bucket|sum|count)$", "", match[1]) if kind == "histogram" else match[1]
            )
            assert base == family
            labels = tuple(
                (name, value.replace("\\n", "\n").replace('\\"', '"').replace("\\\\", "\\"))
                for name, value in _LABEL.findall(match[2] or "")
            )
            key = (("", match[1]), *labels)
            assert key not in found[family], "a series comes once"
            found[family][key] = float(match[3])
    return found


def test_families_without_a_series_are_left_out() -> None:
    assert format_families([MetricFamily("a_total", "counter", "A.", ("x",))]) == ""
    text = format_families([gauge("b", "B.", 1.5), counter("c_total", "C.", 3)])
    assert "# HELP homarus_b B.\n# TYPE homarus_b gauge\nhomarus_b 1.5\n" in text
    assert parse(text)["homarus_c_total"] == {(("", "homarus_c_total"),): 3}


def test_histogram_buckets_are_cumulative_and_end_with_infinity() -> None:
    family = MetricFamily("s", "histogram", "S.", ("m",), (0.1, 1.0))
    for value in (0.1, 0.5, 5.0):
        family.observe("x", value=value)
    lines = format_families([family]).splitlines()[2:]
    assert lines == [
        'homarus_s_bucket{m="x",le="0.1"} 1',
        'homarus_s_bucket{m="x",le="1"} 2',
        'homarus_s_bucket{m="x",le="+Inf"} 3',
        'homarus_s_sum{m="x"} 5.6',
        'homarus_s_count{m="x"} 3',
    ]


@given(st.lists(st.tuples(st.text(max_size=150), st.text(max_size=5)), max_size=400))
def test_any_labels_give_bounded_text_that_parses(labels: list[tuple[str, str]]) -> None:
    counters = MetricFamily("a_total", "counter", "A \\ b\nc.", ("x", "y"))
    seconds = MetricFamily("s", "histogram", "S.", ("x",), (1.0,))
    for first, second in labels:
        counters.add(first, second)
        seconds.observe(first, value=1.0)
    assert len(counters.values) <= MAX_SERIES + 1 and sum(counters.values.values()) == len(labels)
    for family in (counters, seconds):
        # Labels that look alike once unprintable characters are replaced are two series.
        lines = format_families([family]).split("\n")
        assert all(line.isprintable() for line in lines)
        assert all(_SAMPLE.fullmatch(line) for line in lines[2:-1])


def test_labels_beyond_the_limit_are_counted_as_other() -> None:
    family = MetricFamily("a_total", "counter", "A.", ("tool",))
    for number in range(MAX_SERIES + 50):
        family.add(f"tool-{number}")
    family.add("tool-1")
    assert family.values["other",] == 50 and family.values["tool-1",] == 2
