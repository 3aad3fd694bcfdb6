"""The messenger of tools: sent once through the outbox, addressed in many forms."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.channels.base import Capabilities, InboundHandler, Receipt
from homarus.channels.inbound import InboundPipeline, admit_all
from homarus.channels.messenger import ChannelMessenger, resolve_address
from homarus.channels.supervisor import ChannelSupervisor
from homarus.config.schema import Config
from homarus.core.errors import ChannelError, SendError, ToolDeniedError, ToolError, UserError
from homarus.core.message import Address, Extras, Media, Outbound, Poll
from homarus.plugins.hook_runner import Hooks
from homarus.plugins.hooks import hook
from homarus.plugins.values import Refusal
from homarus.store.base import SessionRecord
from homarus.testing.clock import FakeClock
from homarus.testing.memory_store import MemoryStore
from homarus.tools.tool import SendResult

GUARD_S = 60.0
HERE = Address("svc", "42")
ACCOUNTS = (("telegram", "default"), ("telegram", "work"), ("matrix", "default"), ("irc", "net"))


class Sender:
    """A service that only sends."""

    name, account = "svc", "default"
    capabilities = Capabilities(20, media_max_bytes=100, idempotent=True)

    def __init__(self) -> None:
        self.sent: list[Outbound] = []
        self.trouble: list[Exception] = []

    async def run(self, receive: InboundHandler) -> None:
        await asyncio.Event().wait()

    async def send(self, message: Outbound) -> Receipt:
        if self.trouble:
            raise self.trouble.pop(0)
        self.sent.append(message)
        return Receipt(f"m{len(self.sent)}")


class Able(Sender):
    """A service with all features."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, ...]] = []

    async def react(self, to: Address, message_id: str, emoji: str) -> None:
        self.seen.append(("react", message_id, emoji))

    async def edit(self, to: Address, message_id: str, text: str) -> None:
        if self.trouble:
            raise self.trouble.pop(0)
        self.seen.append(("edit", message_id, text))

    async def delete(self, to: Address, message_id: str) -> None:
        self.seen.append(("delete", message_id))

    def check_poll(self, to: Address, poll: Poll) -> None:
        if len(poll.options) > 3:
            raise SendError("too many options", retryable=False)


class Harness:
    """A messenger over one running service."""

    def __init__(self, folder: Path, channel: Sender, config: dict[str, Any]) -> None:
        self.channel, self.hooks = channel, Hooks()
        self.clock, self.store = FakeClock(patient=False), MemoryStore()
        self.config = Config.model_validate(config)
        self.delivery = ChannelSupervisor(self.store.journal, [channel], self.clock)
        self.mail = ChannelMessenger(
            self.delivery, self.store, self.clock,
            config=lambda: self.config, hooks=self.hooks, state=folder,
        )  # fmt: skip

    @asynccontextmanager
    async def at_work(self) -> Any:
        pipeline = InboundPipeline(
            self.store.journal, self.clock,
            admit=admit_all(lambda one: one.address.chat), submit=lambda _key, _row: None,
        )  # fmt: skip
        async with asyncio.timeout(GUARD_S), asyncio.TaskGroup() as group:
            running = group.create_task(self.delivery.run(pipeline))
            try:
                yield
            finally:
                running.cancel()


async def play(
    folder: Path,
    channel: Sender,
    act: Callable[[Harness], Awaitable[None]],
    **settings: Any,
) -> Harness:
    stage = Harness(folder, channel, {"channels": {"svc": settings}} if settings else {})
    async with stage.at_work():
        await act(stage)
    return stage


async def test_messenger_same_key_posted_twice_sends_once(tmp_path: Path) -> None:
    channel = Sender()

    async def act(stage: Harness) -> None:
        for _ in range(3):
            posted = await stage.mail.send(HERE, "hello", Extras(reply_to="1"), "k")
            assert (posted.state, posted.message_id) == ("sent", "m1")

    await play(tmp_path, channel, act)
    (sent,) = channel.sent
    assert (sent.text, sent.key, sent.extras.reply_to) == ("hello", "k:0", "1")


async def test_messenger_long_message_is_split_and_returns_first_id(tmp_path: Path) -> None:
    channel = Sender()

    async def act(stage: Harness) -> None:
        posted = await stage.mail.send(HERE, "one two three four five six", Extras(), "k")
        assert (posted.state, posted.message_id) == ("sent", "m1")

    await play(tmp_path, channel, act)
    assert len(channel.sent) == 2


async def test_messenger_refused_send_fails_and_late_send_is_queued(tmp_path: Path) -> None:
    channel = Sender()

    async def act(stage: Harness) -> None:
        channel.trouble = [SendError("blocked", retryable=False)]
        posted = await stage.mail.send(HERE, "a", Extras(), "k1")
        assert (posted.state, posted.why) == ("failed", "blocked")

    await play(tmp_path, channel, act)

    async def late(stage: Harness) -> None:
        posted = await stage.mail.send(HERE, "a", Extras(), "k1")
        assert posted.state == "queued"

    stage = Harness(tmp_path, channel, {})  # whose channels are not running
    await late(stage)


