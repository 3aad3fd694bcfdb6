"""One account on an IRC network: translate messages of the server, and send ours.

The server neither stores nor repeats anything: messages that are read and not yet in the journal
wait in memory, across connections. For how senders are identified, see `IrcTranslator.sender_id`.
"""

import asyncio
import hashlib
import itertools
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from homarus.channels.base import (
    BeforeWrite,
    Capabilities,
    ChannelContext,
    InboundHandler,
    Receipt,
    SendRetryPolicy,
)
from homarus.channels.irc.client import (
    MAX_HOST,
    MAX_NICK,
    MAX_USER,
    SPARE_NAMES,
    IrcClient,
    format_holder,
    overhead,
)
from homarus.channels.irc.connection import IrcTimings, connect
from homarus.channels.irc.message import (
    MAX_BYTES,
    IrcMessage,
    is_channel,
    is_nick,
    mentions_nick,
    parse_time_tag,
    read_text,
)
from homarus.channels.irc.settings import TEXT_LIMIT, IrcSettings
from homarus.channels.irc.traits import TRAITS
from homarus.channels.registry import find_traits
from homarus.core.errors import ChannelAuthError, SendError
from homarus.core.message import Address, Inbound, InboundMetadata, Outbound
from homarus.core.session_keys import DEFAULT_ACCOUNT
from homarus.core.tasks import task_group
from homarus.policy.access import normalize_sender_id

log = logging.getLogger(__name__)

MAX_UNSTORED: Final = 1_000  # messages waiting to be stored; beyond it, the server has to wait
MAX_HOLDERS: Final = 1_000
_MAX_ID_CHARS: Final = 100


class IrcChannel:
    """One account. It sends only while `run` has a connection."""

    def __init__(
        self, context: ChannelContext, settings: IrcSettings, timings: IrcTimings | None = None
    ) -> None:
        self.name, self.account = context.channel, context.account
        self._clock, self._settings, self._timings = (
            context.clock,
            settings,
            timings or IrcTimings(),
        )
        # Of several accounts, the environment can only mean one.
        self._env = context.env if context.account == DEFAULT_ACCOUNT else {}
        # The nick may get underscores, and the server's view of our mask is unknown.
        nick_bytes = len(settings.nick.encode()) + SPARE_NAMES
        rooms = (len(channel.partition(" ")[0].encode()) for channel in settings.channels)
        target_bytes = max([MAX_NICK, *rooms])
        max_bytes = MAX_BYTES - overhead(nick_bytes, MAX_USER + 1 + MAX_HOST, target_bytes)
        limit = min(settings.common.text_chunk_limit or TEXT_LIMIT, max_bytes)
        retry = SendRetryPolicy.from_settings(settings.common.retry)
        self.capabilities = Capabilities(limit, "byte", TRAITS.dialect, by_line=True, retry=retry)
        self._unstored: deque[Inbound] = deque()
        self._holders: OrderedDict[str, str] = OrderedDict()  # nicks that wrote to us directly
        self._client: IrcClient | None = None
        self._change = asyncio.Event()

    async def run(self, receive: InboundHandler) -> None:
        """Connect and pass messages on; raises when the connection ends."""
        async with self._connect() as client:
            translator = IrcTranslator(self.name, self.account, self._settings, client)
            self._client = client
            self._changed()
            receive.mark_connected()
            try:
                async with task_group() as group:
                    group.create_task(self._hand_over(receive), name="irc: handing over")
                    group.create_task(client.maintain_membership(), name="irc: rooms")
                    while True:
                        await self._read(client, translator)
            finally:
                self._client = None
                client.on_disconnect()

    async def send(self, message: Outbound) -> Receipt:
        return await self.send_marked(message)

    async def send_marked(
        self, message: Outbound, before_write: BeforeWrite | None = None
    ) -> Receipt:
        chat = message.address.chat
        if not (is_nick(chat) or is_channel(chat)):
            raise SendError(f"{chat!r} is nobody on IRC", retryable=False)
        client = await self._wait_for_client(chat)
        holder = message.extras.recipient or self._holders.get(client.fold(chat), "")
        if holder and is_nick(chat):
            await client.check_holder(chat, holder)
        await client.send(chat, message.text, before_write)
        return Receipt()

    async def probe(self) -> str:
        """Return our nick, by the current connection or by a temporary one."""
        if self._client:
            await self._client.ping()
            return self._client.nick
        async with self._connect() as client:
            return client.nick

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[IrcClient]:
        """Open a connection and register."""
        settings, timings, clock = self._settings, self._timings, self._clock
        password = await self._secret(settings.password, settings.password_file, "IRC_PASSWORD")
        nickserv, service_password = settings.nickserv, ""
        if nickserv.enabled:
            service_password = await self._secret(
                nickserv.password, nickserv.password_file, "IRC_NICKSERV_PASSWORD"
            )
        async with connect(
            settings.host, settings.actual_port, tls=settings.tls, timings=timings, clock=clock
        ) as connection:
            client = IrcClient(connection, settings, timings, clock, self._changed)
            await client.register(password)
            if service_password:
                client.identify(service_password)
            yield client

    async def _secret(self, value: SecretStr | None, file: str | None, variable: str) -> str:
        """Return a password of the config, of a file's first line, or of the environment."""
        if value:
            return value.get_secret_value()
        return await asyncio.to_thread(_first_line, file) if file else self._env.get(variable, "")

    async def _read(self, client: IrcClient, translator: "IrcTranslator") -> None:
        line = await client.read()
        if inbound := translator.to_inbound(line, self._clock.now_ms()):
            if inbound.metadata.kind == "direct":
                self._record_holder(inbound)
            await self._until(lambda: len(self._unstored) < MAX_UNSTORED)
            self._unstored.append(inbound)
            self._changed()

    def _record_holder(self, inbound: Inbound) -> None:
        self._holders[inbound.address.chat] = inbound.metadata.holder
        self._holders.move_to_end(inbound.address.chat)
        if len(self._holders) > MAX_HOLDERS:
            self._holders.popitem(last=False)

    async def _hand_over(self, receive: InboundHandler) -> None:
        """Pass messages on in order; the next run offers again what was not stored."""
        while True:
            await self._until(lambda: bool(self._unstored))
            await receive(self._unstored[0])
            self._unstored.popleft()
            self._changed()

    async def _wait_for_client(self, chat: str) -> IrcClient:
        """Return the connection, waiting for it shortly after a start."""
        try:
            async with asyncio.timeout(self._timings.ready_s):
                await self._until(
                    lambda: self._client is not None and not self._client.is_join_pending(chat)
                )
        except TimeoutError:
            state = f"in {chat}" if self._client else f"connected to {self._settings.host}"
            raise SendError(f"we are not {state}", retryable=True) from None
        assert self._client is not None  # noqa: S101 - it was waited for
        return self._client

    async def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._change.clear()
            await self._change.wait()

    def _changed(self) -> None:
        self._change.set()


