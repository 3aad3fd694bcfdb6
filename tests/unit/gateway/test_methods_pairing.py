"""channels.pairing.*: who waits, who is let in, and that codes cannot be guessed at."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from homarus.channels.pairing import PairingStore
from homarus.core.errors import InvalidRequestError, UnavailableError
from homarus.core.message import Address, Inbound, InboundMetadata
from homarus.gateway.methods.pairing import MAX_WRONG
from tests.unit.gateway.app_harness import Harness, world


@asynccontextmanager
async def run(folder: Path) -> AsyncIterator[Harness]:
    async with asyncio.timeout(60), world(folder, ()) as it:
        yield it


def ask(it: Harness, sender: str = "42", account: str = "default") -> str:
    about = InboundMetadata(name="Ann")
    inbound = Inbound("m", Address("telegram", sender, account), sender, "hi", metadata=about)
    found = PairingStore(it.app.paths.state, it.app.clock).get_or_create(inbound)
    assert found
    return found.code


async def test_pairing_lists_and_approves_requests(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        assert (await it.ask("channels.pairing.list", None, "pairing"))["requests"] == []
        code, other = ask(it), ask(it, "43", "work")
        listed = (await it.ask("channels.pairing.list", {"channel": "telegram"}, "pairing"))[
            "requests"
        ]
        assert [(one["id"], one["accountId"]) for one in listed] == [
            ("42", "default"),
            ("43", "work"),
        ]
        assert listed[0]["name"] == "Ann" and listed[0]["code"] == code
        asked = {"channel": "telegram", "code": code.lower()}
        done = await it.ask("channels.pairing.approve", asked, "pairing")
        assert done["ok"] and done["request"]["id"] == "42"
        gone = {"channel": "Telegram", "code": other, "accountId": "Work"}
        assert (await it.ask("channels.pairing.dismiss", gone, "pairing"))["request"]["id"] == "43"
        pairings = PairingStore(it.app.paths.state, it.app.clock)
        assert pairings.approved_senders("telegram", "default") == ("42",)
        assert (await it.ask("channels.pairing.list", None, "pairing"))["requests"] == []


async def test_pairing_guessing_locks_out_even_the_right_code(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        code = ask(it)
        for n in range(MAX_WRONG):
            wrong = {"channel": "telegram", "code": f"WRONG{n:03d}"}
            with pytest.raises(InvalidRequestError, match="nobody on telegram waits"):
                await it.ask("channels.pairing.approve", wrong, "pairing")
        right = {"channel": "telegram", "code": code}
        with pytest.raises(UnavailableError, match="too many wrong codes"):
            await it.ask("channels.pairing.approve", right, "pairing")


async def test_pairing_without_scope_hides_requests(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        for name in ("list", "approve", "dismiss"):
            params = {"channel": "telegram", "code": "ABCDEFGH"} if name != "list" else None
            with pytest.raises(InvalidRequestError, match="missing scope"):
                await it.ask(f"channels.pairing.{name}", params, "write")


async def test_pairing_unknown_channel_is_refused(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        asked = {"channel": "../x", "code": "ABCDEFGH"}
        with pytest.raises(InvalidRequestError, match="not the name of a channel"):
            await it.ask("channels.pairing.approve", asked, "pairing")
