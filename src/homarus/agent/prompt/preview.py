"""A conversation's system prompt as its next turn would have it, without a turn."""

from collections.abc import Awaitable, Callable

from homarus.agent.agent import Agent
from homarus.agent.prompt.assembly import Prompt
from homarus.agent.prompt.chat import chat_of, with_memory
from homarus.agent.prompt.composer import Composer
from homarus.agent.prompt.injection import kind_of
from homarus.agent.prompt.report import Place, PromptReport
from homarus.config.schema import Config
from homarus.core.clock import Clock
from homarus.core.keys import agent_of
from homarus.core.value import dataclass
from homarus.plugins.caller import Hooks
from homarus.providers.models import Models, Wish
from homarus.sessions.last_route import last_chat
from homarus.sessions.session import Session
from homarus.tools.registry import Registry


@dataclass(frozen=True, slots=True)
class PreviewServices:
    """What a preview uses: the same as a run would."""

    get_config: Callable[[], Config]
    get_models: Callable[[], Models]
    get_agent: Callable[[str], Agent]
    get_tools: Callable[[str], Registry]
    load_session: Callable[[str], Awaitable[Session]]
    clock: Clock
    hooks: Hooks


@dataclass(frozen=True, slots=True)
class Preview:
    """A prompt and its figures."""

    prompt: Prompt
    report: PromptReport


async def preview(services: PreviewServices, key: str) -> Preview:
    """Return the system prompt that the next run of a session would use."""
    agent, session = services.get_agent(agent_of(key)), await services.load_session(key)
    models, ref = services.get_models(), session.model or agent.model
    if ref:
        model = models.check(ref)
    else:
        _, model = await models.road(Wish(agent.id))
    composer, entry = Composer(), session.record.data
    files = await composer.hooked_files(agent, key, services.hooks)
    here, config = last_chat(entry), services.get_config()
    group = kind_of(key) == "group"
    chat = with_memory(chat_of(config, here, group=group), config, key, here.channel, group=group)
    tools = chat.tools(services.get_tools(agent.id)).specs()
    prompt = composer.compose(agent, key, model, tools, files=files, entry=entry, chat=chat)
    at_ms = services.clock.now_ms()
    place = Place(key, session.session_id, model.provider, model.id, at_ms, source="estimate")
    return Preview(prompt, composer.report(place))
