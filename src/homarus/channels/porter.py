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
from homarus.channels.gate import Admitted, Challenged, Gate, PassedOver, Verdict
from homarus.channels.intake import Left, Taken
from homarus.channels.media import Files
from homarus.channels.roster import find_traits
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
        # Each agent has its own name, its own talk, and its own sessions' settings.
        verdicts = [self._gate.judge(inbound, route) for route in routes]
        heard = [
            (route.key, _copy(verdict.inbound, route, number), verdict.ack)
            for number, (route, verdict) in enumerate(zip(routes, verdicts, strict=True))
            if isinstance(verdict, Admitted)
        ]
        if not heard:
            return self._leave(inbound, verdicts[0])
        settings = common(config, place.channel, place.account)
        whole = await self._files.fetch(channel, settings, inbound)
        ack = next((ack for _, _, ack in heard if ack), "")
        return Taken(
            tuple((key, _with_files(one, whole)) for key, one, _ in heard),
            in_turn=config.broadcast.strategy == "sequential",
            welcome=partial(self._welcome, whole, ack) if ack else None,
        )

    def _leave(self, inbound: Inbound, verdict: Verdict) -> Left:
        """Nobody is to answer it; a stranger may be told how to be let in."""
        if isinstance(verdict, Challenged):
            return Left(tuple(self._pack(inbound, verdict.key, verdict.text)))
        if isinstance(verdict, PassedOver):
            told = (inbound.id, inbound.address.channel, inbound.address.account, verdict.why)
            log.info("message %s of %s:%s is passed over: %s", *told)
        return Left()

    async def _routes(
        self, config: Config, inbound: Inbound
    ) -> tuple[tuple[Route, ...], Mapping[str, Mapping[str, Json]]]:
        """Where a message goes, and what the sessions there say of themselves."""
        traits = find_traits(inbound.address.channel)
        routes = routes_of(config, inbound, traits)
        entries = dict[str, Mapping[str, Json]]()
        for key in {key for route in routes for key in (route.key, route.older) if key}:
            if (entry := await self._record(key)) is not None:
                entries[key] = entry
        if any(route.older for route in routes):
            routes = routes_of(config, inbound, traits, entries.get)
        return routes, entries


def _copy(inbound: Inbound, route: Route, number: int) -> Inbound:
    """A message as one of several agents gets it: the same one every time it is offered."""
    return replace(inbound, copy_for=route.agent if number else "")


def _with_files(inbound: Inbound, whole: Inbound) -> Inbound:
    """With what was fetched, once for all who get it."""
    return replace(inbound, media=whole.media, images=whole.images)
