"""The porter: whose a message is, whether its sender is heard, and what came with it.

    route (sessions/routing.py) → gate (gate.py) → files (media.py) → the journal (intake.py)

A stranger costs a look into the lists: nothing of theirs is fetched, kept or answered, except by
the one line that tells them how to be let in.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeAlias

from homarus.channels.base import Channel
from homarus.channels.gate import Admitted, Challenged, Gate
from homarus.channels.intake import Left, Taken
from homarus.channels.media import Files
from homarus.config.channels import common
from homarus.config.schema import Config
from homarus.core.message import Inbound, Json
from homarus.sessions.routing import Route, routes_of
from homarus.store.journal import Parcel

log = logging.getLogger(__name__)


class Pack(Protocol):
    """Words for a message's sender, as parcels."""

    def __call__(self, inbound: Inbound, run: str, text: str) -> list[Parcel]: ...


# The record of a session, by its key; None when there is no such session.
Record: TypeAlias = Callable[[str], Awaitable[Mapping[str, Json] | None]]


class Porter:
    """Lets messages in. `welcome` shows a sign that one was seen."""

    def __init__(
        self,
        config: Callable[[], Config],
        gate: Gate,
        files: Files,
        *,
        record: Record,
        pack: Pack,
        welcome: Callable[[Inbound, str], object],
    ) -> None:
        self._config, self._gate, self._files = config, gate, files
        self._record, self._pack, self._welcome = record, pack, welcome
        # Of the sessions of the message that is being judged: the gate asks for them.
        self.entries: Mapping[str, Mapping[str, Json]] = {}

    async def admit(self, channel: Channel, inbound: Inbound) -> Taken | Left:
        """What is to become of a message."""
        config, place = self._config(), inbound.address
        routes, self.entries = await self._routes(config, inbound)
        verdict = self._gate.judge(inbound, routes[0])
        if isinstance(verdict, Challenged):
            return Left(tuple(self._pack(inbound, verdict.key, verdict.text)))
        if not isinstance(verdict, Admitted):
            told = (inbound.id, place.channel, place.account, verdict.why)
            log.info("message %s of %s:%s is passed over: %s", *told)
            return Left()
        settings = common(config, place.channel, place.account)
        whole = await self._files.fetch(channel, settings, verdict.inbound)
        return Taken(
            tuple(_for(route, whole, number) for number, route in enumerate(routes)),
            in_turn=config.broadcast.strategy == "sequential",
            welcome=partial(self._welcome, whole, verdict.ack) if verdict.ack else None,
        )

    async def _routes(
        self, config: Config, inbound: Inbound
    ) -> tuple[tuple[Route, ...], Mapping[str, Mapping[str, Json]]]:
        """Where a message goes, and what the sessions there say of themselves."""
        routes = routes_of(config, inbound)
        entries = dict[str, Mapping[str, Json]]()
        for key in {key for route in routes for key in (route.key, route.older) if key}:
            if (entry := await self._record(key)) is not None:
                entries[key] = entry
        if any(route.older for route in routes):
            routes = routes_of(config, inbound, entries.get)
        return routes, entries


def _for(route: Route, inbound: Inbound, number: int) -> tuple[str, Inbound]:
    """A message as one of several agents gets it."""
    return route.key, replace(inbound, copy_for=route.agent) if number else inbound
