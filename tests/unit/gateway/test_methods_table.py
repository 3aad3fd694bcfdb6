"""The table of methods: scopes and params as the protocol has them; no input breaks one."""

import asyncio
import json
import re
import subprocess
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from homarus.core.errors import HomarusError, InvalidRequestError
from homarus.gateway import methods
from homarus.gateway.method import Caller, Method, find_methods
from homarus.gateway.methods import METHODS
from tests.unit.gateway.app_harness import answer, world

SHAPES = json.loads(
    (Path(__file__).parents[2] / "data/vectors/gateway_wire_shapes.json").read_text("utf-8")
)["shapes"]
SCOPES = {
    "read": "health logs.tail status usage.status usage.cost usage.totals models.list agents.list "
    "agent.identity.get sessions.list sessions.preview system-presence last-heartbeat "
    "chat.history chat.message.get config.get inbox.list channels.status memory.status "
    "commands.list sessions.describe sessions.subscribe sessions.unsubscribe "
    "sessions.messages.subscribe sessions.messages.unsubscribe skills.status "
    "subagents.list subagents.info subagents.log "
    "cron.list cron.get cron.status cron.runs cron.internal cron.preview node.list node.describe "
    "runs.trace",
    "write": "agent agent.wait wake chat.send chat.abort inbox.retry send memory.search "
    "message.action memory.get memory.write memory.notes sessions.create sessions.branch "
    "browser.request node.invoke "
    "subagents.kill subagents.steer subagents.send",
    "pairing": "node.pair.list node.pair.approve node.pair.reject node.rename "
    "device.pair.list device.pair.approve device.pair.reject device.token.rotate "
    "device.token.revoke device.pair.remove channels.pairing.list channels.pairing.approve "
    "channels.pairing.dismiss",
    "admin": "poll channels.start "
    "matrix.devices matrix.trust matrix.verify matrix.keys.export matrix.keys.import "
    "config.set config.patch config.apply config.schema agents.create agents.update "
    "agents.delete agents.files.list agents.files.get agents.files.set sessions.patch "
    "sessions.reset sessions.delete sessions.compact sessions.resolve sessions.usage chat.inject "
    "sessions.usage.timeseries sessions.usage.logs audit.list audit.verify config.validate "
    "system-event set-heartbeats inbox.discard models.status prompt.get channels.logout "
    "memory.index "
    "wizard.start wizard.next wizard.cancel wizard.status exec.approvals.get exec.approvals.set "
    "skills.install skills.update cron.add cron.update cron.remove cron.run "
    "skills.search skills.detail skills.add policy.explain policy.list agents.files.preview",
    "none": "skills.bins node.invoke.result",  # for nodes, which have no scopes
    "approvals": "exec.approval.request exec.approval.waitDecision exec.approval.resolve "
    "exec.approval.list exec.approval.history question.list question.resolve",
}
# The protocol's name of a method's params, where it has one.
NAMED = {
    "agent": "AgentParams",
    "agent.wait": "AgentWaitParams",
    "agent.identity.get": "AgentIdentityParams",
    "wake": "WakeParams",
    "device.token.rotate": "DeviceTokenRotateParams",
    "device.token.revoke": "DeviceTokenRevokeParams",
    "device.pair.approve": "DevicePairApproveParams",
    "device.pair.reject": "DevicePairRejectParams",
}
# What ours takes beside: `model` and `details`, and additions of protocol 4.
ADDED = {
    "skills.install": {"agentId?"},
    "agent": {"model?"},
    "chat.abort": {"agentId?", "preserveSideRuns?"},
    "chat.history": {"agentId?", "before?", "maxChars?"},
    "chat.send": {"agentId?", "sessionId?"},
    "send": {"threadId?", "replyToId?", "silent?"},
    "models.list": {
        "details?", "agentId?", "sessionKey?", "provider?", "includeDetails?", "view?",
    },
    "cron.list": {
        "limit?", "offset?", "query?", "enabled?", "scheduleKind?", "lastRunStatus?", "trigger?",
        "sortBy?", "sortDir?", "agentId?", "compact?", "includeDeliveryPreviews?",
    },
    "cron.add": {"displayName?", "misfire?"},
    "sessions.usage": {"days?"},
    "cron.update": {"expectedConfigRevision?"},
    "cron.runs": {
        "scope?", "agentId?", "runId?", "offset?", "statuses?", "status?", "query?", "sortDir?",
    },
}  # fmt: skip
# What a client may leave out, because a default is filled in before the request is checked.
FILLED_IN = {"cron.add": {"name", "sessionTarget", "wakeMode"}}
PROTOCOL_4 = {
    "cron.get",
    "commands.list", "device.pair.remove", "exec.approval.list", "sessions.create",
    "sessions.describe", "sessions.subscribe",
    "sessions.unsubscribe", "sessions.messages.subscribe", "sessions.messages.unsubscribe",
}  # fmt: skip


