"""The session of a gateway, as the chat uses it."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from homarus.cli.session_client import GatewaySessionClient
from homarus.core.errors import UserError
from homarus.gateway.client import GatewayClient

KEY = "agent:main:main"


class FakeLink:
    """A gateway that knows these totals of input tokens, one per request; None is an error."""

    def __init__(self, totals: Sequence[int | None]) -> None:
        self._totals = iter(totals)

    async def call(self, method: str, _params: object = None, **_options: object) -> Any:
        if method == "sessions.list":
            return {"sessions": [{"key": KEY, "responseUsage": "tokens"}]}
        if (total := next(self._totals)) is None:
            raise UserError("the gateway closed the connection")
        return {"totals": {"input": total, "output": 0}}


@pytest.mark.parametrize(
    ("totals", "line"),
    [
        ((100, 150), "Usage: 50 in / 0 out"),
        ((100, None), ""),
        ((None, 150), ""),
        ((100, 20), ""),  # the session was reset meanwhile
    ],
)
async def test_usage_is_shown_only_where_both_totals_are_known(
    totals: tuple[int | None, ...], line: str
) -> None:
    async with asyncio.TaskGroup() as group:
        session = GatewaySessionClient(cast("GatewayClient", FakeLink(totals)), group, KEY)
        await session._start_usage()
        assert await session.find_usage() == line
