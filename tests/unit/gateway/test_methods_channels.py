"""`channels.status`, `channels.logout` and `send`, with a switchboard of the test's own."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from homarus.channels.controller import AccountStatus
from homarus.cli.channels import _state
from homarus.config.load import load_config
from homarus.core.clock import SystemClock
from homarus.core.errors import ChannelError, InvalidRequestError, UnavailableError
from homarus.core.message import Json, user_message
from homarus.gateway.channel_status import describe_account_state
from homarus.gateway.health import collect_health
from homarus.gateway.method import Caller, MethodCall
from homarus.gateway.methods import METHODS
from homarus.tools.tool import SendResult
from tests.unit.gateway.harness import FakeProgram, Harness, play

CONFIG = """{
  channels: {
    telegram: { botToken: "123:secret", dmPolicy: "open", allowFrom: ["*"],
                accounts: { work: {}, default: { name: "Ann's bot" } } },
    irc: { host: "irc.example", nick: "bot" },
  },
}"""
UP = AccountStatus(
    "telegram", "default", name="Ann's bot", running=True, connected=True, since_ms=5,
    last_in_ms=6, last_out_ms=7, waiting=2,
)  # fmt: skip
WORK = AccountStatus("telegram", "work", enabled=False)
BROKEN = AccountStatus(
    "irc", "default", running=True, restarts=3, problem="refused: password=hunter2-very-long"
)


class Desk:
    """A caller at a gateway."""

    def __init__(self, stage: Harness) -> None:
        self.stage, self.program = stage, stage.program
        self.services = stage.gateway.services

    async def ask(self, name: str, scope: str = "admin", **params: Json) -> Any:
        caller = Caller("c", "cli", "cli", scopes=frozenset({f"operator.{scope}"}))
        return await METHODS[name](
            MethodCall(self.services, self.stage.gateway, caller, "1"), params
        )


@asynccontextmanager
async def at_desk(folder: Path, *lines: AccountStatus, config: str = CONFIG) -> AsyncIterator[Desk]:
    async with play(folder, clock=SystemClock()) as stage:
        configure(stage.program, config)
        stage.program.channels.lines = lines
        yield Desk(stage)


def configure(host: FakeProgram, text: str) -> None:
    host.paths.state.mkdir(parents=True, exist_ok=True)
    host.paths.config.write_text(text, encoding="utf-8")
    host.loaded = load_config(host.paths, {})


async def test_channels_status_without_channels_is_empty(tmp_path: Path) -> None:
    async with at_desk(tmp_path, config="{}") as desk:
        found = await desk.ask("channels.status", "read")
        assert found.pop("ts") > 0
        assert found == {
            "channelOrder": [],
            "channelLabels": {},
            "channelDetailLabels": {},
            "channelSystemImages": {},
            "channelMeta": [],
            "channels": {},
            "channelAccounts": {},
            "channelDefaultAccountId": {},
        }


async def test_channels_status_lists_accounts_without_secrets(tmp_path: Path) -> None:
    async with at_desk(tmp_path, WORK, UP, BROKEN) as desk:
        found = await desk.ask("channels.status", "read")
        assert found["channelOrder"] == ["telegram", "irc"]
        assert found["channelLabels"] == {"telegram": "Telegram", "irc": "IRC"}
        assert found["channelMeta"][1] == {"id": "irc", "label": "IRC", "detailLabel": "IRC"}
        assert found["channelDefaultAccountId"] == {"telegram": "default", "irc": "default"}
        assert found["channelAccounts"]["telegram"] == [
            {
                "accountId": "work", "enabled": False, "configured": True, "running": False,
                "connected": False, "reconnectAttempts": 0, "waiting": 0, "dmPolicy": "open",
                "allowFrom": ["*"],
            },
            {
                "accountId": "default", "enabled": True, "configured": True, "running": True,
                "connected": True, "reconnectAttempts": 0, "lastStartAt": 5, "lastInboundAt": 6,
                "lastOutboundAt": 7, "waiting": 2, "name": "Ann's bot",
                "dmPolicy": "open", "allowFrom": ["*"],
            },
        ]  # fmt: skip
        assert found["channels"]["telegram"] == {
            "configured": True, "running": True, "connected": True, "lastStartAt": 5,
        }  # fmt: skip
        irc = found["channelAccounts"]["irc"][0]
        assert irc["lastError"].startswith("refused") and irc["reconnectAttempts"] == 3
        assert "hunter2" not in str(found) and "123:secret" not in str(found)


async def test_channels_probe_checks_enabled_accounts(tmp_path: Path) -> None:
    async with at_desk(tmp_path, WORK, UP, BROKEN) as desk:
        board = desk.program.channels
        board.probes = {
            ("telegram", "default"): "@ann_bot",
            ("irc", "default"): ChannelError("nobody answers at irc.example"),
        }
        found = await desk.ask("channels.status", "read", probe=True, timeoutMs=5_000)
        accounts = found["channelAccounts"]
        work, usual = accounts["telegram"]
        assert "probe" not in work
        assert (usual["probe"]["ok"], usual["probe"]["identity"]) == (True, "@ann_bot")
        assert usual["lastProbeAt"] == found["ts"] and usual["probe"]["elapsedMs"] >= 0
        assert accounts["irc"][0]["probe"]["error"] == "nobody answers at irc.example"
        assert found["channels"]["telegram"]["probe"]["ok"]


async def test_channels_probe_that_hangs_or_fails_affects_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with at_desk(tmp_path, UP, BROKEN) as desk:

        async def probe(channel: str, account: str) -> str:
            if channel == "irc":
                raise ZeroDivisionError
            await asyncio.Event().wait()
            return ""

        monkeypatch.setattr(desk.program.channels, "probe", probe)
        found = (await desk.ask("channels.status", probe=True, timeoutMs=1))["channelAccounts"]
        assert "0.001 s" in found["telegram"][0]["probe"]["error"]
        assert "bug" in found["irc"][0]["probe"]["error"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (UP, "connected"),
        (WORK, "off"),
        (AccountStatus("irc", "default", running=True), "running"),
        (AccountStatus("irc", "default"), "stopped"),
        (BROKEN, "failing: refused"),
        (AccountStatus("irc", "default", problem="401"), "stopped: 401"),
    ],
)
def test_channels_account_state_is_described_in_a_few_words(line: AccountStatus, told: str) -> None:
    assert describe_account_state(line).startswith(
        told
    ) and "hunter2" not in describe_account_state(line)


async def test_channels_are_part_of_health(tmp_path: Path) -> None:
    async with at_desk(tmp_path, UP, BROKEN) as desk:
        found = await collect_health(desk.services, desk.stage.gateway.monitor)
        assert found["channelOrder"] == ["telegram", "irc"]
        assert found["channelLabels"]["irc"] == "IRC"
        assert found["channels"]["telegram"]["accounts"]["default"]["connected"] is True
        assert found["channels"]["irc"]["running"] is True


async def test_channels_logout_stops_account_and_forgets_login(tmp_path: Path) -> None:
    async with at_desk(tmp_path, UP) as desk:
        kept = desk.program.paths.state / "credentials" / "telegram" / "default.json"
        with pytest.raises(InvalidRequestError, match="keeps no login"):
            await desk.ask("channels.logout", channel="telegram")
        assert desk.program.channels.stopped == []
        kept.parent.mkdir(parents=True)
        kept.write_text("{}")
        found = await desk.ask("channels.logout", channel="Telegram")
        assert found == {"channel": "telegram", "accountId": "default", "cleared": True}
        assert not kept.exists() and desk.program.channels.stopped == [("telegram", "default")]
        for wrong in ({"channel": "../x"}, {"channel": "telegram", "accountId": "nobody"}):
            with pytest.raises(InvalidRequestError):
                await desk.ask("channels.logout", **wrong)
        with pytest.raises(InvalidRequestError, match="missing scope"):
            await desk.ask("channels.logout", "write", channel="telegram")


SEND = {"to": "telegram:42", "message": "Hello", "channel": "telegram", "idempotencyKey": "k1"}


async def test_send_uses_the_idempotency_key_and_returns_the_id(tmp_path: Path) -> None:
    async with at_desk(tmp_path, UP) as desk:
        told = await desk.ask("send", "write", **SEND)
        assert told == {
            "runId": "k1", "messageId": "m0", "channel": "telegram", "chatId": "42",
            "status": "sent",
        }  # fmt: skip
        assert await desk.ask("send", "write", **SEND) == told
        assert {(to.chat, text, key) for to, text, _, key in desk.program.messenger.posted} == {
            ("42", "Hello", "send:k1")
        }
        with pytest.raises(InvalidRequestError, match="another chat"):
            await desk.ask("send", "write", **{**SEND, "to": "43"})
        with pytest.raises(InvalidRequestError, match="missing scope"):
            await desk.ask("send", "read", **SEND)


@pytest.mark.parametrize("state", ["queued", "unknown"])
async def test_send_reports_the_delivery_state(
    tmp_path: Path, state: Literal["queued", "unknown"]
) -> None:
    async with at_desk(tmp_path, UP) as desk:
        desk.program.messenger.outcome = SendResult(state, "", "why")
        told = await desk.ask("send", **SEND)
        assert (told["status"], told["messageId"]) == (state, "")


async def test_send_that_is_refused_is_an_error(tmp_path: Path) -> None:
    async with at_desk(tmp_path, UP) as desk:
        desk.program.messenger.outcome = SendResult("failed", "", "no such chat")
        with pytest.raises(UnavailableError, match="no such chat"):
            await desk.ask("send", **SEND)


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"message": "  "}, "message or media required"),
        ({"message": None}, "message or media required"),
        ({"mediaUrl": "gone.png"}, "no such file"),
        ({"channel": "discord"}, "no channel 'discord'"),
        ({"channel": None, "to": "42"}, "no channel is given"),
        ({"accountId": "nobody"}, "no account"),
        ({"to": "telegram:group:"}, "names no chat"),
        ({"to": "\u202e"}, "names no chat"),
        ({"sessionKey": "agent:main:nobody"}, "session not found"),
    ],
)
async def test_send_with_invalid_params_sends_nothing(
    tmp_path: Path, params: dict[str, Json], why: str
) -> None:
    async with at_desk(tmp_path, UP, BROKEN) as desk:
        asked = {k: v for k, v in {**SEND, **params}.items() if v is not None}
        with pytest.raises(InvalidRequestError, match=why):
            await desk.ask("send", **asked)
        assert desk.program.messenger.posted == []


async def test_send_names_files_by_workspace_path(tmp_path: Path) -> None:
    async with at_desk(tmp_path, UP) as desk:
        workspace = desk.program.agent("main").workspace
        workspace.mkdir(parents=True)
        (workspace / "a.png").write_bytes(b"1")
        asked = {**SEND, "mediaUrl": "a.png", "to": "-100:topic:7"}
        del asked["message"]
        assert (await desk.ask("send", **asked))["chatId"] == "-100"
        to, text, extras, _ = desk.program.messenger.posted[0]
        assert (to.thread, text, [file.name for file in extras.media]) == ("7", "", ["a.png"])


async def test_send_with_session_adds_the_text_once(tmp_path: Path) -> None:
    async with at_desk(tmp_path, UP) as desk:
        session = await desk.services.control.load("agent:main:main")
        await session.append(user_message("Hi"))
        for _ in range(2):
            await desk.ask("send", **SEND, sessionKey="main")
        again = await desk.services.control.load("agent:main:main")
        assert [message.text for message in again.messages] == ["Hi", "Hello"]


async def test_channel_status_counts_unreadable_messages(tmp_path: Path) -> None:
    async with at_desk(tmp_path, replace(UP, unreadable=3), WORK) as desk:
        found = await desk.ask("channels.status", "read")
    first, second = found["channelAccounts"]["telegram"]
    assert first["unreadable"] == 3 and "unreadable" not in second
    assert "3 unreadable (homarus matrix devices)" in _state(first)
