"""Rows 85 to 92: `kill -9` at every stage of a cron job's slot, a suspend, two processes.

Each slot runs at most once and ends in one recorded state; what was announced is sent once.
"""

import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from typing import Any

import pytest

from homarus.schedule.absolute_time import format_iso_ms
from homarus.sessions.notices import RECORD_KIND
from homarus.store.slots import SlotRecord
from homarus.store.sqlite import SqliteStore
from tests.crash.conftest import MakeRig
from tests.crash.harness import Rig, wait_for

pytestmark = pytest.mark.slow

KILLED = -9
CHAT = {"mode": "announce", "channel": "scripted", "to": "chat"}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def write_job(rig: Rig, text: str = "MOCK:echo hello", **changes: Any) -> str:
    """Write a job that is due now to the file, as a person or OpenClaw would; return its id."""
    job = {
        "id": "job-1",
        "name": "job",
        "enabled": True,
        "createdAtMs": now_ms(),
        "updatedAtMs": now_ms(),
        "schedule": {"kind": "at", "at": format_iso_ms(now_ms() - 1_000)},
        "sessionTarget": "isolated",
        "wakeMode": "now",
        "payload": {"kind": "agentTurn", "message": text},
        "delivery": CHAT,
        "state": {},
        **changes,
    }
    path = rig.state / "cron" / "jobs.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"version": 1, "jobs": [job]}))
    return "job-1"


def slots(rig: Rig) -> Sequence[SlotRecord]:
    async def body(store: SqliteStore) -> Sequence[SlotRecord]:
        return await store.slots()

    return rig.read_store(body)


def records(rig: Rig, kind: str) -> dict[str, Any]:
    async def body(store: SqliteStore) -> dict[str, Any]:
        return dict(await store.records(kind))

    return rig.read_store(body)


def kill_at(rig: Rig, fault: str) -> None:
    rig.start(fault)
    assert rig.gateway and rig.gateway.wait() == KILLED, rig.output


def wait_ended(rig: Rig, count: int = 1) -> Sequence[SlotRecord]:
    def done() -> Sequence[SlotRecord] | None:
        found = slots(rig)
        assert rig.gateway is not None and not rig.gateway.ended(), rig.output[-4000:]
        is_done = len(found) >= count and not any(one.is_running for one in found)
        return found if is_done else None

    return wait_for(done, "the slots have ended")


def check_once(rig: Rig) -> SlotRecord:
    """Check that the slot ran once, and that its answer was sent once."""
    (slot,) = wait_ended(rig)
    assert slot.state == "ok" and "hello" in slot.summary, slot
    turns = [row for row in rig.inbox() if row.message_id.startswith("cron:")]
    assert [row.state for row in turns] == ["answered"]
    wait_for(lambda: [one.state for one in rig.outbox()] == ["sent"] or None, "the answer was sent")
    assert not records(rig, "turn")
    return slot


def test_row_85_killed_before_the_slot_was_claimed(make_rig: MakeRig) -> None:
    rig = make_rig()
    write_job(rig)
    kill_at(rig, "cron.due:kill9")
    assert not slots(rig) and not rig.inbox(), "nothing of it is there"
    rig.start()
    check_once(rig)


@pytest.mark.parametrize("fault", ["turn.accepted:kill9", "cron.claimed:kill9"])
def test_row_86_killed_after_the_slot_was_claimed(make_rig: MakeRig, fault: str) -> None:
    rig = make_rig()
    write_job(rig)
    kill_at(rig, fault)
    assert [one.state for one in slots(rig)] == ["running"]
    rig.start()
    check_once(rig)


@pytest.mark.parametrize("point", ["run.begun", "provider.asked", "provider.streaming"])
def test_row_87_killed_while_the_job_ran(make_rig: MakeRig, point: str) -> None:
    rig = make_rig()
    write_job(rig)
    kill_at(rig, f"{point}:kill9")
    assert [one.state for one in slots(rig)] == ["running"]
    rig.start()
    check_once(rig)


@pytest.mark.parametrize("point", ["cron.ended", "turn.ended", "reply.saved"])
def test_row_88_killed_after_the_end_was_saved(make_rig: MakeRig, point: str) -> None:
    rig = make_rig()
    write_job(rig, deleteAfterRun=False)
    kill_at(rig, f"{point}:kill9")
    assert [one.state for one in slots(rig)] == ["ok"]
    rig.start()
    slot = check_once(rig)
    log = rig.state / "cron" / "runs" / f"{slot.job}.jsonl"
    wait_for(log.exists, "the log was brought up to date")
    (line,) = log.read_text().splitlines()
    assert json.loads(line)["summary"] == slot.summary
    (notice,) = records(rig, RECORD_KIND).values()
    assert "hello" in notice["text"]


