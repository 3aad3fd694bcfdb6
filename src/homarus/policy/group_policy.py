"""Resolve the settings of one group: by its id, by `*` for all groups, by its topic or guild.

A channel of a guild has the settings that the guild's `channels` have for it, then the guild's own.

Access control, the prompt and the tool policy use the same result.
"""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from homarus.core.channel_traits import FindTraits
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import DIRECT, Address, InboundMetadata
from homarus.policy import access
from homarus.policy.tool_policy import ToolRules

if TYPE_CHECKING:  # the settings of channels are not imported without channels
    from homarus.config.channels import (
        AccountSettings,
        GroupSettings,
        GroupToolSettings,
        GuildChannelSettings,
        GuildSettings,
        TopicSettings,
    )


@dataclass(frozen=True, slots=True)
class ResolvedGroup:
    """The settings of one group. `is_guild_named`: the config names its guild, not all guilds."""

    group: "GroupSettings | None"  # by its id
    wildcard: "GroupSettings | None"  # by `*`
    topic: "TopicSettings | None"
    name: str = ""  # as the config has it
    guild: "GuildSettings | None" = None
    is_guild_named: bool = False

    @property
    def match_kind(self) -> Literal["", "by-id", "by-star"]:
        if self.group:
            return "by-id"
        if self.guild is None:
            return "by-star" if self.wildcard else ""
        if self.guild.channels and not self.wildcard:
            return ""  # the guild lists its channels, and this is none of them
        return "by-id" if self.is_guild_named else "by-star"

    @property
    def layers(self) -> "tuple[TopicSettings, ...]":
        """Return the settings that apply, the most specific first."""
        return tuple(one for one in (self.topic, self.group or self.wildcard, self.guild) if one)

    @property
    def group_layers(self) -> "tuple[GroupSettings, ...]":
        """Return the settings of the group, of all groups and of the guild."""
        return tuple(one for one in (self.group, self.wildcard, self.guild) if one)

    @property
    def channel_layers(self) -> "tuple[GuildChannelSettings, ...]":
        """Return the settings of a channel of a guild, and of all its channels."""
        from homarus.config.channels import GuildChannelSettings

        layers = (self.group, self.wildcard)
        return tuple(one for one in layers if isinstance(one, GuildChannelSettings))


def resolve_group(
    settings: "AccountSettings",
    address: Address,
    find_traits: FindTraits,
    metadata: InboundMetadata = DIRECT,
) -> ResolvedGroup:
    """Return a group's settings, or its parent's where a thread has its own chat."""
    channel, ids = address.channel, (address.chat, metadata.parent)

    def normalize(name: str) -> str:
        return access.normalize_sender_id(channel, name, find_traits) or name.strip()

    wanted = [normalize(each) for each in ids if each]
    guild_name = _guild_name(settings, metadata, set(wanted), normalize)
    guild = settings.guilds.get(guild_name)
    groups: Mapping[str, GroupSettings] = guild.channels if guild else {}
    name, group = _find_group(groups, [*wanted, *metadata.slugs], normalize)
    if group is None:
        name, group = _find_group(settings.groups, wanted, normalize)
    wildcard, thread = (groups if guild else settings.groups).get("*"), address.thread
    topics = [one.topics for one in (group, wildcard) if one]
    topic = next((each[thread] for each in topics if thread and thread in each), None)
    is_named = guild is not None and guild_name != access.EVERYONE
    return ResolvedGroup(group, wildcard, topic, name, guild, is_named)


def _guild_name(
    settings: "AccountSettings",
    metadata: InboundMetadata,
    chats: set[str],
    normalize: Callable[[str], str],
) -> str:
    """Return the guild of a chat as the config has it: by its id, name or channel, else `*`."""
    guilds = settings.guilds
    if metadata.guild:
        ids = {normalize(name): name for name in guilds}
        found = ids.get(normalize(metadata.guild))
        return found or (metadata.guild_slug if metadata.guild_slug in guilds else access.EVERYONE)
    for name, guild in guilds.items():  # ids of channels are unique: one guild has it
        if any(normalize(each) in chats for each in guild.channels):
            return name
    return ""


def _find_group(
    groups: "Mapping[str, GroupSettings]", wanted: list[str], normalize: Callable[[str], str]
) -> "tuple[str, GroupSettings | None]":
    """Return the first of these chats that the config has, with its settings."""
    by_id = {normalize(name): one for name, one in groups.items()}
    found = next((each for each in wanted if each in by_id and each != access.EVERYONE), "")
    return found, by_id.get(found) if found else None


def tool_rules(
    group: ResolvedGroup, channel: str, sender: str, find_traits: FindTraits
) -> ToolRules | None:
    """Return the tool rules for a sender in a group, in addition to the agent's own.

    Rules of the sender win, else those of `*`, else those of the group; a group without tool rules
    uses those of the `*` group, else those of its guild.
    """
    place = f"group {group.name} on {channel}" if group.name else f"the groups on {channel}"
    for layer in group.group_layers:
        people = layer.tools_by_sender
        named = (
            own
            for name, own in people.items()
            if access.is_named(channel, sender, (name,), find_traits)
        )
        tools = next(named, people.get(access.EVERYONE))
        if tools is None and "tools" in layer.model_fields_set:
            tools = layer.tools
        if tools is not None:
            return _rules(tools, place)
    return None


def skill_rules(group: ResolvedGroup, channel: str) -> ToolRules | None:
    """Return the rules of the list `skills` of a group or topic: the most specific one holds."""
    allowed = next((each.skills for each in group.layers if each.skills is not None), None)
    if allowed is None:
        return None
    place = f"group {group.name} on {channel}" if group.name else f"the groups on {channel}"
    return ToolRules(skills=tuple(allowed), origin=place)


def _rules(tools: "GroupToolSettings", origin: str) -> ToolRules:
    """Make rules of the settings; `alsoAllow` restricts nothing: next to `allow` it is an error."""
    return ToolRules(allow=tools.allow, deny=tools.deny, origin=origin)
