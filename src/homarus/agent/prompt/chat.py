"""The chat that a run is for, by the config: what is told of it, and which tools it has. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal

from homarus.agent.prompt.facts import Citations
from homarus.config.schema import Config
from homarus.core.channel_traits import FindTraits
from homarus.core.keys import chat_type_in, is_subagent
from homarus.core.message import Address
from homarus.core.value import dataclass
from homarus.policy.decide import Rules, decide
from homarus.tools.registry import Registry


@dataclass(frozen=True, slots=True)
class Chat:
    """What holds in one chat. `rules` come on top of the agent's own: every one must allow."""

    told: str = ""
    reactions: Literal["", "minimal", "extensive"] = ""
    rules: tuple[Rules, ...] = ()
    citations: Citations = "auto"

    def tools(self, of_agent: Registry) -> Registry:
        """The tools there are; of what is denied here, the agent is not even told."""
        if not self.rules:
            return of_agent
        return of_agent.where(lambda tool: decide(tool.name, *self.rules).action != "deny")


NO_CHAT: Final = Chat()
_NO_MEMORY: Final = Rules(deny=("memory_*",))


def chat_of(
    config: Config,
    here: Address,
    senders: Sequence[str] = (),
    *,
    find_traits: FindTraits,
    group: bool,
    parent: str = "",
) -> Chat:
    """What is set for a chat. `senders` are those whose words are answered, if they are known.

    Where several ask at once, what one of them may not use is not used.
    """
    if here.channel not in config.channels:
        return NO_CHAT
    from homarus.config.channels import common  # for who has channels
    from homarus.policy.room import find_room, tool_rules

    settings = common(config, here.channel, here.account)
    level = (settings.model_extra or {}).get("reactionLevel")
    chat = Chat(reactions=level if level in ("minimal", "extensive") else "")
    if not group:
        return chat
    room = find_room(settings, here, find_traits, parent=parent)
    told = [(layer.system_prompt or "").strip() for layer in reversed(room.layers)]
    rules = [tool_rules(room, here.channel, sender, find_traits) for sender in senders or ("",)]
    return Chat(
        "\n\n".join(text for text in told if text),
        chat.reactions,
        tuple(dict.fromkeys(each for each in rules if each)),
    )


def with_memory(chat: Chat, config: Config, key: str, channel: str, *, group: bool) -> Chat:
    """The chat, and whether an agent has its memory there.

    Who works for an agent has none, nor who is kept away by the scope. In groups nobody names
    files, unless that is wished.
    """
    from homarus.memory.scope import may_search  # with the first run

    settings = None
    if config.memory:
        from homarus.config.memory import memory_settings

        settings = memory_settings(config)
    kind = chat_type_in(key)
    kind = "group" if group and kind == "direct" else kind
    scope = settings.qmd.scope if settings else None
    if is_subagent(key) or not may_search(scope, key, channel, kind):
        return replace(chat, rules=(*chat.rules, _NO_MEMORY))
    wish: Citations = settings.citations if settings else "auto"
    return replace(chat, citations="off" if wish == "auto" and kind != "direct" else wish)
