"""Admission of a message for several agents, each with its own decision."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from homarus.agent.commands.catalog import has_control_command
from homarus.channels.access_control import AccessControl
from homarus.channels.admission import AdmissionPipeline
from homarus.channels.base import Capabilities, InboundHandler, Receipt
from homarus.channels.bot_loops import BOT_TURNS
from homarus.channels.inbound import AdmittedMessage, RejectedMessage
from homarus.channels.media import MediaDownloader
from homarus.config.check import check_config
from homarus.core.message import Address, Inbound, InboundMetadata, Json, Media, Outbound
from homarus.store.journal import OutboxRecord
from homarus.testing.clock import FakeClock

GROUP = "-100"
THREE: Mapping[str, Json] = {
    "agents": {
        "list": [
            {"id": "main", "groupChat": {"mentionPatterns": ["molty"]}},
            {"id": "ops", "groupChat": {"mentionPatterns": ["ops", "all of you"]}},
            {"id": "home", "groupChat": {"mentionPatterns": ["home", "all of you"]}},
        ]
    },
    "broadcast": {GROUP: ["main", "ops", "home"], "42": ["main", "ops"]},
    "channels": {"telegram": {"groups": {GROUP: {}}, "ackReaction": "👀", "allowBots": True}},
    "messages": {"ackReactionScope": "all"},
}


class Line:
    """A service that counts its downloads."""

    name, account, capabilities = "telegram", "default", Capabilities()

    def __init__(self) -> None:
        self.fetched = 0

    async def run(self, receive: InboundHandler) -> None:
        """Receive nothing."""

    async def send(self, message: Outbound) -> Receipt:
        return Receipt(message.key)

    async def fetch(self, media: Media, max_bytes: int) -> bytes:
        self.fetched += 1
        return b"\x89PNG\r\n\x1a\n"[:max_bytes]


class Desk:
    """An admission pipeline, with its ack reactions and replies."""

    def __init__(self, state: Path, config: Mapping[str, Json] = THREE) -> None:
        checked = check_config(dict(config))
        assert checked.config and not checked.problems, checked.problems
        read, clock = checked.config, FakeClock()
        self.service, self.packed, self.signs = Line(), list[str](), list[str]()
        self.records = dict[str, Mapping[str, Json]]()
        self.gate = AccessControl(
            lambda: read,
            state,
            clock,
            entry=lambda key: self.porter.entries.get(key, {}),
            is_command=has_control_command,
        )
        self.porter = AdmissionPipeline(
            lambda: read,
            self.gate,
            MediaDownloader(state, clock.now_ms),
            record=self._record,
            pack=self._pack,
            welcome=lambda _inbound, emoji: self.signs.append(emoji),
        )

    def admit(self, inbound: Inbound) -> AdmittedMessage | RejectedMessage:
        return asyncio.run(self.porter.admit(self.service, inbound))

    def heard(self, inbound: Inbound) -> dict[str, Inbound]:
        """Return the messages by agent."""
        taken = self.admit(inbound)
        assert isinstance(taken, AdmittedMessage), taken
        if taken.on_accepted:
            taken.on_accepted()
        return {key.split(":")[1]: one for key, one in taken.messages}

    async def _record(self, key: str) -> Mapping[str, Json] | None:
        return self.records.get(key)

    def _pack(self, inbound: Inbound, run: str, text: str) -> list[OutboxRecord]:
        self.packed.append(text)
        return [OutboxRecord(run, run, inbound.address, text, 0, 1)]


def group(text: str, message_id: str = "m1", **about: Any) -> Inbound:
    told = InboundMetadata(**{"kind": "group", "name": "Ann", **about})
    return Inbound(message_id, Address("telegram", GROUP), "42", text, metadata=told)


def test_admission_only_mentioned_agents_answer(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert set(desk.heard(group("ops, look"))) == {"ops"}
    assert set(desk.heard(group("all of you", "m2"))) == {"ops", "home"}
    assert set(desk.heard(group("hi", "m3", mentioned=True))) == {"main", "ops", "home"}
    assert desk.admit(group("nobody", "m4")) == RejectedMessage()


def test_admission_each_agent_has_its_own_history(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.heard(group("ops, one", "m1"))
    assert desk.heard(group("home, two", "m2"))["home"].group_history == "Ann (42): ops, one"
    heard = desk.heard(group("go on", "m3", mentioned=True))
    assert heard["main"].group_history == "Ann (42): ops, one\nAnn (42): home, two"
    assert heard["ops"].group_history == "Ann (42): home, two"
    assert heard["home"].group_history == ""


def test_admission_each_session_has_its_own_activation(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.records[f"agent:home:telegram:group:{GROUP}"] = {"groupActivation": "always"}
    assert set(desk.heard(group("so quiet here"))) == {"home"}


def test_admission_copy_of_agent_is_independent_of_others(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert desk.heard(group("ops, look"))["ops"].copy_for == "ops"
    both = desk.heard(group("hi", "m2", mentioned=True))
    assert {name: one.copy_for for name, one in both.items()} == {
        "main": "",
        "ops": "ops",
        "home": "home",
    }


def test_admission_one_ack_reaction_and_one_download_for_all_agents(tmp_path: Path) -> None:
    desk, picture = Desk(tmp_path), Media("image", "image/png", ref="f")
    asked = group("all of you", mentioned=True)
    heard = desk.heard(replace(asked, media=(picture,)))
    assert desk.signs == ["👀"] and desk.service.fetched == 1 and len(heard) == 3
    assert all(one.media[0].path and len(one.images) == 1 for one in heard.values())


def test_admission_unknown_sender_gets_one_code_for_all_agents(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    left = desk.admit(Inbound("m1", Address("telegram", "42"), "42", "hi"))
    assert isinstance(left, RejectedMessage) and len(left.parcels) == len(desk.packed) == 1


def test_admission_last_bot_turn_is_answered_by_all_then_none(
    tmp_path: Path,
) -> None:
    desk = Desk(tmp_path)
    for turn in range(BOT_TURNS):
        heard = desk.heard(group("hi", f"m{turn}", mentioned=True, is_bot=True))
        assert len(heard) == 3, turn
        desk.gate.on_reply_sent(Address("telegram", GROUP))
    assert desk.admit(group("hi", "more", mentioned=True, is_bot=True)) == RejectedMessage()
