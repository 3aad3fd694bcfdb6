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
from homarus.core.message import (
    NO_EXTRAS,
    Address,
    Extras,
    Inbound,
    InboundMetadata,
    Json,
    Media,
    Outbound,
)
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


class FakeChannel:
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


class Harness:
    """An admission pipeline, with its ack reactions and replies."""

    def __init__(self, state: Path, config: Mapping[str, Json] = THREE) -> None:
        checked = check_config(dict(config))
        assert checked.config and not checked.problems, checked.problems
        read, clock = checked.config, FakeClock()
        self.service, self.replies, self.reactions = FakeChannel(), list[str](), list[str]()
        self.records = dict[str, Mapping[str, Json]]()
        self.access = AccessControl(
            lambda: read,
            state,
            clock,
            find_entry=lambda key: self.admission.entries.get(key, {}),
            is_command=has_control_command,
        )
        self.admission = AdmissionPipeline(
            lambda: read,
            self.access,
            MediaDownloader(state, clock.now_ms),
            find_record=self._record,
            build_reply=self._build_reply,
            add_ack=lambda _inbound, emoji: self.reactions.append(emoji),
        )

    def admit(self, inbound: Inbound) -> AdmittedMessage | RejectedMessage:
        return asyncio.run(self.admission.admit(self.service, inbound))

    def accept(self, inbound: Inbound) -> dict[str, Inbound]:
        """Return the messages by agent."""
        admitted = self.admit(inbound)
        assert isinstance(admitted, AdmittedMessage), admitted
        if admitted.on_accepted:
            admitted.on_accepted()
        return {key.split(":")[1]: one for key, one in admitted.messages}

    async def _record(self, key: str) -> Mapping[str, Json] | None:
        return self.records.get(key)

    def _build_reply(
        self, inbound: Inbound, run: str, text: str, first: int = 0, extras: Extras = NO_EXTRAS
    ) -> list[OutboxRecord]:
        assert (first, extras) == (0, NO_EXTRAS)
        self.replies.append(text)
        return [OutboxRecord(run, run, inbound.address, text, 0, 1)]


def group(text: str, message_id: str = "m1", **about: Any) -> Inbound:
    metadata = InboundMetadata(**{"kind": "group", "name": "Ann", **about})
    return Inbound(message_id, Address("telegram", GROUP), "42", text, metadata=metadata)


def test_admission_only_mentioned_agents_answer(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    assert set(harness.accept(group("ops, look"))) == {"ops"}
    assert set(harness.accept(group("all of you", "m2"))) == {"ops", "home"}
    assert set(harness.accept(group("hi", "m3", mentioned=True))) == {"main", "ops", "home"}
    assert harness.admit(group("nobody", "m4")) == RejectedMessage()


def test_admission_each_agent_has_its_own_history(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.accept(group("ops, one", "m1"))
    assert harness.accept(group("home, two", "m2"))["home"].group_history == "Ann (42): ops, one"
    accepted = harness.accept(group("go on", "m3", mentioned=True))
    assert accepted["main"].group_history == "Ann (42): ops, one\nAnn (42): home, two"
    assert accepted["ops"].group_history == "Ann (42): home, two"
    assert accepted["home"].group_history == ""


def test_admission_each_session_has_its_own_activation(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    harness.records[f"agent:home:telegram:group:{GROUP}"] = {"groupActivation": "always"}
    assert set(harness.accept(group("so quiet here"))) == {"home"}


def test_admission_copy_of_agent_is_independent_of_others(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    assert harness.accept(group("ops, look"))["ops"].copy_for == "ops"
    both = harness.accept(group("hi", "m2", mentioned=True))
    assert {name: one.copy_for for name, one in both.items()} == {
        "main": "",
        "ops": "ops",
        "home": "home",
    }


def test_admission_one_ack_reaction_and_one_download_for_all_agents(tmp_path: Path) -> None:
    harness, picture = Harness(tmp_path), Media("image", "image/png", ref="f")
    asked = group("all of you", mentioned=True)
    accepted = harness.accept(replace(asked, media=(picture,)))
    assert harness.reactions == ["👀"] and harness.service.fetched == 1 and len(accepted) == 3
    assert all(one.media[0].path and len(one.images) == 1 for one in accepted.values())


def test_admission_unknown_sender_gets_one_code_for_all_agents(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    rejected = harness.admit(Inbound("m1", Address("telegram", "42"), "42", "hi"))
    assert (
        isinstance(rejected, RejectedMessage) and len(rejected.notices) == len(harness.replies) == 1
    )


def test_admission_last_bot_turn_is_answered_by_all_then_none(
    tmp_path: Path,
) -> None:
    harness = Harness(tmp_path)
    for turn in range(BOT_TURNS):
        accepted = harness.accept(group("hi", f"m{turn}", mentioned=True, is_bot=True))
        assert len(accepted) == 3, turn
        harness.access.on_reply_sent(Address("telegram", GROUP))
    assert harness.admit(group("hi", "more", mentioned=True, is_bot=True)) == RejectedMessage()
