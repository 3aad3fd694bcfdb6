"""The `message` tool: where it may write, what it says it did, and that it may be run again."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.config.schema import Config
from homarus.config.tools_schema import MessageToolConfig
from homarus.core.chat_action import ChatAction
from homarus.core.errors import ChannelError, ToolDeniedError, ToolError
from homarus.core.message import Address, Button, Extras, Media, Poll, Text, ToolCall
from homarus.policy.approvals import ApprovalQuestion
from homarus.policy.decision import decide_tool_call
from homarus.policy.tool_call import CallerFacts, TaintSource
from homarus.policy.workspace_access import WorkspaceAccess
from homarus.testing.approvals import AskingApprovals
from homarus.tools.builtin.message import message_tool, tools
from homarus.tools.execute import prepare_call
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import SendResult, ToolContext, ToolOutput

MAIN = "agent:main:main"
HERE = Address("telegram", "42")
BOB = Address("telegram", "7")
ROOM = Address("matrix", "!r:x")


class FakeMessenger:
    """Notes what it is asked for; `target` is `channel/chat`."""

    def __init__(self, *known: Address) -> None:
        self.known, self.seen = known, list[tuple[Any, ...]]()
        self.posted: SendResult | Exception = SendResult("sent", "m9")

    def accounts(self) -> Sequence[tuple[str, str]]:
        return (("telegram", "default"), ("matrix", "default"))

    def resolve_address(
        self,
        target: str,
        *,
        channel: str = "",
        account: str = "",
        thread: str = "",
        here: Address | None = None,
    ) -> Address:
        if not target:
            assert here is not None
            return replace(here, thread=thread or here.thread)
        name, _, chat = target.partition("/")
        return Address(name, chat, account or "default", thread or None)

    async def is_known_chat(self, agent: str, to: Address) -> bool:
        return to in self.known

    async def attach(
        self, names: Sequence[str], workspace: Path, access: WorkspaceAccess
    ) -> tuple[Media, ...]:
        return tuple(
            Media(name=name, problem="no such file" if name == "gone" else "") for name in names
        )

    async def send(self, to: Address, text: str, extras: Extras, key: str) -> SendResult:
        self.seen.append(("post", to, text, extras, key))
        if isinstance(self.posted, Exception):
            raise self.posted
        return self.posted

    async def send_poll(self, to: Address, poll: Poll, extras: Extras, key: str) -> SendResult:
        self.seen.append(("poll", to, poll, extras, key))
        return SendResult("sent", "m9")

    async def react(self, to: Address, message_id: str, emoji: str) -> None:
        self.seen.append(("react", to, message_id, emoji))

    async def run_chat_action(self, to: Address, action: ChatAction) -> dict[str, Any]:
        raise AssertionError("the tool has no actions of operators")

    async def edit(self, to: Address, message_id: str, text: str) -> None:
        self.seen.append(("edit", to, message_id, text))

    async def delete(self, to: Address, message_id: str) -> None:
        self.seen.append(("delete", to, message_id))


class Person:
    """Answers every question alike, and keeps them."""

    def __init__(self, *, says: bool = False) -> None:
        self.says, self.asked = says, list[ApprovalQuestion]()

    async def __call__(self, question: ApprovalQuestion) -> bool:
        self.asked.append(question)
        return self.says


async def call(
    messenger: FakeMessenger | None,
    args: Mapping[str, Any],
    *,
    here: Address | None = HERE,
    person: Person | None = None,
    rules: Mapping[str, Any] | None = None,
    call_id: str = "c1",
) -> ToolOutput:
    tool = message_tool(MessageToolConfig.model_validate(rules or {}))
    ctx = ToolContext(
        "agent:main:main", "main", Path("/ws"), here=here, message_id="m1", run_id="r1",
        call_id=call_id, messenger=messenger, approvals=AskingApprovals(person or Person()),
    )  # fmt: skip
    result = await tool(ctx, args)
    assert isinstance(result, ToolOutput)
    return result


def told(result: ToolOutput) -> str:
    return "".join(part.text for part in result.content if isinstance(part, Text))


async def test_message_without_target_goes_to_current_chat() -> None:
    messenger = FakeMessenger()
    result = await call(messenger, {"message": "hi"})
    (_, to, text, extras, key) = messenger.seen[0]
    assert (to, text, extras) == (HERE, "hi", Extras())
    assert key.startswith("r1:message:") and told(result) == "Sent to telegram:42 as message m9."
    assert result.details == {
        "channel": "telegram", "accountId": "default", "to": "42", "threadId": None,
        "messageId": "m9", "state": "sent",
    }  # fmt: skip


async def test_message_carries_all_extras() -> None:
    messenger = FakeMessenger()
    await call(
        messenger,
        {
            "text": "hi",
            "path": "a.ogg",
            "replyTo": "m0",
            "asVoice": True,
            "silent": True,
            "buttons": [[{"text": "Yes", "callback_data": "y"}, {"text": "No"}], []],
        },
    )
    assert messenger.seen[0][3] == Extras(
        reply_to="m0",
        media=(Media(name="a.ogg"),),
        as_voice=True,
        buttons=((Button("Yes", "y"), Button("No", "No")),),
        silent=True,
    )


async def test_message_reply_defaults_to_current_message() -> None:
    messenger = FakeMessenger(BOB)
    await call(messenger, {"action": "reply", "message": "hi"})
    await call(messenger, {"action": "reply", "message": "hi", "messageId": "m5"})
    await call(messenger, {"action": "send", "message": "hi"})
    assert [seen[3].reply_to for seen in messenger.seen] == ["m1", "m5", ""]
    with pytest.raises(ToolError, match="which message"):
        await call(messenger, {"action": "reply", "message": "hi", "target": "telegram/7"})


async def test_message_thread_reply_without_thread_is_refused() -> None:
    messenger = FakeMessenger()
    with pytest.raises(ToolError, match="threadId"):
        await call(messenger, {"action": "thread-reply", "message": "hi"})
    await call(messenger, {"action": "thread-reply", "message": "hi", "threadId": "5"})
    assert messenger.seen[0][1].thread == "5"


async def test_message_react_edit_and_delete_reach_channel() -> None:
    messenger = FakeMessenger()
    assert told(await call(messenger, {"action": "react", "emoji": "👍"})).startswith(
        "Reacted to message m1"
    )
    await call(messenger, {"action": "react", "remove": True, "messageId": "m3"})
    await call(messenger, {"action": "edit", "messageId": "m4", "message": "new"})
    await call(messenger, {"action": "delete", "messageId": "m4"})
    assert messenger.seen == [
        ("react", HERE, "m1", "👍"),
        ("react", HERE, "m3", ""),
        ("edit", HERE, "m4", "new"),
        ("delete", HERE, "m4"),
    ]


@pytest.mark.parametrize(
    "args",
    [
        {"message": " "},
        {"action": "react"},
        {"action": "edit", "message": "new"},
        {"action": "delete"},
        {"message": "x", "media": "gone"},
        {"message": "x", "buttons": [[{"callback_data": "y"}]]},
        {"message": "x", "buttons": [[{"text": "b"}] * 51]},
        {"action": "kick"},
        {"message": "x", "unknown": 1},
    ],
)
async def test_message_invalid_request_is_refused_and_nothing_sent(args: Mapping[str, Any]) -> None:
    messenger = FakeMessenger()
    with pytest.raises(ToolError):
        await call(messenger, args)
    assert messenger.seen == []


async def test_message_without_reachable_chat_raises() -> None:
    with pytest.raises(ToolError, match="no chat service"):
        await call(None, {"message": "hi"})


async def test_message_to_other_chat_names_its_origin() -> None:
    messenger = FakeMessenger(BOB)
    await call(messenger, {"message": "hi", "target": "telegram/7"})
    assert messenger.seen[0][1:3] == (BOB, "[from telegram] hi")
    marker = {"crossContext": {"marker": {"prefix": "(", "suffix": " via {channel})"}}}
    await call(messenger, {"message": "hi", "target": "telegram/7"}, rules=marker)
    assert messenger.seen[1][2] == "(hi via telegram)"
    await call(
        messenger,
        {"message": "hi", "target": "telegram/7"},
        rules={"crossContext": {"marker": {"enabled": False}}},
    )
    assert messenger.seen[2][2] == "hi"


@pytest.mark.parametrize(
    ("target", "rules", "allowed"),
    [
        ("telegram/7", {}, True),
        ("telegram/7", {"crossContext": {"allowWithinProvider": False}}, False),
        ("matrix/!r:x", {}, False),
        ("matrix/!r:x", {"crossContext": {"allowAcrossProviders": True}}, True),
        ("matrix/!r:x", {"allowCrossContextSend": True}, True),
    ],
)
@pytest.mark.parametrize("action", ["send", "react", "delete"])
async def test_message_to_other_chat_follows_config_rules(
    target: str, rules: Mapping[str, Any], allowed: bool, action: str
) -> None:
    messenger = FakeMessenger(BOB, ROOM)
    args = {"action": action, "target": target, "message": "x", "messageId": "m", "emoji": "👍"}
    if allowed:
        await call(messenger, args, rules=rules)
    else:
        with pytest.raises(ToolDeniedError, match="crossContext"):
            await call(messenger, args, rules=rules)
    assert bool(messenger.seen) == allowed


@pytest.mark.parametrize("here", [None, Address("webchat", "agent:main:main")])
async def test_message_from_no_chat_reaches_any_known_chat(here: Address | None) -> None:
    messenger = FakeMessenger(ROOM)
    await call(messenger, {"message": "hi", "target": "matrix/!r:x"}, here=here)
    assert messenger.seen[0][1:3] == (ROOM, "hi")


@pytest.mark.parametrize("here", [HERE, None])
async def test_message_to_unknown_chat_needs_approval(here: Address | None) -> None:
    messenger, nobody, owner = FakeMessenger(), Person(), Person(says=True)
    args = {"message": "hi\u202e", "target": "telegram/7"}
    with pytest.raises(ToolDeniedError, match="new to you"):
        await call(messenger, args, here=here, person=nobody)
    assert messenger.seen == []
    await call(messenger, args, here=here, person=owner)
    assert len(messenger.seen) == 1
    (asked,) = owner.asked
    assert "telegram:7" in asked.detail and "\\u{202e}" in asked.detail


async def test_message_to_thread_of_current_chat_is_not_other_chat() -> None:
    messenger = FakeMessenger()
    await call(messenger, {"message": "hi", "threadId": "5"})
    assert messenger.seen[0][2] == "hi"


@pytest.mark.parametrize(
    ("posted", "says"),
    [
        (SendResult("sent"), "Sent to telegram:42."),
        (SendResult("queued"), "Do not send it again"),
        (SendResult("unknown", why="no answer"), "not confirmed: no answer. Do not send it again"),
    ],
)
async def test_message_reports_send_result(posted: SendResult, says: str) -> None:
    messenger = FakeMessenger()
    messenger.posted = posted
    assert says in told(await call(messenger, {"message": "hi"}))


@pytest.mark.parametrize("trouble", [SendResult("failed", why="blocked"), ChannelError("down")])
async def test_message_unsent_is_error(trouble: SendResult | Exception) -> None:
    messenger = FakeMessenger()
    messenger.posted = trouble
    with pytest.raises((ToolError, ChannelError)):
        await call(messenger, {"message": "hi"})


async def key(args: Mapping[str, Any], call_id: str = "c1") -> str:
    messenger = FakeMessenger(BOB)
    await call(messenger, args, call_id=call_id)
    return str(messenger.seen[0][-1])


@given(st.text(min_size=1).filter(str.strip), st.text(max_size=10))
async def test_message_repeated_call_uses_same_key(text: str, call_id: str) -> None:
    args = {"message": text}
    assert await key(args, call_id) == await key(args, call_id) != await key(args, call_id + "x")
    assert await key(args, call_id) != await key({"message": text + "."}, call_id)
    assert await key(args, call_id) != await key({"message": text, "target": "telegram/7"}, call_id)
    replies = [{**args, "action": "reply", "messageId": named} for named in ("5", "6")]
    assert await key(replies[0], call_id) != await key(replies[1], call_id)


def test_message_tool_is_idempotent_and_serial() -> None:
    tool = message_tool()
    assert tool.idempotent and tool.serial and tool.group == "messaging"


@pytest.mark.parametrize(
    ("media", "action"),
    [("HTTPS://files.example/?q=all+you+know", "ask"), ("notes.md", "allow"), ("", "allow")],
)
async def test_message_with_file_by_url_asks_in_a_tainted_run(
    tmp_path: Path, media: str, action: str
) -> None:
    tool = message_tool()
    ctx = ToolContext(MAIN, "main", tmp_path, here=BOB, messenger=FakeMessenger(BOB))
    call = ToolCall("1", "message", {"message": "look", "media": media})
    prepared = await prepare_call(tool, ctx, call, tool.parse(call.args))
    caller = CallerFacts("main", MAIN, taint=(TaintSource("file", "x.pdf"),))
    assert decide_tool_call(prepared.facts, caller).action == action
    assert decide_tool_call(prepared.facts, CallerFacts("main", MAIN)).action == "allow"
    assert media in prepared.question.detail


async def test_message_poll_is_sent_with_its_options() -> None:
    messenger = FakeMessenger()
    args = {"action": "poll", "pollQuestion": " Lunch? ", "pollOption": ["Pizza", "Soup"]}
    result = await call(messenger, {**args, "pollDurationHours": 2, "pollMulti": True})
    (kind, to, poll, extras, key) = messenger.seen[0]
    assert (kind, to, extras) == ("poll", HERE, Extras()) and key.startswith("r1:message:")
    assert poll == Poll("Lunch?", ("Pizza", "Soup"), 7200, is_multiple=True)
    assert told(result) == "Sent to telegram:42 as message m9."


@pytest.mark.parametrize(
    "args", [{"pollQuestion": "x"}, {"pollOption": ["a", "b"]}, {"pollOption": ["a", " "]}]
)
async def test_message_poll_without_its_parts_is_refused(args: dict[str, Any]) -> None:
    messenger = FakeMessenger()
    with pytest.raises(ToolError, match="a poll has a question"):
        await call(messenger, {"action": "poll", **args})
    assert not messenger.seen


async def test_message_poll_to_a_new_chat_asks_and_shows_the_options() -> None:
    messenger, person = FakeMessenger(), Person()
    args = {"action": "poll", "pollQuestion": "Lunch?", "pollOption": ["Pizza", "Soup"]}
    with pytest.raises(ToolDeniedError):
        await call(messenger, {**args, "target": "telegram/7"}, person=person)
    assert "Lunch?\n- Pizza\n- Soup" in person.asked[0].detail


def test_message_polls_are_offered_only_where_a_service_has_them() -> None:
    config = Config()
    context = ToolSourceContext("main", config, lambda _key: config.tools, has_chats=True)
    (without,), (offered,) = tools(context), tools(replace(context, has_polls=True))
    specs = (without.spec.parameters, offered.spec.parameters)
    sizes = [len(json.dumps(each, separators=(",", ":"))) for each in specs]
    assert "poll" not in json.dumps(without.spec.parameters)
    assert "pollOption" in offered.spec.parameters["properties"] and sizes[1] - sizes[0] <= 250