async def test_messenger_hook_may_change_or_block_text(tmp_path: Path) -> None:
    class Censor:
        @hook
        def message_sending(self, outbound: Outbound) -> str | Refusal:
            return Refusal("no") if outbound.text == "bad" else outbound.text.upper()

    channel = Able()

    async def act(stage: Harness) -> None:
        stage.hooks.register(Censor(), "censor")
        await stage.mail.send(HERE, "good", Extras(), "k1")
        with pytest.raises(ToolDeniedError, match="no"):
            await stage.mail.send(HERE, "bad", Extras(), "k2")
        await stage.mail.edit(HERE, "m1", "better")
        with pytest.raises(ToolDeniedError, match="no"):
            await stage.mail.edit(HERE, "m1", "bad")

    await play(tmp_path, channel, act)
    assert [one.text for one in channel.sent] == ["GOOD"]
    assert channel.seen == [("edit", "m1", "BETTER")]


@pytest.mark.parametrize(
    "file",
    [Media(name="x", problem="no such file"), Media(name="big", size=101)],
)
async def test_messenger_unsendable_file_raises_tool_error(tmp_path: Path, file: Media) -> None:
    async def act(stage: Harness) -> None:
        with pytest.raises(ToolError, match=file.name):
            await stage.mail.send(HERE, "a", Extras(media=(file,)), "k")

    channel = Sender()
    await play(tmp_path, channel, act)
    assert channel.sent == []


async def test_messenger_file_over_media_limit_raises_tool_error(tmp_path: Path) -> None:
    async def act(stage: Harness) -> None:
        with pytest.raises(ToolError, match="takes 50"):
            await stage.mail.send(HERE, "a", Extras(media=(Media(name="x", size=51),)), "k")

    channel = Sender()
    await play(tmp_path, channel, act, mediaMaxMb=0.00005)
    assert channel.sent == []


async def test_messenger_unsupported_action_raises_tool_error(tmp_path: Path) -> None:
    async def act(stage: Harness) -> None:
        mail = stage.mail
        for asked in (
            mail.react(HERE, "1", "👍"),
            mail.edit(HERE, "1", "x"),
            mail.delete(HERE, "1"),
            mail.send(Address("other", "1"), "x", Extras(), "k"),
            mail.send(HERE, " ", Extras(), "k"),
        ):
            with pytest.raises(ToolError):
                await asked

    await play(tmp_path, Sender(), act)


async def test_messenger_reacts_edits_and_deletes(tmp_path: Path) -> None:
    channel = Able()

    async def act(stage: Harness) -> None:
        mail = stage.mail
        await mail.react(HERE, "1", "👍")
        await mail.edit(HERE, "1", "new")
        await mail.delete(HERE, "1")
        with pytest.raises(ToolError, match="too long"):
            await mail.edit(HERE, "1", "far too long for a message of this service")
        channel.trouble = [OSError("gone"), TimeoutError(), ChannelError("down")]
        for error in (ToolError, ToolError, ChannelError):
            with pytest.raises(error):
                await mail.edit(HERE, "1", "new")

    await play(tmp_path, channel, act)
    assert channel.seen == [("react", "1", "👍"), ("edit", "1", "new"), ("delete", "1")]


async def test_messenger_action_disabled_by_config_is_denied(tmp_path: Path) -> None:
    async def act(stage: Harness) -> None:
        with pytest.raises(ToolDeniedError, match="reactions is off"):
            await stage.mail.react(HERE, "1", "👍")
        await stage.mail.delete(HERE, "1")

    await play(tmp_path, Able(), act, actions={"reactions": False})


async def test_messenger_action_is_denied_by_other_name_of_setting(tmp_path: Path) -> None:
    async def act(stage: Harness) -> None:
        with pytest.raises(ToolDeniedError, match="deleteMessage is off"):
            await stage.mail.delete(HERE, "1")
        await stage.mail.react(HERE, "1", "👍")

    await play(tmp_path, Able(), act, actions={"messages": False})


async def test_messenger_is_known_chat_follows_sessions_config_and_pairing(tmp_path: Path) -> None:
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "svc-allowFrom.json").write_text('{"version": 1, "allowFrom": ["77"]}')

    async def act(stage: Harness) -> None:
        async with stage.store.transaction() as unit:
            data = {"lastChannel": "svc", "lastTo": "42"}
            unit.put_session(SessionRecord("agent:main:main", "main", "s", 1, data))

        async def knows(
            agent: str, chat: str, channel: str = "svc", account: str = "default"
        ) -> bool:
            return await stage.mail.is_known_chat(agent, Address(channel, chat, account))

        assert await knows("main", "42")  # there is a session
        assert not await knows("main", "42", account="work")  # of another account
        assert not await knows("other", "42") and not await knows("main", "42", "elsewhere")
        assert await knows("main", "-5") and await knows("main", "9")  # the config lists them
        assert await knows("main", "77")  # they were paired
        assert not await knows("main", "*") and not await knows("main", "ann")

    await play(tmp_path, Sender(), act, groups={"-5": {}, "*": {}}, allowFrom=["9", "*"])


