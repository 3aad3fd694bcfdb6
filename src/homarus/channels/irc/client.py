"""Our registration on a server: nick, joined channels, and confirmation of sent lines.

IRC confirms no message. But a server handles the lines of a connection in order, so each message is
followed by a PING: the PONG confirms that the message was taken, and an error about it comes
before. In the same way a WHOIS before a direct message shows who has the nick: another user may
have taken it since.
"""

import asyncio
import itertools
import logging
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import ClassVar, Final

from homarus.channels.base import BeforeWrite
from homarus.channels.irc.connection import IrcConnection, IrcTimings
from homarus.channels.irc.message import (
    MAX_BYTES,
    IrcMessage,
    UnsendableLineError,
    fold_name,
    format_message,
)
from homarus.channels.irc.settings import IrcSettings
from homarus.core.clock import Clock
from homarus.core.errors import ChannelAuthError, ChannelError, SendError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line

log = logging.getLogger(__name__)

REGISTER_S: Final = 60.0
WANTED_CAPS: Final = frozenset({"account-tag", "message-tags", "server-time"})
SPARE_NAMES: Final = 3  # how many other nicks are tried: with one, two, three underscores
MAX_ROOMS_PER_JOIN: Final = 10  # in one JOIN
# Their maximum: servers cut what they pass on, so there must be room for ours.
MAX_NICK, MAX_USER, MAX_HOST = 32, 11, 63

