"""The export to OpenTelemetry, to a fake collector that decodes with the official types."""

import asyncio
import logging
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from homarus.config.diagnostics_schema import DiagnosticsConfig
from homarus.core.diagnostics import DeliveryAttempted, RunTraced
from homarus.diagnostics import otel_export, otel_settings
from homarus.diagnostics.event_metrics import EventMetrics
from homarus.diagnostics.otel_export import OtelExport
from homarus.diagnostics.otel_settings import OtelSettings, check_otel, resolve_otel
from homarus.testing.clock import FakeClock
from tests.unit.diagnostics.collector import FakeCollector, attributes, running_collector

STEPS: list[dict[str, Any]] = [
    {
        "kind": "model", "at": 1_010, "ms": 100, "ttfbMs": 40, "provider": "mock", "model": "m1",
        "attempt": 1, "input": 10, "output": 3, "cacheRead": 5, "cacheWrite": 0, "cost": 0.5,
        "error": "",
    },
    {
        "kind": "tool", "at": 1_120, "ms": 30, "call": "c1", "name": "exec", "decision": "allow",
        "outcome": "error", "chars": 12,
    },
]  # fmt: skip
DATA: dict[str, Any] = {
    "agent": "main", "model": "mock/m1", "lane": "main", "mode": "idle", "steps": STEPS,
    "times": {"submitted": 1_000, "started": 1_001, "settled": 1_200},
    "totals": {"input": 15, "output": 3, "cost": 0.5},
}  # fmt: skip
RUN = RunTraced("run-1", "agent:main:main", "telegram", "answered", DATA)
SENT = DeliveryAttempted("run-1", "run-1:0", "telegram", "sent", 1_210, 1_250)


def make_settings(collector: FakeCollector, **changed: Any) -> OtelSettings:
    fields = OtelSettings(
        collector.url, {"x-key": "k"}, "tests", traces=True, metrics=False, sample_rate=1.0,
        flush_interval_ms=1_000,
    )  # fmt: skip
    return replace(fields, **changed)


async def test_run_becomes_spans_of_model_tool_and_delivery() -> None:
    with running_collector() as collector:
        export = OtelExport(make_settings(collector), FakeClock())
        export.on_event(RUN, 0)
        await export.flush()
        export.on_event(SENT, 0)  # in a later batch, of the same trace
        await export.flush()
        await export.close()
    run, model, tool, sent = collector.spans()
    assert run.name == "invoke_agent main" and not run.parent_span_id
    assert [span.parent_span_id for span in (model, tool, sent)] == [run.span_id] * 3
    assert len({span.trace_id for span in (run, model, tool, sent)}) == 1
    assert (run.start_time_unix_nano, run.end_time_unix_nano) == (1_000_000_000, 1_200_000_000)
    assert attributes(run)["gen_ai.usage.input_tokens"] == 15
    asked = attributes(model)
    assert model.name == "chat m1" and asked["gen_ai.operation.name"] == "chat"
    assert asked["gen_ai.provider.name"] == "mock" and asked["gen_ai.usage.output_tokens"] == 3
    assert asked["gen_ai.response.time_to_first_chunk"] == 0.04
    assert attributes(tool)["gen_ai.tool.name"] == "exec" and tool.status.code == 2
    assert attributes(sent)["homarus.delivery.state"] == "sent"
    assert collector.headers[0]["x-key"] == "k" and export.exported == 2


async def test_suspended_attempt_is_below_the_run() -> None:
    with running_collector() as collector:
        export = OtelExport(make_settings(collector), FakeClock())
        export.on_event(replace(RUN, outcome="suspended"), 0)
        later = {**DATA, "times": {"started": 5_000, "settled": 6_000}, "steps": []}
        export.on_event(replace(RUN, data=later), 0)
        await export.close()
    first, *_steps, second = collector.spans()
    assert first.parent_span_id == second.span_id and not second.parent_span_id


async def test_metrics_are_exported_with_their_types() -> None:
    with running_collector() as collector:
        metrics = EventMetrics()
        metrics.on_event(RUN, 0)
        settings = make_settings(collector, traces=False, metrics=True)
        export = OtelExport(settings, FakeClock(), metrics.families)
        export.on_event(RUN, 0)
        await export.close()
    assert {"homarus.runs_total", "homarus.run_duration_seconds"} <= collector.metric_names()
    assert not collector.traces


async def test_sampling_keeps_or_drops_the_complete_run() -> None:
    with running_collector() as collector:
        export = OtelExport(make_settings(collector, sample_rate=0.5), FakeClock())
        for number in range(200):
            export.on_event(replace(RUN, run=f"r{number}"), 0)
            export.on_event(replace(SENT, run=f"r{number}"), 0)
        await export.close()
    runs: dict[str, int] = {}
    for span in collector.spans():
        name = str(attributes(span).get("homarus.run.id", ""))
        runs[name] = runs.get(name, 0) + bool(name)
    sampled = {name: count for name, count in runs.items() if name}
    assert 50 < len(sampled) < 150 and set(sampled.values()) == {2}


async def test_collector_that_fails_is_logged_once_and_drops(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("homarus"), "propagate", True)
    with running_collector() as collector:
        collector.status = 400
        export = OtelExport(make_settings(collector), FakeClock())
        for _ in range(2):
            export.on_event(RUN, 0)
            await export.flush()
        assert export.dropped == 2 and export.failures == 2
        assert caplog.text.count("does not accept") == 1
        collector.status = 200
        export.on_event(RUN, 0)
        await export.close()
        assert export.exported == 1


async def test_queue_is_bounded_and_counts_what_it_drops(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otel_export, "MAX_QUEUED", 10)
    with running_collector() as collector:
        export = OtelExport(make_settings(collector), FakeClock())
        for _ in range(25):
            export.on_event(RUN, 0)
        assert export.dropped == 15
        await export.close()
    assert export.exported == 10


async def test_close_without_a_collector_ends_in_time() -> None:
    with running_collector() as collector:
        settings = make_settings(collector)
    export = OtelExport(settings, FakeClock())
    export.on_event(RUN, 0)
    async with asyncio.timeout(otel_export.CLOSE_TIMEOUT_S + 5):
        await export.close()
    assert export.exported == 0


def test_settings_that_cannot_be_obeyed_say_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def parse(**otel: Any) -> DiagnosticsConfig:
        return DiagnosticsConfig.model_validate(
            {"enabled": True, "otel": {"enabled": True, **otel}}
        )

    assert check_otel(parse()) == () and check_otel(DiagnosticsConfig()) == ()
    (grpc,) = check_otel(parse(protocol="grpc"))
    assert "http/protobuf" in grpc and resolve_otel(parse(protocol="grpc"), {}) is None
    (logs,) = check_otel(parse(logs=True))
    assert "logs are not exported" in logs and resolve_otel(parse(logs=True), {}) is not None
    (address,) = check_otel(parse(endpoint="file:///etc/passwd"))
    assert "no address" in address and resolve_otel(parse(endpoint="ftp://x"), {}) is None
    found = resolve_otel(parse(), {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/"})
    assert found is not None and found.endpoint == "http://c:4318"
    monkeypatch.setattr(otel_settings, "has_library", lambda: False)
    (missing,) = check_otel(parse())
    assert "pip install 'homarus[otel]'" in missing and resolve_otel(parse(), {}) is None


def test_library_is_imported_only_by_the_sender() -> None:
    code = (
        "import sys, homarus.diagnostics.runtime, homarus.diagnostics.otel_export;"
        "import homarus.diagnostics.otel_settings, homarus.diagnostics.event_log;"
        "sys.exit(any(name.startswith('opentelemetry.') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
