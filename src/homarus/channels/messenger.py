"""Send messages from tools to chats, and change messages there.

A message goes through the outbox like any reply, under an id that the tool call determines: however
often a call is run, its message is sent once. Reacting, editing and deleting are idempotent, so
they are requested from the service directly.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from homarus.channels.base import (
    TTL_MS,
    Channel,
    SupportsChatActions,
    SupportsDelete,
    SupportsEdit,
    SupportsPolls,
    SupportsReactions,
)
from homarus.channels.supervisor import ChannelSupervisor
from homarus.config.schema import Config
from homarus.core.chat_action import ChatAction, ChatActionName
from homarus.core.clock import Clock
from homarus.core.errors import ToolDeniedError, ToolError, ToolTimeoutError
from homarus.core.message import Address, Button, Extras, Json, Media, Outbound, Poll
from homarus.core.text import one_line
from homarus.plugins.hook_runner import Hooks
from homarus.plugins.values import Refusal
from homarus.policy.workspace_access import WorkspaceAccess
from homarus.sessions.last_route import last_address
from homarus.store.base import Store
from homarus.store.journal import OutboxRecord
from homarus.store.journal_codec import to_storable
from homarus.tools.tool import SendResult

if TYPE_CHECKING:
    from homarus.config.channels import AccountSettings

# The key of `channels.<name>.actions` that turns an action off, as OpenClaw calls it.
CHAT_ACTION_SETTINGS: Final[Mapping[ChatActionName, str]] = {
    "ban": "moderation", "channel-info": "channelInfo", "channel-list": "channelInfo",
    "kick": "moderation", "member-info": "memberInfo", "permissions": "permissions",
    "pin": "pins", "pins": "pins", "reactions": "reactions", "read": "messages",
    "role-add": "roles", "role-info": "roleInfo", "role-remove": "roles",
    "search": "search", "sticker-send": "sticker", "thread-create": "threads",
    "thread-list": "threads", "timeout": "moderation", "unpin": "pins",
}  # fmt: skip
# Other names of a setting, by which OpenClaw has it for some services.
_SETTING_ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "poll": ("polls",),
    "sticker": ("stickers",),
}
RECEIPT_TIMEOUT_S: Final = 10.0  # how long a tool waits for the receipt of its message
REQUEST_TIMEOUT_S: Final = 30.0  # timeout of a request
RECEIPT_POLL_S: Final = 0.1


class ChannelMessenger:
    """The Messenger of tools/tool.py over the running channels; imports are lazy."""

    def __init__(
        self,
        supervisor: ChannelSupervisor,
        store: Store,
        clock: Clock,
        *,
        config: Callable[[], Config],
        hooks: Hooks,
        state: Path,
    ) -> None:
        self._supervisor, self._store, self._clock = supervisor, store, clock
        self._config, self._hooks, self._state = config, hooks, state

    def accounts(self) -> tuple[tuple[str, str], ...]:
        return tuple(running.key for running in self._supervisor.accounts)

    def resolve_address(
        self,
        target: str,
        *,
        channel: str = "",
        account: str = "",
        thread: str = "",
        here: Address | None = None,
    ) -> Address:
        return resolve_address(
            target, self.accounts(), channel=channel, account=account, thread=thread, here=here
        )

    async def attach(
        self, names: Sequence[str], workspace: Path, access: WorkspaceAccess
    ) -> tuple[Media, ...]:
        from homarus.tools.attachments import AttachmentStore

        attachments = AttachmentStore(self._state / "media", self._fetch_file)
        return await attachments(names, workspace, access)

    async def _fetch_file(self, url: str) -> tuple[bytes, str]:
        from homarus.tools.web_file import fetch_file

        return await fetch_file(self._config(), url)

    async def is_known_chat(self, agent: str, to: Address) -> bool:
        from homarus.channels.pairing import PairingStore
        from homarus.channels.registry import find_traits
        from homarus.policy.access import EVERYONE, normalize_sender_id

        last_route = {"lastChannel": to.channel, "lastTo": to.chat}
        sessions = await self._store.sessions(agent=agent, where=last_route)
        # Two accounts may be on two networks: the same name is another person there.
        if any(last_address(one.data).account == to.account for one in sessions):
            return True
        settings = self._settings(to)
        if to.chat != EVERYONE and to.chat in settings.groups:
            return True
        allowed = (*settings.allow_from, *settings.group_allow_from)
        paired = PairingStore(self._state, self._clock).approved_senders(to.channel, to.account)
        people = {normalize_sender_id(to.channel, one, find_traits) for one in (*allowed, *paired)}
        return normalize_sender_id(to.channel, to.chat, find_traits) in people - {"", EVERYONE}

    async def send(self, to: Address, text: str, extras: Extras, key: str) -> SendResult:
        from homarus.channels.outbound import build_outbox_records

        channel, settings = self._find_account(to, "sendMessage")
        _check_files(channel, settings, extras.media)
        _check_buttons(extras.buttons)
        text = await self._run_hooks(Outbound(to, text, key, extras))
        at_ms, capabilities = self._clock.now_ms(), channel.capabilities
        records = build_outbox_records(
            key, text, to, capabilities, settings, extras=extras, at_ms=at_ms
        )
        if not records:
            raise ToolError("there is nothing in the message", fix="give message or media")
        async with self._store.journal.transaction() as transaction:
            transaction.enqueue(*records)
        self._supervisor.wake_workers()
        return await self._receipt([record.id for record in records])

    async def send_poll(self, to: Address, poll: Poll, extras: Extras, key: str) -> SendResult:
        channel, _ = self._find_account(to, "poll")
        if not isinstance(channel, SupportsPolls):
            raise _unsupported(to, "has no polls", "poll")
        question = await self._run_hooks(Outbound(to, poll.question, key, extras))
        poll = replace(poll, question=question.strip())
        channel.check_poll(to, poll)
        sent = Extras(reply_to=extras.reply_to, silent=extras.silent, poll=poll)
        at_ms = self._clock.now_ms()
        record = OutboxRecord(
            f"{key}:0", key, to, to_storable(poll.question), at_ms, at_ms + TTL_MS, extras=sent
        )
        async with self._store.journal.transaction() as transaction:
            transaction.enqueue(record)
        self._supervisor.wake_workers()
        return await self._receipt([record.id])

    async def react(self, to: Address, message_id: str, emoji: str) -> None:
        channel, _ = self._find_account(to, "reactions")
        if not isinstance(channel, SupportsReactions):
            raise _unsupported(to, "has no reactions", "reactions")
        async with _requesting(to):
            await channel.react(to, message_id, emoji)

    async def edit(self, to: Address, message_id: str, text: str) -> None:
        from homarus.channels.outbound import render_parts

        channel, settings = self._find_account(to, "editMessage")
        if not isinstance(channel, SupportsEdit):
            raise _unsupported(to, "cannot change a message that was sent", "editMessage")
        key = f"{message_id}:edit"
        text = await self._run_hooks(Outbound(to, text, key, Extras(replaces=message_id)))
        parts = render_parts(text, channel.capabilities, settings, mode="length")
        if len(parts) != 1:
            problem = "is empty" if not parts else "is too long for one message"
            raise ToolError(f"the new text {problem}", fix="delete the message and send another")
        async with _requesting(to):
            await channel.edit(to, message_id, parts[0].text)

    async def delete(self, to: Address, message_id: str) -> None:
        channel, _ = self._find_account(to, "deleteMessage")
        if not isinstance(channel, SupportsDelete):
            raise _unsupported(to, "cannot take a message back", "deleteMessage")
        async with _requesting(to):
            await channel.delete(to, message_id)

    async def run_chat_action(self, to: Address, action: ChatAction) -> dict[str, Json]:
        """Do an action of an operator. Raises ToolError with the channels that have it."""
        from homarus.channels.registry import find_traits

        channel, _ = self._find_account(to, CHAT_ACTION_SETTINGS[action.name])
        has_it = action.name in find_traits(to.channel).chat_actions
        if not has_it or not isinstance(channel, SupportsChatActions):
            raise _unsupported(to, f"has no {action.name}", action.name)
        async with _requesting(to):
            return await channel.run_chat_action(to, action)

    async def _run_hooks(self, message: Outbound) -> str:
        """Return the text as the hooks leave it."""
        sent = await self._hooks.message_sending(message)
        if isinstance(sent, Refusal):
            raise ToolDeniedError(f"the message is not sent: {sent.reason}")
        return sent.text

    def _find_account(self, to: Address, action: str) -> tuple[Channel, "AccountSettings"]:
        """Return the account that reaches a chat, if its settings allow the action."""
        running = self._supervisor.find_account(to.channel, to.account)
        if running is None:
            raise ToolError(f"{to.channel}:{to.account} is not at work")
        settings = self._settings(to)
        for name in (action, *_SETTING_ALIASES.get(action, ())):
            if settings.actions.get(name) is False:
                raise ToolDeniedError(f"channels.{to.channel}.actions.{name} is off")
        return running.channel, settings

    def _settings(self, to: Address) -> "AccountSettings":
        from homarus.config.channels import common_settings

        return common_settings(self._config(), to.channel, to.account)

    async def _receipt(self, ids: Sequence[str]) -> SendResult:
        """Return the state of the records, as far as it is known within the timeout."""
        until_s = self._clock.monotonic() + RECEIPT_TIMEOUT_S
        while True:
            found = [await self._store.journal.outbox_record(record_id) for record_id in ids]
            result = _worst_outcome([record for record in found if record])
            if result.state != "queued" or self._clock.monotonic() >= until_s:
                return result
            await self._clock.sleep(RECEIPT_POLL_S)


def resolve_address(
    target: str,
    accounts: Collection[tuple[str, str]],
    *,
    channel: str = "",
    account: str = "",
    thread: str = "",
    here: Address | None = None,
) -> Address:
    """Return the chat that a target names; missing parts are those of the current chat."""
    from homarus.channels.targets import parse_target

    known = {name for name, _ in accounts}
    if here and here.channel not in known:
        here = None
    target, channel = target.strip(), channel.strip().lower()
    head, colon, rest = target.partition(":")
    if not channel and colon and head.lower() in known:
        channel, target = head.lower(), rest
    channel = channel or _channel_of(target, known, here)
    if channel not in known:
        channels = ", ".join(sorted(known)) or "none"
        raise ToolError(
            f"there is no channel {one_line(channel, 40)!r}", fix=f"channels: {channels}"
        )
    own_accounts = [one for name, one in accounts if name == channel]
    target, account = _account_of(target.removeprefix(f"{channel}:"), account.strip(), own_accounts)
    current = here if here and here.channel == channel and account in {"", here.account} else None
    if not account:
        account = (
            current.account
            if current
            else "default"
            if "default" in own_accounts
            else own_accounts[0]
        )
    if account not in own_accounts:
        raise ToolError(
            f"{channel} has no account {one_line(account, 40)!r}", fix=_account_list(own_accounts)
        )
    if not target:
        if current is None:
            raise ToolError("no recipient is given", fix="give target")
        return Address(channel, current.chat, account, thread or current.thread)
    from homarus.channels.registry import find_traits

    chat, inner = parse_target(channel, target, find_traits(channel).target_kinds)
    same = current.thread if current and current.chat == chat else None
    return Address(channel, chat, account, thread or inner or same)


def _channel_of(target: str, known: Collection[str], here: Address | None) -> str:
    from homarus.channels.registry import find_traits

    traits = {channel: find_traits(channel) for channel in sorted(known)}
    by_form = [channel for channel, each in traits.items() if each.is_own_address(target)]
    is_room_here = here is not None and traits[here.channel].has_named_rooms
    if not by_form and target.startswith("#") and not is_room_here:
        by_form = [channel for channel, each in traits.items() if each.is_group_id(target)]
    if by_form:
        return by_form[0]
    if here:
        return here.channel
    if len(known) == 1:
        return next(iter(known))
    if not known:
        raise ToolError("no channel is configured", fix="homarus channels add NAME")
    raise ToolError("no channel is given", fix=f"give channel, one of: {', '.join(sorted(known))}")


def _account_of(target: str, account: str, own_accounts: Sequence[str]) -> tuple[str, str]:
    """Split off an account in front of the target."""
    head, colon, rest = target.partition(":")
    if colon and rest and head in own_accounts and account in {"", head}:
        return rest, head
    return target, account


def _account_list(accounts: Sequence[str]) -> str:
    return f"accounts: {', '.join(accounts)}"


def _worst_outcome(records: Sequence[OutboxRecord]) -> SendResult:
    """Return the outcome of a message: that of its worst part."""
    receipt = next((record.receipt for record in records if record.receipt), "")
    states = {record.state: record.why for record in reversed(records)}
    if "dead" in states:
        return SendResult("failed", receipt, states["dead"])
    if "pending" in states or "sending" in states:
        return SendResult("queued", receipt, states.get("pending", ""))
    if "unknown" in states:
        return SendResult("unknown", receipt, states["unknown"])
    return SendResult("sent", receipt)


def _check_files(channel: Channel, settings: "AccountSettings", media: Sequence[Media]) -> None:
    """Raise a ToolError for a file that cannot be sent: the agent learns it, not the chat."""
    from homarus.channels.outbound import max_file_bytes

    max_bytes = max_file_bytes(channel.capabilities, settings)
    for file in media:
        if file.problem:
            raise ToolError(f"{file.name}: {file.problem}")
        if not max_bytes:
            raise ToolError(f"{channel.name} takes no files", fix="say it in words")
        if file.size > max_bytes:
            raise ToolError(f"{file.name} has {file.size} bytes; {channel.name} takes {max_bytes}")


def _check_buttons(rows: Sequence[Sequence[Button]]) -> None:
    """Raise ToolDeniedError for a button that would answer an approval."""
    from homarus.core.approval_button import is_approval_button

    if any(is_approval_button(button.data) for row in rows for button in row):
        raise ToolDeniedError("the buttons of an approval are not for tools to send")


def _unsupported(to: Address, problem: str, ability: str) -> ToolError:
    """Return the error for what a service lacks, with the channels that have it."""
    from homarus.channels.registry import available_channels, find_traits

    able = [
        name
        for name in available_channels()
        if name != to.channel
        and ability in {*find_traits(name).abilities, *find_traits(name).chat_actions}
    ]
    fix = f"{', '.join(able)} can" if able else "no channel of this version can"
    return ToolError(f"{to.channel} {problem}", fix=fix)


@asynccontextmanager
async def _requesting(to: Address) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            yield
    except TimeoutError as exc:
        raise ToolTimeoutError(
            f"{to.channel} did not answer within {REQUEST_TIMEOUT_S:g} s"
        ) from exc
    except OSError as exc:
        raise ToolError(f"{to.channel} could not be reached: {exc}") from exc
