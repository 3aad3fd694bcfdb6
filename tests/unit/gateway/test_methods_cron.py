"""The `cron.*` methods: OpenClaw's answers, scopes, filters, and what is refused."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import InvalidRequestError, UserError
from homarus.core.message import Json
from homarus.gateway.method import MethodCall
from homarus.gateway.methods import METHODS, UNIMPLEMENTED
from homarus.store.slots import SlotRecord, SlotState
from tests.unit.gateway.app_harness import Harness, run
from tests.unit.gateway.wire_shapes import differences
from tests.unit.schedule.fake_cron import NOW_MS, FakeCron

FRAMES = Path(__file__).parents[2] / "data" / "frames"
OLD, NEWEST = 3, 4
ENDS: tuple[tuple[SlotState, str], ...] = (
    ("ok", ""), ("error", "model broke"), ("skipped", "missed"), ("running", ""),
)  # fmt: skip
EVENT: dict[str, Any] = {
    "name": "bench",
    "schedule": {"kind": "every", "everyMs": 86_400_000},
    "sessionTarget": "main",
    "wakeMode": "next-heartbeat",
    "payload": {"kind": "systemEvent", "text": "x"},
}
TURN = {
    "name": "news",
    "schedule": {"kind": "cron", "expr": "0 8 * * *", "tz": "Europe/Berlin"},
    "sessionTarget": "isolated",
    "wakeMode": "now",
    "payload": {"kind": "agentTurn", "message": "News?"},
    "delivery": {"mode": "announce", "channel": "last"},
    "agentId": "work",
    "enabled": False,
}
# What 2026.9 adds and this program does not have, and what OpenClaw's example jobs do not have.
OPTIONAL = {
    "cron.add": {"scheduledToolPolicy", "payload.toolsAllow", "deliveryPreview"},
    "cron.update": {"state.scheduleActivatedAtMs"},
    "cron.list": {
        "deliveryPreviews", "jobs[].declarationKey",
        "jobs[].displayName", "jobs[].agentId",
    },
    "cron.status": {"triggersEnabled", "storage", "sqlitePath"},
    "cron.run": {"processInstanceId"},
    "cron.runs": {"entries[].deliveryStatus"},
}  # fmt: skip
EXTRA = {
    "cron.add": {"effectiveAgentId", "schedule.anchorMs"},
    "cron.get": {"effectiveAgentId"},
    "cron.update": {"effectiveAgentId"},
    "cron.list": {"jobs[].payload.text"},  # the example is a heartbeat
}


class FakeLoader:
    """Returns the service of jobs, as the loader does."""

    def __init__(self, cron: FakeCron) -> None:
        self._cron = cron

    def __call__(self) -> FakeCron:
        return self._cron


class CronHarness:
    """A gateway whose jobs are in memory."""

    def __init__(self, it: Harness) -> None:
        self.cron, self.it = FakeCron(), it
        loader: Any = FakeLoader(self.cron)
        self.services = replace(it.services, schedules=loader)

    async def ask(
        self, method: str, params: Json = None, *scopes: str, protocol: int = OLD, **named: Json
    ) -> Json:
        caller = replace(self.it.caller(*scopes), protocol=protocol)
        call = MethodCall(self.services, self.it.gateway, caller, "1")
        return await METHODS[method](call, params if params is not None else named)


@pytest.fixture
async def it(tmp_path: Path) -> AsyncIterator[CronHarness]:
    async with run(tmp_path) as opened:
        yield CronHarness(opened)


def captured(version: str) -> list[dict[str, Any]]:
    text = (FRAMES / f"cron-{version}.json").read_text(encoding="utf-8")
    return [one["frame"] for one in json.loads(text)]


def answers(version: str, method: str, action: str = "") -> list[Any]:
    """Return the payloads of OpenClaw's answers to a method, or of its events."""
    frames = captured(version)
    if method == "event":
        events = [frame["payload"] for frame in frames if frame["type"] == "event"]
        return [payload for payload in events if payload["action"] == action]
    ids = [frame["id"] for frame in frames if frame.get("method") == method]
    return [frame["payload"] for frame in frames if frame["type"] == "res" and frame["id"] in ids]


