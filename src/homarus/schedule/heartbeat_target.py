"""Where the alert of a heartbeat goes: the last chat of its session, none, or a configured one."""

from collections.abc import Collection, Mapping
from typing import Final, Literal, TypeAlias

from homarus.config.heartbeat_settings import HeartbeatSettings
from homarus.core.channel_traits import FindTraits
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.message import NO_OUTBOX_CHANNELS, Address, Json
from homarus.core.session_keys import DEFAULT_ACCOUNT
from homarus.sessions.last_route import last_chat

LAST: Final = "last"
NONE: Final = "none"
NoTargetReason: TypeAlias = Literal["", "no-target", "unknown-account", "dm-blocked"]


@dataclass(frozen=True, slots=True)
class HeartbeatTarget:
    """The chat that gets an alert; without one, the reason."""

    address: Address | None = None
    reason: NoTargetReason = ""

    @property
    def deliver_to(self) -> tuple[str, ...]:
        """The chat as run options have it."""
        to = self.address
        return (to.channel, to.chat, to.account, to.thread or "") if to else ()


def resolve_target(
    settings: HeartbeatSettings,
    entry: Mapping[str, Json],
    accounts: Collection[tuple[str, str]],
    find_traits: FindTraits,
) -> HeartbeatTarget:
    """Return the target of a heartbeat.

    `entry` is that of its session, `accounts` are the channels and accounts that there are.
    """
    if settings.target == NONE:
        return HeartbeatTarget(reason="no-target")
    last = last_chat(entry)
    if settings.target not in {LAST, last.channel}:
        last = Address(settings.target, "")
    address = replace(last, account=settings.account or last.account or DEFAULT_ACCOUNT)
    if settings.to and settings.to != last.chat:
        chat = settings.to.removeprefix(f"{address.channel}:")
        address = replace(address, chat=chat, thread=None)
    if not address.channel or not address.chat or address.channel in NO_OUTBOX_CHANNELS:
        return HeartbeatTarget(reason="no-target")
    if (address.channel, address.account) not in accounts:
        is_configured = settings.target != LAST or bool(settings.account)
        return HeartbeatTarget(reason="unknown-account" if is_configured else "no-target")
    if settings.direct_policy == "block" and _may_be_direct(address, entry, find_traits):
        return HeartbeatTarget(reason="dm-blocked")
    return HeartbeatTarget(address)


def _may_be_direct(address: Address, entry: Mapping[str, Json], find_traits: FindTraits) -> bool:
    """Return whether a chat is with one person, or may be: only a group is known not to be."""
    if find_traits(address.channel).is_group_id(address.chat):
        return False
    is_last = last_chat(entry).chat == address.chat
    return not (is_last and entry.get("chatType") in {"group", "channel"})
