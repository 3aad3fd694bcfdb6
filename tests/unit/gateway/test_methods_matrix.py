"""The methods of encrypted Matrix accounts, with channels of the test's own."""

from pathlib import Path
from typing import Any

import pytest

from homarus.core.clock import SystemClock
from homarus.core.errors import ChannelError, InvalidRequestError, SendError, UnavailableError
from homarus.core.message import Json
from homarus.gateway.method import Caller, MethodCall
from homarus.gateway.methods import METHODS
from tests.unit.gateway.harness import Harness, play


async def ask(stage: Harness, name: str, scope: str = "admin", **params: Json) -> Any:
    caller = Caller("c", "cli", "cli", scopes=frozenset({f"operator.{scope}"}))
    call = MethodCall(stage.gateway.services, stage.gateway, caller, "1")
    return await METHODS[name](call, params)


@pytest.mark.parametrize(
    ("name", "params", "action"),
    [
        ("matrix.devices", {"userId": "@a:b"}, "devices"),
        ("matrix.trust", {"userId": "@a:b", "deviceId": "D", "trust": "blocked"}, "trust"),
        ("matrix.verify", {"step": "confirm", "id": "t", "match": True}, "verify.confirm"),
        ("matrix.keys.export", {"passphrase": "long enough"}, "export"),
        ("matrix.keys.import", {"passphrase": "long enough", "text": "keys"}, "import"),
    ],
)
async def test_matrix_method_is_passed_to_the_account(
    tmp_path: Path, name: str, params: dict[str, Json], action: str
) -> None:
    async with play(tmp_path, clock=SystemClock()) as stage:
        assert await ask(stage, name, accountId="work", **params) == {"did": action}
        ((channel, account, did, given),) = stage.program.channels.key_actions
        assert (channel, account, did) == ("matrix", "work", action)
        assert given.items() >= {k: v for k, v in params.items() if k != "step"}.items()


async def test_matrix_method_needs_scope_of_administrator(tmp_path: Path) -> None:
    async with play(tmp_path, clock=SystemClock()) as stage:
        with pytest.raises(InvalidRequestError, match="missing scope"):
            await ask(stage, "matrix.keys.export", "write", passphrase="long enough")
        assert not stage.program.channels.key_actions


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (SendError("no such device", retryable=False, fix="look"), InvalidRequestError),
        (SendError("not connected", retryable=True), UnavailableError),
        (ChannelError("matrix:default is off"), UnavailableError),
    ],
)
async def test_matrix_method_failure_says_whose_it_is(
    tmp_path: Path, error: ChannelError, kind: type[Exception]
) -> None:
    async with play(tmp_path, clock=SystemClock()) as stage:
        stage.program.channels.key_error = error
        with pytest.raises(kind, match=error.message):
            await ask(stage, "matrix.devices")
