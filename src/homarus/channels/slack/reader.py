"""Pass what Slack sends to the core, by socket, webhook or history.

One event that cannot be translated is logged, and blocks no other. A message that cannot be stored
raises StoreError: it is not acknowledged, and Slack offers it again.
"""

import logging
from collections.abc import Awaitable, Mapping
from typing import Final

from homarus.channels.base import InboundHandler
from homarus.channels.slack.fields import get_object, get_objects, get_str
from homarus.channels.slack.inbound import SlackEventTranslator, SlackIdentity
from homarus.channels.slack.interactions import InteractionTranslator
from homarus.channels.slack.missed_messages import SlackMissedMessages, SlackReadPosition
from homarus.channels.slack.thread_history import ThreadHistory
from homarus.core.channel_event import InboundEvent
from homarus.core.clock import Clock
from homarus.core.errors import ChannelAuthError
from homarus.core.message import Inbound, Json
from homarus.core.tasks import run_contained

log = logging.getLogger(__name__)

_MESSAGES: Final = frozenset({"message", "app_mention"})


class SlackEventReader:
    """Reads the events of one account while it runs."""

    def __init__(
        self,
        receive: InboundHandler,
        clock: Clock,
        me: SlackIdentity,
        *,
        events: SlackEventTranslator,
        interactions: InteractionTranslator,
        missed: SlackMissedMessages,
        threads: ThreadHistory,
    ) -> None:
        self._receive, self._clock, self._me = receive, clock, me
        self._events, self._interactions = events, interactions
        self._missed, self._threads = missed, threads
        self._position = SlackReadPosition(me)
        self._read_ids: set[str] = set()  # of messages that the history had before their event

    async def start(self) -> None:
        """Load the cursor; without one, store where reading starts."""
        stored = await self._receive.load_cursor()
        if not self._position.load(stored, self._clock.now_ms()):
            await self._receive.save_cursor(self._position.encode())

    async def read_missed(self, *, needs_all: bool) -> None:
        """Pass on the messages since the last stored one.

        Without `needs_all`, when Slack asked for another connection, only the conversations that
        were used last are read. The cursor moves after all of them: conversations are read one
        after another, and after a crash the older messages of the next one, and the replies of a
        new thread, must be found again. When the reading is interrupted, the position stays where
        it was, for the same reason.
        """
        self._read_ids.clear()
        before = self._position
        try:
            async for event in self._missed.read(before, needs_all=needs_all):
                if message_id := await self._pass_on(event, moves_cursor=False):
                    self._read_ids.add(message_id)
        except BaseException:
            self._position = before
            raise
        if self._position is not before:
            await self._receive.save_cursor(self._position.encode())

    async def handle_callback(self, payload: Mapping[str, Json]) -> None:
        """Handle an event as Slack sends it."""
        if not self._is_for_us(payload):
            log.warning("an event of another workspace is ignored: give it an app of its own")
            return
        event = get_object(payload, "event")
        message_id = f"{get_str(event, 'channel')}:{get_str(event, 'ts')}"
        if get_str(event, "type") in _MESSAGES and message_id in self._read_ids:
            self._read_ids.discard(message_id)
            return
        await self._pass_on(event)

    async def handle_interaction(self, payload: Mapping[str, Json]) -> None:
        """Handle a pressed button or a slash command."""
        now_ms, is_command = self._clock.now_ms(), "command" in payload
        translator = self._interactions
        translate = translator.to_command if is_command else translator.to_press
        if event := await _contained(translate(payload, now_ms)):
            await self._receive(event)

    async def _pass_on(self, event: Mapping[str, Json], *, moves_cursor: bool = True) -> str:
        """Pass on what an event is; return the id of a message that was passed on."""
        found = await _contained(self._events.to_event(event, self._clock.now_ms()))
        if found is None:
            return ""
        if not isinstance(found, Inbound):
            await self._receive(found)
            return ""
        found = await _contained(self._threads.add_to(found)) or found
        address, ts = found.address, found.id.rpartition(":")[2]
        position = self._position.after(address.chat, address.thread, ts)
        await self._receive(found, position.encode() if moves_cursor else None)
        # Requests come at once: while this one was stored, another may have moved the position.
        self._position = self._position.after(address.chat, address.thread, ts)
        return found.id

    def _is_for_us(self, payload: Mapping[str, Json]) -> bool:
        """Return whether an event is of our workspace; one app may be in several.

        A bot that is installed in all of an organization has the organization's id, `E…`.
        """
        places = (payload, *get_objects(payload, "authorizations"))
        teams = {get_str(one, name) for one in places for name in ("team_id", "enterprise_id")}
        return not self._me.team or self._me.team in teams or teams == {""}


async def _contained(translation: Awaitable[InboundEvent | None]) -> InboundEvent | None:
    """Return a translated event; None for one that could not be translated."""
    found: InboundEvent | None = None
    refusal: ChannelAuthError | None = None

    async def translate() -> None:
        nonlocal found
        found = await translation

    def on_failure(exc: Exception) -> None:
        nonlocal refusal
        refusal = exc if isinstance(exc, ChannelAuthError) else None

    await run_contained("reading an event of Slack", translate, on_failure)
    if refusal is not None:
        raise refusal
    return found
