"""Admit inbound messages: route, access check, media download.

    route (sessions/routing.py) → access control (access_control.py) → media (media.py)

A message of an unknown sender costs a check of the lists: nothing of it is fetched, stored or
answered, except by a pairing notice.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeAlias

from homarus.channels.access_control import (
    AccessControl,
    AccessDecision,
    AccessGranted,
    MessageIgnored,
    PairingRequired,
)
from homarus.channels.base import Channel
from homarus.channels.inbound import AdmittedMessage, RejectedMessage
from homarus.channels.media import MediaDownloader
from homarus.channels.registry import find_traits
from homarus.config.channels import common_settings
from homarus.config.schema import Config
from homarus.core.message import Inbound, Json
from homarus.sessions.routing import Route, resolve_routes
from homarus.store.journal import OutboxRecord

log = logging.getLogger(__name__)


class Pack(Protocol):
    """Build the records of a text for a message's sender."""

    def __call__(self, inbound: Inbound, run: str, text: str) -> list[OutboxRecord]: ...


# Returns a session's record by its key; None when there is no such session.
FindSessionRecord: TypeAlias = Callable[[str], Awaitable[Mapping[str, Json] | None]]


class AdmissionPipeline:
    """Admit messages. `welcome` adds the ack reaction."""

    def __init__(
        self,
        config: Callable[[], Config],
        gate: AccessControl,
        files: MediaDownloader,
        *,
        record: FindSessionRecord,
        pack: Pack,
        welcome: Callable[[Inbound, str], object],
    ) -> None:
        self._config, self._gate, self._files = config, gate, files
        self._record, self._pack, self._welcome = record, pack, welcome
        # Records of the sessions of the message being checked, for access control.
        self.entries: Mapping[str, Mapping[str, Json]] = {}

    async def admit(self, channel: Channel, inbound: Inbound) -> AdmittedMessage | RejectedMessage:
        """Return whether and for which sessions a message is accepted."""
        config, place = self._config(), inbound.address
        routes, self.entries = await self._routes(config, inbound)
        # Each agent has its own names, history and session settings.
        verdicts = [self._gate.check(inbound, route) for route in routes]
        heard = [
            (route.key, _copy(verdict.inbound, route, number), verdict.ack)
            for number, (route, verdict) in enumerate(zip(routes, verdicts, strict=True))
            if isinstance(verdict, AccessGranted)
        ]
        if not heard:
            return self._reject(inbound, verdicts[0])
        settings = common_settings(config, place.channel, place.account)
        whole = await self._files.fetch(channel, settings, inbound)
        ack = next((ack for _, _, ack in heard if ack), "")
        return AdmittedMessage(
            tuple((key, _with_files(one, whole)) for key, one, _ in heard),
            in_turn=config.broadcast.strategy == "sequential",
            on_accepted=partial(self._welcome, whole, ack) if ack else None,
        )

    def _reject(self, inbound: Inbound, verdict: AccessDecision) -> RejectedMessage:
        """Reject a message; an unknown sender may get a pairing notice."""
        if isinstance(verdict, PairingRequired):
            return RejectedMessage(tuple(self._pack(inbound, verdict.key, verdict.text)))
        if isinstance(verdict, MessageIgnored):
            told = (inbound.id, inbound.address.channel, inbound.address.account, verdict.why)
            log.info("message %s of %s:%s is passed over: %s", *told)
        return RejectedMessage()

    async def _routes(
        self, config: Config, inbound: Inbound
    ) -> tuple[tuple[Route, ...], Mapping[str, Mapping[str, Json]]]:
        """Return the routes of a message, with the records of their sessions."""
        traits = find_traits(inbound.address.channel)
        routes = resolve_routes(config, inbound, traits)
        entries = dict[str, Mapping[str, Json]]()
        for key in {key for route in routes for key in (route.key, route.legacy_key) if key}:
            if (entry := await self._record(key)) is not None:
                entries[key] = entry
        if any(route.legacy_key for route in routes):
            routes = resolve_routes(config, inbound, traits, entries.get)
        return routes, entries


def _copy(inbound: Inbound, route: Route, number: int) -> Inbound:
    """Return the copy for one of several agents; the same each time the message is offered."""
    return replace(inbound, copy_for=route.agent if number else "")


def _with_files(inbound: Inbound, whole: Inbound) -> Inbound:
    """Return the copy with the files that were downloaded once for all."""
    return replace(inbound, media=whole.media, images=whole.images)
