"""Resolve the settings of one group: by its id, by `*` for all groups, by its topic.

Access control, the prompt and the tool policy use the same result.
"""

from typing import TYPE_CHECKING, Literal

from homarus.core.channel_traits import FindTraits
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address
from homarus.policy import access
from homarus.policy.tool_policy import ToolRules

if TYPE_CHECKING:  # the settings of channels are not imported without channels
    from homarus.config.channels import (
        AccountSettings,
        GroupSettings,
        GroupToolSettings,
        TopicSettings,
    )


@dataclass(frozen=True, slots=True)
class ResolvedGroup:
    """The settings of one group."""

    group: "GroupSettings | None"  # by its id
    wildcard: "GroupSettings | None"  # by `*`
    topic: "TopicSettings | None"
    name: str = ""  # as the config has it

    @property
    def match_kind(self) -> Literal["", "by-id", "by-star"]:
        if self.group:
            return "by-id"
        return "by-star" if self.wildcard else ""

    @property
    def layers(self) -> "tuple[TopicSettings, ...]":
        """Return the settings that apply, the most specific first."""
        return tuple(one for one in (self.topic, self.group or self.wildcard) if one)


def resolve_group(
    settings: "AccountSettings", address: Address, find_traits: FindTraits, *, parent: str = ""
) -> ResolvedGroup:
    """Return a group's settings, or its parent's where a thread has its own chat."""
    groups, channel = settings.groups, address.channel

    def normalize(name: str) -> str:
        return access.normalize_sender_id(channel, name, find_traits) or name.strip()

    wanted = {normalize(each): None for each in (address.chat, parent) if each}
    by_id = {normalize(name): one for name, one in groups.items()}
    found = next((each for each in wanted if each in by_id and each != "*"), "")
    group = by_id[found] if found else None
    wildcard, thread = groups.get("*"), address.thread
    topics = [one.topics for one in (group, wildcard) if one]
    topic = next((each[thread] for each in topics if thread and thread in each), None)
    return ResolvedGroup(group, wildcard, topic, found)


def tool_rules(
    group: ResolvedGroup, channel: str, sender: str, find_traits: FindTraits
) -> ToolRules | None:
    """Return the tool rules for a sender in a group, in addition to the agent's own.

    Rules of the sender win, else those of `*`, else those of the group; a group without tool rules
    uses those of the `*` group.
    """
    place = f"group {group.name} on {channel}" if group.name else f"the groups on {channel}"
    for layer in (group.group, group.wildcard):
        if layer is None:
            continue
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
