"""One account on an IRC network: translate messages of the server, and send ours.

The server neither stores nor repeats anything: messages that are read and not yet in the journal
wait in memory, across connections. For how senders are identified, see `IrcTranslator.sender_id`.
"""

import asyncio
import hashlib
import itertools
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from homarus.channels.base import (
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

MOST_HELD: Final = 1_000  # messages waiting to be stored; beyond it, the server has to wait
_LONGEST_ID: Final = 100


class IrcChannel:
    """One account. It sends only while `run` has a connection."""

    def __init__(
        self, place: ChannelContext, settings: IrcSettings, pace: IrcTimings | None = None
    ) -> None:
        self.name, self.account = place.channel, place.account
        self._clock, self._settings, self._pace = place.clock, settings, pace or IrcTimings()
        # Of several accounts, the environment can only mean one.
        self._env = place.env if place.account == DEFAULT_ACCOUNT else {}
        # The nick may get underscores, and the server's view of our mask is unknown.
        nick_bytes = len(settings.nick.encode()) + SPARE_NAMES
        rooms = (len(room.partition(" ")[0].encode()) for room in settings.channels)
        target_bytes = max([MAX_NICK, *rooms])
        max_bytes = MAX_BYTES - overhead(nick_bytes, MAX_USER + 1 + MAX_HOST, target_bytes)
        limit = min(settings.common.text_chunk_limit or TEXT_LIMIT, max_bytes)
        retry = SendRetryPolicy.from_settings(settings.common.retry)
        self.capabilities = Capabilities(limit, "byte", TRAITS.dialect, by_line=True, retry=retry)
        self._held: deque[Inbound] = deque()
        self._presence: IrcClient | None = None
        self._change = asyncio.Event()

    async def run(self, receive: InboundHandler) -> None:
        """Connect and pass messages on; raises when the connection ends."""
        async with self._connect() as presence:
            hearing = IrcTranslator(self.name, self.account, self._settings, presence)
            self._presence = presence
            self._changed()
            receive.mark_connected()
            try:
                async with task_group() as group:
                    group.create_task(self._pass_on(receive), name="irc: handing over")
                    group.create_task(presence.maintain_membership(), name="irc: rooms")
                    while True:
                        await self._read(presence, hearing)
            finally:
                self._presence = None
                presence.on_disconnect()

    async def send(self, message: Outbound) -> Receipt:
        chat = message.address.chat
        if not (is_nick(chat) or is_channel(chat)):
            raise SendError(f"{chat!r} is nobody on IRC", retryable=False)
        presence = await self._there(chat)
        await presence.send(chat, message.text)
        return Receipt()

    async def probe(self) -> str:
        """Return our nick, by the current connection or by a temporary one."""
        if self._presence:
            await self._presence.ping()
            return self._presence.nick
        async with self._connect() as presence:
            return presence.nick

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[IrcClient]:
        """Open a connection and register."""
        settings, pace, clock = self._settings, self._pace, self._clock
        password = await self._secret(settings.password, settings.password_file, "IRC_PASSWORD")
        serv, proof = settings.nickserv, ""
        if serv.enabled:
            proof = await self._secret(serv.password, serv.password_file, "IRC_NICKSERV_PASSWORD")
        async with connect(
            settings.host, settings.actual_port, tls=settings.tls, pace=pace, clock=clock
        ) as wire:
            presence = IrcClient(wire, settings, pace, clock, self._changed)
            await presence.register(password)
            if proof:
                presence.identify(proof)
            yield presence

    async def _secret(self, value: SecretStr | None, file: str | None, variable: str) -> str:
        """Return a password of the config, of a file's first line, or of the environment."""
        if value:
            return value.get_secret_value()
        return await asyncio.to_thread(_first_line, file) if file else self._env.get(variable, "")

    async def _read(self, presence: IrcClient, hearing: "IrcTranslator") -> None:
        line = await presence.read()
        if inbound := hearing.to_inbound(line, self._clock.now_ms()):
            await self._until(lambda: len(self._held) < MOST_HELD)
            self._held.append(inbound)
            self._changed()

    async def _pass_on(self, receive: InboundHandler) -> None:
        """Pass messages on in order; the next run offers again what was not stored."""
        while True:
            await self._until(lambda: bool(self._held))
            await receive(self._held[0])
            self._held.popleft()
            self._changed()

    async def _there(self, chat: str) -> IrcClient:
        """Return the connection, waiting for it shortly after a start."""
        try:
            async with asyncio.timeout(self._pace.ready_s):
                await self._until(
                    lambda: self._presence is not None and not self._presence.is_join_pending(chat)
                )
        except TimeoutError:
            where = f"in {chat}" if self._presence else f"connected to {self._settings.host}"
            raise SendError(f"we are not {where}", retryable=True) from None
        assert self._presence is not None  # noqa: S101 - it was waited for
        return self._presence

    async def _until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._change.clear()
            await self._change.wait()

    def _changed(self) -> None:
        self._change.set()


class IrcTranslator:
    """Translate the lines of one connection."""

    def __init__(self, name: str, account: str, settings: IrcSettings, presence: IrcClient) -> None:
        self._name, self._account, self._presence = name, account, presence
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
        presence = self._presence
        if line.command != "PRIVMSG" or not line.is_from_person or len(line.params) < 2:
            return None
        if presence.is_me(line.nick) or presence.fold(line.nick) == presence.fold(self._nickserv):
            return None
        text = read_text(line.params[1], line.nick)
        if not text or not is_nick(line.nick):
            return None
        room = presence.room(line.params[0])
        chat = presence.fold(room or line.nick)
        at_ms = parse_time_tag(line.tags.get("time", "")) or now_ms
        occasion = InboundMetadata(
            kind="group" if room else "direct",
            title=room,
            name=line.nick,
            handle=line.nick,
            is_bot="bot" in line.tags,
            mentioned=mentions_nick(text, presence.nick),
        )
        return Inbound(
            self._id(line, at_ms),
            Address(self._name, chat, self._account),
            self.sender_id(line),
            text,
            at_ms=at_ms,
            metadata=occasion,
        )

    def sender_id(self, line: IrcMessage) -> str:
        """Return the sender's id, for allowlists.

        Anyone can take a free nick. Where the server authenticates accounts, a logged-in user is
        identified by the account. All others are identified by their full mask, `nick!user@host`,
        which another user of the nick does not have. A bare nick is an id only where the owner
        listed it and the server has no accounts. The id is spelled as in the owner's list, as only
        the server knows which letters are equal.
        """
        mask, nick = self._folded(line.source), self._presence.fold(line.nick)
        if "account-tag" in self._presence.caps:
            account = self._presence.fold(line.tags.get("account", ""))
            known = account if is_nick(account) else mask
        else:
            known = nick if nick in self._listed else mask
        return self._listed.get(known, known)

    def _folded(self, mask: str) -> str:
        nick, mark, place = mask.partition("!")
        return f"{self._presence.fold(nick)}{mark}{place.lower()}"

    def _id(self, line: IrcMessage, at_ms: int) -> str:
        """Return the server's id of a message; else one that differs for repeated text."""
        given = line.tags.get("msgid", "")
        if given and len(given) <= _LONGEST_ID and given.isprintable():
            return given
        content = "\0".join((line.source, *line.params))
        whole = f"{at_ms}\0{next(self._numbers)}\0{content}"
        return hashlib.sha256(whole.encode("utf-8", "replace")).hexdigest()[:32]


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
