"""Load the diagnostics of a gateway process when its config asks for them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from homarus.config.diagnostics_schema import DiagnosticsConfig

if TYPE_CHECKING:
    from homarus.diagnostics.event_metrics import EventMetrics
    from homarus.diagnostics.runtime import DiagnosticsPorts, DiagnosticsRuntime

Spawn = Callable[[Coroutine[Any, Any, None], str], "asyncio.Task[None] | None"]


class DiagnosticsLoader:
    """Starts the runtime at the start of a gateway, or with a config that turns it on."""

    def __init__(
        self,
        get_config: Callable[[], DiagnosticsConfig],
        make_ports: "Callable[[], DiagnosticsPorts]",
        spawn: Spawn,
    ) -> None:
        self._get_config, self._make_ports, self._spawn = get_config, make_ports, spawn
        self._has_gateway = self._has_metrics = False
        self._runtime: DiagnosticsRuntime | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def metrics(self) -> "EventMetrics | None":
        """The metrics that are counted from events, if they are."""
        return self._runtime.metrics if self._runtime else None

    def start(self, *, has_metrics: bool) -> None:
        """Start what the config asks for; without a gateway nothing is started."""
        self._has_gateway, self._has_metrics = True, has_metrics
        self.reload()

    def stop(self) -> None:
        """End the tasks, after a last export of the queue."""
        self._has_gateway = False
        if self._task:
            self._task.cancel()

    def reload(self) -> None:
        """Use the config as it is now."""
        config = self._get_config()
        if self._runtime is None:
            if not self._has_gateway or not (config.enabled or self._has_metrics):
                return
            from homarus.diagnostics.runtime import DiagnosticsRuntime

            self._runtime = DiagnosticsRuntime(self._make_ports(), has_metrics=self._has_metrics)
            self._task = self._spawn(self._runtime.run(), "diagnostics")
        self._runtime.apply(config)
