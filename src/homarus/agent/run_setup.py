"""What a run works with, resolved from its messages, session, agent and config."""

from collections.abc import Sequence
from dataclasses import replace

from homarus.agent.agent import Agent
from homarus.agent.context.conversation import Conversation
from homarus.agent.context.render import turn_limit
from homarus.agent.prompt.chat import Chat
from homarus.agent.services import RunServices
from homarus.core.errors import UnknownName
from homarus.core.message import Inbound
from homarus.providers.base import Provider, ThinkLevel
from homarus.providers.catalog import Model
from homarus.providers.models import Wish
from homarus.sessions.levels import think_level, think_levels
from homarus.sessions.session import Session
from homarus.store.journal import Accepted
from homarus.tools.registry import Registry

MULTIPLE_SENDERS = "several people"  # no service has such an id


def merge_messages(records: Sequence[Accepted], text: str) -> Inbound:
    """Return the messages of a run as one: `text` for all of them, and the files of each.

    The result of messages by different senders has no sender; `text` names them.
    """
    inbounds = [record.inbound for record in records if record.inbound]
    first, senders = inbounds[0], {one.sender for one in inbounds if one.text or one.media}
    merged = replace(
        first,
        text=text or first.text,
        images=tuple(image for inbound in inbounds for image in inbound.images),
        media=tuple(media for inbound in inbounds for media in inbound.media),
        before="\n".join(inbound.before for inbound in inbounds if inbound.before),
    )
    if not text or len(senders) < 2:
        return merged
    occasion = replace(first.occasion, name="", handle="")
    return replace(merged, sender=MULTIPLE_SENDERS, occasion=occasion)


def resolve_model(agent: Agent, session: Session, requested: str | None = None) -> Wish:
    """Return the model to connect: the requested one, else the session's, else the agent's."""
    ref, locked = requested or session.model or agent.model, session.profile_locked
    return Wish(agent.id, ref, agent.fallbacks, session.profile, locked=locked)


def resolve_thinking(requested: str | None, model: Model) -> ThinkLevel:
    """Return the thinking level, by default the model's. UnknownName when it is no level."""
    if requested is None:
        return model.usual_thinking
    level = think_level(requested)
    if level is None:
        raise UnknownName("thinking level", requested, think_levels(model.provider, model.id))
    return level


async def make_model_context(
    services: RunServices,
    session: Session,
    agent: Agent,
    provider: Provider,
    model: Model,
    *,
    thinking: ThinkLevel,
    chat: Chat,
    tools: Registry,
) -> Conversation:
    """Compose the system prompt, and return the session as one model is sent it."""
    files = await services.composer.hooked_files(agent, session.key, services.hooks)
    prompt = services.composer.compose(
        agent, session.key, model, tools.specs(),
        files=files, entry=session.record.data, chat=chat,
    )  # fmt: skip
    return Conversation(
        session,
        agent,
        provider,
        model,
        system=prompt.text,
        tools=prompt.facts.tools,
        thinking=thinking,
        views=services.rendered,
        now_ms=services.clock.now_ms,
        max_turns=turn_limit(services.get_config().channels, session.key),
    )
