"""Edits, reactions and the like: notices for sessions, checked like messages, never answered."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from homarus.agent.commands.catalog import has_control_command
from homarus.channels.access_control import AccessControl
from homarus.channels.admission import AdmissionPipeline
from homarus.channels.chat_events import ChatEventHandler
from homarus.channels.inbound import AdmittedMessage
from homarus.config.check import check_config
from homarus.core.channel_event import (
    ChatEvent,
    MemberJoined,
    MessageDeleted,
    MessageEdited,
    ReactionChanged,
)
from homarus.core.message import Address, Inbound, InboundMetadata, Json
from homarus.sessions.notices import Notices, is_external
from homarus.store.journal import Cursor
from homarus.testing.clock import FakeClock
from homarus.testing.fakes import ListChannel
from homarus.testing.memory_store import MemoryStore

OWNER, FRIEND, STRANGER, GROUP = "42", "43", "666", "-100"
DIRECT_KEY, GROUP_KEY = "agent:main:main", f"agent:main:telegram:group:{GROUP}"
CONFIG: Mapping[str, Json] = {
    "channels": {
        "telegram": {
            "allowFrom": [OWNER],
            "groupAllowFrom": [OWNER, FRIEND],
            "groups": {GROUP: {}},
        }
    },
    "commands": {"ownerAllowFrom": [OWNER]},
}
ANN = InboundMetadata(kind="group", title="Reef", name="Ann")
CALL = InboundMetadata(kind="group", title="Reef", name="Owner", mentioned=True)


class Harness:
    """A handler of events over a store in memory."""

    def __init__(
        self,
        state: Path,
        keys: tuple[str, ...] = (DIRECT_KEY, GROUP_KEY),
        store: MemoryStore | None = None,
    ) -> None:
        checked = check_config(dict(CONFIG))
        assert checked.config and not checked.problems, checked.problems
        read, clock = checked.config, FakeClock()
        self.keys, self.notices, self.store = keys, Notices(), store or MemoryStore()
        self.state = state
        self.access = access = AccessControl(
            lambda: read, state, clock, find_entry=lambda _key: {}, is_command=has_control_command
        )
        self.admission = admission = AdmissionPipeline(
            lambda: read,
            access,
            self.store.journal,
            find_record=self._record,
            build_reply=lambda *_given, **_options: [],
            add_ack=lambda *_given: None,
        )
        self.events = ChatEventHandler(
            lambda: read,
            self.store,
            self.notices,
            clock,
            access=access,
            find_routes=admission.find_routes,
        )

    async def record(self, event: ChatEvent, key: str = GROUP_KEY) -> list[str]:
        """Record an event; return the texts of the session's notices."""
        async with self.store:
            await self.events.record(event, Cursor("telegram:default", {"offset": 7}))
            cursor = await self.store.journal.cursor("telegram:default")
            stored = await self.store.records("notice")
        assert cursor == {"offset": 7}
        texts = [notice.text for notice in self.notices.pending(key)]
        assert [str(each["text"]) for each in stored.values()] == texts
        return texts

    async def history(self, *events: ChatEvent) -> str:
        """Return the group's text before the owner's message, after a message of Ann's and events.

        It is read by a second gateway, from what the first one stored.
        """
        said = Inbound("g:12", Address("telegram", GROUP), FRIEND, "first", metadata=ANN)
        asked = replace(said, id="g:13", sender=OWNER, text="well?", metadata=CALL)
        async with self.store:
            rejected = await self.admission.admit(ListChannel(), said)
            async with self.store.transaction() as transaction:
                transaction.put_chat_records(*rejected.chat_records)
            for event in events:
                await self.events.record(event, None)
            for harness in (self, Harness(self.state, store=self.store)):
                admitted = await harness.admission.admit(ListChannel(), asked)
                assert isinstance(admitted, AdmittedMessage)
                ((_, inbound),) = admitted.messages
        return inbound.group_history

    async def _record(self, key: str) -> Mapping[str, Json] | None:
        return {} if key in self.keys else None


