"""Our answers beside those of the original, captured: same keys, same types, method by method."""

import json
from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import InvalidRequestError
from homarus.core.message import ToolCall
from homarus.gateway.device_records import DevicePairingRequest
from homarus.gateway.methods import METHODS, UNIMPLEMENTED
from homarus.testing.fakes import Hang
from tests.unit.gateway.app_harness import Harness, answer, world
from tests.unit.gateway.wire_shapes import differences

FRAMES = Path(__file__).parents[2] / "data" / "frames"

# What an answer may lack: fields that the protocol marks as optional, and a report on the prompt.
_ROW = ("systemSent", "totalTokens", "inputTokens")
OPTIONAL: dict[str, set[str]] = {
    "agent.identity.get": set(),
    "health": {"agents[].heartbeat.everyMs?"},
    "status": {"heartbeat.agents[].everyMs?"},
    "sessions.list": {f"sessions[].{name}" for name in (*_ROW, "outputTokens", "derivedTitle")},
    "system-presence": {"[].ip", "[].deviceId", "[].roles", "[].scopes", "[].instanceId"},
    "config.get": {
        "config.commands", "config.messages", "config.gateway.port", "config.gateway.mode",
        "config.agents.defaults.subagents", "config.agents.defaults.workspace",
        "config.gateway.auth.mode", "config.gateway.auth.token",
        "parsed.gateway", "resolved.gateway", "parsed.agents.defaults.workspace",
        "resolved.agents.defaults.workspace",
    },
    "device.pair.list": {"paired[].clientId", "paired[].clientMode", "paired[].platform"},
    "sessions.usage": {
        "sessions[].channel", "sessions[].origin", "sessions[].usage.latency",
        "sessions[].usage.toolUsage",
    },
    "sessions.patch": {
        "entry.skillsSnapshot.resolvedSkills", "entry.systemPromptReport", "entry.compactionCount",
    },
    "sessions.reset": {"entry.skillsSnapshot"},
    "agent": {"result.meta.systemPromptReport"},
    "exec.approvals.get": {"file.socket"},
}  # fmt: skip
# What ours says beside. Open maps of the config are compared by their first level only.
EXTRA: dict[str, set[str]] = {
    "health": {"loop", "disk"},
    "status": {"notBuilt", "loop", "lanes", "sandboxes", "cron"},
    "usage.status": {"spend"},
    "usage.cost": {"startDate", "endDate"},
    "sessions.list": {"sessions[].chatType"},
    "sessions.usage": {"sessions[].chatType"},
    "sessions.patch": {"entry.skillsSnapshot.skills[].primaryEnv"},  # where gh is installed
    "sessions.reset": {
        "entry.chatType", "entry.modelProvider", "entry.sessionFile", "entry.compactionCount",
        "entry.deliveryContext",
    },
}  # fmt: skip
_SKIPPED_INSIDE = {"config.get": ("config", "parsed", "resolved")}


def frames_of(name: str) -> list[dict[str, Any]]:
    return [one["frame"] for one in json.loads((FRAMES / f"{name}.json").read_text("utf-8"))]


def request_of(name: str) -> dict[str, Any]:
    return next(frame for frame in frames_of(name) if frame["type"] == "req")


def answered(name: str, method: str) -> Any:
    """The payload of the last answer to that method."""
    frames = frames_of(name)
    asked = [f["id"] for f in frames if f["type"] == "req" and f["method"] == method]
    return [f for f in frames if f["type"] == "res" and f["id"] == asked[-1]][-1].get("payload")


async def fill(it: Harness) -> None:
    """The conversations that the captured answers tell of."""
    await it.send("Hi there", "c1", "agent:main:cap-chat")
    await it.send("Tell", "c2", "agent:main:cap-chat")
    await it.send("/status", "c3", "agent:main:cap-chat")
    await it.send("Look at AGENTS.md", "t1", "agent:main:cap-tool")
    await it.ask("agent", message="Hello agent", sessionKey="agent:main:cap-agent",
                 idempotencyKey="a1")  # fmt: skip
    await it.ask("chat.send", sessionKey="agent:main:cap-abort", message="long",
                 idempotencyKey="x1")  # fmt: skip
    await it.asked(6)
    await it.ask("chat.abort", sessionKey="agent:main:cap-abort", runId="x1")
    await it.ended("x1")


SCRIPT = (
    answer("Hello from the mock model."),
    answer("word0000 word0001"),
    answer(ToolCall("call-1", "read", {"path": "AGENTS.md"})),
    answer("Hello from the mock model."),
    answer("Hello from the mock model."),
    Hang(),
)

CAPTURED = sorted(
    name
    for name in (path.stem for path in FRAMES.glob("rpc*.json"))
    if name.startswith(("rpc-", "rpcw-"))
    and request_of(name)["method"] in METHODS
    and name not in {"rpc-chat.send-invalid", "rpc-wizard.status", "rpc-skills.bins"}  # refused
)


def check(method: str, ours: Any, theirs: Any) -> None:
    for name in _SKIPPED_INSIDE.get(method, ()):
        ours, theirs = {**ours, name: {}}, {**theirs, name: {}}
    found = differences(ours, [theirs], OPTIONAL.get(method, ()), EXTRA.get(method, ()))
    assert list(found) == []


