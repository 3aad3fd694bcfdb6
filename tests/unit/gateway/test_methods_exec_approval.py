"""Approvals through the gateway: the methods, their events, and `/approve` of clients."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import HomarusError, InvalidRequestError
from homarus.core.message import Json
from homarus.gateway.method import Caller
from tests.unit.gateway.app_harness import Harness, answer, world
from tests.waiting import until

COMMAND = {"command": "rm -rf ./build", "cwd": "/ws", "sessionKey": "agent:main:main"}


def ask_later(it: Harness, params: Mapping[str, Json]) -> "asyncio.Future[Json]":
    """Ask for an approval; the future has the final response."""
    done: asyncio.Future[Json] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        done.set_result(await it.ask("exec.approval.request", params, "approvals"))

    it.gateway.start("request", run)
    return done


async def start(it: Harness, **params: Json) -> tuple[str, "asyncio.Future[Json]"]:
    """Ask for an approval in two phases; return its id and the future of the final response."""
    done = ask_later(it, {**COMMAND, "twoPhase": True, **params})
    await until(lambda: it.accepted)
    return str(it.accepted.pop()["id"]), done


def events(it: Harness, name: str) -> list[Mapping[str, Json]]:
    return [payload for event, payload in it.gateway.broadcasts if event == name]


async def test_request_is_accepted_then_answered_with_the_decision(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        approval, task = await start(it)
        (listed,) = await it.ask("exec.approval.list", {}, "approvals")
        assert listed["id"] == approval and listed["request"]["command"] == COMMAND["command"]
        assert listed["expiresAtMs"] - listed["createdAtMs"] == 120_000
        params = {"id": approval, "decision": "allow-once"}
        assert await it.ask("exec.approval.resolve", params, "approvals") == {"ok": True}
        done = await task
        assert done == {
            "id": approval,
            "decision": "allow-once",
            "createdAtMs": listed["createdAtMs"],
            "expiresAtMs": listed["expiresAtMs"],
        }
        assert await it.ask("exec.approval.list", {}, "approvals") == []
        # One that waits late gets the same answer.
        late = await it.ask("exec.approval.waitDecision", {"id": approval}, "approvals")
        assert late == done


async def test_request_without_two_phases_has_one_response(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        task = ask_later(it, {**COMMAND, "id": "my-approval-1"})
        await until(lambda: events(it, "exec.approval.requested"))
        with pytest.raises(HomarusError, match="exists already"):
            await it.ask("exec.approval.request", {**COMMAND, "id": "my-approval-1"}, "approvals")
        params = {"id": "my-approval-1", "decision": "deny"}
        await it.ask("exec.approval.resolve", params, "approvals")
        assert (await task)["decision"] == "deny" and it.accepted == []


async def test_request_without_answer_ends_with_null_after_its_timeout(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        approval, task = await start(it, timeoutMs=5_000)
        await it.clock.advance(5.1)
        assert (await task)["decision"] is None
        params = {"id": approval, "decision": "allow-once"}
        with pytest.raises(HomarusError, match="expired"):
            await it.ask("exec.approval.resolve", params, "approvals")


async def test_second_answer_is_refused_and_names_the_first(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        approval, task = await start(it)
        params = {"id": approval[:8], "decision": "deny"}
        await it.ask("exec.approval.resolve", params, "approvals", client="first-client")
        late = {"id": approval, "decision": "allow-once"}
        with pytest.raises(HomarusError, match="first-client"):
            await it.ask("exec.approval.resolve", late, "approvals", client="second-client")
        assert (await task)["decision"] == "deny"


async def test_events_have_the_fields_of_the_protocol(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        approval, task = await start(it, agentId="main")
        params = {"id": approval, "decision": "allow-always"}
        await it.ask("exec.approval.resolve", params, "approvals", client="phone")
        await task
        await until(lambda: events(it, "exec.approval.resolved"))
        (asked,), (resolved,) = (
            events(it, f"exec.approval.{kind}") for kind in ("requested", "resolved")
        )
        fields = {"command", "cwd", "host", "security", "ask", "agentId", "resolvedPath"}
        assert asked["id"] == approval and fields | {"sessionKey"} <= asked["request"].keys()
        assert resolved == {
            "id": approval,
            "decision": "allow-always",
            "resolvedBy": "phone",
            "ts": resolved["ts"],
        }


@pytest.mark.parametrize(
    ("method", "params", "problem"),
    [
        ("exec.approval.request", {"command": ""}, "command"),
        ("exec.approval.request", {**COMMAND, "timeoutMs": 0}, "timeoutMs"),
        ("exec.approval.request", {**COMMAND, "id": "a b"}, "id"),
        ("exec.approval.request", {**COMMAND, "id": "short"}, "an id has"),
        ("exec.approval.request", {**COMMAND, "commandArgv": ["ls"]}, "commandArgv"),
        ("exec.approval.resolve", {"id": "x" * 36, "decision": "allow-once"}, "x"),
        ("exec.approval.resolve", {"id": "x" * 36, "decision": "yes"}, "invalid decision"),
        ("exec.approval.waitDecision", {"id": "x" * 36}, "not found"),
    ],
)
async def test_invalid_request_is_refused(
    tmp_path: Path, method: str, params: Json, problem: str
) -> None:
    async with world(tmp_path) as it:
        with pytest.raises(HomarusError, match=problem):
            await it.ask(method, params, "approvals")
        assert await it.store.journal.approvals() == []


async def test_request_shows_deceptive_characters_escaped(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        command = "ls\u200b \u202eevil" + " " * 5_000 + "; rm -rf /"
        await start(it, command=command)
        (listed,) = await it.ask("exec.approval.list", {}, "approvals")
        detail = listed["request"]["detail"]
        assert "\\u{200b}" in detail and "\\u{202e}" in detail and "[5000 blanks]" in detail
        assert detail.endswith("; rm -rf /")


async def test_chat_command_of_client_needs_the_approvals_scope(tmp_path: Path) -> None:
    async with world(tmp_path, [answer("no"), answer("no")]) as it:
        approval, task = await start(it)

        def send(run_id: str) -> dict[str, Any]:
            text = f"/approve {approval[:8]} allow-once"
            return {"sessionKey": "main", "message": text, "idempotencyKey": run_id}

        for scopes in (("write",), ("write", "pairing")):
            with pytest.raises(InvalidRequestError, match=r"missing scope: operator\.approvals"):
                await it.ask("chat.send", send("a"), *scopes)
        for index, text in enumerate(("please /approve", "/think low /approve")):
            run_id = f"b{index}"
            params = {**send(run_id), "message": f"{text} {approval} allow-once"}
            await it.ask("chat.send", params, "write")
            await it.ended(run_id)
        (pending,) = await it.store.journal.approvals("pending")
        assert pending.id == approval
        await it.ask("chat.send", send("c"), "write", "approvals")
        await it.ended("c")
        assert (await task)["decision"] == "allow-once"
        (final,) = [chat for chat in it.gateway.chats("c") if chat["state"] != "delta"]
        assert "allowed once by" in final["message"]["content"][0]["text"]


async def test_chat_command_alone_lists_what_waits(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        approval, _ = await start(it)
        await it.send("/approve", "list")
        (final,) = it.gateway.chats("list")
        shown = final["message"]["content"][0]["text"]
        assert approval[:8] in shown and "rm -rf ./build" in shown and "2 min left" in shown
        await it.send("/approve x", "wrong")
        assert it.gateway.chats("wrong")[0]["state"] == "error"


@pytest.mark.parametrize(
    ("mode", "caps", "scopes", "expected"),
    [
        ("webchat", (), ("operator.approvals",), True),
        ("ui", (), ("operator.admin",), True),
        ("webchat", (), ("operator.write", "operator.read"), False),
        ("cli", (), ("operator.admin",), False),
        ("cli", ("exec-approvals",), ("operator.admin",), True),
        ("cli", ("exec-approvals",), ("operator.write",), False),
        ("probe", (), ("operator.admin",), False),
    ],
)
def test_client_is_approver_by_scope_and_kind(
    mode: str, caps: tuple[str, ...], scopes: tuple[str, ...], expected: bool
) -> None:
    caller = Caller("c", "x", mode, scopes=frozenset(scopes), caps=frozenset(caps))
    assert caller.is_approver is expected


async def test_rules_are_read_and_replaced_under_their_hash(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        before = await it.ask("exec.approvals.get", {})
        assert before["exists"] is False and before["path"].endswith("exec-approvals.json")
        file = {"version": 1, "agents": {"main": {"allowlist": ["/bin/ls"]}}}
        written = await it.ask("exec.approvals.set", {"file": file})
        assert written["file"]["agents"]["main"]["allowlist"][0]["pattern"] == "/bin/ls"
        for stale in ({}, {"baseHash": before["hash"]}):
            with pytest.raises(InvalidRequestError, match=r"re-run exec\.approvals\.get"):
                await it.ask("exec.approvals.set", {"file": {"version": 1}, **stale})
        bad = {"version": 1, "defaults": {"security": "none"}}
        with pytest.raises(HomarusError, match=r"defaults\.security"):
            await it.ask("exec.approvals.set", {"file": bad, "baseHash": written["hash"]})
        same = await it.ask("exec.approvals.get", {})
        assert same["hash"] == written["hash"]


async def test_node_rules_are_refused_with_the_reason(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        for name in ("exec.approvals.node.get", "exec.approvals.node.set"):
            with pytest.raises(HomarusError, match="no command is started on one"):
                it.gateway.method(name)


async def test_history_lists_ended_approvals_newest_first(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        first, one = await start(it)
        await it.ask("exec.approval.resolve", {"id": first, "decision": "deny"}, "approvals")
        second, two = await start(it, command="make all")
        shown = await it.ask("exec.approval.history", {}, "approvals")
        assert [each["id"] for each in shown["approvals"]] == [first]
        params = {"id": second, "decision": "allow-once"}
        await it.ask("exec.approval.resolve", params, "approvals")
        await one
        await two
        newest, oldest = (await it.ask("exec.approval.history", {}, "approvals"))["approvals"]
        assert (newest["id"], newest["state"], newest["decision"]) == (
            second,
            "allowed",
            "allow-once",
        )
        assert newest["request"]["command"] == "make all" and newest["resolvedAtMs"]
        assert (oldest["state"], oldest["kind"]) == ("denied", "approval")
        with pytest.raises(HomarusError, match="missing scope"):
            await it.ask("exec.approval.history", {}, "write")
