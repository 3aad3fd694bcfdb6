"""`homarus system event` says when the agent gets the notice."""

from collections.abc import Mapping

import pytest
from click.testing import CliRunner

from homarus.cli import system
from homarus.core.message import Json


@pytest.mark.parametrize(
    ("mode", "answer", "said"),
    [
        ("now", {"ok": True}, "The agent gets the notice now."),
        ("now", {"ok": True, "delayedBy": "switched-off"}, "`homarus system heartbeat enable`"),
        ("now", {"ok": True, "delayedBy": "no-heartbeat"}, "agents.defaults.heartbeat.every"),
        ("now", {"ok": True, "delayedBy": "quiet-hours"}, "active hours"),
        ("now", {"ok": True, "delayedBy": "requests-in-flight"}, "current run has ended"),
        ("now", {"ok": True, "delayedBy": ["?"]}, "with the next message or heartbeat"),
        ("next-heartbeat", {"ok": True}, "with the next message or heartbeat"),
    ],
)
def test_system_event_says_when_the_notice_arrives(
    monkeypatch: pytest.MonkeyPatch, mode: str, answer: Json, said: str
) -> None:
    def call(_gateway: object, method: str, params: Mapping[str, Json]) -> Json:
        assert (method, params) == ("wake", {"mode": mode, "text": "Fire!"})
        return answer

    monkeypatch.setattr(system, "_call", call)
    result = CliRunner().invoke(system.command, ["event", "--text", "Fire!", "--mode", mode])
    assert result.exit_code == 0
    assert said in result.output
    is_now = "gets the notice now" in result.output
    assert is_now == (said == "The agent gets the notice now.")