_MOTD_ENDS: Final = frozenset({"376", "422"})  # the message of the day ended, or there is none
_NICK_IN_USE: Final = frozenset({"433", "436", "437"})
_JOIN_REFUSED: Final = frozenset({"403", "405", "437", "471", "473", "474", "475", "476", "477"})
# No such nick, not in that channel, too long, not allowed, and so on.
_REFUSED: Final = frozenset(
    str(number)
    for number in (401, 402, 403, 404, 408, *range(411, 416), 417, 442, 477, 482, 486, 489, 494)
) | {"531", "716"}
HOLDER_S: Final = 3.0  # how long a WHOIS of a nick is good for its next lines
_TOO_FAST: Final = frozenset({"263", "439"})
_BANNED: Final = re.compile(
    r"\b(bad password|password (mismatch|incorrect)|access denied|[kgz]-?lined?|banned)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _PendingSend:
    """A line that is not confirmed yet; `target` is its recipient, folded."""

    target: str
    outcome: asyncio.Future[None]


def overhead(nick_bytes: int, user_host_bytes: int, target_bytes: int) -> int:
    """Return the bytes besides the text in the line that others get.

    The line is `:nick!user@host PRIVMSG target :` + text + CR LF.
    """
    return len(":! PRIVMSG  :\r\n") + nick_bytes + user_host_bytes + target_bytes


def format_holder(mask: str, account: str) -> str:
    """Return who has a nick, as text: `user@host account`."""
    return f"{mask.lower()} {account.lower()}".rstrip()


def is_same_holder(one: str, other: str) -> bool:
    """Return whether two holders are the same user: by mask, or by the account on the server."""
    (mask, _, account), (other_mask, _, other_account) = one.partition(" "), other.partition(" ")
    return mask == other_mask or bool(account and account == other_account)


class IrcClient:
    """One registered connection. `register` makes it, `handle_message` updates it."""

    def __init__(
        self,
        connection: IrcConnection,
        settings: IrcSettings,
        timings: IrcTimings,
        clock: Clock,
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._connection, self._settings, self._timings, self._clock = (
            connection,
            settings,
            timings,
            clock,
        )
        self._on_change = on_change
        self.nick = settings.nick
        self.caps: set[str] = set()
        self.rooms = {room.split(" ")[0]: room.partition(" ")[2] for room in settings.channels}
        self._joined: set[str] = set()
        self._join_errors: dict[str, str] = {}
        self._support: dict[str, str] = {}
        self._user_host = ""
        self._offered: set[str] = set()
        self._names = itertools.islice(itertools.count(1), SPARE_NAMES)
        self._registered = False
        self._pending_sends: dict[str, _PendingSend] = {}
        self._tokens = itertools.count(1)
        self._masks: dict[str, str] = {}  # of the WHOIS under way, by nick
        self._accounts: dict[str, str] = {}
        self._checked: dict[str, tuple[str, float]] = {}  # nick: its holder, and until when

    # Registration

    async def register(self, password: str) -> None:
        """Get a nick on the server. Raises ChannelAuthError when it refuses us."""
        settings = self._settings
        hello = [format_message("CAP", "LS", "302")]
        if password:
            hello.append(format_message("PASS", password))
        user = settings.username or re.sub(r"[^A-Za-z0-9_.-]", "", self.nick) or "homarus"
        hello.append(format_message("NICK", self.nick))
        hello.append(format_message("USER", user, "0", "*", settings.realname or settings.nick))
        self._connection.send_lines(*hello)
        try:
            async with asyncio.timeout(REGISTER_S):
                while (await self.read()).command not in _MOTD_ENDS or not self._registered:
                    pass
        except TimeoutError as exc:
            raise ChannelError(f"{settings.host} did not let us in in time") from exc

    async def read(self) -> IrcMessage:
        """Return the next line, after handling it."""
        line = await self._connection.read()
        self.handle_message(line)
        return line

    def identify(self, password: str) -> None:
        """Identify to NickServ."""
        service = self._settings.nickserv
        wanted = self._settings.nick
        commands = [f"IDENTIFY {password}"]
        if service.register_ and service.register_email:
            commands.insert(0, f"REGISTER {password} {service.register_email}")
        if self.fold(self.nick) != self.fold(wanted):  # in use: perhaps by our old connection
            commands = [f"IDENTIFY {wanted} {password}", f"GHOST {wanted} {password}"]
        self._connection.send_lines(
            *(format_message("PRIVMSG", service.service, command) for command in commands)
        )

    async def maintain_membership(self) -> None:
        """Join the channels, and maintain membership and nick."""
        while True:
            for line in self._joins(room for room in self.rooms if not self.is_in(room)):
                await self._connection.acquire_slot()
                self._connection.send_lines(line)
            await self._clock.sleep(self._timings.again_s)
            if self.fold(self.nick) != self.fold(self._settings.nick):
                self._connection.send_lines(format_message("NICK", self._settings.nick))

    def _joins(self, rooms: Iterable[str]) -> Iterator[bytes]:
        remaining = sorted(rooms, key=lambda room: not self.rooms[room])  # those with a key first
        while remaining:
            batch, remaining = remaining[:MAX_ROOMS_PER_JOIN], remaining[MAX_ROOMS_PER_JOIN:]
            keys = [self.rooms[room] for room in batch if self.rooms[room]]
            yield format_message("JOIN", ",".join(batch), *([",".join(keys)] if keys else []))

    # State

    def fold(self, name: str) -> str:
        return fold_name(name, self._support.get("CASEMAPPING", "rfc1459").lower())

    def is_me(self, name: str) -> bool:
        return self.fold(name) == self.fold(self.nick)

    def is_in(self, room: str) -> bool:
        return self.fold(room) in self._joined

    def is_join_pending(self, room: str) -> bool:
        """Return whether this is a configured channel that we have not joined yet."""
        configured = {self.fold(name) for name in self.rooms}
        return self.fold(room) in configured and not self.is_in(room)

    def room(self, target: str) -> str:
        """Return the channel a message was sent to; "" when it was sent to a user."""
        bare = target.lstrip(self._support.get("STATUSMSG", ""))
        return bare if bare[:1] in (self._support.get("CHANTYPES") or "#&") and bare else ""

    # Sending

    async def send(self, target: str, text: str, before_write: BeforeWrite | None = None) -> None:
        """Send a message and wait for its confirmation.

        `before_write` is awaited when the rate limit admits the line, before it is written.
        """
        try:
            line = format_message("PRIVMSG", target, text)
        except UnsendableLineError as exc:
            raise SendError(f"it cannot be sent by IRC: {exc}", retryable=False) from exc
        user_host_bytes = len(self._user_host.encode()) or MAX_USER + 1 + MAX_HOST
        size = overhead(len(self.nick.encode()), user_host_bytes, len(target.encode())) + len(
            text.encode()
        )
        if size > MAX_BYTES:
            problem = f"it is {size - MAX_BYTES} bytes too long for a line to {target}"
            raise SendError(problem, retryable=False, fix="lower channels.irc.textChunkLimit")
        await self._connection.acquire_slot()
        if before_write and self._connection.is_open:
            await before_write()
        if not self._connection.is_open:
            raise SendError("the connection was lost before it was sent", retryable=True)
        await self._confirmed(target, line)

    async def check_holder(self, nick: str, holder: str) -> None:
        """Raise SendError unless the nick still belongs to this holder, by mask or by account.

        A server that does not answer WHOIS cannot show it: then the nick decides.
        """
        name, now_s = self.fold(nick), self._clock.monotonic()
        known, until_s = self._checked.get(name, ("", 0.0))
        if known == holder and now_s < until_s:
            return
        self._masks.pop(name, None)
        self._accounts.pop(name, None)
        await self._connection.acquire_slot()
        try:
            await self._confirmed(nick, format_message("WHOIS", nick))
        except SendError:
            raise
        except ChannelError as exc:
            raise SendError(f"nothing was sent: {exc}", retryable=True) from exc
        mask, account = self._masks.pop(name, ""), self._accounts.pop(name, "")
        if mask and not is_same_holder(format_holder(mask, account), holder):
            raise SendError(f"another user has the nick {nick} now", retryable=False)
        self._checked = {name: (holder, self._clock.monotonic() + HOLDER_S)}

    async def ping(self) -> None:
        """Wait for a response of the server."""
        await self._confirmed("")

    async def _confirmed(self, target: str, *lines: bytes) -> None:
        token = f"homarus-{next(self._tokens)}"
        pending = _PendingSend(self.fold(target), asyncio.get_running_loop().create_future())
        self._pending_sends[token] = pending
        try:
            self._connection.send_lines(*lines, format_message("PING", token))
            async with asyncio.timeout(self._timings.answer_s):
                await pending.outcome
        except TimeoutError as exc:
            problem = f"{self._settings.host} did not confirm within {self._timings.answer_s:.0f} s"
            raise ChannelError(problem) from exc
        finally:
            del self._pending_sends[token]

    def on_disconnect(self) -> None:
        """Fail all pending sends: their outcome is unknown."""
        for pending in self._pending_sends.values():
            if not pending.outcome.done():
                error = ChannelError("the connection was lost before the server confirmed")
                pending.outcome.set_exception(error)

    # Reading

    def handle_message(self, line: IrcMessage) -> None:
        """Handle a line about us; raises the errors that end the connection."""
        if handler := self._HANDLERS.get(line.command):
            handler(self, line)
        if line.command in _REFUSED or line.command in _TOO_FAST:
            self._refuse(line)
        if self._registered and line.command in _JOIN_REFUSED:
            self._log_join_error(line)

    def _ping(self, line: IrcMessage) -> None:
        self._connection.send_lines(format_message("PONG", line.param(-1)))

    def _pong(self, line: IrcMessage) -> None:
        pending = self._pending_sends.get(line.param(-1))
        if pending and not pending.outcome.done():
            pending.outcome.set_result(None)

    def _refuse(self, line: IrcMessage) -> None:
        """Fail the oldest pending send to a target: the server refused it."""
        named = line.param(1) if len(line.params) > 2 else ""
        is_command = named.upper() in {"PRIVMSG", "WHOIS"}  # as 263 names it
        target = "" if is_command else self.fold(named)
        for pending in self._pending_sends.values():
            if pending.outcome.done() or (target and target != pending.target):
                continue
            retryable = line.command in _TOO_FAST or self.is_join_pending(pending.target)
            text = f"the IRC server refused it: {one_line(line.param(-1), 200)} ({line.command})"
            pending.outcome.set_exception(SendError(text, retryable=retryable))
            return

    def _log_join_error(self, line: IrcMessage) -> None:
        room, text = line.param(1), f"{one_line(line.param(-1), 200)} ({line.command})"
        if self.is_join_pending(room) and self._join_errors.get(room) != text:
            self._join_errors[room] = text
            log.warning("%s does not let us into %s: %s", self._settings.host, room, text)

    def _cap(self, line: IrcMessage) -> None:
        caps = line.param(-1).split()
        match line.param(1).upper():
            case "LS":
                self._offered.update(word.partition("=")[0] for word in caps)
                if line.param(2) == "*" and len(line.params) > 3:
                    return  # the list continues
                requested = sorted(WANTED_CAPS & self._offered)
                request = (
                    format_message("CAP", "REQ", " ".join(requested))
                    if requested
                    else format_message("CAP", "END")
                )
                self._connection.send_lines(request)
            case "ACK":
                self.caps.update(caps)
                self._connection.send_lines(format_message("CAP", "END"))
            case "NAK":
                self._connection.send_lines(format_message("CAP", "END"))
            case "DEL":
                self.caps.difference_update(caps)

    def _welcome(self, line: IrcMessage) -> None:
        self._registered = True
        self.nick = line.param(0) or self.nick
        if self.nick != self._settings.nick:
            log.warning("%s is taken on %s: we are %s for now", *self._nick_and_host, self.nick)

    def _isupport(self, line: IrcMessage) -> None:
        for word in line.params[1:-1]:
            name, _, value = word.partition("=")
            self._support[name.upper()] = value

    def _host(self, line: IrcMessage) -> None:
        self._user_host = ""  # 396: it shows with the next JOIN

    def _try_next_nick(self, line: IrcMessage) -> None:
        if self._registered:
            return  # it is retried later
        underscores = next(self._names, 0)
        if not underscores:
            problem = (
                f"{self._settings.nick} is taken on {self._settings.host}, and so are its likes"
            )
            raise ChannelError(problem, fix="choose another channels.irc.nick")
        self.nick = self._settings.nick + "_" * underscores
        self._connection.send_lines(format_message("NICK", self.nick))

    def _no_nick(self, line: IrcMessage) -> None:
        if not self._registered:
            text = one_line(line.param(-1), 200)
            problem = f"{self._settings.host} takes no nick like {self.nick}: {text}"
            raise ChannelAuthError(problem, fix="choose another channels.irc.nick")

    def _whois_mask(self, line: IrcMessage) -> None:
        self._masks[self.fold(line.param(1))] = f"{line.param(2)}@{line.param(3)}"

    def _whois_account(self, line: IrcMessage) -> None:
        self._accounts[self.fold(line.param(1))] = line.param(2)

    def _quit(self, line: IrcMessage) -> None:
        self._checked.pop(self.fold(line.nick), None)

    def _nick(self, line: IrcMessage) -> None:
        for name in (line.nick, line.param(0)):
            self._checked.pop(self.fold(name), None)
        if self.is_me(line.nick):
            self.nick = line.param(0) or self.nick
            self._track_mask(line)

    def _join(self, line: IrcMessage) -> None:
        if self.is_me(line.nick):
            self._joined.add(self.fold(line.param(0)))
            self._join_errors.pop(line.param(0), None)
            self._track_mask(line)
            self._on_change()

    def _part(self, line: IrcMessage) -> None:
        if self.is_me(line.nick):
            self._joined.discard(self.fold(line.param(0)))

    def _kick(self, line: IrcMessage) -> None:
        if self.is_me(line.param(1)):
            self._joined.discard(self.fold(line.param(0)))
            sender, reason = one_line(line.nick), one_line(line.param(-1), 200)
            log.warning("%s threw us out of %s: %s", sender, line.param(0), reason)

    def _notice(self, line: IrcMessage) -> None:
        """Log what NickServ says; a notice is never answered."""
        if self.fold(line.nick) == self.fold(self._settings.nickserv.service):
            log.info("%s on %s: %s", line.nick, self._settings.host, one_line(line.param(-1), 200))

    def _raise_banned(self, line: IrcMessage) -> None:
        problem = f"{self._settings.host} does not let us in: {one_line(line.param(-1), 200)}"
        raise ChannelAuthError(problem, fix="check channels.irc.password, or ask its operators")

    def _error(self, line: IrcMessage) -> None:
        text = one_line(line.param(-1), 200)
        if _BANNED.search(text):
            self._raise_banned(line)
        raise ChannelError(f"{self._settings.host} ended the connection: {text}")

    def _track_mask(self, line: IrcMessage) -> None:
        """Track how others see us: our mask is part of each line they get."""
        self._user_host = line.source.partition("!")[2]

    @property
    def _nick_and_host(self) -> tuple[str, str]:
        return self._settings.nick, self._settings.host

    _HANDLERS: ClassVar[Mapping[str, Callable[["IrcClient", IrcMessage], None]]] = {
        "PING": _ping,
        "PONG": _pong,
        "CAP": _cap,
        "001": _welcome,
        "005": _isupport,
        "311": _whois_mask,
        "330": _whois_account,
        "396": _host,
        "432": _no_nick,
        **dict.fromkeys(_NICK_IN_USE, _try_next_nick),
        "463": _raise_banned,
        "464": _raise_banned,
        "465": _raise_banned,
        "NICK": _nick,
        "JOIN": _join,
        "PART": _part,
        "KICK": _kick,
        "QUIT": _quit,
        "NOTICE": _notice,
        "ERROR": _error,
    }
