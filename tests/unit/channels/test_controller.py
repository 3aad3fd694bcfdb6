"""The channel controller: accounts follow the config, independently of each other."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from homarus.channels import registry
from homarus.channels.base import (
    Capabilities,
    ChannelContext,
    InboundHandler,
    Receipt,
    WebhookRequest,
    WebhookResponse,
)
from homarus.channels.controller import AccountStatus, ChannelController, supported_features
from homarus.channels.inbound import InboundPipeline, admit_all
from homarus.channels.supervisor import ChannelSupervisor
from homarus.config.channels import ChannelSettings
from homarus.config.schema import Config
from homarus.core.errors import ChannelAuthError, ChannelError, UserError
from homarus.core.message import Address, Inbound, Outbound
from homarus.testing.clock import FakeClock
from homarus.testing.memory_store import MemoryStore
from tests.waiting import settle

GUARD_S = 30.0


class Settings(ChannelSettings):
    """A service of the test's own."""

    token: str = ""


class Account:
    """One account: it runs until cancelled, or fails as its token says."""

    capabilities = Capabilities(text_limit=7)
    made: ClassVar[list["Account"]] = []

    def __init__(self, place: ChannelContext, settings: Settings) -> None:
        self.name, self.account, self.token = place.channel, place.account, settings.token
        self.runs = 0
        self.path = "/hook" if settings.token in {"hook", "own hook"} else ""
        is_apart = settings.token == "own hook"
        self.webhook_address = ("127.0.0.1", 8787) if is_apart else None
        self.made.append(self)

    async def run(self, receive: InboundHandler) -> None:
        self.runs += 1
        if self.token == "bad":
            raise ChannelAuthError("the token is refused")
        receive.mark_connected()
        await receive(Inbound(f"m{self.runs}", Address(self.name, "c", self.account), "ann", "hi"))
        await asyncio.Event().wait()

    async def send(self, message: Outbound) -> Receipt:
        return Receipt("1")

    async def probe(self) -> str:
        if self.token == "slow":
            await asyncio.Event().wait()
        return f"@{self.account}"

    def verify_request(self, request: WebhookRequest) -> bool:
        return True

    async def handle_webhook(self, request: WebhookRequest) -> WebhookResponse:
        return WebhookResponse()


class Desk:
    """A controller whose config can be changed."""

    def __init__(self, store: MemoryStore, tmp_path: Path, channels: Mapping[str, Any]) -> None:
        self.config = self._read(channels)
        clock = FakeClock()
        self.delivery = ChannelSupervisor(store.journal, [], clock)
        admit = admit_all(lambda one: f"agent:main:{one.address.account}")
        self.pipeline = InboundPipeline(store.journal, clock, admit=admit, submit=lambda *_: None)
        self.board = ChannelController(
            lambda: self.config,
            self.delivery,
            self.pipeline,
            clock,
            state=tmp_path,
            env=dict,
        )

    async def change(self, channels: Mapping[str, Any]) -> None:
        self.config = self._read(channels)
        await self.board.reconcile()
        await settle(60)

    def line(self, account: str = "default", channel: str = "svc") -> AccountStatus:
        found = {(one.channel, one.account): one for one in self.board.status()}
        return found[channel, account]

    def _read(self, channels: Mapping[str, Any]) -> Config:
        return Config.model_validate({"channels": dict(channels)})


async def at_desk(
    tmp_path: Path, channels: Mapping[str, Any], body: Callable[[Desk], Awaitable[None]]
) -> None:
    @asynccontextmanager
    async def desk() -> Any:
        async with MemoryStore() as store, asyncio.TaskGroup() as group:
            made = Desk(store, tmp_path, channels)
            running = group.create_task(made.board.run())
            await settle(60)
            yield made
            running.cancel()

    async def main() -> None:
        async with asyncio.timeout(GUARD_S), desk() as made:
            await body(made)

    await main()


@pytest.fixture(autouse=True)
def svc(monkeypatch: pytest.MonkeyPatch) -> None:
    Account.made = []
    kind = SimpleNamespace(Settings=Settings, create=Account)
    real = registry.load_channel
    monkeypatch.setattr(registry, "load_channel", lambda n: kind if n == "svc" else real(n))


