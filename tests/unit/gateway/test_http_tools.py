"""`/tools/invoke`: a tool without a model, by the policy, once for a key."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from homarus.agent.approval_ports import ApproverIdentity
from homarus.core.message import Json
from homarus.gateway.device_records import DevicePairingRequest
from homarus.gateway.http_api import request_log
from homarus.gateway.http_api.tools_invoke import DENIED_BY_DEFAULT
from homarus.plugins.hooks import hook
from homarus.plugins.values import Refusal
from tests.unit.gateway.api_harness import ApiClient, ApiResponseView
from tests.unit.gateway.app_harness import CONFIG, Harness, world
from tests.waiting import until

PATH = "/tools/invoke"
EXEC: Json = {"exec": {"security": "full", "ask": "off"}}
ASK: Json = {"exec": {"security": "full", "ask": "always"}}


@asynccontextmanager
async def tools(
    folder: Path, *, allow: Json = (), deny: Json = (), **config: Json
) -> AsyncIterator[tuple[ApiClient, Harness]]:
    """Run a gateway with the endpoint; `allow` and `deny` are `gateway.tools`."""
    gateway = {
        "http": {"endpoints": {"toolsInvoke": {"enabled": True}}},
        "tools": {"allow": list(allow), "deny": list(deny)},
    }
    async with world(folder, config={**CONFIG, "gateway": gateway, **config}) as it:
        yield ApiClient(it.gateway, "right"), it


def workspace(it: Harness) -> Path:
    return it.app.agent("main").workspace


def text_of(got: ApiResponseView) -> str:
    return str(got.json["result"]["content"][0]["text"])


def write_call(**more: Json) -> Json:
    return {"tool": "write", "args": {"path": "a.txt", "content": "one"}, **more}


def exec_call(command: str) -> Json:
    return {"tool": "exec", "args": {"command": command}}


def keyed(key: str) -> dict[str, Any]:
    return {"headers": [("idempotency-key", key)]}


def device(it: Harness, *scopes: str) -> str:
    wanted = tuple(f"operator.{scope}" for scope in scopes)
    request = DevicePairingRequest("d1", "key", "operator", wanted)
    return it.gateway.authenticator.devices.pair(request).tokens["operator"].secret


async def test_tool_call_runs_and_is_audited(tmp_path: Path) -> None:
    async with tools(tmp_path) as (client, it):
        got = await client.post(PATH, write_call())
        assert (got.status, got.json["ok"]) == (200, True)
        assert (workspace(it) / "a.txt").read_text() == "one"
        read = await client.post(PATH, {"tool": "READ", "args": {"path": "a.txt"}})
        assert "one" in text_of(read)
        entries = await it.store.audit_entries(tool="write")
        assert [entry.kind for entry in entries] == ["decision", "execution"]
        assert entries[0].session == "agent:main:main" and entries[1].data["outcome"] == "done"
        assert it.model.requests == []


async def test_tool_call_that_is_only_previewed_runs_nothing(tmp_path: Path) -> None:
    async with tools(tmp_path) as (client, it):
        allowed = (await client.post(PATH, write_call(dryRun=True))).json
        denied = (await client.post(PATH, {**exec_call("touch x"), "dryRun": True})).json
        invalid = await client.post(PATH, {"tool": "write", "dryRun": True})
        assert not (workspace(it) / "a.txt").exists() and not (workspace(it) / "x").exists()
    assert allowed["dryRun"] is True and allowed["result"]["decision"] == "allow"
    assert denied["result"]["decision"] == "deny"
    assert "gateway.tools.allow" in denied["result"]["reason"]
    assert (invalid.status, invalid.json["error"]["type"]) == (400, "tool_error")


@pytest.mark.parametrize("name", [*DENIED_BY_DEFAULT, "webhook_create", "Sessions-Spawn", "bash"])
async def test_tool_call_of_the_deny_list_is_refused(name: str, tmp_path: Path) -> None:
    async with tools(tmp_path, tools=EXEC) as (client, it):
        got = await client.post(PATH, {"tool": name, "args": {"command": "touch x"}})
        assert not (workspace(it) / "x").exists()
    assert got.status == 404
    assert got.json["ok"] is False and got.json["error"]["type"] == "not_found"


async def test_tool_call_of_an_unknown_tool_is_not_found(tmp_path: Path) -> None:
    async with tools(tmp_path) as (client, _it):
        got = await client.post(PATH, {"tool": "wriite"})
    assert got.status == 404 and "did you mean" in got.json["error"]["message"]


async def test_tool_call_follows_the_lists_of_the_config(tmp_path: Path) -> None:
    async with tools(tmp_path, allow=["exec"], deny=["group:fs"], tools=EXEC) as (client, it):
        ran = await client.post(PATH, exec_call("echo one > x"))
        refused = await client.post(PATH, write_call())
        assert (workspace(it) / "x").read_text() == "one\n"
    assert ran.status == 200 and refused.status == 404
    assert "gateway.tools.deny" in refused.json["error"]["message"]


async def test_tool_call_denied_by_the_policy_stays_denied(tmp_path: Path) -> None:
    settings = {"deny": ["exec", "write"]}
    async with tools(tmp_path, allow=["*"], tools=settings) as (client, it):
        assert (await client.post(PATH, exec_call("touch x"))).status == 404
        assert (await client.post(PATH, write_call())).status == 404
        assert not list(workspace(it).glob("[ax]*"))
        entries = await it.store.audit_entries(kind="decision")
    assert [entry.data["action"] for entry in entries] == ["deny", "deny"]


async def test_tool_call_for_the_owner_alone_needs_admin(tmp_path: Path) -> None:
    call = {"tool": "gateway", "action": "config.get", "args": {"path": "meta"}}
    async with tools(tmp_path, allow=["gateway"]) as (client, it):
        limited = await client.with_token(device(it, "write")).post(PATH, call)
        owner = await client.post(PATH, {**call, "args": {}})
    assert limited.status == 404 and "owner" in limited.json["error"]["message"]
    assert owner.status == 200, "action is an argument of the tool"


async def test_tool_call_needs_the_scope_write(tmp_path: Path) -> None:
    async with tools(tmp_path) as (client, it):
        got = await client.with_token(device(it, "read")).post(PATH, write_call())
        assert not (workspace(it) / "a.txt").exists()
    assert got.status == 403 and got.json["ok"] is False


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"tool": ""},
        {"tool": 1},
        {"tool": "write", "args": []},
        {"tool": "write", "dryrun": True},
        {"tool": "write", "sessionKey": "x" * 600},
        {"tool": "write", "args": {f"a{n}": 1 for n in range(1_100)}},
    ],
)
async def test_tool_call_that_is_invalid_is_refused(body: Json, tmp_path: Path) -> None:
    async with tools(tmp_path) as (client, _it):
        got = await client.post(PATH, body)
    assert (got.status, got.json["error"]["type"]) == (400, "invalid_request")


async def test_tool_call_with_wrong_arguments_is_a_tool_error(tmp_path: Path) -> None:
    async with tools(tmp_path) as (client, _it):
        for body in (
            {"tool": "read", "args": {"path": "../../etc/passwd"}},
            {"tool": "read", "args": {"path": "missing.txt"}},
            {"tool": "read", "args": {"unknown": 1}},
            {"tool": "read", "action": "x", "args": {"path": "a"}},
        ):
            got = await client.post(PATH, body)
            assert (got.status, got.json["error"]["type"]) == (400, "tool_error"), body


async def test_tool_call_in_another_session_has_its_rules(tmp_path: Path) -> None:
    agents: Json = {
        "defaults": CONFIG["agents"]["defaults"],
        "list": [{"id": "main"}, {"id": "ops", "tools": {"deny": ["write"]}}],
    }
    async with tools(tmp_path, agents=agents) as (client, it):
        ops = await client.post(PATH, write_call(sessionKey="agent:ops:main"))
        unknown = await client.post(PATH, write_call(sessionKey="agent:nobody:main"))
        main = await client.post(PATH, write_call(sessionKey="main"))
        assert (workspace(it) / "a.txt").exists()
    assert (ops.status, unknown.status, main.status) == (404, 404, 200)


async def test_tool_call_headers_narrow_what_is_allowed(tmp_path: Path) -> None:
    elevated: Json = {
        "exec": {"security": "deny", "ask": "off"},
        "elevated": {"allowFrom": {"telegram": ["*"]}},
    }
    config: dict[str, Json] = {
        "tools": elevated,
        "channels": {"telegram": {"botToken": "1:x", "enabled": False}},
    }
    async with tools(tmp_path, allow=["exec"], **config) as (client, it):
        header = [("x-openclaw-message-channel", "telegram")]
        call = {"tool": "exec", "args": {"command": "touch x", "elevated": True}}
        got = await client.post(PATH, call, headers=header)
        unknown = await client.post(
            PATH, write_call(), headers=[("x-openclaw-message-channel", "nowhere")]
        )
        alone = await client.post(PATH, write_call(), headers=[("x-openclaw-account-id", "a")])
        fine = await client.post(PATH, write_call(), headers=header)
        assert not (workspace(it) / "x").exists()
    assert got.status in {400, 404} and (unknown.status, alone.status) == (400, 400)
    assert fine.status == 200


async def test_tool_call_refused_by_a_hook_does_not_run(tmp_path: Path) -> None:
    class Guard:
        @hook
        async def before_tool_call(self, where: Any, call: Any) -> Any:
            return Refusal("not today")

    async with tools(tmp_path) as (client, it):
        it.app.hooks.register(Guard(), "guard")
        got = await client.post(PATH, write_call())
        assert not (workspace(it) / "a.txt").exists()
    assert got.status == 404 and "not today" in got.json["error"]["message"]


async def test_tool_call_without_approver_is_refused_at_once(tmp_path: Path) -> None:
    async with tools(tmp_path, allow=["exec"], tools=ASK) as (client, it):
        got = await client.post(PATH, exec_call("touch x"), gone=asyncio.Event())
        preview = await client.post(PATH, {**exec_call("touch x"), "dryRun": True})
        assert not (workspace(it) / "x").exists()
    assert got.status == 403 and got.json["error"]["code"] == "approval_required"
    assert preview.json["result"]["decision"] == "ask"


def events(it: Harness) -> list[Json]:
    return [data for name, data in it.gateway.broadcasts if name == "exec.approval.requested"]


@asynccontextmanager
async def asked(
    folder: Path, command: str = "echo one >> x", **more: Any
) -> AsyncIterator[tuple[Harness, "asyncio.Task[ApiResponseView]", str]]:
    """Make a call that needs an approval; yield it with the id of the approval."""
    async with tools(folder, allow=["exec"], tools=ASK) as (client, it):
        it.app.approval_ports.reach.append(lambda _record: True)
        given = {"gone": asyncio.Event(), **more}
        async with asyncio.TaskGroup() as group:
            task = group.create_task(client.post(PATH, exec_call(command), **given))
            await until(lambda: events(it))
            yield it, task, str(events(it)[0]["id"])


async def test_tool_call_runs_after_its_approval(tmp_path: Path) -> None:
    async with asked(tmp_path) as (it, task, approval):
        await it.app.approvals().resolve(approval, "allow-once", ApproverIdentity("ann"))
        got = await task
        assert got.status == 200 and (workspace(it) / "x").read_text() == "one\n"
        record = await it.app.approvals().get(approval)
        assert record.used_ms and record.session == "agent:main:main"


async def test_tool_call_that_is_denied_does_not_run(tmp_path: Path) -> None:
    async with asked(tmp_path) as (it, task, approval):
        await it.app.approvals().resolve(approval, "deny", ApproverIdentity("ann"))
        got = await task
        assert got.status == 403 and "ann" in got.json["error"]["message"]
        assert not (workspace(it) / "x").exists()


async def test_tool_call_without_answer_ends_in_time(tmp_path: Path) -> None:
    async with asked(tmp_path) as (it, task, approval):
        for _ in range(13):
            await it.clock.advance(10)
            await asyncio.sleep(0.01)
        got = await task
        assert got.status == 403
        assert (await it.app.approvals().get(approval)).state in {"cancelled", "expired"}
        assert not (workspace(it) / "x").exists()


async def test_tool_call_of_a_client_that_left_is_withdrawn(tmp_path: Path) -> None:
    gone = asyncio.Event()
    async with asked(tmp_path, gone=gone) as (it, task, approval):
        gone.set()
        assert (await task).status == 403
        assert (await it.app.approvals().get(approval)).state == "cancelled"
        assert not (workspace(it) / "x").exists()


async def test_tool_call_with_a_key_runs_once(tmp_path: Path) -> None:
    async with tools(tmp_path, allow=["exec"], tools=EXEC) as (client, it):
        call = exec_call("echo one >> x; cat x")
        first = await client.post(PATH, call, **keyed("k"))
        again = await client.post(PATH, call, **keyed("k"))
        assert (workspace(it) / "x").read_text() == "one\n"
        assert first.status == again.status == 200 and first.body == again.body
        other = await client.post(PATH, exec_call("echo two"), **keyed("k"))
        assert (other.status, other.json["error"]["code"]) == (409, "idempotency_conflict")
        foreign = client.with_token(device(it, "write"))
        assert (await foreign.post(PATH, call, **keyed("k"))).status in {200, 403, 404}
        new = await client.post(PATH, call, **keyed("k2"))
        assert text_of(new) != text_of(first)


async def test_tool_calls_with_one_key_at_once_run_once(tmp_path: Path) -> None:
    async with tools(tmp_path, allow=["exec"], tools=EXEC) as (client, it):
        call = exec_call("sleep 0.2; echo one >> x")
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(client.post(PATH, call, **keyed("k"))) for _ in range(8)]
        assert {task.result().body for task in tasks} == {tasks[0].result().body}
        assert (workspace(it) / "x").read_text() == "one\n"


async def test_tool_call_with_a_key_runs_once_across_a_restart(tmp_path: Path) -> None:
    given: dict[str, Any] = {"allow": ["exec"], "tools": EXEC}
    call = exec_call("echo one >> x")
    async with tools(tmp_path, **given) as (client, _it):
        first = await client.post(PATH, call, **keyed("k"))
    async with tools(tmp_path, **given) as (client, it):
        again = await client.post(PATH, call, **keyed("k"))
        assert again.body == first.body and (workspace(it) / "x").read_text() == "one\n"


async def test_tool_call_cut_off_by_a_crash_has_an_unknown_outcome(tmp_path: Path) -> None:
    given: dict[str, Any] = {"allow": ["exec"], "tools": EXEC}
    call = exec_call("echo one >> x; sleep 60")
    async with tools(tmp_path, **given) as (client, it), asyncio.TaskGroup() as group:
        task = group.create_task(client.post(PATH, call, **keyed("k")))
        await until(lambda: (workspace(it) / "x").exists())
        task.cancel()
    async with tools(tmp_path, **given) as (client, it):
        got = await client.post(PATH, call, **keyed("k"))
        assert (got.status, got.json["error"]["code"]) == (409, "outcome_unknown")
        assert (workspace(it) / "x").read_text() == "one\n"


async def test_tool_call_that_did_not_start_may_be_repeated(tmp_path: Path) -> None:
    async with tools(tmp_path) as (client, _it):
        assert (await client.post(PATH, write_call(), **keyed("a"))).status == 200
        assert (await client.post(PATH, exec_call("true"), **keyed("b"))).status == 404
        assert (await client.post(PATH, exec_call("true"), **keyed("b"))).status == 404
        failed = [
            await client.post(PATH, {"tool": "read", "args": {"path": "no"}}, **keyed("c"))
            for _ in range(2)
        ]
    assert [each.status for each in failed] == [400, 400] and failed[0].body == failed[1].body


async def test_request_log_deletes_what_is_old_or_too_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_log, "MAX_RECORDS", 3)
    monkeypatch.setattr(request_log, "MAX_ANSWER_BYTES", 600)
    async with tools(tmp_path) as (client, it):
        for number in range(6):
            await it.clock.advance(3_601)
            assert (await client.post(PATH, write_call(), **keyed(f"k{number}"))).status == 200
        assert len(await it.store.records(request_log.KIND)) <= 4
        await it.clock.advance(90_000)
        (workspace(it) / "long.txt").write_text("long " * 200)
        read = {"tool": "read", "args": {"path": "long.txt"}}
        assert (await client.post(PATH, read, **keyed("long"))).status == 200
        assert len(await it.store.records(request_log.KIND)) == 1
        assert not await it.store.records(request_log.ANSWER_KIND)
        again = await client.post(PATH, read, **keyed("long"))
    assert (again.status, again.json["error"]["code"]) == (409, "answer_not_kept")
