"""The tools of a group: a denied tool is neither offered to the model nor run."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from homarus.config.schema import Config
from homarus.core.message import Address, Inbound, InboundMetadata, Message, ToolCall, ToolResult
from homarus.providers.base import ModelRequest
from homarus.store.journal import InboxRecord
from homarus.testing.fakes import ScriptedProvider, assistant_message
from tests.unit.agent.harness import Harness

GROUP_KEY = "agent:main:telegram:group:-100"
DIRECT_KEY = "agent:main:main"
NO_WRITING = {"groups": {"-100": {"tools": {"deny": ["write", "edit"]}}, "*": {}}}
ONLY_ANN_WRITES = {
    "groups": {"-100": {"tools": {"deny": ["write"]}, "toolsBySender": {"42": {"allow": ["*"]}}}}
}
WRITE = ToolCall("c1", "write", {"path": "a.txt", "content": "x"})


def said(sender: str = "42", text: str = "hi", number: int = 1, **fields: Any) -> Inbound:
    about = InboundMetadata(kind="group", name="Ann")
    to = Address("telegram", "-100")
    usual = Inbound(str(number), to, sender, text, run_id=f"r{number}", metadata=about)
    return replace(usual, **fields)


class Room(Harness):
    """A harness with a channel config."""

    def __init__(self, folder: Path, telegram: Mapping[str, Any], *script: Message) -> None:
        super().__init__(folder, *script)
        self.config = Config.model_validate({"channels": {"telegram": telegram}})

    def answer(self, *asked: Inbound, key: str = GROUP_KEY, steer: Sequence[Inbound] = ()) -> None:
        async def kept(messages: Sequence[Inbound]) -> list[InboxRecord]:
            found = [await self.store.journal.accept(key, one, at_ms=1) for one in messages]
            return [one.record for one in found]

        async def main() -> None:
            rows = await kept(asked)
            self.steering = await kept(steer)
            outcome = await self.runs.start(key, rows, "all of it" if len(rows) > 1 else "")
            assert outcome.error is None, outcome.error

        asyncio.run(main())

    @property
    def requests(self) -> list[ModelRequest]:
        assert isinstance(self.provider, ScriptedProvider)
        return self.provider.requests

    def tools(self, at: int = -1) -> set[str]:
        """Return the tools of a request; those in its prompt must be the same."""
        request = self.requests[at]
        names = {spec.name for spec in request.tools}
        for name in ("read", "write", "edit"):
            assert (f"- {name}: " in request.system) == (name in names), name
        return names

    def result(self) -> str:
        (found,) = self.requests[-1].messages[-1].parts
        assert isinstance(found, ToolResult)
        return found.text


def test_group_denied_tool_is_not_offered_and_not_run(tmp_path: Path) -> None:
    room = Room(tmp_path, NO_WRITING, assistant_message(WRITE), assistant_message("I cannot."))
    room.answer(said())
    assert room.tools() == {"read"} and "write is denied by 'write' of group" in room.result()
    assert not (tmp_path / "a.txt").exists()


def test_group_rules_do_not_hold_in_another_chat(tmp_path: Path) -> None:
    room = Room(tmp_path, NO_WRITING, assistant_message("1"), assistant_message("2"))
    room.answer(said(address=Address("telegram", "-200")), key="agent:main:telegram:group:-200")
    assert room.tools() == {"read", "write", "edit"}
    direct = said(number=2, address=Address("telegram", "42"), metadata=InboundMetadata())
    room.answer(direct, key=DIRECT_KEY)
    assert room.tools() == {"read", "write", "edit"}


def test_group_rules_for_all_groups_spare_direct_chats(tmp_path: Path) -> None:
    usual = {"groups": {"*": {"tools": {"deny": ["write"]}, "systemPrompt": "Be wary."}}}
    room = Room(tmp_path, usual, assistant_message("1"), assistant_message("2"))
    room.answer(said(address=Address("telegram", "42"), metadata=InboundMetadata()), key=DIRECT_KEY)
    assert "write" in room.tools() and "Be wary." not in room.requests[-1].system
    room.answer(said(number=2))
    assert "write" not in room.tools() and "Be wary." in room.requests[-1].system


def test_group_sender_rule_allows_more_tools(tmp_path: Path) -> None:
    room = Room(
        tmp_path,
        ONLY_ANN_WRITES,
        assistant_message("1"),
        assistant_message("2"),
        assistant_message("3"),
    )
    for number, sender in enumerate(("42", "7", "42"), 1):
        room.answer(said(sender, number=number))
    assert [("write" in room.tools(at)) for at in range(3)] == [True, False, True]
    assert room.requests[0].system == room.requests[2].system  # same senders, same prompt
    assert room.requests[0].tools == room.requests[2].tools


def test_group_merged_senders_get_tools_both_may_use(tmp_path: Path) -> None:
    room = Room(tmp_path, ONLY_ANN_WRITES, assistant_message("1"))
    room.answer(said("42"), said("7", number=2))
    assert "write" not in room.tools()


def test_group_steering_sender_adds_own_restrictions(
    tmp_path: Path,
) -> None:
    room = Room(
        tmp_path,
        ONLY_ANN_WRITES,
        assistant_message("one"),
        assistant_message(WRITE),
        assistant_message("I may not."),
    )
    room.answer(said("42"), steer=[said("7", "write it!", 2)])
    assert "write is denied" in room.result() and not (tmp_path / "a.txt").exists()


def test_group_session_from_gateway_client_has_group_tools(
    tmp_path: Path,
) -> None:
    room = Room(
        tmp_path, NO_WRITING, assistant_message("1"), assistant_message("2"), assistant_message("3")
    )
    room.answer(said())
    for number in (2, 3):
        page = Address("webchat", "x")
        room.answer(said("42", number=number, address=page, metadata=InboundMetadata()))
        assert room.tools() == {"read"}


def test_group_that_denies_an_unknown_group_has_no_tools(tmp_path: Path) -> None:
    mistyped = {"groups": {"-100": {"tools": {"deny": ["group:file"]}}}}
    room = Room(tmp_path, mistyped, assistant_message("done"))
    room.answer(said())
    assert room.tools() == set()


def test_sender_whose_rules_deny_an_unknown_group_stops_tools(tmp_path: Path) -> None:
    mistyped = {"groups": {"-100": {"toolsBySender": {"7": {"deny": ["group:file"]}}}}}
    script = (assistant_message("one"), assistant_message(WRITE), assistant_message("I may not."))
    room = Room(tmp_path, mistyped, *script)
    room.answer(said(), steer=[said("7", number=2)])
    assert "write" in room.tools(0) and not (tmp_path / "a.txt").exists()
    assert "because it denies group:file, which is unknown" in room.result()
