"""Convert metric families to the values that the OpenTelemetry SDK exports."""

from collections.abc import Iterable, Sequence

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource

from homarus.diagnostics.metric_families import MetricFamily
from homarus.diagnostics.otel_spans import SCOPE


def make_metrics_data(
    families: Iterable[MetricFamily], resource: Resource, start_ns: int, now_ns: int
) -> MetricsData:
    """Return the current values of all families, since the start of the process."""
    metrics = [
        Metric(f"homarus.{family.name}", family.help, "", _data(family, start_ns, now_ns))
        for family in families
        if family.values or family.histograms
    ]
    return MetricsData([ResourceMetrics(resource, [ScopeMetrics(SCOPE, metrics, "")], "")])


def _data(family: MetricFamily, start_ns: int, now_ns: int) -> Sum | Gauge | Histogram:
    cumulative = AggregationTemporality.CUMULATIVE
    if family.kind == "histogram":
        series = [
            HistogramDataPoint(
                dict(zip(family.labels, labels, strict=True)), start_ns, now_ns, each.count,
                each.total, list(each.counts), list(family.bounds), 0.0, 0.0,
            )
            for labels, each in family.histograms.items()
        ]  # fmt: skip
        return Histogram(series, cumulative)
    points: Sequence[NumberDataPoint] = [
        NumberDataPoint(dict(zip(family.labels, labels, strict=True)), start_ns, now_ns, value)
        for labels, value in family.values.items()
    ]
    return Gauge(points) if family.kind == "gauge" else Sum(points, cumulative, is_monotonic=True)
