"""A disk that cannot be written makes every health check fail, also when nothing else is written.

A health request makes a durable write: bounded in time, as a dead disk may block it for ever, and
not more often than every few seconds. Without a request nothing is written.
"""

import asyncio
import json
from concurrent.futures import Future
from pathlib import Path
from typing import cast
from urllib.error import HTTPError, URLError

import pytest

from homarus.core.errors import DiskFullError, StoreError
from homarus.gateway import health as module
from homarus.gateway.health import PROBE_INTERVAL_S, DiskProbe
from homarus.gateway.http_server import GatewayAsgiApp
from homarus.store.base import Store
from homarus.store.sqlite import open_store
from homarus.testing.clock import FakeClock
from tests.crash.conftest import MakeRig
from tests.crash.harness import Rig, wait_for
from tests.crash.random_kills import ECHO
from tests.crash.shim import Disk
from tests.unit.gateway.harness import play
from tests.unit.gateway.test_http_server import get
from tests.waiting import settle


class FakeDisk:
    """A store of which only the probe is used; each probe ends when the test says so."""

    def __init__(self) -> None:
        self.probes: list[Future[None]] = []

    def probe_disk(self) -> "Future[None]":
        self.probes.append(Future())
        return self.probes[-1]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FakeDisk:
    monkeypatch.setattr(module, "PROBE_TIMEOUT_S", 0.01)
    return FakeDisk()


async def test_hanging_write_is_reported_and_not_repeated(disk: FakeDisk) -> None:
    clock, store = FakeClock(), cast("Store", disk)
    probe = DiskProbe(clock)
    assert "longer than" in await probe.check(store)
    await clock.advance(10 * PROBE_INTERVAL_S)
    assert "longer than" in await probe.check(store)
    assert len(disk.probes) == 1, "one write hangs, not more"
    disk.probes[0].set_result(None)
    await settle()
    assert probe.problem == ""


async def test_failed_write_is_reported_until_one_succeeds(disk: FakeDisk) -> None:
    clock, store = FakeClock(), cast("Store", disk)
    probe = DiskProbe(clock)
    async with asyncio.TaskGroup() as group:
        checks = [group.create_task(probe.check(store)) for _ in range(50)]
        await settle()
        disk.probes[0].set_exception(DiskFullError("no room to write"))
    assert {check.result() for check in checks} == {"no room to write"}
    assert await probe.check(store) == "no room to write" and len(disk.probes) == 1
    await clock.advance(PROBE_INTERVAL_S)
    async with asyncio.TaskGroup() as group:
        checking = group.create_task(probe.check(store))
        await settle()
        disk.probes[1].set_result(None)
    assert checking.result() == ""


async def test_health_page_is_red_when_the_disk_fails(tmp_path: Path) -> None:
    async with play(tmp_path) as stage:
        page = GatewayAsgiApp(stage.gateway)
        assert (await get(page, "/health")).status == 200
        stage.gateway.disk = DiskProbe(FakeClock())

        def fail() -> "Future[None]":
            raise StoreError("state.sqlite is not written any more")

        object.__setattr__(stage.gateway.services.store, "probe_disk", fail)
        red = await get(page, "/health")
        assert (red.status, json.loads(red.body)) == (503, {"ok": False, "status": "disk"})


async def test_health_summary_writes_nothing_without_a_request(tmp_path: Path) -> None:
    async with play(tmp_path) as stage:
        probes: list[str] = []
        store = stage.gateway.services.store
        object.__setattr__(store, "probe_disk", lambda: probes.append("written"))
        stage.gateway.health = {}
        await stage.gateway._refresh_health()
        assert stage.gateway.health["ok"] is True and not probes


async def test_probe_is_a_synced_write_and_fails_with_the_disk(tmp_path: Path) -> None:
    with Disk() as failing:
        async with open_store(tmp_path) as store:
            await settle()
            before = dict(failing.count)
            await asyncio.wrap_future(store.probe_disk())
            assert failing.count["sync"] > before["sync"]
            failing.fail("sync", 1, on=True)
            with pytest.raises(StoreError):
                await asyncio.wrap_future(store.probe_disk())
            await store.wait_for_disk_failure()
            with pytest.raises(StoreError, match="not written any more"):
                store.probe_disk()
            failing.mend()


def fetch_health(rig: Rig) -> int:
    """Return the status of `/health`; 0 when the gateway does not answer."""
    try:
        rig.fetch_page("/health")
    except HTTPError as exc:
        exc.close()
        return exc.code
    except (URLError, OSError):
        return 0
    return 200


@pytest.mark.parametrize("commit", [1, 3, 6])
def test_row_22_dead_disk_of_an_idle_gateway_is_not_green(
    make_rig: MakeRig,
    commit: int,
) -> None:
    """From one commit on every sync fails, as after a power cut of the disk."""
    rig = make_rig()
    gateway = rig.start(f"store.commit:eio:{commit}+")
    wait_for(lambda: "is ready on" in rig.output or gateway.ended(), "the gateway is ready")
    if commit > 1:
        rig.offer(ECHO)
        wait_for(lambda: gateway.ended() or rig.verdict().answered, "the message is handled")
    assert fetch_health(rig) in {0, 503}
    assert gateway.wait() not in {0, -9}
    rig.start()
    rig.wait_ready()
    assert fetch_health(rig) == 200


def test_row_22_disk_that_hangs_is_not_green(
    make_rig: MakeRig,
) -> None:
    rig = make_rig()
    rig.start("store.commit:hang:1+")
    rig.wait_ready()
    assert [fetch_health(rig), fetch_health(rig)] == [503, 503]
    rig.kill()