def shape_name(method: str) -> str:
    words = re.split(r"[.-]", method)
    return NAMED.get(method) or "".join(word[0].upper() + word[1:] for word in words) + "Params"


def test_method_scopes_match_the_protocol() -> None:
    expected = {name: scope for scope, names in SCOPES.items() for name in names.split()}
    assert {name: method.scope for name, method in METHODS.items()} == expected


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_method_params_match_the_protocol_names_and_required_keys(
    method: Method,
) -> None:
    shape = SHAPES.get(shape_name(method.name))
    if shape is None:
        assert method.name in PROTOCOL_4 | {"health", "status", "system-presence", "system-event",
                               "last-heartbeat", "set-heartbeats", "usage.status", "usage.cost",
                               "inbox.list",
                               "inbox.retry", "inbox.discard", "models.status",
                               "prompt.get", "channels.pairing.list",
                               "channels.pairing.approve", "channels.pairing.dismiss",
                               "memory.status", "memory.search", "memory.get",
                               "memory.write", "memory.index", "chat.message.get",
                               "exec.approval.waitDecision", "browser.request",
                               "question.list", "question.resolve", "subagents.list",
                               "subagents.info", "subagents.log", "subagents.kill",
                               "subagents.steer", "subagents.send",
                               "cron.internal", "cron.preview", "sessions.branch",
                               "exec.approval.history", "config.validate", "audit.list",
                               "audit.verify", "memory.notes",
                               "skills.search", "skills.detail", "skills.add",
                               "policy.explain", "policy.list", "agents.files.preview",
                               "sessions.usage.timeseries", "sessions.usage.logs",
                               "usage.totals", "message.action",
                               "channels.start", "runs.trace", "matrix.devices",
                               "matrix.trust", "matrix.verify", "matrix.keys.export",
                               "matrix.keys.import"}  # fmt: skip
        return
    ours = {
        str(field.alias) + ("" if field.is_required() else "?")
        for field in method.params.model_fields.values()
    }
    filled_in = FILLED_IN.get(method.name, set())
    theirs = {f"{key}?" if key in filled_in else key for key in _keys(shape)}
    assert ours == theirs | ADDED.get(method.name, set())


def _keys(shape: dict[str, Any]) -> set[str]:
    """Return the keys of a shape; of alternatives, what only some have is optional."""
    variants = [set(each) for each in shape.get("$oneOf", [shape])]
    shared = set.intersection(*variants)
    return shared | {f"{key.rstrip('?')}?" for key in set.union(*variants) - shared}


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
def test_method_docstring_is_present(method: Method) -> None:
    assert (method.run.__doc__ or "").strip().endswith(".")
    assert method.params.__doc__


async def test_caller_without_scope_is_refused_first(tmp_path: Path) -> None:
    async with world(tmp_path) as it:
        for method in (one for one in METHODS.values() if one.scope != "none"):
            lower = {"write": "read", "admin": "write", "pairing": "write", "read": "approvals",
                     "approvals": "write"}  # fmt: skip
            with pytest.raises(
                InvalidRequestError, match=f"^missing scope: operator.{method.scope}"
            ):
                await it.ask(method.name, {"no such": "param"}, lower[method.scope])