async def test_controller_each_account_has_a_status(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        assert [(one.channel, one.account) for one in desk.board.status()] == [
            ("svc", "home"),
            ("svc", "work"),
        ]
        home = desk.line("home")
        assert home.running and home.connected and home.last_in_ms and not home.problem
        assert home.name == "Home bot"

    accounts = {"home": {"token": "1", "name": "Home bot"}, "work": {"token": "2"}}
    await at_desk(tmp_path, {"svc": {"accounts": accounts}}, body)


async def test_controller_invalid_account_has_problem_and_others_run(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        assert "colour" in desk.line("odd").problem and not desk.line("odd").configured
        assert desk.line("good").running
        assert "nosuch" in desk.line(channel="nosuch").problem

    accounts = {"odd": {"colour": "red"}, "good": {}}
    await at_desk(tmp_path, {"svc": {"accounts": accounts}, "nosuch": {}}, body)


async def test_controller_bug_in_one_channel_is_contained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create(place: ChannelContext, settings: Any) -> Account:
        if place.account == "odd":
            raise ZeroDivisionError
        return Account(place, settings)

    kind = SimpleNamespace(Settings=Settings, create=create)
    monkeypatch.setattr(registry, "load_channel", lambda _name: kind)

    async def body(desk: Desk) -> None:
        assert "bug" in desk.line("odd").problem and desk.line("good").running

    await at_desk(tmp_path, {"svc": {"accounts": {"odd": {}, "good": {}}}}, body)


async def test_controller_auth_error_stops_its_account_alone(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        bad = desk.line("bad")
        assert not bad.running and not bad.connected and "refused" in bad.problem
        assert desk.line("good").running

    accounts = {"bad": {"token": "bad"}, "good": {}}
    await at_desk(tmp_path, {"svc": {"accounts": accounts}}, body)


async def test_controller_reconcile_restarts_changed_accounts_only(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        first = {one.account: one for one in Account.made}
        accounts = {"a": {"token": "1"}, "b": {"token": "9"}, "d": {}}
        await desk.change({"svc": {"accounts": accounts}})
        assert first["a"].runs == 1 and desk.board.find_channel("svc", "a") is first["a"]
        assert desk.board.find_channel("svc", "b") is not first["b"]
        assert [one.account for one in desk.board.status()] == ["a", "b", "d"]
        assert desk.line("d").running

    accounts = {"a": {"token": "1"}, "b": {"token": "2"}, "c": {}}
    await at_desk(tmp_path, {"svc": {"accounts": accounts}}, body)


async def test_controller_disabled_account_is_listed_and_not_run(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        off = desk.line()
        assert not off.enabled and not off.running and not Account.made
        assert desk.board.is_empty
        await desk.change({"svc": {"enabled": True}})
        assert desk.line().running and not desk.board.is_empty

    await at_desk(tmp_path, {"svc": {"enabled": False}}, body)


async def test_controller_starts_an_account_that_was_stopped(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        await desk.board.stop("svc", "a")
        made = len(Account.made)
        await desk.board.start("svc", "a")
        assert desk.line("a").running and len(Account.made) == made + 1
        await desk.board.start("svc", "a")  # a running account is restarted
        assert desk.line("a").running and len(Account.made) == made + 2
        with pytest.raises(UserError, match="no channel svc:other"):
            await desk.board.start("svc", "other")

    await at_desk(tmp_path, {"svc": {"accounts": {"a": {}}}}, body)


async def test_controller_stopped_account_restarts_when_its_settings_change(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        await desk.board.stop("svc", "a")
        assert not desk.line("a").running
        with pytest.raises(ChannelError, match="is off"):
            await desk.board.probe("svc", "a")
        with pytest.raises(UserError, match="no channel svc:other"):
            await desk.board.stop("svc", "other")
        await desk.change({"svc": {"accounts": {"a": {}, "b": {"token": "2"}}}})
        assert not desk.line("a").running and desk.line("b").running
        made = len(Account.made)
        await desk.change({"svc": {"accounts": {"a": {"token": "1"}, "b": {"token": "2"}}}})
        assert desk.line("a").running and len(Account.made) == made + 1

    await at_desk(tmp_path, {"svc": {"accounts": {"a": {}, "b": {}}}}, body)


async def test_controller_concurrent_reconciles_leave_last_config(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        async with asyncio.TaskGroup() as group:
            for token in ("2", "3"):
                group.create_task(desk.change({"svc": {"token": token}}))
        last = Account.made[-1]
        assert last.token == "3" and desk.board.find_channel("svc", "default") is last
        assert desk.line().running and desk.line().configured and not desk.line().problem

    await at_desk(tmp_path, {"svc": {"token": "1"}}, body)


async def test_controller_account_reports_probe_and_features(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        assert await desk.board.probe("svc", "default") == "@default"
        found = desk.board.find_channel("svc", "default")
        assert found is Account.made[0] and found.capabilities.text_limit == 7
        assert supported_features(found) == ("Probes", "Listens")
        assert desk.board.find_webhook("/hook") is Account.made[0]
        assert desk.board.find_webhook("/other") is None
        await desk.change({"svc": {"token": "none"}})
        assert desk.board.find_webhook("/hook") is None and desk.board.find_webhook("") is None

    await at_desk(tmp_path, {"svc": {"token": "hook"}}, body)


async def test_controller_webhook_with_own_address_is_not_on_the_gateways_port(
    tmp_path: Path,
) -> None:
    async def body(desk: Desk) -> None:
        assert Account.made[0].path == "/hook"
        assert desk.board.find_webhook("/hook") is None

    await at_desk(tmp_path, {"svc": {"token": "own hook"}}, body)


async def test_controller_second_account_with_same_webhook_path_is_off(
    tmp_path: Path,
) -> None:
    async def body(desk: Desk) -> None:
        assert desk.board.find_webhook("/hook") is Account.made[0] and desk.line("a").running
        second = desk.line("b")
        assert not second.running and not second.configured
        assert "/hook is that of svc:a already" in second.problem
        await desk.change({"svc": {"accounts": {"a": {"token": "1"}, "b": {"token": "hook"}}}})
        assert desk.line("a").running and desk.line("b").running
        assert (
            desk.board.find_webhook("/hook") is Account.made[-1] and Account.made[-1].account == "b"
        )

    accounts = {"a": {"token": "hook"}, "b": {"token": "hook"}}
    await at_desk(tmp_path, {"svc": {"accounts": accounts}}, body)


async def test_controller_webhook_path_moves_between_accounts_in_one_change(tmp_path: Path) -> None:
    async def body(desk: Desk) -> None:
        await desk.change({"svc": {"accounts": {"a": {"token": "hook"}, "b": {"token": "1"}}}})
        assert desk.line("a").running and desk.line("b").running
        moved = [one for one in Account.made if one.account == "a"][-1]
        assert desk.board.find_webhook("/hook") is moved

    accounts = {"a": {"token": "1"}, "b": {"token": "hook"}}
    await at_desk(tmp_path, {"svc": {"accounts": accounts}}, body)
