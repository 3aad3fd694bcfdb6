"""Admission of a message for several agents, each with its own decision."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from homarus.agent.commands.catalog import has_control_command
from homarus.channels.access_control import AccessControl
from homarus.channels.access_request import HISTORY_LIMIT
from homarus.channels.admission import AdmissionPipeline
from homarus.channels.base import Capabilities, InboundHandler, Receipt
from homarus.channels.bot_loops import BOT_TURNS, BOT_WINDOW_S
from homarus.channels.inbound import AdmittedMessage, RejectedMessage
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
from homarus.store.chat_records import ChatRecord, chat_key
from homarus.store.journal import OutboxRecord
from homarus.testing.clock import FakeClock
from homarus.testing.memory_journal import MemoryJournal
from homarus.testing.memory_store import MemoryStore

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

    def __init__(
        self,
        state: Path,
        config: Mapping[str, Json] = THREE,
        journal: MemoryJournal | None = None,
    ) -> None:
        checked = check_config(dict(config))
        assert checked.config and not checked.problems, checked.problems
        read, clock = checked.config, FakeClock()
        self.clock, self.journal = clock, journal or MemoryStore().journal
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
            self.journal,
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
    rejected = harness.admit(group("nobody", "m4"))
    assert isinstance(rejected, RejectedMessage) and not rejected.notices
    lines = [record.chat for record in rejected.chat_records if record.kind == "history"]
    agents = {chat.split('"')[-2] for chat in lines}
    assert agents == {"main", "ops", "home"}  # each remembers it


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


def test_admission_adds_one_ack_reaction_and_downloads_nothing(tmp_path: Path) -> None:
    harness, picture = Harness(tmp_path), Media("image", "image/png", ref="f")
    asked = group("all of you", mentioned=True)
    accepted = harness.accept(replace(asked, media=(picture,)))
    assert harness.reactions == ["👀"] and harness.service.fetched == 0 and len(accepted) == 3
    assert all(one.media == (picture,) for one in accepted.values())


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
    rejected = harness.admit(group("hi", "more", mentioned=True, is_bot=True))
    assert rejected == RejectedMessage()


def store(harness: Harness, inbound: Inbound) -> AdmittedMessage | RejectedMessage:
    """Admit a message, and store what is remembered of it, as the inbound pipeline does."""
    admitted = harness.admit(inbound)

    async def write() -> None:
        async with harness.journal.transaction() as transaction:
            transaction.put_chat_records(*admitted.chat_records)

    asyncio.run(write())
    return admitted


def restarted(harness: Harness, state: Path) -> Harness:
    """Return the harness of a new process on the same journal."""
    return Harness(state, journal=harness.journal)


def history_of(harness: Harness, inbound: Inbound, agent: str = "main") -> str:
    admitted = store(harness, inbound)
    assert isinstance(admitted, AdmittedMessage)
    (found,) = [one for key, one in admitted.messages if key.split(":")[1] == agent]
    return found.group_history


def test_admission_group_history_survives_restart(tmp_path: Path) -> None:
    first = Harness(tmp_path)
    for number in range(3):
        store(first, group(f"line {number}", f"m{number}"))
    second = restarted(first, tmp_path)
    store(second, group("line 3", "m3"))
    expected = "\n".join(f"Ann (42): line {number}" for number in range(4))
    assert history_of(second, group("go", "m4", mentioned=True)) == expected
    # What one mention collected is not given to the next, after a restart either.
    third = restarted(second, tmp_path)
    store(third, group("line 4", "m5"))
    assert history_of(third, group("on", "m6", mentioned=True)) == "Ann (42): line 4"
    assert history_of(restarted(third, tmp_path), group("on", "m7", mentioned=True)) == ""


def test_admission_history_offered_again_after_restart_is_the_same(tmp_path: Path) -> None:
    first = Harness(tmp_path)
    store(first, group("line", "m1"))
    asked = group("go", "m2", mentioned=True)
    assert history_of(first, asked) == "Ann (42): line"
    again = restarted(first, tmp_path)
    assert history_of(again, asked) == "Ann (42): line"
    store(again, group("later", "m3"))
    assert history_of(again, group("go on", "m4", mentioned=True)) == "Ann (42): later"
    assert history_of(restarted(again, tmp_path), asked) == ""  # an old one collects nothing


def test_admission_history_on_disk_is_limited_and_cleared(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    count = 2 * HISTORY_LIMIT
    for number in range(count):
        store(harness, group(f"line {number}", f"m{number}"))
    records = asyncio.run(harness.journal.chat_records("history"))
    assert len(records) == 3 * HISTORY_LIMIT  # of three agents
    for number in range(2):
        store(harness, group("go", f"go{number}", mentioned=True))
        harness.access.on_reply_sent(Address("telegram", GROUP))
    records = asyncio.run(harness.journal.chat_records("history"))
    assert [record.id for record in records] == ["collected"] * 3


def test_admission_line_offered_again_is_stored_though_first_try_failed(tmp_path: Path) -> None:
    first = Harness(tmp_path)
    assert first.admit(group("line", "m1")).chat_records  # and the transaction fails
    store(first, group("line", "m1"))
    again = restarted(first, tmp_path)
    assert history_of(again, group("go", "m2", mentioned=True)) == "Ann (42): line"


def test_admission_loop_is_cut_off_after_restarts_too(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    for turn in range(BOT_TURNS):
        admitted = store(harness, group("hi", f"m{turn}", mentioned=True, is_bot=True))
        assert isinstance(admitted, AdmittedMessage), turn
        harness.access.on_reply_sent(Address("telegram", GROUP))
        harness = restarted(harness, tmp_path)
    more = group("hi", "more", mentioned=True, is_bot=True)
    assert isinstance(harness.admit(more), RejectedMessage)
    harness.clock.step(-3_600)  # the clock is set back: no longer than for the window
    harness = restarted(harness, tmp_path)
    harness.clock.step(-3_600)
    assert isinstance(store(harness, more), RejectedMessage)
    asyncio.run(harness.clock.advance(BOT_WINDOW_S))
    assert isinstance(harness.admit(more), AdmittedMessage)


def test_admission_person_ends_loop_of_bots_on_disk_too(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    store(harness, group("hi", "m1", mentioned=True, is_bot=True))
    assert len(asyncio.run(harness.journal.chat_records("turns"))) == 1
    store(harness, replace(group("people talk", "m2"), sender="7"))
    assert not asyncio.run(harness.journal.chat_records("turns"))


def test_admission_damaged_records_are_no_obstacle(tmp_path: Path) -> None:
    harness, chat = Harness(tmp_path), chat_key(Address("telegram", GROUP))
    agent = chat_key(Address("telegram", GROUP), "main")

    async def damage() -> None:
        async with harness.journal.transaction() as transaction:
            transaction.put_chat_records(
                ChatRecord("turns", chat, "", 1, {"turns": {"42": "x", "43": [None]}}),
                ChatRecord("history", agent, "collected", 1, {"by": 5}),
                ChatRecord("history", agent, "line:1", 1, {}),
                ChatRecord("history", agent, "line:2", 1, {"text": "Ann: hi"}),
            )

    asyncio.run(damage())
    assert "Ann: hi" in history_of(harness, group("go", "m2", mentioned=True))
