"""The settings of the chat that a run answers: prompt text, tool rules, citations. Pure."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Final, Literal

from homarus.agent.prompt.chat_surface import NO_SURFACE, ChatSurface, resolve_surface
from homarus.agent.prompt.facts import Citations, SandboxInfo
from homarus.agent.prompt.injection import session_kind
from homarus.config.agent_settings import agent_entry
from homarus.config.schema import Config
from homarus.core.channel_traits import FindTraits
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.message import (
    DIRECT,
    HEARTBEAT_CHANNEL,
    Address,
    Inbound,
    InboundMetadata,
)
from homarus.core.session_keys import (
    agent_id_of,
    chat_type_of,
    is_subagent,
    spawn_depth,
    subagent_depth,
)
from homarus.policy.access import EVERYONE, is_named
from homarus.policy.decision import decide_tool_call, is_tool_offered
from homarus.policy.sandbox_settings import is_sandboxed, resolve_sandbox
from homarus.policy.taint import HOOK_CHANNEL
from homarus.policy.tool_call import CallerFacts, ToolCallFacts
from homarus.policy.tool_policy import PolicyRules, ToolRules, refuse_unknown_groups
from homarus.policy.workspace_access import NO_ACCESS, WorkspaceAccess, session_access
from homarus.sessions.last_route import last_address
from homarus.sessions.session import Session
from homarus.tools.registry import ToolRegistry


@dataclass(frozen=True, slots=True)
class ChatContext:
    """The settings of one chat. Its `rules` come on top of the agent's: all must allow a tool.

    `caller` is who calls tools there: the senders of the messages, and the model. `sandbox` is what
    the prompt says about the sandbox of the session. `skills` are the names of those that the chat
    allows; None: all.
    """

    prompt_text: str = ""
    reactions: Literal["", "minimal", "extensive"] = ""
    rules: tuple[ToolRules, ...] = ()
    citations: Citations = "auto"
    access: WorkspaceAccess = NO_ACCESS
    surface: ChatSurface = NO_SURFACE
    caller: CallerFacts = CallerFacts("", "")
    sandbox: SandboxInfo | None = None
    skills: tuple[str, ...] | None = None

    def with_skills(self, get_folders: Callable[[], Sequence[Path]]) -> "ChatContext":
        """Return the chat with the folders of skills that are read there."""
        return replace(self, access=replace(self.access, get_skills=get_folders))

    def with_model(self, provider: str, model: str) -> "ChatContext":
        """Return the chat in which this model calls tools."""
        return replace(self, caller=replace(self.caller, provider=provider, model=model))

    def with_rules(self, rules: tuple[ToolRules, ...]) -> "ChatContext":
        """Return the chat with more rules, each once."""
        return replace(self, rules=tuple(dict.fromkeys((*self.rules, *rules))))

    def check_groups(self, groups: frozenset[str]) -> "ChatContext":
        """Return the chat; one whose rules deny a group that does not exist has no tools."""
        refused = refuse_unknown_groups(self.rules, groups)
        return self.with_rules(refused) if refused else self

    def with_prompt(self, text: str) -> "ChatContext":
        """Return the chat with more text for its prompt."""
        added = [part for part in (self.prompt_text, text.strip()) if part]
        return replace(self, prompt_text="\n\n".join(added)) if text.strip() else self

    def tools(self, agent_tools: ToolRegistry, agent_rules: PolicyRules) -> ToolRegistry:
        """Return the tools of an agent that could be allowed in this chat."""
        # Who and where the caller is decides only together with the arguments of a call.
        caller = replace(self.caller, session_key="", channel="", sender="")
        return _offered_tools(agent_tools, agent_rules.for_chat(self.rules), caller)

    def join(self, other: "ChatContext") -> "ChatContext":
        """Return the context when senders of both are answered: each may only do what both may."""
        joined, one, two = self.with_rules(other.rules), self.caller, other.caller
        caller = replace(
            one,
            sender=one.sender if one.sender == two.sender else "",
            channel=one.channel if one.channel == two.channel else "",
            is_owner=one.is_owner and two.is_owner,
        )
        mine, theirs = self.access, other.access
        access = replace(
            mine,
            can_write_prompts=mine.can_write_prompts and theirs.can_write_prompts,
            is_owner=mine.is_owner and theirs.is_owner,
            get_media=lambda: mine.get_media() | theirs.get_media(),
        )
        return replace(joined, access=access, caller=caller)

    def file_access(self, agent_rules: PolicyRules) -> WorkspaceAccess:
        """Return the access to files: none is attached without `read`, or by URL `web_fetch`."""
        from homarus.tools.catalog import find_declaration  # with the tools of the first run

        rules = agent_rules.for_chat(self.rules)

        def is_allowed(tool: str) -> bool:
            declared = find_declaration(tool)
            if declared is None:
                return False
            return decide_tool_call(ToolCallFacts(declared), self.caller, rules).action == "allow"

        return replace(
            self.access, can_attach=is_allowed("read"), can_fetch=is_allowed("web_fetch")
        )


@lru_cache(32)
def _offered_tools(
    agent_tools: ToolRegistry, rules: PolicyRules, caller: CallerFacts
) -> ToolRegistry:
    """Return the tools that a caller is offered; the same for every run with the same rules."""
    return agent_tools.filter(lambda tool: is_tool_offered(tool.declaration, caller, rules))


NO_CHAT: Final = ChatContext()
# Channels of messages that no person reads an answer to: the session's last chat may get it.
_PROGRAMS: Final = frozenset({"agent", "boot", "wake", HEARTBEAT_CHANNEL})
# As `sessions.envelope` writes it, for files as `channels.media` stores them.
_MEDIA_LINE: Final = re.compile(
    r"^\[media attached: (/[^\n]{0,400}/media/inbound/[0-9a-f]{32}(?:\.[a-z0-9]{1,5})?) \(",
    re.MULTILINE,
)
_NO_MEMORY: Final = ToolRules(deny=("memory_*",), origin="the memory scope of this conversation")


def resolve_chat_context(
    config: Config,
    address: Address,
    senders: Sequence[str] = (),
    *,
    find_traits: FindTraits,
    group: bool,
    metadata: InboundMetadata = DIRECT,
) -> ChatContext:
    """Return the settings of a chat. `senders` are the senders of the messages, if known.

    When several senders are answered at once, the rules of all of them hold.
    """
    if address.channel not in config.channels:
        return NO_CHAT
    from homarus.config.channels import common_settings  # only for config files that name channels
    from homarus.policy.group_policy import resolve_group, skill_rules, tool_rules

    settings = common_settings(config, address.channel, address.account)
    level = (settings.model_extra or {}).get("reactionLevel")
    chat = ChatContext(reactions=level if level in ("minimal", "extensive") else "")
    if not group:
        return chat
    group_settings = resolve_group(settings, address, find_traits, metadata)
    prompts = [(layer.system_prompt or "").strip() for layer in reversed(group_settings.layers)]
    rules = [
        tool_rules(group_settings, address.channel, sender, find_traits)
        for sender in senders or ("",)
    ]
    rules.append(skill_rules(group_settings, address.channel))
    return ChatContext(
        "\n\n".join(text for text in prompts if text),
        chat.reactions,
        tuple(dict.fromkeys(each for each in rules if each)),
        skills=next((one.skills for one in group_settings.layers if one.skills is not None), None),
    )


def with_memory(
    chat: ChatContext, config: Config, key: str, channel: str, *, group: bool
) -> ChatContext:
    """Return the chat with the memory rule and the citations that hold there.

    Sub-agents and chats outside the memory scope have no memory tools. By default answers in groups
    do not cite files.
    """
    from homarus.memory.scope import is_search_allowed  # only when a run starts

    settings = None
    if config.memory:
        from homarus.config.memory import memory_settings

        settings = memory_settings(config)
    kind = chat_type_of(key)
    kind = "group" if group and kind == "direct" else kind
    scope = settings.qmd.scope if settings else None
    if is_subagent(key) or not is_search_allowed(scope, key, channel, kind):
        return replace(chat, rules=(*chat.rules, _NO_MEMORY))
    citations: Citations = settings.citations if settings else "auto"
    return replace(chat, citations="off" if citations == "auto" and kind != "direct" else citations)


def session_chat_context(
    config: Config,
    session: Session,
    inbounds: Sequence[Inbound] = (),
    *,
    find_traits: FindTraits,
) -> ChatContext:
    """Return the settings of the chat the messages came from, else of the session's last chat."""
    address = last_address(session.record.data)
    chat = key_chat_context(config, session.key, address, inbounds, find_traits=find_traits)
    get_media = partial(_session_media, session, tuple(inbounds))
    depth = spawn_depth(session.key, session.record.data.get("spawnDepth"))
    return replace(
        chat,
        access=replace(chat.access, get_media=get_media),
        caller=replace(chat.caller, depth=depth),
    )


