"""The diagnostics of a gateway process, as the config asks for them.

    runtime = DiagnosticsRuntime(ports, has_metrics=True)
    runtime.apply(config)     # at the start, and after each change of the config
    await runtime.run()       # until cancelled, with a last export of the queue

Without `diagnostics.enabled`, metrics and OpenTelemetry nothing listens, and nothing is published.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING

from homarus.config.diagnostics_schema import DiagnosticsConfig
from homarus.core.clock import Clock
from homarus.core.diagnostics import DiagnosticListener, Diagnostics
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.diagnostics.event_metrics import EventMetrics
from homarus.diagnostics.metric_families import MetricFamily

if TYPE_CHECKING:  # imported when it is on
    from homarus.diagnostics.otel_export import OtelExport
    from homarus.diagnostics.session_monitor import SessionMonitor

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DiagnosticsPorts:
    """What the diagnostics are given from outside."""

    diagnostics: Diagnostics
    clock: Clock
    env: Callable[[], Mapping[str, str]]
    has_hook: Callable[[], bool]
    call_hook: Callable[[Mapping[str, Json]], Coroutine[None, None, None]]
    start_task: Callable[[Coroutine[None, None, None]], object]


class DiagnosticsRuntime:
    """Adds and removes listeners, and runs what is periodic."""

    def __init__(self, ports: DiagnosticsPorts, *, has_metrics: bool) -> None:
        self._ports, self._has_endpoint = ports, has_metrics
        self.metrics: EventMetrics | None = None
        self._listeners: list[DiagnosticListener] = []
        self._monitor: SessionMonitor | None = None
        self._export: OtelExport | None = None
        self._config: DiagnosticsConfig | None = None
        self._changed = asyncio.Event()

    def apply(self, config: DiagnosticsConfig) -> Sequence[str]:
        """Use a config; return what cannot be done, which is logged too."""
        if config == self._config:
            return ()
        self._config = config
        problems = self._start_export(config)
        if self._has_endpoint or self._has_metric_export(config):
            self.metrics = self.metrics or EventMetrics()
        self._replace_listeners(config)
        self._changed.set()
        for problem in problems:
            log.error("%s", problem)
        return problems

    def _has_metric_export(self, config: DiagnosticsConfig) -> bool:
        return self._export is not None and config.otel.metrics

    def _start_export(self, config: DiagnosticsConfig) -> Sequence[str]:
        """Replace the exporter; without its library the gateway runs without it."""
        old, self._export = self._export, None
        if old:
            self._ports.start_task(old.close())
        if not (config.enabled and config.otel.enabled):
            return ()
        from homarus.diagnostics.otel_settings import check_otel, resolve_otel

        problems = check_otel(config)
        settings = resolve_otel(config, self._ports.env())
        if settings is None:
            return problems
        from homarus.diagnostics.otel_export import OtelExport

        self._export = OtelExport(settings, self._ports.clock, self._families)
        return problems

    def _families(self) -> Sequence[MetricFamily]:
        return self.metrics.families() if self.metrics else ()

    def _replace_listeners(self, config: DiagnosticsConfig) -> None:
        diagnostics, ports = self._ports.diagnostics, self._ports
        for listener in self._listeners:
            diagnostics.remove_listener(listener)
        self._listeners, self._monitor = [], None
        if self.metrics:
            self._listeners.append(self.metrics.on_event)
        if config.enabled:
            from homarus.diagnostics.event_log import DiagnosticEventLog
            from homarus.diagnostics.session_monitor import SessionMonitor

            event_log = DiagnosticEventLog(ports.has_hook, ports.call_hook, ports.start_task)
            self._monitor = SessionMonitor(diagnostics, ports.clock, config.stuck_session_warn_ms)
            self._listeners += [event_log.on_event, self._monitor.on_event]
        if self._export:
            self._listeners.append(self._export.on_event)
        for listener in self._listeners:
            diagnostics.add_listener(listener)

    async def run(self) -> None:
        """Run the monitor and the exporter until cancelled."""
        try:
            while True:
                self._changed.clear()
                async with asyncio.TaskGroup() as group:
                    tasks = [
                        group.create_task(part.run())
                        for part in (self._monitor, self._export)
                        if part is not None
                    ]
                    await self._changed.wait()
                    for task in tasks:
                        task.cancel()
        finally:
            if self._export:
                await self._export.close()
