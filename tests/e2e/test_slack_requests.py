"""Slack at a real gateway: signed requests at its port, and channels that the config names."""

import http.client
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from homarus.core.clock import SystemClock
from homarus.testing.model_server import ModelServer, Say
from homarus.testing.slack_server import ADA, GENERAL, SlackServer
from homarus.testing.slack_server.events import encode_form, make_callback, sign_request
from tests.contract.channel_peers import Hosted
from tests.contract.channel_peers_slack import SlackPeer
from tests.contract.channel_stage import Harness, wait_for
from tests.crash.harness import ForkServer

pytestmark = pytest.mark.timeout(300)

SECRET = "signing-secret-0123456789"


class RequestPeer(SlackPeer):
    """Slack with signed requests instead of a socket."""

    def section(self) -> Mapping[str, Any]:
        slack = dict(super().section()["slack"])
        del slack["appToken"]
        return {"slack": {**slack, "mode": "http", "signingSecret": SECRET}}

    def arrive(self, stage: Harness) -> None:
        body = json.dumps(make_callback({"type": "of_no_use"})).encode()
        wait_for(lambda: post(stage, body) == 200, "it accepts requests")

    @property
    def server(self) -> SlackServer:
        return self._server


class NamingPeer(SlackPeer):
    """Slack with a config that names a channel by its name."""

    def section(self) -> Mapping[str, Any]:
        slack = dict(super().section()["slack"])
        return {"slack": {**slack, "channels": {"#general": {"requireMention": False}}}}


@pytest.fixture(params=[RequestPeer])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Harness]:
    model, forks = Hosted(ModelServer), ForkServer()
    made = Harness(tmp_path / "home", request.param(), model.server, forks.fork)
    yield made
    made.close()
    model.close()
    forks.close()


def post(
    stage: Harness, body: bytes, kind: str = "application/json", *, secret: str = SECRET
) -> int:
    """Send a signed request to the gateway; return the status of its response."""
    place = urlsplit(stage.url.replace("ws://", "http://"))
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    try:
        headers = sign_request(body, secret, SystemClock().now_ms() / 1000)
        connection.request("POST", "/slack/events", body, {**headers, "Content-Type": kind})
        return connection.getresponse().status
    finally:
        connection.close()


def test_slack_signed_requests_are_answered_once_and_forged_ones_never(stage: Harness) -> None:
    stage.start()
    peer = stage.peer
    assert isinstance(peer, RequestPeer)
    _, ((_, event),) = peer.server.acts.say("how is the tide?")
    body = json.dumps(make_callback(event)).encode()
    stage.model.script([Say("high at six")])
    assert post(stage, body, secret="another") == 401
    assert [post(stage, body) for _ in range(4)] == [200] * 4  # Slack tries four times
    stage.wait_shown("high at six")
    stage.stay_quiet()
    assert stage.times("high at six") == 1 and len(stage.model.requests) == 1
    ((_, command),) = peer.server.acts.slash("/openclaw", "and tomorrow?", user=ADA)
    stage.model.script([Say("at seven")])
    assert post(stage, encode_form(command), "application/x-www-form-urlencoded") == 200
    stage.wait_shown("at seven")


@pytest.mark.parametrize("stage", [NamingPeer], indirect=True)
def test_slack_channel_name_in_config_becomes_its_id_and_is_answered(stage: Harness) -> None:
    stage.start()
    file = stage.home.state / "openclaw.json"
    section = json.loads(file.read_text(encoding="utf-8"))["channels"]["slack"]
    assert section["channels"] == {GENERAL: {"requireMention": False}}
    stage.model.script([Say("high at six")])
    stage.peer.write("how is the tide?", room=True)
    stage.wait_shown("high at six", room=True)