@pytest.mark.parametrize(
    ("target", "named", "expected"),
    [
        ("123", {}, Address("telegram", "123")),
        ("telegram:123", {}, Address("telegram", "123")),
        ("Telegram:123", {"channel": "telegram"}, Address("telegram", "123")),
        ("telegram:work:123", {}, Address("telegram", "123", "work")),
        ("123", {"account": "work"}, Address("telegram", "123", "work")),
        ("telegram:-100:topic:5", {}, Address("telegram", "-100", thread="5")),
        ("-100:topic:5", {"thread": "6"}, Address("telegram", "-100", thread="6")),
        ("@ann", {}, Address("telegram", "@ann")),
        ("@ann:example.org", {}, Address("matrix", "@ann:example.org")),
        ("!room:example.org", {}, Address("matrix", "!room:example.org")),
        ("room:!r:x", {"channel": "matrix"}, Address("matrix", "!r:x")),
        ("#room:example.org", {}, Address("matrix", "#room:example.org")),
        ("#lobsters", {}, Address("irc", "#lobsters", "net")),
        ("irc:ann", {}, Address("irc", "ann", "net")),
        ("", {}, Address("telegram", "42", "default", "9")),
        ("42", {}, Address("telegram", "42", "default", "9")),
        ("", {"thread": "8"}, Address("telegram", "42", "default", "8")),
    ],
)
def test_resolve_address_accepts_all_target_forms(
    target: str, named: dict[str, str], expected: Address
) -> None:
    here = Address("telegram", "42", "default", "9")
    assert resolve_address(target, ACCOUNTS, here=here, **named) == expected


@pytest.mark.parametrize(
    ("target", "named"),
    [
        ("", {"channel": "matrix"}),
        ("1", {"channel": "signal"}),
        ("1", {"channel": "telegram", "account": "none"}),
        ("a\nb", {}),
    ],
)
def test_resolve_address_without_chat_raises_tool_error(target: str, named: dict[str, str]) -> None:
    with pytest.raises((ToolError, UserError)):
        resolve_address(target, ACCOUNTS, here=Address("telegram", "42"), **named)


def test_resolve_address_without_current_chat_needs_channel() -> None:
    web = Address("webchat", "agent:main:main")
    with pytest.raises(ToolError, match="no channel is given"):
        resolve_address("1", ACCOUNTS, here=web)
    with pytest.raises(ToolError, match="no recipient"):
        resolve_address("", ACCOUNTS, here=web, channel="irc")
    assert resolve_address("1", [("svc", "a")], here=web) == Address("svc", "1", "a")
    with pytest.raises(ToolError, match="homarus channels add"):
        resolve_address("1", [], here=web)


@given(st.text(max_size=30), st.text(max_size=10), st.text(max_size=10))
def test_resolve_address_any_text_returns_running_account_or_error(
    target: str, channel: str, account: str
) -> None:
    here = Address("telegram", "42")
    try:
        found = resolve_address(target, ACCOUNTS, channel=channel, account=account, here=here)
    except (ToolError, UserError):
        return
    assert (found.channel, found.account) in ACCOUNTS
    assert found.chat.strip() and found.chat.isprintable()


async def test_messenger_same_poll_posted_twice_is_sent_once(tmp_path: Path) -> None:
    poll = Poll("Lunch?", ("Pizza", "Soup"))

    async def act(stage: Harness) -> None:
        for _ in range(2):
            result = await stage.mail.send_poll(HERE, poll, Extras(silent=True), "r1:message:x")
            assert result == SendResult("sent", "m1")
        many = Poll("Lunch?", tuple("abcd"))
        with pytest.raises(SendError, match="too many"):
            await stage.mail.send_poll(HERE, many, Extras(), "r1:message:y")

    stage = await play(tmp_path, Able(), act)
    (sent,) = stage.channel.sent
    assert sent.extras == Extras(silent=True, poll=poll) and sent.text == "Lunch?"


async def test_messenger_refuses_a_poll_where_there_are_none(tmp_path: Path) -> None:
    async def act(stage: Harness) -> None:
        with pytest.raises(ToolError, match="svc has no polls"):
            await stage.mail.send_poll(HERE, Poll("Lunch?", ("a", "b")), Extras(), "k")

    stage = await play(tmp_path, Sender(), act)
    assert not stage.channel.sent
