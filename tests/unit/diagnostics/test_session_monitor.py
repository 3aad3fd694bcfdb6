"""Stuck sessions are reported, those that wait for a person are not."""

from homarus.core.diagnostics import (
    Diagnostic,
    Diagnostics,
    DiagnosticsSummarized,
    MessageQueued,
    SessionStateChanged,
    SessionStuck,
    WebhookFailed,
    WebhookReceived,
)
from homarus.diagnostics.session_monitor import SessionMonitor
from homarus.testing.clock import FakeClock


def make(stuck_ms: int = 120_000) -> tuple[SessionMonitor, FakeClock, list[Diagnostic]]:
    diagnostics, clock, seen = Diagnostics(), FakeClock(), list[Diagnostic]()
    monitor = SessionMonitor(diagnostics, clock, stuck_ms)
    diagnostics.add_listener(lambda event, _at_ms: seen.append(event))
    return monitor, clock, seen


async def test_session_is_stuck_after_the_threshold_until_it_ends() -> None:
    monitor, clock, seen = make()
    monitor.on_event(SessionStateChanged("s", "idle", "processing"), 0)
    monitor.on_event(MessageQueued("s", "cli", "person", 2), 0)
    await clock.advance(119)
    monitor.check()
    assert not [event for event in seen if isinstance(event, SessionStuck)]
    await clock.advance(1)
    monitor.check()
    monitor.check()
    stuck = [event for event in seen if isinstance(event, SessionStuck)]
    assert stuck == [SessionStuck("s", "processing", 120_000, 2)] * 2
    monitor.on_event(SessionStateChanged("s", "processing", "idle"), 0)
    seen.clear()
    monitor.check()
    assert seen == [DiagnosticsSummarized({"received": 0, "processed": 0, "errors": 0}, 0, 0, 0)]
    seen.clear()
    monitor.check()
    assert not seen  # nothing happened since


async def test_session_that_waits_for_a_person_is_not_stuck() -> None:
    monitor, clock, seen = make(1)
    monitor.on_event(SessionStateChanged("s", "idle", "processing"), 0)
    monitor.on_event(SessionStateChanged("s", "processing", "waiting"), 0)
    monitor.on_event(WebhookReceived("telegram"), 0)
    monitor.on_event(WebhookFailed("telegram", "no"), 0)
    await clock.advance(600)
    monitor.check()
    webhooks = {"received": 1, "processed": 0, "errors": 1}
    assert seen == [DiagnosticsSummarized(webhooks, 0, 1, 0)]


async def test_webhook_that_starts_no_run_is_summarised() -> None:
    monitor, _clock, seen = make()
    monitor.on_event(WebhookReceived("hooks"), 0)
    monitor.on_event(WebhookFailed("hooks", "no"), 0)
    monitor.check()
    monitor.check()
    webhooks = {"received": 1, "processed": 0, "errors": 1}
    assert seen == [DiagnosticsSummarized(webhooks, 0, 0, 0)]