@pytest.mark.parametrize(("version", "protocol"), [("2026.2.17", OLD), ("2026.9.6", NEWEST)])
async def test_cron_answers_have_the_shapes_of_openclaw(
    it: CronHarness, version: str, protocol: int
) -> None:
    requests = [frame for frame in captured(version) if frame["type"] == "req"]
    ids: dict[str, str] = {}  # OpenClaw's id → ours
    for request in requests:
        method, params = request["method"], dict(request["params"])
        given = str(params.get("id") or params.get("jobId") or "")
        if given in ids:
            params["jobId" if "jobId" in params else "id"] = ids[given]
        it.cron.is_due = params.get("mode") != "due"
        ours = await it.ask(method, params, protocol=protocol)
        theirs = answers(version, method)
        if method == "cron.add":
            ids[theirs[len(ids)]["id"]] = ours["id"]
        found = differences(ours, theirs, OPTIONAL.get(method, ()), EXTRA.get(method, ()))
        assert list(found) == [], f"{method} {params}"


@pytest.mark.parametrize(
    ("method", "scope"),
    [
        ("cron.list", "read"), ("cron.status", "read"), ("cron.runs", "read"),
        ("cron.get", "read"), ("cron.internal", "read"), ("cron.add", "admin"),
        ("cron.update", "admin"), ("cron.remove", "admin"), ("cron.run", "admin"),
    ],
)  # fmt: skip
async def test_cron_methods_need_the_scope_of_openclaw(
    it: CronHarness, method: str, scope: str
) -> None:
    assert METHODS[method].scope == scope and method not in UNIMPLEMENTED
    if scope == "admin":
        with pytest.raises(InvalidRequestError, match=r"missing scope: operator\.admin"):
            await it.ask(method, {}, "write")


async def test_cron_job_is_added_changed_run_and_removed(it: CronHarness) -> None:
    job = await it.ask("cron.add", EVENT)
    assert job["payload"] == EVENT["payload"] and job["enabled"] is True
    assert job["schedule"] == {**EVENT["schedule"], "anchorMs": NOW_MS}
    patched = await it.ask("cron.update", id=job["id"], patch={"enabled": False})
    assert patched["enabled"] is False
    assert await it.ask("cron.list") == {"jobs": []}
    assert len((await it.ask("cron.list", includeDisabled=True))["jobs"]) == 1
    assert await it.ask("cron.run", jobId=job["id"]) == {"ok": True, "ran": True}
    assert it.cron.ran == [(job["id"], "force")]
    assert await it.ask("cron.remove", id=job["id"]) == {"ok": True, "removed": True}
    assert await it.ask("cron.remove", id=job["id"]) == {"ok": True, "removed": False}
    with pytest.raises(UserError, match="unknown job"):
        await it.ask("cron.run", id=job["id"])


async def test_cron_update_of_another_revision_is_refused(it: CronHarness) -> None:
    job = await it.ask("cron.add", EVENT, protocol=NEWEST)
    params = {"id": job["id"], "expectedConfigRevision": job["configRevision"]}
    first = await it.ask("cron.update", {**params, "patch": {"name": "a"}}, protocol=NEWEST)
    assert first["name"] == "a" and first["configRevision"] != job["configRevision"]
    with pytest.raises(InvalidRequestError, match="changed since it was read"):
        await it.ask("cron.update", {**params, "patch": {"name": "b"}})
    assert it.cron.stored[job["id"]].name == "a"


async def test_cron_run_of_a_newest_client_has_an_id_that_runs_finds(it: CronHarness) -> None:
    job = await it.ask("cron.add", EVENT)
    started = await it.ask("cron.run", id=job["id"], protocol=NEWEST)
    assert started["enqueued"] is True
    found = await it.ask("cron.runs", id=job["id"], runId=started["runId"], protocol=NEWEST)
    assert [entry["runId"] for entry in found["entries"]] == [started["runId"]]
    await it.ask("cron.update", id=job["id"], patch={"enabled": False})
    skipped = await it.ask("cron.run", id=job["id"], mode="if-enabled")
    assert skipped == {"ok": True, "ran": False, "reason": "disabled"}


