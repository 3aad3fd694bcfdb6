"""The diagnostics of a process: what listens under which config, and while it changes."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from homarus.cli.diagnostics_check import check_diagnostics
from homarus.config.diagnostics_schema import DiagnosticsConfig
from homarus.config.log_setup import FlagFilter
from homarus.config.schema import Config
from homarus.core.diagnostics import Diagnostics, RunAttempted
from homarus.diagnostics import otel_settings
from homarus.diagnostics.loader import DiagnosticsLoader
from homarus.diagnostics.runtime import DiagnosticsPorts
from homarus.testing.clock import FakeClock
from tests.unit.diagnostics.collector import FakeCollector, running_collector
from tests.unit.diagnostics.test_otel_export import RUN
from tests.waiting import settle, until


def parse(**section: Any) -> DiagnosticsConfig:
    return DiagnosticsConfig.model_validate(section)


class Process:
    """A loader with its diagnostics and the config in use."""

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.diagnostics, self.clock, self.config = Diagnostics(), FakeClock(), parse()
        ports = DiagnosticsPorts(
            diagnostics=self.diagnostics,
            clock=self.clock,
            env=dict,
            has_hook=lambda: False,
            call_hook=self._call,
            start_task=group.create_task,
        )
        self.loader = DiagnosticsLoader(
            lambda: self.config,
            lambda: ports,
            lambda work, name: group.create_task(work, name=name),
        )

    async def _call(self, _event: object) -> None:
        raise AssertionError("there is no hook")

    def use(self, **section: Any) -> None:
        self.config = parse(**section)
        self.loader.reload()


@asynccontextmanager
async def running() -> AsyncIterator[Process]:
    async with asyncio.TaskGroup() as group:
        process = Process(group)
        yield process
        process.loader.stop()


def otel(collector: FakeCollector, **changed: Any) -> dict[str, Any]:
    section = {"enabled": True, "endpoint": collector.url, "flushIntervalMs": 1_000, **changed}
    return {"enabled": True, "otel": section}


async def test_nothing_listens_without_a_gateway_or_a_setting() -> None:
    async with running() as process:
        process.use(enabled=True)
        assert not is_active(process)  # a command of the program, not a gateway
        process.config = parse()
        process.loader.start(has_metrics=False)
        assert not is_active(process) and process.loader.metrics is None


def is_active(process: Process) -> bool:
    return process.diagnostics.is_active


async def test_changed_config_turns_events_on_and_off() -> None:
    async with running() as process:
        process.loader.start(has_metrics=False)
        process.use(enabled=True)
        assert is_active(process)
        process.use(enabled=False)
        assert not is_active(process)
        process.use(enabled=True, stuckSessionWarnMs=5)
        assert is_active(process)


async def test_export_flushes_at_interval_and_at_the_end() -> None:
    with running_collector() as collector:
        async with running() as process:
            process.use()
            process.loader.start(has_metrics=False)
            process.use(**otel(collector))
            await settle()
            process.diagnostics.publish(RUN)
            await process.clock.advance(1.5)
            await until(collector.spans)
            await until(lambda: "homarus.runs_total" in collector.metric_names())
            seen = len(collector.spans())
            process.diagnostics.publish(RUN)
        assert len(collector.spans()) == 2 * seen


async def test_export_that_is_turned_off_sends_the_rest() -> None:
    with running_collector() as collector:
        async with running() as process:
            process.loader.start(has_metrics=False)
            process.use(**otel(collector))
            await settle()
            process.diagnostics.publish(RUN)
            process.use(enabled=True)
            await until(collector.spans)
            process.diagnostics.publish(RUN)
        assert len(collector.spans()) == 3


async def test_missing_library_is_logged_and_everything_else_works(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(otel_settings, "has_library", lambda: False)
    monkeypatch.setattr(logging.getLogger("homarus"), "propagate", True)
    async with running() as process:
        process.loader.start(has_metrics=True)
        process.use(enabled=True, otel={"enabled": True})
        process.diagnostics.publish(RunAttempted("s", "r", 1))
        assert "pip install 'homarus[otel]'" in caplog.text
        assert process.loader.metrics is not None and process.loader.metrics.attempts.values
    config = Config.model_validate(
        {"diagnostics": {"enabled": True, "otel": {"enabled": True, "logs": True}}}
    )
    findings = list(check_diagnostics(config))
    assert [state for _, state, _, _ in findings] == ["bad", "bad"]
    assert findings[0][3] == "pip install 'homarus[otel]'"


def test_doctor_says_where_runs_are_exported() -> None:
    assert list(check_diagnostics(Config())) == []
    config = Config.model_validate({"diagnostics": {"enabled": True, "otel": {"enabled": True}}})
    ((_, state, text, _),) = check_diagnostics(config)
    assert state == "ok" and "http://127.0.0.1:4318" in text


def test_flags_pass_debug_records_of_named_parts() -> None:
    def passes(name: str, level: int, *flags: str) -> bool:
        record = logging.LogRecord(name, level, "", 0, "text", None, None)
        return FlagFilter(logging.INFO, flags).filter(record)

    adapter = "homarus.channels.telegram.adapter"
    assert passes(adapter, logging.DEBUG, "telegram.*") and passes(adapter, logging.DEBUG, "*")
    assert passes(adapter, logging.DEBUG, "Channels.Telegram.Adapter")
    assert not passes(adapter, logging.DEBUG, "irc.*", "telegram")
    assert passes(adapter, logging.INFO) and not passes(adapter, logging.DEBUG)
