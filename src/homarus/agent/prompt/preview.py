"""A conversation's system prompt as its next turn would have it, without a turn."""

from collections.abc import Sequence

from homarus.agent.agent import Agent
from homarus.agent.prompt.assembly import Prompt
from homarus.agent.prompt.composer import Composer
from homarus.agent.prompt.report import Place, PromptReport
from homarus.core.value import dataclass
from homarus.providers.base import ToolSpec
from homarus.providers.models import Models, Wish
from homarus.sessions.session import Session


@dataclass(frozen=True, slots=True)
class Preview:
    """A prompt and its figures."""

    prompt: Prompt
    report: PromptReport


async def preview(
    session: Session, agent: Agent, models: Models, tools: Sequence[ToolSpec], at_ms: int
) -> Preview:
    """What the model that answers next would be told; it is not asked."""
    named = session.model or agent.model
    if named:
        model = models.check(named)
    else:
        _, model = await models.road(Wish(agent.id))
    composer = Composer()
    prompt = composer.compose(agent, session.key, model, tools, entry=session.record.data)
    place = Place(
        session.key, session.session_id, model.provider, model.id, at_ms, source="estimate"
    )
    return Preview(prompt, composer.report(prompt, place))