async def test_cron_list_filters_sorts_and_pages(it: CronHarness) -> None:
    for name in ("b", "a", "c"):
        await it.ask("cron.add", {**EVENT, "name": name})
    await it.ask("cron.add", TURN)

    async def names(**params: Json) -> list[str]:
        found = await it.ask("cron.list", protocol=NEWEST, **params)
        return [job["name"] for job in found["jobs"]]

    assert await names(sortBy="name") == ["a", "b", "c"]
    assert await names(sortBy="name", sortDir="desc", limit=2, offset=1) == ["b", "a"]
    assert await names(enabled="disabled") == ["news"]
    assert await names(enabled="all", agentId="work") == ["news"]
    assert await names(includeDisabled=True, scheduleKind="cron") == ["news"]
    assert await names(includeDisabled=True, query="NEWS?") == ["news"]
    assert await names(trigger="conditional") == await names(lastRunStatus="ok") == []
    page = await it.ask("cron.list", protocol=NEWEST, limit=2)
    assert (page["total"], page["hasMore"], page["nextOffset"]) == (3, True, 2)


async def test_cron_runs_are_newest_last_and_filtered(it: CronHarness) -> None:
    it.cron.slots += [
        SlotRecord("j", NOW_MS + n, state=state, reason=reason, started_ms=NOW_MS, ended_ms=NOW_MS)
        for n, (state, reason) in enumerate(ENDS)
    ]

    async def statuses(protocol: int = OLD, **params: Json) -> list[str]:
        found = await it.ask("cron.runs", {"id": "j", **params}, "read", protocol=protocol)
        return [entry["status"] for entry in found["entries"]]

    assert await statuses() == ["ok", "error", "skipped"], "what runs has not finished"
    assert await statuses(limit=1) == ["skipped"]
    assert await statuses(NEWEST) == ["skipped", "error", "ok"]
    assert await statuses(NEWEST, sortDir="asc", statuses=["ok", "error"]) == ["ok", "error"]
    assert await statuses(status="error", query="BROKE") == ["error"]
    assert await statuses(NEWEST, offset=1, limit=1) == ["error"]
    assert len((await it.ask("cron.runs", scope="all"))["entries"]) == 3
    assert (await it.ask("cron.runs", id="../x"))["entries"] == []
    [entry] = (await it.ask("cron.runs", {"id": "j", "status": "error"}))["entries"]
    assert entry["error"] == "model broke"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("cron.add", {**EVENT, "jobs": 1}),
        ("cron.add", {**EVENT, "schedule": "daily"}),
        ("cron.add", {"name": "x"}),
        ("cron.add", {**EVENT, "payload": {"kind": "systemEvent", "text": "x", "tools": []}}),
        ("cron.add", {**EVENT, "sessionTarget": "isolated"}),
        ("cron.update", {"id": "job-1", "patch": {"state": {"nextRunAtMs": 1}}}),
        ("cron.update", {"patch": {}}),
        ("cron.run", {}),
        ("cron.run", {"id": "job-1", "mode": "later"}),
        ("cron.runs", {"id": "job-1", "limit": 5_001}),
        ("cron.list", {"includeDisabled": "yes"}),
    ],
)
async def test_cron_request_that_is_wrong_is_refused(
    it: CronHarness, method: str, params: dict[str, Any]
) -> None:
    await it.ask("cron.add", EVENT)
    with pytest.raises((InvalidRequestError, UserError)):
        await it.ask(method, params)
    assert [*it.cron.stored] == ["job-1"] and not it.cron.ran


async def test_cron_status_hides_the_path_from_readers(it: CronHarness) -> None:
    shown = await it.ask("cron.status", {}, "read")
    assert shown == {"enabled": True, "storePath": "", "jobs": 0, "nextWakeAtMs": None}
    assert (await it.ask("cron.status"))["storePath"] == "/state/cron/jobs.json"


async def test_cron_status_names_what_is_wrong_with_the_file(it: CronHarness) -> None:
    it.cron.problem = "/state/cron/jobs.json cannot be read: it is not valid JSON"
    assert (await it.ask("cron.status"))["problem"] == it.cron.problem
    shown = await it.ask("cron.status", {}, "read")
    assert shown["problem"] == "jobs.json cannot be read: it is not valid JSON"


async def test_cron_internal_lists_the_jobs_of_the_program(it: CronHarness) -> None:
    [job] = (await it.ask("cron.internal", {}, "read"))["jobs"]
    assert job["name"] == "maintenance" and job["nextRunAtMs"] is None
