"""Row 103: `kill -9` around a request of the HTTP API that has an Idempotency-Key.

The request is sent again after the restart and gets the one answer; the model is not asked twice
for it when there was an answer.
"""

import http.client
import json
from typing import Any

import pytest

from tests.crash.conftest import MakeRig
from tests.crash.harness import GUARD_S, Rig, wait_for

pytestmark = pytest.mark.slow

KILLED = -9
TOKEN = "crash-api-0123456789"
ENDPOINTS = {name: {"enabled": True} for name in ("chatCompletions", "responses")}
CONFIG = {"gateway": {"http": {"endpoints": ENDPOINTS}, "auth": {"token": TOKEN}}}
NO_ANSWER: tuple[int, Any] = (0, {})
CHAT = {
    "model": "openclaw",
    "messages": [{"role": "user", "content": "MOCK:say:once§"}],
}


def send(rig: Rig, body: Any = CHAT, key: str = "key-1") -> tuple[int, Any]:
    """Send a request to the gateway that was started last; (0, {}) when it died."""
    line = [line for line in rig.output.splitlines() if "is ready on" in line][-1]
    host = line.partition("ws://")[2].split()[0]
    connection = http.client.HTTPConnection(host, timeout=GUARD_S)
    headers = {
        "Authorization": f"Bearer {TOKEN}",
        "Content-Type": "application/json",
        "Idempotency-Key": key,
    }
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"{}")
    except (ConnectionError, http.client.HTTPException):
        return NO_ANSWER
    finally:
        connection.close()


def start(rig: Rig, fault: str = "") -> None:
    rig.start(fault)
    rig.wait_ready()


def check_answered_once(rig: Rig) -> None:
    status, answer = send(rig)
    while status == 503:  # its run is about to be resumed
        status, answer = send(rig)
    assert status == 200, answer
    assert answer["choices"][0]["message"]["content"] == "once"
    assert send(rig) == (200, answer)
    (row,) = rig.inbox()
    assert row.state == "answered"
    assert [one["role"] for one in rig.messages(row.session)] == ["user", "assistant"]


@pytest.mark.parametrize("point", ["run.begun", "provider.asked", "reply.saved"])
def test_row_103_killed_between_acceptance_and_answer(make_rig: MakeRig, point: str) -> None:
    rig = make_rig(config=CONFIG)
    start(rig, f"{point}:kill9")
    assert send(rig) == NO_ANSWER
    assert rig.gateway and rig.gateway.wait() == KILLED, rig.output
    assert len(rig.inbox()) == 1
    start(rig)
    check_answered_once(rig)


def test_row_103_same_key_after_restarts_keeps_its_answer(make_rig: MakeRig) -> None:
    rig = make_rig(config=CONFIG)
    start(rig)
    first = send(rig)
    assert first[0] == 200
    for _ in range(2):
        rig.kill()
        start(rig)
        assert send(rig) == first
        other = {**CHAT, "messages": [{"role": "user", "content": "other"}]}
        assert send(rig, other)[0] == 409
    wait_for(lambda: len(rig.inbox()) == 1, "there is one message")
    check_answered_once(rig)
