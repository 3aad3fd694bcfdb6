"""Find channels and the traits of chat services by name.

A channel is a module or folder of this package with `Settings`, `create` and `TRAITS`; its name is
that of its section in the config (`-` for `_`). Other packages add channels by the entry-point
group `homarus.channels`. Listing names imports no channel; finding traits imports the channel's
package, which imports its adapter only in `create`.
"""

from collections.abc import Iterable
from functools import cache, lru_cache
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol

from homarus.core.channel_traits import UNKNOWN_CHANNEL, ChannelTraits
from homarus.core.errors import UserError
from homarus.plugins.backends import BackendKind

if TYPE_CHECKING:
    from homarus.channels.base import Channel, ChannelContext
    from homarus.config.channels import ChannelSettings


class ChannelModule(Protocol):
    """A channel's module.

    It may have a `LABEL`, its name as people write it, and should have `TRAITS`.
    """

    Settings: "type[ChannelSettings]"

    def create(self, context: "ChannelContext", settings: Any) -> "Channel":
        """Return an account, not connected. Raises MissingExtraError without its library."""
        ...


CHANNELS: Final[BackendKind[ChannelModule]] = BackendKind(
    name="channel",
    package="homarus.channels",
    group="homarus.channels",
    required=("Settings", "create"),
    config_key="channels.{name}",
)

# The services that OpenClaw configurations and clients name and that have no adapter here.
_SERVICES: Final[dict[str, ChannelTraits]] = {
    "bluebubbles": ChannelTraits("BlueBubbles", has_caseless_ids=True, has_phone_ids=True),
    "email": ChannelTraits("Email", has_caseless_ids=True),
    "feishu": ChannelTraits("Feishu"),
    "googlechat": ChannelTraits("Google Chat", id_aliases=("google-chat", "gchat")),
    "imessage": ChannelTraits(
        "iMessage", has_caseless_ids=True, has_phone_ids=True, id_aliases=("imsg",)
    ),
    "line": ChannelTraits("Line", restore_case=str.capitalize),
    "mattermost": ChannelTraits("Mattermost", has_named_rooms=True, block_min_chars=1_500),
    "msteams": ChannelTraits("Teams"),
    "nextcloud-talk": ChannelTraits("Nextcloud-talk"),
    "nostr": ChannelTraits("Nostr", has_caseless_ids=True),
    "signal": ChannelTraits("Signal", "signal", has_phone_ids=True, block_min_chars=1_500),
    "sms": ChannelTraits("SMS", "plain", has_phone_ids=True),
    "tlon": ChannelTraits("Tlon"),
    "twitch": ChannelTraits("Twitch", "plain", has_named_rooms=True),
    "voice": ChannelTraits("Voice", "plain", has_phone_ids=True),
    "webchat": ChannelTraits("WebChat"),
    "whatsapp": ChannelTraits("WhatsApp", "whatsapp", has_caseless_ids=True, has_phone_ids=True),
    "xmpp": ChannelTraits("XMPP", "plain", has_caseless_ids=True),
    "zalo": ChannelTraits("Zalo"),
    "zalouser": ChannelTraits("Zalouser"),
}


def available_channels() -> tuple[str, ...]:
    """Return the names of all channels, ours and those of installed packages."""
    return CHANNELS.names()


def services_without_channel() -> tuple[str, ...]:
    """Return the services that OpenClaw configurations name and that have no channel here."""
    return tuple(sorted(_SERVICES.keys() - {*available_channels()}))


def load_channel(name: str) -> ChannelModule:
    """Import a channel by its name. Raises UnknownNameError with the closest names."""
    return CHANNELS.load(name)


def channel_label(name: str) -> str:
    """Return a channel's name as people write it, or `name` if it is not installed."""
    try:
        module = CHANNELS.find(name)  # unlike `load`, it does not list all channels on failure
    except UserError:
        module = None
    return str(getattr(module, "LABEL", name.replace("-", " ").title())) if module else name


@lru_cache(512)
def find_traits(name: str) -> ChannelTraits:
    """Return the traits of a service by its name or an alias, UNKNOWN_CHANNEL if it is neither."""
    name = name.strip().lower()
    if name in _SERVICES:
        return _SERVICES[name]
    try:
        module = CHANNELS.find(name) if CHANNELS.has(name) else None
    except UserError:
        return UNKNOWN_CHANNEL  # its package is broken: the account's status says how
    if module:
        return getattr(module, "TRAITS", None) or ChannelTraits(channel_label(name))
    return _by_alias().get(name, UNKNOWN_CHANNEL)


def has_ability(ability: str, channels: Iterable[str]) -> bool:
    """Return whether one of these channels is a service with an ability (`ChannelTraits`)."""
    return any(ability in find_traits(name).abilities for name in channels)


@cache
def _by_alias() -> dict[str, ChannelTraits]:
    """Return the traits by alias; of channels, only ours are imported for it."""
    prefix = f"{CHANNELS.package}."
    own = (name for name in CHANNELS.names() if find_spec(prefix + name.replace("-", "_")))
    known = (find_traits(name) for name in (*_SERVICES, *own))
    return {alias: traits for traits in known for alias in traits.id_aliases}
