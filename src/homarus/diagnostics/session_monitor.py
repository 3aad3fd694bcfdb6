"""Track what sessions do, warn about those that are stuck, and summarise the diagnostics.

A session is stuck when its run has been under way for longer than the threshold; one that waits for
a person is not. The warning is repeated while it lasts.
"""

from typing import Final

from homarus.core.clock import Clock
from homarus.core.diagnostics import (
    Diagnostic,
    Diagnostics,
    DiagnosticsSummarized,
    MessageQueued,
    SessionActivity,
    SessionStateChanged,
    SessionStuck,
    WebhookFailed,
    WebhookProcessed,
    WebhookReceived,
)

INTERVAL_S: Final = 30.0
_MAX_SESSIONS: Final = 10_000


class SessionMonitor:
    """A listener of diagnostics that publishes session.stuck and diagnostic.heartbeat."""

    def __init__(self, diagnostics: Diagnostics, clock: Clock, stuck_ms: int) -> None:
        self._diagnostics, self._clock, self.stuck_ms = diagnostics, clock, stuck_ms
        self._busy: dict[str, tuple[SessionActivity, float]] = {}  # since when, monotonic
        self._queued: dict[str, int] = {}
        self._webhooks = {"received": 0, "processed": 0, "errors": 0}
        self._has_news = False

    def on_event(self, event: Diagnostic, _at_ms: int) -> None:
        """Track an event."""
        match event:
            case SessionStateChanged(session_key, _, state, depth):
                self._has_news = True
                self._busy.pop(session_key, None)
                self._queued.pop(session_key, None)
                if state != "idle" and len(self._busy) < _MAX_SESSIONS:
                    self._busy[session_key] = state, self._clock.monotonic()
                    if depth:
                        self._queued[session_key] = depth
            case MessageQueued(session_key, _, _, depth) if depth and session_key in self._busy:
                self._queued[session_key] = depth
            case WebhookReceived():
                self._has_news = True
                self._webhooks["received"] += 1
            case WebhookProcessed():
                self._webhooks["processed"] += 1
            case WebhookFailed():
                self._webhooks["errors"] += 1
            case _:
                pass

    async def run(self) -> None:
        """Check every half minute until cancelled."""
        while True:
            await self._clock.sleep(INTERVAL_S)
            self.check()

    def check(self) -> None:
        """Publish the sessions that are stuck, and the summary unless all was idle."""
        now_s = self._clock.monotonic()
        for key, (state, since_s) in list(self._busy.items()):
            age_ms = round((now_s - since_s) * 1000)
            if state == "processing" and age_ms >= self.stuck_ms:
                queued = self._queued.get(key, 0)
                self._diagnostics.publish(SessionStuck(key, state, age_ms, queued))
        states = [state for state, _ in self._busy.values()]
        if not (states or self._has_news):
            return
        self._has_news = False
        self._diagnostics.publish(
            DiagnosticsSummarized(
                dict(self._webhooks),
                states.count("processing"),
                states.count("waiting"),
                sum(self._queued.values()),
            )
        )
