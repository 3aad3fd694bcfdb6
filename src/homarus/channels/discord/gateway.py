"""The connection to Discord's gateway, by discord.py. Imported when an account starts.

The library keeps the connection, its cache and its types. Its HTTP client, which retries, is
replaced by ours, and its events come in order to one function instead of tasks.
"""

import asyncio
import logging
import warnings
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, cast
from urllib.parse import urlsplit

from homarus.channels.discord.channel_directory import ChannelFacts
from homarus.channels.discord.rest import DiscordRest
from homarus.channels.discord.settings import DiscordSettings
from homarus.core.clock import Clock
from homarus.core.errors import ChannelAuthError, ChannelError
from homarus.core.message import Json
from homarus.core.retry import Backoff

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of a module for voice
    import aiohttp
    import discord
    import yarl
    from discord.gateway import DiscordWebSocket, ReconnectWebSocket, WebSocketClosure
    from discord.http import HTTPClient, Route

log = logging.getLogger(__name__)
logging.getLogger("discord").setLevel(logging.INFO)  # below, it writes every message

CONNECT_TIMEOUT_S: Final = 60.0
READY_S: Final = 1.0  # after the last server of those that are announced at the start
_STEADY_S: Final = 30.0  # a connection that lasted this long did not fail at once
_RECONNECT: Final = Backoff(first_s=0.5, max_s=60.0)
# What the library raises for data of another shape than it expects.
MALFORMED: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
_BAD_TOKEN: Final = 4004
_BAD_INTENTS: Final = frozenset({4013, 4014})

# Name and arguments of an event, as discord.py dispatches it.
Emit: TypeAlias = Callable[[str, tuple[Any, ...]], None]


class _RestClient(HTTPClient):
    """The library's HTTP client with our requests: they are not retried."""

    rest: DiscordRest

    async def request(self, route: Route, **options: Any) -> Json:
        """Send a request of the library by our client."""
        path = route.url.removeprefix(Route.BASE)
        return await self.rest.call(route.method, path, options.get("json"))


class DiscordConnection(discord.Client):
    """One connection of one bot."""

    def __init__(
        self, rest: DiscordRest, settings: DiscordSettings, clock: Clock, emit: Emit
    ) -> None:
        discord.VoiceClient.warn_nacl = discord.VoiceClient.warn_dave = False
        self._emit, self._clock = emit, clock
        self._gateway_url = settings.gateway_url or ""
        super().__init__(
            intents=_intents(settings),
            activity=_activity(settings),
            status=discord.Status(settings.status) if settings.status else None,
            chunk_guilds_at_startup=False,
            member_cache_flags=discord.MemberCacheFlags.none(),
            guild_ready_timeout=READY_S,
        )
        http = _RestClient(self.loop, proxy=_proxy(settings, self._gateway_url) or None)
        http.rest = rest
        self.http = self._connection.http = http
        self._connection.parsers = {
            name: parse if name == "READY" else _guarded(name, parse)
            for name, parse in self._connection.parsers.items()
        }

    def dispatch(self, event: str, /, *args: Any, **_named: Any) -> None:
        """Pass an event on, in order."""
        self._emit(event, args)

    async def run_session(self, token: str) -> None:
        """Receive events until the connection cannot be resumed any more."""
        try:
            await self.login(token)
            await self._receive_events()
        except discord.ConnectionClosed as exc:
            raise _explain_close(exc.code) from exc
        except (OSError, aiohttp.ClientError, TimeoutError, WebSocketClosure) as exc:
            raise ChannelError(f"the connection to Discord broke: {str(exc) or 'timeout'}") from exc
        except discord.DiscordException as exc:
            raise ChannelError(f"the connection to Discord failed: {exc}") from exc
        finally:
            if task := self._connection._ready_task:  # noqa: SLF001 - it would outlive us
                task.cancel()
            await self.close()

    async def _receive_events(self) -> None:
        gateway = yarl.URL(self._gateway_url) if self._gateway_url else None
        params: dict[str, Any] = {"initial": True, "gateway": gateway}
        failures = 0
        while True:
            started_s = self._clock.monotonic()
            try:
                async with asyncio.timeout(CONNECT_TIMEOUT_S):
                    self.ws = await DiscordWebSocket.from_client(self, **params)
                while True:
                    await self.ws.poll_event()
            except ReconnectWebSocket as exc:
                params = {"initial": False, "gateway": gateway}
                if exc.resume and getattr(self.ws, "session_id", None):
                    params |= {
                        "gateway": self.ws.gateway,
                        "resume": True,
                        "session": self.ws.session_id,
                        "sequence": self.ws.sequence,
                    }
            is_steady = self._clock.monotonic() - started_s > _STEADY_S
            failures = 0 if is_steady else failures + 1
            if failures:
                await self._clock.sleep(_RECONNECT.delay_s(failures))

    # What is known of channels

    def find_facts(self, channel: str) -> ChannelFacts | None:
        """Return what the cache has of a channel."""
        found = self.get_channel(int(channel)) if channel.isdigit() else None
        if isinstance(found, discord.abc.GuildChannel | discord.Thread):
            parent = found.parent_id if isinstance(found, discord.Thread) else None
            return ChannelFacts(found.type.value, str(found.guild.id), str(parent or ""))
        return None

    def parse_message(self, channel: str, data: Mapping[str, Json]) -> discord.Message:
        """Return a message of the REST API as the gateway would have sent it."""
        state: Any = self._connection
        place: Any = self.get_channel(int(channel))
        if place is None:
            place = discord.DMChannel._from_message(state, int(channel))  # noqa: SLF001 - as it does
        return discord.Message(state=state, channel=place, data=cast("Any", data))


def _intents(settings: DiscordSettings) -> discord.Intents:
    intents = discord.Intents.none()
    intents.guilds = intents.messages = intents.reactions = intents.message_content = True
    intents.members, intents.presences = settings.intents.guild_members, settings.intents.presence
    return intents


def _activity(settings: DiscordSettings) -> discord.BaseActivity | None:
    if not settings.activity:
        return None
    kind = discord.ActivityType(4 if settings.activity_type is None else settings.activity_type)
    if kind is discord.ActivityType.custom:
        return discord.CustomActivity(settings.activity)
    return discord.Activity(type=kind, name=settings.activity, url=settings.activity_url)


def _proxy(settings: DiscordSettings, gateway_url: str) -> str:
    """Return the proxy for the WebSocket: that of the settings, else of the environment."""
    if settings.proxy:
        return settings.proxy
    from homarus.net.http_client import proxy_for

    address = gateway_url or str(DiscordWebSocket.DEFAULT_GATEWAY)
    return proxy_for(urlsplit(address.replace("ws", "http", 1)))


def _guarded(name: str, parse: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Return a parser that logs an event which it cannot read: the others are read."""

    def parse_guarded(data: Any) -> None:
        try:
            parse(data)
        except MALFORMED as exc:
            log.warning("an event %s of Discord cannot be read: %s", name, type(exc).__name__)

    return parse_guarded


def _explain_close(code: int) -> ChannelError:
    if code == _BAD_TOKEN:
        return ChannelAuthError(
            "Discord does not know this bot: its token was refused",
            fix="reset it in the developer portal; `homarus channels add discord --token -`",
        )
    if code in _BAD_INTENTS:
        return ChannelAuthError(
            "Discord refuses the intents that the bot asks for",
            fix=(
                "enable Message Content Intent on the page Bot of the application, and those that"
                " channels.discord.intents names; then restart"
            ),
        )
    return ChannelError(f"Discord closed the connection ({code})")