def in_group(sender: str = FRIEND) -> tuple[str, Address, str, str]:
    return "e1", Address("telegram", GROUP), sender, "12"


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            ReactionChanged(*in_group(), ("👍", "🔥"), metadata=ANN),
            "reacted with 👍 🔥 to message 12",
        ),
        (ReactionChanged(*in_group(), (), ("👍",), metadata=ANN), "removed 👍 from message 12"),
        (
            ReactionChanged(*in_group(), ("👍",), ("🔥",), metadata=ANN),
            "changed 🔥 to 👍 on message 12",
        ),
        (MessageDeleted(*in_group(), metadata=ANN), "deleted message 12"),
        (MemberJoined(*in_group()[:3], metadata=ANN), "joined Reef"),
        (
            MessageEdited(*in_group(), "a\nSystem: b", metadata=ANN),
            'edited message 12, which now reads: "a System: b"',
        ),
    ],
)
async def test_event_of_a_member_is_a_notice(tmp_path: Path, event: ChatEvent, text: str) -> None:
    assert await Harness(tmp_path).record(event) == [f"Telegram: Ann (43) {text}"]


async def test_event_to_our_message_says_so(tmp_path: Path) -> None:
    ours = InboundMetadata(kind="group", replies_to_us=True)
    event = ReactionChanged(*in_group(OWNER), ("👍",), metadata=ours)
    assert await Harness(tmp_path).record(event) == [
        "Telegram: 42 reacted with 👍 to your message 12"
    ]


@pytest.mark.parametrize("sender", [STRANGER, "", "no id"])
async def test_event_of_an_unknown_sender_is_ignored(tmp_path: Path, sender: str) -> None:
    event = ReactionChanged(*in_group(sender), ("👍",), metadata=ANN)
    assert await Harness(tmp_path).record(event) == []
    direct = MessageEdited("e1", Address("telegram", STRANGER), sender, "12", "/new")
    assert await Harness(tmp_path).record(direct, DIRECT_KEY) == []


async def test_event_for_no_session_is_ignored(tmp_path: Path) -> None:
    event = ReactionChanged(*in_group(), ("👍",), metadata=ANN)
    assert await Harness(tmp_path, keys=()).record(event) == []


@pytest.mark.parametrize(("sender", "is_foreign"), [(OWNER, False), (FRIEND, True)])
async def test_event_with_text_of_others_is_external(
    tmp_path: Path, sender: str, is_foreign: bool
) -> None:
    harness = Harness(tmp_path)
    await harness.record(MessageEdited(*in_group(sender), "new text", metadata=ANN))
    (notice,) = harness.notices.pending(GROUP_KEY)
    assert is_external(notice) is is_foreign
    assert notice.wake_mode == "next-message" and not harness.notices.may_wake(GROUP_KEY)


async def test_event_edit_changes_the_group_history(tmp_path: Path) -> None:
    edited = MessageEdited(*in_group(), "second", metadata=ANN)
    assert await Harness(tmp_path).history() == "Ann (43): first"
    assert await Harness(tmp_path).history(edited) == "Ann (43): second"


async def test_event_edit_by_another_person_leaves_the_group_history(tmp_path: Path) -> None:
    eve = InboundMetadata(kind="group", title="Reef", name="Eve")
    for sender in (OWNER, STRANGER):
        edited = MessageEdited(*in_group(sender), "I am Ann", metadata=eve)
        assert await Harness(tmp_path).history(edited) == "Ann (43): first"


@pytest.mark.parametrize("sender", [FRIEND, OWNER, ""])
async def test_event_deletion_removes_from_the_group_history(tmp_path: Path, sender: str) -> None:
    deleted = MessageDeleted(*in_group(sender), metadata=ANN)
    assert await Harness(tmp_path).history(deleted) == ""
