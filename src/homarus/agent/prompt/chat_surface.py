"""What the prompt says of the chat service that a run answers on, and of the owner's ids there.

It depends on the config and on the chat, never on the message: turns of one chat share it.
"""

from collections.abc import Iterable
from typing import Final

from pydantic import ValidationError

from homarus.agent.prompt.facts import Buttons
from homarus.config.schema import Config
from homarus.core.channel_traits import FindTraits
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Json
from homarus.policy.access import EVERYONE, normalize_sender_id

_BUTTONS: Final = "inlineButtons"


@dataclass(frozen=True, slots=True)
class ChatSurface:
    """The chat's service. `owners` are the ids of the agent's owner, as messages show them."""

    channel: str = ""
    capabilities: tuple[str, ...] = ()
    buttons: Buttons = ""
    hints: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()


NO_SURFACE: Final = ChatSurface()


def resolve_surface(
    config: Config, address: Address, *, find_traits: FindTraits, group: bool
) -> ChatSurface:
    """Return what holds for a chat; for a page or a terminal, the owners of all services."""
    owners = config.commands.owner_allow_from
    channel = address.channel
    if channel not in config.channels:
        return ChatSurface(channel, owners=_sorted(owner.strip() for owner in owners))
    from homarus.config.channels import common_settings  # only for config files that name channels

    settings, traits = common_settings(config, channel, address.account), find_traits(channel)
    features = (settings.model_extra or {}).get("capabilities")
    buttons: Buttons = ""
    if traits.has_buttons:
        buttons = "on" if _shows_buttons(features, group=group) else "off"
    allowed = (name for name in traits.abilities if settings.actions.get(name) is not False)
    named = features if isinstance(features, list | tuple) else ()
    return ChatSurface(
        channel,
        _sorted((*allowed, *(_other_words(named)), *((_BUTTONS,) if buttons == "on" else ()))),
        buttons,
        traits.message_hints,
        # Without a list of owners, those who are let in by id are the owner in a direct chat.
        _sorted(
            normalize_sender_id(channel, each, find_traits)
            for each in owners or (() if group else settings.allow_from)
        ),
    )


def _shows_buttons(features: Json, *, group: bool) -> bool:
    from homarus.config.channels import ChannelFeatures

    try:
        return ChannelFeatures.model_validate({} if features is None else features).shows_buttons(
            group=group
        )
    except ValidationError:  # the account does not start with it
        return False


def _other_words(named: Iterable[Json]) -> Iterable[str]:
    """Return the configured capabilities besides buttons, which have a scope."""
    return (word for word in named if isinstance(word, str) and word.lower() != _BUTTONS.lower())


def _sorted(words: Iterable[str]) -> tuple[str, ...]:
    """Return each word once, in an order that does not depend on the config's."""
    return tuple(sorted({*words} - {"", EVERYONE}))
