"""The system prompt that a session's next run would use, without running it."""

from collections.abc import Awaitable, Callable

from homarus.agent.agent import Agent
from homarus.agent.prompt.assembly import Prompt, lists_skills
from homarus.agent.prompt.chat_context import session_chat_context
from homarus.agent.prompt.composer import PromptComposer
from homarus.agent.prompt.facts import SkillBlock
from homarus.agent.prompt.report import PromptReport, ReportContext
from homarus.agent.skills.ports import SkillPorts
from homarus.config.schema import Config
from homarus.core.channel_traits import FindTraits
from homarus.core.clock import Clock
from homarus.core.fast_dataclass import dataclass
from homarus.core.session_keys import agent_id_of
from homarus.plugins.hook_runner import Hooks
from homarus.providers.model_router import ModelRouter, ModelSelection
from homarus.sessions.session import Session
from homarus.tools.registry import ToolRegistry


@dataclass(frozen=True, slots=True)
class PreviewServices:
    """What a preview uses: the same as a run would."""

    get_config: Callable[[], Config]
    get_models: Callable[[], ModelRouter]
    get_agent: Callable[[str], Agent]
    get_tools: Callable[[str], ToolRegistry]
    load_session: Callable[[str], Awaitable[Session]]
    find_traits: FindTraits
    clock: Clock
    hooks: Hooks
    skills: SkillPorts | None = None


@dataclass(frozen=True, slots=True)
class PromptPreview:
    """A prompt and its report."""

    prompt: Prompt
    report: PromptReport


async def preview_prompt(services: PreviewServices, key: str) -> PromptPreview:
    """Return the system prompt that the next run of a session would use."""
    agent, session = services.get_agent(agent_id_of(key)), await services.load_session(key)
    models, ref = services.get_models(), session.model or agent.model
    if ref:
        model = models.check(ref)
    else:
        _, model = await models.connect(ModelSelection(agent.id))
    composer, entry = PromptComposer(), session.record.data
    files = await composer.hooked_files(agent, key, services.hooks)
    chat = session_chat_context(services.get_config(), session, find_traits=services.find_traits)
    chat = chat.with_model(model.provider, model.id)
    tools = chat.tools(services.get_tools(agent.id), agent.rules)
    listed: tuple[SkillBlock, ...] = ()
    if services.skills and lists_skills(key, model, tools):
        listed = await services.skills.open_run(agent, session, lambda: chat).list_blocks()
    prompt = composer.compose(
        agent, key, model, tools.specs(), files=files, entry=entry, chat=chat, skills=listed
    )
    at_ms = services.clock.now_ms()
    context = ReportContext(
        key, session.session_id, model.provider, model.id, at_ms, source="estimate"
    )
    return PromptPreview(prompt, composer.report(context))
