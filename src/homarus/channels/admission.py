"""Admit inbound messages: route and access check.

    route (sessions/routing.py) → access control (access_control.py)

A message of an unknown sender costs a check of the lists: nothing of it is fetched, stored or
answered, except by a pairing notice. The files of an admitted one are downloaded after it was
accepted (downloads.py).
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from homarus.channels.access_control import (
    AccessControl,
    AccessDecision,
    AccessGranted,
    MessageIgnored,
    PairingRequired,
)
from homarus.channels.base import Channel
from homarus.channels.inbound import AdmittedMessage, RejectedMessage
from homarus.channels.registry import find_traits
from homarus.config.schema import Config
from homarus.core.message import Inbound, Json
from homarus.sessions.routing import Route, resolve_routes
from homarus.store.chat_records import ChatRecord
from homarus.store.journal import BuildReply, Journal

log = logging.getLogger(__name__)


# Returns a session's record by its key; None when there is no such session.
FindSessionRecord: TypeAlias = Callable[[str], Awaitable[Mapping[str, Json] | None]]
# A message with an ack reaction, and its session.
EncodeAck: TypeAlias = Callable[[Inbound, str], tuple[ChatRecord, ...]]


class AdmissionPipeline:
    """Admit messages.

    `add_ack` adds the ack reaction, `encode_ack` returns what is to be stored to remove it later.
    """

    def __init__(
        self,
        config: Callable[[], Config],
        access: AccessControl,
        journal: Journal,
        *,
        find_record: FindSessionRecord,
        build_reply: BuildReply,
        add_ack: Callable[[Inbound, str], object],
        encode_ack: EncodeAck = lambda _inbound, _session: (),
    ) -> None:
        self._config, self._access, self._journal = config, access, journal
        self._encode_ack = encode_ack
        self._find_record, self._build_reply, self._add_ack = find_record, build_reply, add_ack
        # Records of the sessions of the message being checked, for access control.
        self.entries: Mapping[str, Mapping[str, Json]] = {}

    async def admit(self, channel: Channel, inbound: Inbound) -> AdmittedMessage | RejectedMessage:
        """Return whether and for which sessions a message is accepted."""
        config = self._config()
        routes, entries = await self._routes(config, inbound)
        for route in routes:
            await self._access.load(inbound, route, self._journal)
        # No other message may come between this and the last check.
        self.entries = entries
        # Each agent has its own names, history and session settings.
        decisions = [self._access.check(inbound, route) for route in routes]
        changes = self._access.take_changes()
        granted = [
            (route.key, _copy(decision.inbound, route, number), decision.ack)
            for number, (route, decision) in enumerate(zip(routes, decisions, strict=True))
            if isinstance(decision, AccessGranted)
        ]
        if not granted:
            return self._reject(inbound, decisions[0], changes)
        ack = next((ack for _, _, ack in granted if ack), "")
        return AdmittedMessage(
            tuple((key, message) for key, message, _ in granted),
            in_turn=config.broadcast.strategy == "sequential",
            on_accepted=partial(self._add_ack, inbound, ack) if ack else None,
            chat_records=(*changes, *(self._encode_ack(inbound, granted[0][0]) if ack else ())),
        )

    def _reject(
        self, inbound: Inbound, decision: AccessDecision, changes: tuple[ChatRecord, ...]
    ) -> RejectedMessage:
        """Reject a message; an unknown sender may get a pairing notice."""
        if isinstance(decision, PairingRequired):
            notices = tuple(self._build_reply(inbound, decision.key, decision.text))
            return RejectedMessage(notices, changes)
        if isinstance(decision, MessageIgnored):
            address, reason = inbound.address, decision.reason
            log.info(
                "message %s of %s:%s is passed over: %s",
                inbound.id,
                address.channel,
                address.account,
                reason,
            )
        return RejectedMessage(chat_records=changes)

    async def find_routes(self, config: Config, inbound: Inbound) -> tuple[Route, ...]:
        """Return the routes of a message whose sessions exist."""
        routes, entries = await self._routes(config, inbound)
        return tuple(route for route in routes if route.key in entries)

    async def _routes(
        self, config: Config, inbound: Inbound
    ) -> tuple[tuple[Route, ...], Mapping[str, Mapping[str, Json]]]:
        """Return the routes of a message, with the records of their sessions."""
        traits = find_traits(inbound.address.channel)
        routes = resolve_routes(config, inbound, traits)
        entries = dict[str, Mapping[str, Json]]()
        for key in {key for route in routes for key in (route.key, route.legacy_key) if key}:
            if (entry := await self._find_record(key)) is not None:
                entries[key] = entry
        if any(route.legacy_key for route in routes):
            routes = resolve_routes(config, inbound, traits, entries.get)
        return routes, entries


def _copy(inbound: Inbound, route: Route, number: int) -> Inbound:
    """Return the copy for one of several agents; the same each time the message is offered."""
    copy_for = route.agent if number else ""
    return replace(inbound, copy_for=copy_for, matched_by=route.matched_by)
