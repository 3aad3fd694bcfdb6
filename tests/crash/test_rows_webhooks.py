"""Rows 97 to 100: `kill -9` around the delivery of a webhook.

A delivery that was answered is done exactly once; one that was not is sent again by its sender, and
is done once as well.
"""

import http.client
import json
from collections.abc import Mapping
from typing import Any

import pytest

from homarus.store.sqlite import SqliteStore
from tests.crash.conftest import MakeRig
from tests.crash.harness import GUARD_S, Rig, wait_for

pytestmark = pytest.mark.slow

KILLED = -9
HOOK_TOKEN = "crash-hook-0123456789"
CONFIG = {"hooks": {"enabled": True, "token": HOOK_TOKEN}}
NO_ANSWER: tuple[int, Any] = (0, {})
SEND = {"agent": {"message": "MOCK:say:done§", "deliver": False}, "wake": {"text": "look"}}


def send(
    rig: Rig, name: str, payload: Mapping[str, Any] | None = None, delivery: str = "d-1"
) -> tuple[int, Any]:
    """Send a delivery to the gateway that was started last; (0, {}) when it died."""
    line = [line for line in rig.output.splitlines() if "is ready on" in line][-1]
    host = line.partition("ws://")[2].split()[0]
    connection = http.client.HTTPConnection(host, timeout=GUARD_S)
    headers = {
        "Authorization": f"Bearer {HOOK_TOKEN}",
        "Content-Type": "application/json",
        "Idempotency-Key": delivery,
    }
    body = json.dumps(payload if payload is not None else SEND[name])
    try:
        connection.request("POST", f"/hooks/{name}", body, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"{}")
    except (ConnectionError, http.client.HTTPException):
        return NO_ANSWER
    finally:
        connection.close()


def records(rig: Rig, kind: str) -> Mapping[str, Mapping[str, Any]]:
    async def body(store: SqliteStore) -> Mapping[str, Mapping[str, Any]]:
        return await store.records(kind)

    return rig.read_store(body)


def start(rig: Rig, fault: str = "") -> None:
    rig.start(fault)
    rig.wait_ready()


def send_and_die(rig: Rig, name: str, fault: str) -> None:
    start(rig, fault)
    assert send(rig, name) == NO_ANSWER
    assert rig.gateway and rig.gateway.wait() == KILLED, rig.output


def states(rig: Rig) -> list[tuple[str, str]]:
    return [(row.id, row.state) for row in rig.inbox() if row.channel == "hook"]


def check_done(rig: Rig, name: str) -> None:
    """Check that the delivery, sent again, is done once."""
    status, answer = send(rig, name)
    assert status == (202 if name == "agent" else 200) and answer["ok"]
    if name == "wake":
        assert len(records(rig, "notice")) == 1 and not states(rig)
        return
    wait_for(lambda: states(rig) == [(answer["runId"], "answered")], "the run has ended")
    assert not records(rig, "turn")
    (key,) = {row.session for row in rig.inbox() if row.channel == "hook"}
    assert [one["role"] for one in rig.messages(key)] == ["user", "assistant"]


@pytest.mark.parametrize("name", ["agent", "wake"])
def test_row_97_killed_before_a_delivery_was_stored(make_rig: MakeRig, name: str) -> None:
    rig = make_rig(config=CONFIG)
    send_and_die(rig, name, "hook.read:kill9")
    assert not states(rig) and not records(rig, "notice") and not records(rig, "hook-delivery")
    start(rig)
    check_done(rig, name)


@pytest.mark.parametrize("name", ["agent", "wake"])
def test_row_98_killed_after_a_delivery_was_stored(make_rig: MakeRig, name: str) -> None:
    rig = make_rig(config=CONFIG)
    send_and_die(rig, name, "hook.stored:kill9")
    assert len(records(rig, "hook-delivery")) == 1
    assert len(states(rig)) == (name == "agent") and len(records(rig, "notice")) == (name == "wake")
    start(rig)
    if name == "agent":
        wait_for(lambda: [state for _, state in states(rig)] == ["answered"], "it is resumed")
    check_done(rig, name)


@pytest.mark.parametrize("point", ["run.begun", "provider.asked"])
def test_row_99_killed_while_the_run_of_a_delivery_worked(make_rig: MakeRig, point: str) -> None:
    rig = make_rig(config=CONFIG)
    start(rig, f"{point}:kill9")
    send(rig, "agent")
    assert rig.gateway and rig.gateway.wait() == KILLED, rig.output
    assert [state for _, state in states(rig)] == ["running"]
    start(rig)
    check_done(rig, "agent")


def test_row_100_delivery_comes_again_after_restarts(make_rig: MakeRig) -> None:
    rig = make_rig(config=CONFIG)
    start(rig)
    first = send(rig, "agent")
    assert first[0] == 202
    for _ in range(2):
        wait_for(lambda: [state for _, state in states(rig)] == ["answered"], "it is answered")
        rig.kill()
        start(rig)
        assert send(rig, "agent") == first
        assert send(rig, "agent", {"message": "other"})[0] == 409
    check_done(rig, "agent")


def test_row_100_delivery_that_cannot_be_stored_is_sent_again(make_rig: MakeRig) -> None:
    rig = make_rig(config=CONFIG)
    start(rig, "store.commit:enospc:60+")
    answers = dict[str, int]()
    for number in range(100):
        answers[f"d-{number}"], _ = send(rig, "wake", delivery=f"d-{number}")
        if answers[f"d-{number}"] != 200:
            break
    refused = [name for name, status in answers.items() if status != 200]
    assert [answers[name] for name in refused] == [503]
    stored = len(records(rig, "hook-delivery"))
    assert stored == len(answers) - 1 > 0
    rig.kill()
    start(rig)
    assert send(rig, "wake", delivery=refused[0])[0] == 200
    assert len(records(rig, "hook-delivery")) == stored + 1
