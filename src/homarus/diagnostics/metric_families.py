"""Metric families and their Prometheus text: counters, gauges and histograms with few labels.

A family has at most `MAX_SERIES` combinations of label values; further ones are counted as
`other`, so that no model, tool or peer can make the metrics grow.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final, Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass

MetricKind: TypeAlias = Literal["counter", "gauge", "histogram"]

MAX_SERIES: Final = 200
_MAX_LABEL_CHARS: Final = 100
_OTHER: Final = "other"
DURATION_BOUNDS_S: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
SHORT_BOUNDS_S: Final = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0)


@dataclass(slots=True)
class HistogramValue:
    """The observations of one series: how many are at most each bound, and their sum."""

    counts: list[int]
    total: float = 0.0

    @property
    def count(self) -> int:
        return sum(self.counts)


@dataclass(slots=True)
class MetricFamily:
    """A metric with its series, by the values of its labels."""

    name: str
    kind: MetricKind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = ()
    values: dict[tuple[str, ...], float] = field(default_factory=dict)
    histograms: dict[tuple[str, ...], HistogramValue] = field(default_factory=dict)

    def add(self, *labels: str, by: float = 1) -> None:
        """Add to a counter."""
        key = self._key(labels, self.values)
        self.values[key] = self.values.get(key, 0) + by

    def set(self, *labels: str, value: float) -> None:
        """Set a gauge."""
        self.values[self._key(labels, self.values)] = value

    def observe(self, *labels: str, value: float) -> None:
        """Add an observation to a histogram."""
        key = self._key(labels, self.histograms)
        series = self.histograms.get(key)
        if series is None:
            series = self.histograms[key] = HistogramValue([0] * (len(self.bounds) + 1))
        series.counts[bisect_left(self.bounds, value)] += 1
        series.total += value

    def _key(
        self, labels: tuple[str, ...], known: Mapping[tuple[str, ...], object]
    ) -> tuple[str, ...]:
        if labels in known or not labels:
            return labels
        labels = tuple(label[:_MAX_LABEL_CHARS] for label in labels)
        is_full = labels not in known and len(known) >= MAX_SERIES
        return (_OTHER,) * len(labels) if is_full else labels


def gauge(name: str, text: str, value: float) -> MetricFamily:
    """Return a gauge without labels."""
    return MetricFamily(name, "gauge", text, values={(): value})


def counter(name: str, text: str, value: float) -> MetricFamily:
    """Return a counter without labels."""
    return MetricFamily(name, "counter", text, values={(): value})


def format_families(families: Iterable[MetricFamily], prefix: str = "homarus_") -> str:
    """Return families in the text format of Prometheus; those without a series are left out."""
    return "".join(f"{line}\n" for family in families for line in _lines(family, prefix))


def _lines(family: MetricFamily, prefix: str) -> Iterable[str]:
    if not family.values and not family.histograms:
        return
    name = f"{prefix}{family.name}"
    yield f"# HELP {name} {_escape_help(family.help)}"
    yield f"# TYPE {name} {family.kind}"
    for labels, value in family.values.items():
        yield f"{name}{_label_text(family.labels, labels)} {_number(value)}"
    for labels, series in family.histograms.items():
        seen = 0
        for bound, count in zip((*family.bounds, None), series.counts, strict=True):
            seen += count
            limit = "+Inf" if bound is None else _number(bound)
            text = _label_text((*family.labels, "le"), (*labels, limit))
            yield f"{name}_bucket{text} {seen}"
        text = _label_text(family.labels, labels)
        yield f"{name}_sum{text} {_number(series.total)}"
        yield f"{name}_count{text} {series.count}"


def _label_text(names: Sequence[str], values: Sequence[str]) -> str:
    if not names:
        return ""
    pairs = (f'{name}="{_escape_label(value)}"' for name, value in zip(names, values, strict=True))
    return f"{{{','.join(pairs)}}}"


def _escape_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _escape_label(text: str) -> str:
    shown = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    # A parser splits lines at other characters too.
    return "".join(ch if ch.isprintable() else "?" for ch in shown)


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) and abs(value) < 1 << 53 else repr(float(value))
