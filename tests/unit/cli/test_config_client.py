"""A configuration that a gateway keeps: changed under its guard, told in words."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, cast

import pytest

from homarus.cli.config_client import RemoteConfigClient
from homarus.core.errors import ConfigError, HomarusError, InvalidRequestError, UserError
from homarus.gateway.client import GatewayClient

STALE = InvalidRequestError("config changed since last load; re-run config.get and retry")


class FakeGateway:
    """Answers `config.get` with a tree, and `config.apply` from a script."""

    def __init__(self, tree: Any, *answers: Mapping[str, Any] | HomarusError) -> None:
        self.told: dict[str, Any] = {
            "path": "/far/openclaw.json", "exists": True, "hash": "h0", "valid": True,
            "parsed": tree, "resolved": tree, "config": tree, "issues": [], "warnings": [],
        }  # fmt: skip
        self._answers = iter(answers)
        self.applied: list[Mapping[str, Any]] = []
        self.problem: dict[str, str] = {}

    async def call(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        if method == "status":
            return self.problem
        if method == "config.get":
            return self.told
        assert method == "config.apply" and params is not None
        self.applied.append(params)
        answer = next(self._answers)
        if isinstance(answer, HomarusError):
            raise answer
        return {"ok": True, "path": self.told["path"], **answer}

    @property
    def settings(self) -> RemoteConfigClient:
        return RemoteConfigClient(cast("GatewayClient", self))


async def change(gateway: FakeGateway) -> Any:
    return await gateway.settings.change(lambda tree: {**tree, "new": 1})


def applied(action: str, **more: Any) -> dict[str, Any]:
    return {"applied": {"action": action, "changed": ["new"], "hash": "h1", **more}}


@pytest.mark.parametrize(
    ("answer", "effect"),
    [
        (applied("apply"), "the gateway uses it now"),
        (applied("restart"), "the gateway restarts with it"),
        (applied("ignore"), "the gateway uses it after a restart (gateway.reload.mode is off)"),
        (
            applied("apply", withoutEffect=["gateway.port"]),
            "gateway.port: used after a restart (gateway.reload.mode is hot)",
        ),
        (applied("none"), ""),
        ({"restart": {"ok": True}}, "the gateway restarts with it"),  # the original's answer
    ],
)
async def test_config_change_result_is_described_in_words(
    answer: dict[str, Any], effect: str
) -> None:
    gateway = FakeGateway({"old": 1}, answer)
    assert (await change(gateway)).effect == effect
    (params,) = gateway.applied
    assert json.loads(params["raw"]) == {"old": 1, "new": 1} and params["baseHash"] == "h0"


async def test_config_change_rereads_a_file_changed_meanwhile() -> None:
    gateway = FakeGateway({}, STALE, STALE, applied("apply"))
    assert (await change(gateway)).hash == "h1" and len(gateway.applied) == 3


async def test_config_change_gives_up_when_file_keeps_changing() -> None:
    with pytest.raises(UserError, match="again and again"):
        await change(FakeGateway({}, STALE, STALE, STALE))


async def test_config_change_refused_is_reported_and_not_retried() -> None:
    gateway = FakeGateway({}, InvalidRequestError("invalid config: unknown key new"))
    with pytest.raises(InvalidRequestError, match="unknown key"):
        await change(gateway)
    assert len(gateway.applied) == 1


async def test_config_change_of_unreadable_file_keeps_the_file() -> None:
    gateway = FakeGateway({}, applied("apply"))
    del gateway.told["hash"]
    gateway.told["issues"] = [{"path": "", "message": "a } is missing"}]
    with pytest.raises(ConfigError, match=r"/far/openclaw\.json: a } is missing"):
        await change(gateway)
    assert gateway.applied == []


async def test_config_change_without_file_needs_no_hash() -> None:
    gateway = FakeGateway({}, applied("apply"))
    gateway.told |= {"exists": False}
    await change(gateway)
    assert "baseHash" not in gateway.applied[0]


def test_config_validation_says_whether_gateway_uses_it() -> None:
    gateway = FakeGateway({})
    assert asyncio.run(gateway.settings.validate()).in_use == "the gateway uses it"
    gateway.problem = {"configProblem": "openclaw.json:3: wrong"}
    gateway.told["issues"] = [{"path": "a", "message": "wrong", "file": "f", "line": 3}]
    found = asyncio.run(gateway.settings.validate())
    assert found.issues[0]["line"] == 3
    assert found.in_use == "the gateway goes on with the last good one"