class IrcTranslator:
    """Translate the lines of one connection."""

    def __init__(self, name: str, account: str, settings: IrcSettings, client: IrcClient) -> None:
        self._name, self._account, self._client = name, account, client
        self._nickserv = settings.nickserv.service
        common = settings.common
        lists = [common.allow_from, common.group_allow_from]
        lists += [group.allow_from or () for group in common.groups.values()]
        entries = (
            normalize_sender_id("irc", entry, find_traits) for each in lists for entry in each
        )
        self._listed = {self._folded(entry): entry for entry in entries}
        self._numbers = itertools.count(1)

    def to_inbound(self, line: IrcMessage, now_ms: int) -> Inbound | None:
        """Return the message in a line, None for anything else.

        A NOTICE is never answered: bots use it so that no bot answers.
        """
        client = self._client
        if line.command != "PRIVMSG" or not line.is_from_person or len(line.params) < 2:
            return None
        if client.is_me(line.nick) or client.fold(line.nick) == client.fold(self._nickserv):
            return None
        text = read_text(line.params[1], line.nick)
        if not text or not is_nick(line.nick):
            return None
        channel = client.room(line.params[0])
        chat = client.fold(channel or line.nick)
        at_ms = parse_time_tag(line.tags.get("time", "")) or now_ms
        metadata = InboundMetadata(
            kind="group" if channel else "direct",
            title=channel,
            name=line.nick,
            handle=line.nick,
            is_bot="bot" in line.tags,
            mentioned=mentions_nick(text, client.nick),
            holder="" if channel else _holder_of(line),
        )
        return Inbound(
            self._id(line, at_ms),
            Address(self._name, chat, self._account),
            self.sender_id(line),
            text,
            at_ms=at_ms,
            metadata=metadata,
        )

    def sender_id(self, line: IrcMessage) -> str:
        """Return the sender's id, for allowlists.

        Anyone can take a free nick. Where the server authenticates accounts, a logged-in user is
        identified by the account. All others are identified by their full mask, `nick!user@host`,
        which another user of the nick does not have. A bare nick is an id only where the owner
        listed it and the server has no accounts. The id is spelled as in the owner's list, as only
        the server knows which letters are equal.
        """
        mask, nick = self._folded(line.source), self._client.fold(line.nick)
        if "account-tag" in self._client.caps:
            account = self._client.fold(line.tags.get("account", ""))
            sender_id = account if is_nick(account) else mask
        else:
            sender_id = nick if nick in self._listed else mask
        return self._listed.get(sender_id, sender_id)

    def _folded(self, mask: str) -> str:
        nick, mark, user_host = mask.partition("!")
        return f"{self._client.fold(nick)}{mark}{user_host.lower()}"

    def _id(self, line: IrcMessage, at_ms: int) -> str:
        """Return the server's id of a message; else one that differs for repeated text."""
        server_id = line.tags.get("msgid", "")
        if server_id and len(server_id) <= _MAX_ID_CHARS and server_id.isprintable():
            return server_id
        content = "\0".join((line.source, *line.params))
        identity = f"{at_ms}\0{next(self._numbers)}\0{content}"
        return hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()[:32]


def _holder_of(line: IrcMessage) -> str:
    return format_holder(line.source.partition("!")[2], line.tags.get("account", ""))


def _first_line(name: str) -> str:
    try:
        text = Path(name).expanduser().read_text(encoding="utf-8")
    except (OSError, UnicodeError) as exc:
        problem = f"the password file {name} cannot be read: {exc}"
        raise ChannelAuthError(problem, fix="correct channels.irc.passwordFile") from exc
    first = (text.splitlines() or [""])[0].strip()
    if not first or "\0" in first:
        raise ChannelAuthError(f"the password file {name} has no password", fix="write one in it")
    return first