def key_chat_context(
    config: Config,
    key: str,
    address: Address,
    inbounds: Sequence[Inbound] = (),
    *,
    find_traits: FindTraits,
) -> ChatContext:
    """Return the settings of the chat of a session; `address` is its last chat."""
    group = session_kind(key) == "group"
    if not inbounds or inbounds[0].address.channel not in config.channels:
        chat = resolve_chat_context(config, address, find_traits=find_traits, group=group)
    else:
        group = group or any(one.metadata.kind != "direct" for one in inbounds)
        # Text that its sender did not write has the rules of the chat, not those of the sender.
        senders = ["" if one.metadata.is_foreign_text else one.sender for one in inbounds]
        metadata, address = inbounds[0].metadata, inbounds[0].address
        chat = resolve_chat_context(
            config, address, senders, find_traits=find_traits, group=group, metadata=metadata
        )
    access = session_access(
        key,
        is_owner=all(_is_by_owner(config, one, find_traits) for one in inbounds),
        can_everyone_write=config.agents.defaults.prompt_file_writers == "everyone",
    )
    is_shown = inbounds and inbounds[0].address.channel not in _PROGRAMS
    shown = inbounds[0].address if is_shown else address
    surface = resolve_surface(config, shown, find_traits=find_traits, group=group)
    chat = replace(
        chat,
        access=access,
        surface=surface,
        caller=make_caller(config, key, inbounds, channel=address.channel),
        sandbox=find_sandbox_info(config, key, access),
    )
    return with_memory(chat, config, key, address.channel, group=group)