def test_every_method_of_the_original_is_built_or_its_absence_is_explained() -> None:
    advertised = json.loads((FRAMES / "hello-features.json").read_text("utf-8"))["methods"]
    silent = {"poll", "chat.inject", "sessions.resolve", "sessions.usage", "web.login.start",
              "web.login.wait", "sessions.usage.timeseries", "sessions.usage.logs"}  # fmt: skip
    added = {"inbox.list", "inbox.retry", "inbox.discard", "models.status", "prompt.get",
             "channels.pairing.list", "channels.pairing.approve",
             "channels.pairing.dismiss", "memory.get", "memory.index", "memory.search",
             "memory.status", "memory.write", "chat.message.get", "question.list",
             "question.resolve", "subagents.list", "subagents.info", "subagents.log",
             "subagents.kill", "subagents.steer", "subagents.send", "cron.internal",
             "sessions.branch", "exec.approval.history", "audit.list", "audit.verify",
             "config.validate", "cron.preview", "memory.notes", "skills.search",
             "skills.detail", "skills.add", "policy.explain", "policy.list",
             "agents.files.preview", "usage.totals", "runs.trace", "matrix.devices", "matrix.trust",
             "matrix.verify", "matrix.keys.export", "matrix.keys.import"}  # fmt: skip
    newest = {"cron.get", "commands.list", "device.pair.remove", "exec.approval.list",
                  "message.action", "channels.start",
              "sessions.create",
              "sessions.describe",
              "sessions.subscribe",
              "sessions.unsubscribe", "sessions.messages.subscribe",
              "sessions.messages.unsubscribe"}  # fmt: skip
    assert {*METHODS} | {*UNIMPLEMENTED} == {*advertised} | silent | added | newest
    assert not {*METHODS} & {*UNIMPLEMENTED}
    ours = {name for name, method in METHODS.items() if method.advertised}
    assert ours == {*METHODS} & {*advertised} | newest
    assert all(why and METHODS.get(name) is None for name, why in UNIMPLEMENTED.items())


def test_the_captured_answers_are_compared_for_every_method_that_has_one() -> None:
    compared = {request_of(name)["method"] for name in CAPTURED}
    assert {"health", "status", "chat.history", "sessions.list", "sessions.usage"} <= compared
    assert len(compared) >= 20


@pytest.mark.parametrize("name", CAPTURED)
async def test_an_answer_has_the_shape_of_the_originals(name: str, tmp_path: Path) -> None:
    async with world(tmp_path, SCRIPT) as it:
        await fill(it)
        ask = DevicePairingRequest(
            "d" * 64, "k" * 43, "operator", ("operator.read",), platform="linux"
        )
        it.gateway.authenticator.devices.pair(ask)
        asked = request_of(name)
        ours = await it.ask(asked["method"], asked["params"])
        check(asked["method"], ours, answered(name, asked["method"]))


async def test_a_run_is_accepted_and_answered_in_the_originals_shape(tmp_path: Path) -> None:
    async with world(tmp_path, [answer("Hello from the mock model.")]) as it:
        asked = request_of("agent-turn")["params"]
        final = await it.ask("agent", asked)
        theirs = [f["payload"] for f in frames_of("agent-turn") if f["type"] == "res"]
        check("agent", it.accepted[0], theirs[0])
        check("agent", final, theirs[1])
        waited = await it.ask("agent.wait", runId=asked["idempotencyKey"], timeoutMs=60_000)
        check("agent.wait", waited, answered("agent-wait", "agent.wait"))


async def test_a_stopped_chat_is_answered_in_the_originals_shape(tmp_path: Path) -> None:
    async with world(tmp_path, [Hang()]) as it:
        sent, stop = [f["params"] for f in frames_of("chat.abort") if f["type"] == "req"]
        started = await it.ask("chat.send", sent)
        theirs = [f["payload"] for f in frames_of("chat.abort") if f["type"] == "res"]
        check("chat.send", started, theirs[0])
        await it.live(sent["idempotencyKey"])
        check("chat.abort", await it.ask("chat.abort", stop), theirs[1])


@pytest.mark.parametrize(
    ("name", "method"),
    [("chat.send-command-status", "chat.send"), ("rpcw-chat.inject", "chat.inject")],
)
async def test_words_without_a_model_reach_every_client_in_the_originals_shape(
    name: str, method: str, tmp_path: Path
) -> None:
    async with world(tmp_path, [answer("first")]) as it:
        asked = request_of(name)["params"]
        await it.send("hi", "first", asked["sessionKey"])
        await it.ask(method, asked)
        theirs = [f["payload"] for f in frames_of(name) if f["type"] == "event"][-1]
        run_id = asked.get("idempotencyKey")
        if run_id:
            await it.ended(run_id)
        ours = it.gateway.broadcasts[-1]
        assert ours[0] == "chat"
        check(method, ours[1], theirs)
        assert ours[1]["message"]["model"] == "gateway-injected"


async def test_wrong_params_are_refused_in_the_originals_words(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        with pytest.raises(InvalidRequestError, match=r"^invalid chat\.send params: "):
            await it.ask("chat.send", request_of("rpc-chat.send-invalid")["params"])
