"""What a run works with, resolved from its messages, session, agent and config."""

from collections.abc import Sequence
from functools import partial

from homarus.agent.agent import Agent
from homarus.agent.client_tools import client_tool_specs
from homarus.agent.context.image_refs import Read, workspace_reader
from homarus.agent.context.model_context import NO_PARAMS, ModelContext
from homarus.agent.context.render import turn_limit
from homarus.agent.prompt.assembly import lists_skills
from homarus.agent.prompt.chat_context import ChatContext
from homarus.agent.prompt.injection import CHECKLIST
from homarus.agent.services import RunServices
from homarus.agent.skills.run_skills import RunSkills
from homarus.core.errors import UnknownNameError
from homarus.core.fast_dataclass import replace
from homarus.core.message import ClientOptions, Inbound
from homarus.providers.base import Provider, ThinkLevel
from homarus.providers.catalog import ModelInfo
from homarus.providers.model_router import ModelSelection
from homarus.sessions.envelope import MULTIPLE_SENDERS
from homarus.sessions.levels import think_level, think_levels
from homarus.sessions.session import Session
from homarus.store.journal import InboxRecord
from homarus.tools.registry import ToolRegistry


def merge_messages(records: Sequence[InboxRecord], text: str) -> Inbound:
    """Return the messages of a run as one: `text` for all of them, and the files of each.

    The result of messages by different senders has no sender; `text` names them.
    """
    inbounds = [record.inbound for record in records if record.inbound]
    if len(inbounds) == 1 and not text:
        return inbounds[0]
    first, senders = inbounds[0], {one.sender for one in inbounds if one.text or one.media}
    merged = replace(
        first,
        text=text or first.text,
        images=tuple(image for inbound in inbounds for image in inbound.images),
        media=tuple(media for inbound in inbounds for media in inbound.media),
        group_history="\n".join(
            inbound.group_history for inbound in inbounds if inbound.group_history
        ),
    )
    if not text:
        return merged
    # What others wrote is wrapped in the text already.
    metadata = replace(first.metadata, forwarded="", via_bot="")
    if len(senders) < 2:
        return replace(merged, metadata=metadata)
    metadata = replace(metadata, name="", handle="")
    return replace(merged, sender=MULTIPLE_SENDERS, metadata=metadata)


def resolve_model(agent: Agent, session: Session, requested: str | None = None) -> ModelSelection:
    """Return the model to connect: the requested one, else the session's, else the agent's.

    The first two were chosen by a person: no other model answers in their place. The settings for
    sub-agents choose a model with fallbacks of its own.
    """
    chosen = requested or session.model
    own = session.model_fallbacks if session.model and not requested else ()
    return ModelSelection(
        agent.id,
        chosen or agent.model,
        own or agent.fallbacks,
        session.profile,
        locked=session.profile_locked,
        exact=bool(chosen) and not own,
    )


def resolve_thinking(requested: str | None, model: ModelInfo) -> ThinkLevel:
    """Return the thinking level, by default the model's. Raises UnknownNameError."""
    if requested is None:
        return model.default_thinking
    level = think_level(requested)
    if level is None:
        raise UnknownNameError("thinking level", requested, think_levels(model.provider, model.id))
    return level


async def make_model_context(
    services: RunServices,
    session: Session,
    agent: Agent,
    provider: Provider,
    model: ModelInfo,
    *,
    thinking: ThinkLevel,
    chat: ChatContext,
    tools: ToolRegistry,
    skills: RunSkills,
    is_light: bool = False,
    client: ClientOptions | None = None,
) -> ModelContext:
    """Compose the system prompt, and return the session as one model is sent it.

    With `is_light`, HEARTBEAT.md is the only workspace file in it. The tools of a client come after
    the agent's, and are not described in the prompt.
    """
    files = await services.composer.hooked_files(agent, session.key, services.hooks)
    if is_light:
        files = tuple(file for file in files if file.name == CHECKLIST)
    is_listed = lists_skills(session.key, model, tools)
    prompt = services.composer.compose(
        agent, session.key, model, tools.specs(),
        files=files, entry=session.record.data, chat=chat,
        skills=await skills.list_blocks() if is_listed else (),
    )  # fmt: skip
    return ModelContext(
        session,
        agent,
        provider,
        model,
        system=prompt.text,
        tools=(*prompt.facts.tools, *(client_tool_specs(client) if client else ())),
        thinking=thinking,
        cache=services.rendered,
        now_ms=services.clock.now_ms,
        max_turns=turn_limit(services.get_config().channels, session.key),
        params=client.params if client else NO_PARAMS,
        get_reader=partial(_image_reader, services, session.key, agent, chat),
    )


def _image_reader(services: RunServices, key: str, agent: Agent, chat: ChatContext) -> Read:
    """Return the reader for images that messages name, in the files that tools see."""
    access = chat.file_access(agent.rules)
    return workspace_reader(agent.workspace, access, services.open_sandbox(agent, key, access))