@pytest.mark.parametrize("fault", ["cron.due:kill9", "cron.claimed:kill9"])
def test_row_89_killed_around_a_system_event(make_rig: MakeRig, fault: str) -> None:
    rig = make_rig()
    event = {"kind": "systemEvent", "text": "time to stretch"}
    write_job(
        rig, payload=event, sessionTarget="main", delivery=None, wakeMode="next-heartbeat",
        deleteAfterRun=False,
    )  # fmt: skip
    kill_at(rig, fault)
    rig.start()
    (slot,) = wait_ended(rig)
    assert slot.state == "ok"
    notices = [one["text"] for one in records(rig, RECORD_KIND).values()]
    assert notices == ["time to stretch"]


@contextmanager
def receiver() -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """Run a receiver of webhooks; it records the id and the body of each request."""
    got: list[tuple[str, Any]] = []

    class WebhookHandler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.headers["Idempotency-Key"], json.loads(body)))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            """Log nothing."""

    server = HTTPServer(("127.0.0.1", 0), WebhookHandler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/hook", got
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("point", ["cron.ended", "cron.posted"])
def test_row_90_killed_during_a_webhook(make_rig: MakeRig, point: str) -> None:
    with receiver() as (url, got):
        fetch = {"ssrfPolicy": {"allowedHostnames": ["127.0.0.1"]}}
        rig = make_rig(config={"tools": {"web": {"fetch": fetch}}})
        write_job(rig, delivery={"mode": "webhook", "to": url}, deleteAfterRun=False)
        kill_at(rig, f"{point}:kill9")
        rig.start()
        (slot,) = wait_ended(rig)
        wait_for(lambda: not records(rig, "webhook-delivery") or None, "it was delivered", 15)
        assert {key for key, _ in got} == {slot.run_id}, "a repetition has the same id"
        assert len(got) == (2 if point == "cron.posted" else 1)
        assert got[-1][1]["summary"] == slot.summary


@pytest.mark.parametrize("number", [1, 2])
def test_row_91_killed_while_the_file_was_written(make_rig: MakeRig, number: int) -> None:
    rig = make_rig()
    write_job(rig, deleteAfterRun=False, odd=[1])
    kill_at(rig, f"cron.mirrored:kill9:{number}")
    rig.start()
    check_once(rig)

    def written() -> dict[str, Any] | None:
        (job,) = json.loads((rig.state / "cron" / "jobs.json").read_text())["jobs"]
        return job if job["state"].get("lastStatus") == "ok" else None

    job = wait_for(written, "the file has the end of the run")
    assert job["odd"] == [1] and job["enabled"] is False


def test_row_92_suspend_over_many_slots_runs_one(make_rig: MakeRig) -> None:
    rig = make_rig()
    write_job(
        rig, schedule={"kind": "every", "everyMs": 2_500, "anchorMs": now_ms()}, delivery=None,
        payload={"kind": "systemEvent", "text": "tick"}, sessionTarget="main",
        wakeMode="next-heartbeat",
    )  # fmt: skip
    rig.start()
    rig.wait_ready()
    wait_ended(rig)
    assert rig.gateway is not None
    os.kill(rig.gateway.pid, signal.SIGSTOP)
    before = len(slots(rig))
    time.sleep(8)
    os.kill(rig.gateway.pid, signal.SIGCONT)
    found = wait_ended(rig, before + 3)
    during = found[before:]
    assert [one.state for one in during[:3]].count("ok") == 1, "no burst"
    assert {one.reason for one in during if one.state == "skipped"} != {""}
    times = [one.slot_ms for one in found]
    assert len(times) == len(set(times))
    assert all(b - a == 2_500 for a, b in pairwise(times)), "none is missing"


def test_row_92_second_process_on_the_state_runs_nothing(make_rig: MakeRig) -> None:
    rig = make_rig()
    write_job(rig, text="MOCK:delay:500 MOCK:echo hello")
    first = rig.start()
    rig.wait_ready()
    rig.gateway = None
    second = rig.start()
    assert second.wait() not in {0, KILLED}
    rig.gateway = first
    check_once(rig)
