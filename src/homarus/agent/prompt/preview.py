"""The system prompt that a session's next run would use, without running it."""

from typing import Protocol

from homarus.agent.agent import Agent
from homarus.agent.prompt.assembly import Prompt
from homarus.agent.prompt.chat import session_chat_context
from homarus.agent.prompt.composer import Composer
from homarus.agent.prompt.report import Place, PromptReport
from homarus.config.load import Loaded
from homarus.core.channel_traits import FindTraits
from homarus.core.clock import Clock
from homarus.core.keys import agent_of
from homarus.core.value import dataclass
from homarus.plugins.caller import Hooks
from homarus.providers.models import Models, Wish
from homarus.sessions.session import Session
from homarus.tools.registry import Registry


class Program(Protocol):
    """What a preview needs of the program."""

    models: Models
    clock: Clock
    hooks: Hooks

    @property
    def loaded(self) -> Loaded: ...

    def agent(self, agent_id: str) -> Agent: ...

    def tools(self, agent_id: str) -> Registry: ...

    async def session(self, key: str) -> Session: ...


@dataclass(frozen=True, slots=True)
class Preview:
    """A prompt and its report."""

    prompt: Prompt
    report: PromptReport


async def preview(program: Program, key: str, find_traits: FindTraits) -> Preview:
    """Return the prompt that the session's next run would send; no model is called."""
    agent, session = program.agent(agent_of(key)), await program.session(key)
    named = session.model or agent.model
    if named:
        model = program.models.check(named)
    else:
        _, model = await program.models.road(Wish(agent.id))
    composer, entry = Composer(), session.record.data
    files = await composer.hooked_files(agent, key, program.hooks)
    chat = session_chat_context(program.loaded.config, session, find_traits=find_traits)
    tools = chat.tools(program.tools(agent.id)).specs()
    prompt = composer.compose(agent, key, model, tools, files=files, entry=entry, chat=chat)
    at_ms = program.clock.now_ms()
    place = Place(key, session.session_id, model.provider, model.id, at_ms, source="estimate")
    return Preview(prompt, composer.report(place))
