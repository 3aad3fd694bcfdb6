"""The OTLP/HTTP exporters of the OpenTelemetry SDK, called in a thread."""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult

from homarus import __version__
from homarus.core.diagnostics import DeliveryAttempted, RunTraced
from homarus.diagnostics.metric_families import MetricFamily
from homarus.diagnostics.otel_settings import OtelSettings
from homarus.diagnostics.otel_spans import is_sampled, make_delivery_span, make_run_spans

TIMEOUT_S: Final = 5.0


class OtelSender:
    """Converts and sends; every call blocks, for `TIMEOUT_S` at most."""

    def __init__(self, settings: OtelSettings, started_ms: int) -> None:
        self._settings, self._started_ms = settings, started_ms
        # Its warnings would repeat ours, at each attempt.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)
        # Not `Resource.create`: it would add what the environment says of this machine.
        self._resource = Resource(
            {"service.name": settings.service_name, "service.version": __version__}
        )
        self._spans = OTLPSpanExporter(
            f"{settings.endpoint}/v1/traces", headers=dict(settings.headers), timeout=TIMEOUT_S
        )
        self._metrics: object = None

    def send_spans(self, events: Sequence[RunTraced | DeliveryAttempted]) -> bool:
        """Send the spans of these events; return whether the collector accepted them."""
        spans = list(self._convert(events))
        return not spans or self._spans.export(spans) is SpanExportResult.SUCCESS

    def _convert(self, events: Iterable[RunTraced | DeliveryAttempted]) -> Iterator[ReadableSpan]:
        for event in events:
            if not is_sampled(event.run, self._settings.sample_rate):
                continue
            if isinstance(event, RunTraced):
                yield from make_run_spans(event, self._resource)
            else:
                yield make_delivery_span(event, self._resource)

    def send_metrics(self, families: Sequence[MetricFamily], now_ms: int) -> bool:
        """Send the values of metrics; return whether the collector accepted them."""
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics.export import MetricExportResult

        from homarus.diagnostics.otel_metrics import make_metrics_data

        if not isinstance(self._metrics, OTLPMetricExporter):
            self._metrics = OTLPMetricExporter(
                f"{self._settings.endpoint}/v1/metrics",
                headers=dict(self._settings.headers),
                timeout=TIMEOUT_S,
            )
        times = self._started_ms * 1_000_000, now_ms * 1_000_000
        data = make_metrics_data(families, self._resource, *times)
        return self._metrics.export(data) is MetricExportResult.SUCCESS

    def close(self) -> None:
        """Give up an export under way."""
        stop: Callable[[], None] = self._spans.shutdown
        stop()
