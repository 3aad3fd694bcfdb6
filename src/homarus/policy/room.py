"""Resolve the settings of one group: by its id, by `*` for all groups, by its topic.

Access control, the prompt and the tool policy use the same result.
"""

from typing import TYPE_CHECKING, Literal

from homarus.core.message import Address
from homarus.core.value import dataclass
from homarus.policy import access
from homarus.policy.decide import Rules
from homarus.policy.groups import expand

if TYPE_CHECKING:  # the settings of channels are not imported without channels
    from homarus.config.channels import AccountSettings, GroupSettings, GroupTools, TopicSettings


@dataclass(frozen=True, slots=True)
class Room:
    """The settings of one group."""

    group: "GroupSettings | None"  # by its id
    usual: "GroupSettings | None"  # by `*`
    topic: "TopicSettings | None"

    @property
    def named(self) -> Literal["", "by-id", "by-star"]:
        if self.group:
            return "by-id"
        return "by-star" if self.usual else ""

    @property
    def layers(self) -> "tuple[TopicSettings, ...]":
        """Return the settings that apply, the most specific first."""
        return tuple(each for each in (self.topic, self.group or self.usual) if each)


def find_room(settings: "AccountSettings", address: Address, parent: str = "") -> Room:
    """Find the settings of a group by its id, or by its parent's if a thread is its own chat."""
    groups, channel = settings.groups, address.channel
    ids = {_group_id(channel, each): None for each in (address.chat, parent) if each}
    by_id = {_group_id(channel, name): each for name, each in groups.items()}
    group = next((by_id[each] for each in ids if each in by_id and each != "*"), None)
    wildcard, thread = groups.get("*"), address.thread
    topics = [each.topics for each in (group, wildcard) if each]
    topic = next((each[thread] for each in topics if thread and thread in each), None)
    return Room(group, wildcard, topic)


def tool_rules(room: Room, channel: str, sender: str) -> Rules | None:
    """Return the tool rules for a sender in a group, which add to the agent's own rules.

    The rules for the sender win over those for `*` as sender, and those over the group's. A group
    without rules uses those of the group `*`.
    """
    for layer in (room.group, room.usual):
        if layer is None:
            continue
        by_sender = layer.tools_by_sender
        own = (
            each for name, each in by_sender.items() if access.is_named(channel, sender, (name,))
        )
        tools = next(own, by_sender.get(access.EVERYONE))
        if tools is None and "tools" in layer.model_fields_set:
            tools = layer.tools
        if tools is not None:
            return _rules(tools)
    return None


def _rules(tools: "GroupTools") -> Rules:
    """Make rules of the settings; `alsoAllow` only extends a non-empty `allow`."""
    allow = (*tools.allow, *tools.also_allow) if tools.allow else ()
    return Rules(allow=expand(allow), deny=expand(tools.deny))


def _group_id(channel: str, name: str) -> str:
    return access.person_id(channel, name) or name.strip()