async def test_caller_claims_never_raise_its_permissions(tmp_path: Path) -> None:
    async with world(tmp_path, [answer("hi")]) as it:
        params = {"sessionKey": "main", "message": "hi", "idempotencyKey": "a"}
        with pytest.raises(InvalidRequestError, match="senderIsOwner"):
            await it.ask("chat.send", {**params, "senderIsOwner": True}, "write")
        with pytest.raises(InvalidRequestError, match="invalid agent params"):
            await it.ask("agent", {"message": "x", "idempotencyKey": "b", "owner": True})
        assert not it.model.requests


_TEXTS = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        ["main", "agent:main:main", "agent:", "agent:x:y", "../../etc/passwd", "\u202e", "a" * 600,
         "{}", '{"a":1}', "/new", "/status", "stop", "2026-02-30", "0001-01-01", "9999-12-31",
         "now", "AGENTS.md", "../AGENTS.md", "on", "off", "global", "unknown", "\x00", "~/w"]
    ),
)  # fmt: skip
_VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), _TEXTS, st.integers(-(10**20), 10**20), st.just(10**400),
        st.floats(allow_nan=False),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(_TEXTS, inner, max_size=3)
    ),
    max_leaves=4,
)  # fmt: skip


def fitting(annotation: object) -> st.SearchStrategy[Any]:
    """Values of the type a field has, mostly."""
    told = str(annotation)
    if "list" in told:
        right: st.SearchStrategy[Any] = st.lists(_TEXTS, max_size=3)
    elif "Literal" in told:
        right = st.sampled_from(["now", "next-heartbeat", "new", "off", "full", "deny", "always"])
    elif "int" in told:
        right = st.integers(0, 2**53)
    else:
        right = st.booleans() if "bool" in told else _TEXTS
    return st.one_of(right, right, right, _VALUES)


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, Any]:
    """A method and params that are often nearly right."""
    method = METHODS[draw(st.sampled_from(sorted(METHODS)))]
    if draw(st.integers(0, 19)) == 0:
        return method.name, draw(_VALUES)
    params = {
        str(field.alias): draw(fitting(field.annotation))
        for field in method.params.model_fields.values()
        if field.is_required() or draw(st.integers(0, 3)) == 0
    }
    return method.name, params


@settings(
    max_examples=25,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    database=None,
)
@given(st.lists(requests(), min_size=10, max_size=40))
async def test_any_params_are_answered_with_result_or_protocol_error(
    asked: list[tuple[str, Any]],
) -> None:
    async def main(folder: Path) -> None:
        async with asyncio.timeout(60), world(folder, [answer("fine")] * 500) as it:
            for name, params in asked:
                if isinstance(params, dict) and name == "agent.wait":
                    params["timeoutMs"] = 0  # waiting is another test
                try:
                    async with asyncio.timeout(0.2 if name == "exec.approval.request" else 60):
                        json.dumps(await it.ask(name, params))
                except (HomarusError, TimeoutError):
                    continue

    with tempfile.TemporaryDirectory() as folder:
        await main(Path(folder))


def test_caller_equals_what_the_handshake_made() -> None:
    caller = Caller("c", "cli", "cli", scopes=frozenset({"operator.write"}))
    assert caller.may("read") and caller.may("write") and not caller.may("admin")
    assert not Caller("c", "cli", "cli").may("read")


def test_scanned_methods_are_those_of_the_modules() -> None:
    folder = Path(methods.__file__).parent
    modules = [
        import_module(f"{methods.__name__}.{each.name}") for each in iter_modules([str(folder)])
    ]
    found = find_methods(*modules)
    assert dict(METHODS) == dict(found)
    assert METHODS.advertised == found.advertised


def test_scanning_methods_imports_none_of_their_modules() -> None:
    code = (
        "import sys; from homarus.gateway.methods import METHODS; assert 'chat.send' in METHODS;"
        "sys.exit(any(name.startswith('homarus.gateway.methods.chat') for name in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