def find_sandbox_info(config: Config, key: str, access: WorkspaceAccess) -> SandboxInfo | None:
    """Return what the prompt says about the sandbox of a session; None for one without.

    It is the same for all senders of a chat, so that the prompt does not change between them.
    """
    agent_id = agent_id_of(key)
    if not is_sandboxed(config, agent_id, key):
        return None
    settings, own = resolve_sandbox(config, agent_id), agent_entry(config, agent_id).tools
    sections = [config.tools.elevated, *([own.elevated] if own else ())]
    can_leave = all(section.enabled for section in sections)
    return SandboxInfo(
        settings.container.workdir or "/workspace",
        "ro" if settings.access == "rw" and not access.is_full else settings.access,
        elevated=can_leave and any(config.tools.elevated.allow_from.values()),
        hosts=settings.allowed_hosts,
        has_network=settings.container.network not in {None, "none"},
    )


def _session_media(session: Session, inbounds: Sequence[Inbound]) -> frozenset[str]:
    """Return the paths of the files that were sent to a session, as its messages name them.

    The envelope escapes lines of senders that look like the one that names a file.
    """
    paths = {media.path for inbound in inbounds for media in inbound.media if media.path}
    for message in session.messages:
        if message.role == "user" and "[media attached: " in message.text:
            paths |= set(_MEDIA_LINE.findall(message.text))
    return frozenset(paths)


def make_caller(
    config: Config, key: str, inbounds: Sequence[Inbound], *, channel: str = ""
) -> CallerFacts:
    """Return who calls tools when these messages are answered, without the model."""
    senders = {"" if one.metadata.is_foreign_text else one.sender for one in inbounds}
    channels = {one.address.channel for one in inbounds}
    return CallerFacts(
        agent_id_of(key),
        key,
        next(iter(channels)) if len(channels) == 1 else channel if not channels else "",
        next(iter(senders)) if len(senders) == 1 else "",
        is_owner=all(_has_owner_authority(config, one) for one in inbounds),
        is_sandboxed=is_sandboxed(config, agent_id_of(key), key),
        depth=subagent_depth(key),
    )


def _has_owner_authority(config: Config, inbound: Inbound) -> bool:
    """Return whether a message has the owner's authority: access control gave it, or it is ours.

    What no channel received, and no client sent, is a message of the program itself; a webhook's
    text is not, also when the request had the right secret.
    """
    if inbound.address.channel == HOOK_CHANNEL:
        return False
    if inbound.authority:
        return inbound.authority == "owner"
    is_others = inbound.metadata.is_foreign_text or inbound.metadata.is_limited
    return inbound.address.channel not in config.channels and not is_others


def _is_by_owner(config: Config, inbound: Inbound, find_traits: FindTraits) -> bool:
    """Return whether a message counts as the owner's: in a direct chat, or by the gateway.

    Access control has admitted its sender, as listed or paired; where `ownerAllowFrom` names the
    owners, or where everybody is admitted, the sender must be listed by id.
    """
    channel, source = inbound.address.channel, inbound.options.provenance
    if channel == HOOK_CHANNEL:
        return False
    if channel not in config.channels:
        is_ours = source is not None and source.kind != "external_user"
        return not (is_ours and inbound.metadata.is_limited)
    if inbound.metadata.kind != "direct":
        return False
    from homarus.config.channels import common_settings

    owners = config.commands.owner_allow_from
    listed = owners or common_settings(config, channel, inbound.address.account).allow_from
    if not owners and EVERYONE not in listed:
        return True
    return is_named(channel, inbound.sender, listed, find_traits)
