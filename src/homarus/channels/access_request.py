"""Resolve the settings of the chat that a message comes from: group, topic, allowlists.

The nearest setting wins: a topic's over its group's, a group's own over that of `*`, those over the
guild's, and the guild's over the account's.
"""

from typing import Final

from homarus.channels.registry import find_traits
from homarus.config.agent_settings import agent_entry
from homarus.config.channels import AccountSettings
from homarus.config.schema import Config
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Inbound
from homarus.policy import access
from homarus.policy.access import AllowlistMatch
from homarus.policy.group_policy import ResolvedGroup, resolve_group
from homarus.sessions.routing import Route

HISTORY_LIMIT: Final = 50


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """One message for access control, with its route and settings."""

    inbound: Inbound
    route: Route
    config: Config
    settings: AccountSettings

    @property
    def channel(self) -> str:
        return self.inbound.address.channel

    @property
    def account(self) -> str:
        return self.inbound.address.account

    def is_allowlisted(self, entries: tuple[str, ...]) -> bool:
        """Return whether a list has the sender, or `*`."""
        return access.is_listed(self.channel, self.inbound.sender, entries, find_traits)

    def is_named(self, entries: tuple[str, ...]) -> bool:
        return access.is_named(self.channel, self.inbound.sender, entries, find_traits)


def is_direct(inbound: Inbound) -> bool:
    """Return whether only the bot and the sender are in the chat; if unclear, False."""
    address = inbound.address
    is_group = find_traits(address.channel).is_group_id(address.chat)
    return inbound.metadata.kind == "direct" and not is_group


def group_of(request: AccessRequest) -> ResolvedGroup:
    """Return the settings of the group a message comes from."""
    inbound = request.inbound
    return resolve_group(request.settings, inbound.address, find_traits, inbound.metadata)


@dataclass(frozen=True, slots=True)
class GroupAllowlist:
    """Who is answered in a group: these people, and everyone with one of these roles."""

    people: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()

    def has_role(self, request: AccessRequest) -> bool:
        """Return whether the service says that the sender has one of the roles."""
        return not frozenset(self.roles).isdisjoint(request.inbound.metadata.roles)


def may_be_bot(request: AccessRequest) -> bool:
    """Return whether bots are answered in the chat of a message, by the nearest setting."""
    group = None if is_direct(request.inbound) else group_of(request)
    layers = (group.group, group.wildcard) if group else ()
    settings = (layer.allow_bots for layer in layers if layer)
    own = next((each for each in settings if each is not None), None)
    return request.settings.allow_bots if own is None else own


def group_allowlist(
    request: AccessRequest, group: ResolvedGroup, *, is_open: bool
) -> GroupAllowlist | None:
    """Return the nearest allowlist of a group, None when there is none.

    The account's lists are not those of a guild, which has members of its own.
    """
    for layer in group.layers:
        if layer.allow_from is not None or layer.roles is not None:
            return GroupAllowlist(layer.allow_from or (), layer.roles or ())
    settings = request.settings
    if is_open:
        return None
    if "group_allow_from" in settings.model_fields_set:
        return GroupAllowlist(settings.group_allow_from)
    if group.is_guild_named or not settings.allow_from:
        return None
    return GroupAllowlist(settings.allow_from)


def command_allowlists(request: AccessRequest, group: ResolvedGroup) -> tuple[AllowlistMatch, ...]:
    """Return the lists of senders that may command: the group's and `allowFrom`.

    A `*` lets senders be answered; commands need an id on a list.
    """
    own = group_allowlist(request, group, is_open=False) or GroupAllowlist()
    return tuple(
        AllowlistMatch(
            is_set=True, has_sender=request.is_named(each.people) or each.has_role(request)
        )
        for each in (own, GroupAllowlist(request.settings.allow_from))
        if each.people or each.roles
    )


def history_limit(request: AccessRequest) -> int:
    """Return how many unaddressed messages are added to an answered one."""
    values = (
        request.settings.history_limit,
        agent_entry(request.config, request.route.agent).group_chat.history_limit,
        request.config.messages.group_chat.history_limit,
    )
    return next((value for value in values if value is not None), HISTORY_LIMIT)
