"""Diagnostic events: their encoding, and listeners that cannot harm."""

import logging
from dataclasses import fields

import pytest

from homarus.core.diagnostics import (
    DIAGNOSTIC_TYPES,
    Diagnostic,
    Diagnostics,
    DiagnosticsSummarized,
    LaneDequeued,
    MemorySearched,
    ModelUsed,
    RunAttempted,
    SessionStateChanged,
    SessionStuck,
    encode_diagnostic,
)
from homarus.core.lanes import Lanes


def test_encoding_has_names_and_fields_of_openclaw() -> None:
    event = ModelUsed("s", "telegram", "a", "m", {"input": 1, "total": 1}, 0.5, 20, 7, {"limit": 9})
    assert encode_diagnostic(event, 3, 99) == {
        "type": "model.usage", "seq": 3, "ts": 99, "sessionKey": "s", "channel": "telegram",
        "provider": "a", "model": "m", "usage": {"input": 1, "total": 1}, "costUsd": 0.5,
        "durationMs": 20, "ttfbMs": 7, "context": {"limit": 9},
    }  # fmt: skip
    stuck = encode_diagnostic(SessionStuck("s", "processing", 120_000, 2), 1, 1)
    assert stuck is not None and stuck["ageMs"] == 120_000 and stuck["queueDepth"] == 2
    changed = encode_diagnostic(SessionStateChanged("s", "idle", "processing"), 1, 1)
    assert changed is not None and changed["prevState"] == "idle"
    assert encode_diagnostic(MemorySearched("main", 5), 1, 1) is None


def test_every_kind_of_openclaw_has_one_event() -> None:
    kinds = {name.split(".")[0] for name in DIAGNOSTIC_TYPES.values()}
    assert kinds == {"model", "webhook", "message", "session", "queue", "run", "diagnostic"}
    assert len(set(DIAGNOSTIC_TYPES.values())) == len(DIAGNOSTIC_TYPES) == 12
    assert all(fields(kind) for kind in DIAGNOSTIC_TYPES)


def test_failing_listener_is_logged_and_others_are_called(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = list[Diagnostic]()
    diagnostics = Diagnostics(lambda: 7)

    def fail(_event: Diagnostic, _at_ms: int) -> None:
        raise ValueError("a bug")

    def record(event: Diagnostic, at_ms: int) -> None:
        assert at_ms == 7
        seen.append(event)

    diagnostics.add_listener(fail)
    diagnostics.add_listener(record)
    monkeypatch.setattr(logging.getLogger("homarus"), "propagate", True)
    diagnostics.publish(RunAttempted("s", "r", 1))
    assert seen == [RunAttempted("s", "r", 1)] and "a bug" in caplog.text
    diagnostics.remove_listener(fail)
    diagnostics.remove_listener(record)
    assert not diagnostics.is_active


async def test_lane_publishes_wait_of_shared_lanes_only() -> None:
    seen = list[Diagnostic]()
    diagnostics = Diagnostics()
    lanes = Lanes({"main": 1}, diagnostics=diagnostics)
    async with lanes.enter("session:x", "main"):
        pass
    assert not seen
    diagnostics.add_listener(lambda event, _at_ms: seen.append(event))
    async with lanes.enter("session:x", "main"):
        pass
    assert [type(event).__name__ for event in seen] == ["LaneEnqueued", "LaneDequeued"]
    assert seen[1] == LaneDequeued("main", 0, 0)


def test_summary_is_encoded_as_heartbeat() -> None:
    encoded = encode_diagnostic(DiagnosticsSummarized({"received": 1}, 1, 0, 2), 1, 1)
    assert encoded is not None and encoded["type"] == "diagnostic.heartbeat"
    assert encoded["webhooks"] == {"received": 1} and encoded["waiting"] == 0
