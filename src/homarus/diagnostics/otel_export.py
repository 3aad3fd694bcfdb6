"""Send spans and metrics to an OpenTelemetry collector by OTLP/HTTP.

Events are queued on the event loop and converted and sent in a thread. A collector that is slow or
away affects no run: the queue is bounded, what does not fit is dropped and counted, and a failure
is logged once until sending succeeds again. The library is imported by the first flush.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from homarus.core.clock import Clock
from homarus.core.diagnostics import DeliveryAttempted, Diagnostic, RunTraced
from homarus.core.tasks import call_contained
from homarus.diagnostics.metric_families import MetricFamily
from homarus.diagnostics.otel_settings import OtelSettings

if TYPE_CHECKING:
    from homarus.diagnostics.otel_sender import OtelSender

log = logging.getLogger(__name__)

MAX_QUEUED: Final = 2_048  # events; one of a run is several spans
BATCH: Final = 256
CLOSE_TIMEOUT_S: Final = 3.0


class OtelExport:
    """A listener that exports the runs and deliveries which are sampled, and all metrics."""

    def __init__(
        self,
        settings: OtelSettings,
        clock: Clock,
        get_families: Callable[[], Sequence[MetricFamily]] = tuple,
    ) -> None:
        self._settings, self._clock, self._get_families = settings, clock, get_families
        self._queue: deque[RunTraced | DeliveryAttempted] = deque()
        self._started_ms = clock.now_ms()
        self._sender: OtelSender | None = None
        self._flushing = asyncio.Lock()
        self._is_closed = self._has_warned = False
        self.dropped = self.exported = self.failures = 0

    def on_event(self, event: Diagnostic, _at_ms: int) -> None:
        """Queue a run or a delivery."""
        if not isinstance(event, RunTraced | DeliveryAttempted) or not self._settings.traces:
            return
        if len(self._queue) >= MAX_QUEUED:
            self.dropped += 1
            self._warn(f"{MAX_QUEUED} runs wait to be exported: further ones are dropped")
            return
        self._queue.append(event)

    async def run(self) -> None:
        """Flush at each interval until cancelled."""
        while True:
            await self._clock.sleep(self._settings.flush_interval_ms / 1000)
            await self.flush()

    async def flush(self) -> None:
        """Send what is queued, and the metrics; what cannot be sent is dropped."""
        async with self._flushing:
            while self._queue:
                batch = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
                if not await self._send(partial(self._send_spans, batch)):
                    self.dropped += len(batch)
                    break  # the collector is away: the rest waits for the next interval
                self.exported += len(batch)
            if self._settings.metrics:
                families = list(self._get_families())
                now_ms = self._clock.now_ms()
                await self._send(partial(self._send_metrics, families, now_ms))

    async def _send(self, send: Callable[[], bool]) -> bool:
        results = list[bool]()
        work = partial(
            call_contained, "the export to OpenTelemetry", lambda: results.append(send())
        )
        await asyncio.to_thread(work)
        if results == [True]:
            self._has_warned = False
            return True
        self.failures += 1
        self._warn(f"{self._settings.endpoint} does not accept the export of OpenTelemetry")
        return False

    def _warn(self, text: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning("%s; this is not repeated until an export succeeds", text)

    def _get_sender(self) -> "OtelSender":
        if self._sender is None:
            from homarus.diagnostics.otel_sender import OtelSender

            self._sender = OtelSender(self._settings, self._started_ms)
        return self._sender

    def _send_spans(self, events: Sequence[RunTraced | DeliveryAttempted]) -> bool:
        return self._get_sender().send_spans(events)

    def _send_metrics(self, families: Sequence[MetricFamily], now_ms: int) -> bool:
        return self._get_sender().send_metrics(families, now_ms)

    async def close(self) -> None:
        """Flush once more, for a bounded time."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self.flush()
        except TimeoutError:
            log.warning("the last export to OpenTelemetry was not done in time, and is given up")
        if self._sender:
            self._sender.close()
