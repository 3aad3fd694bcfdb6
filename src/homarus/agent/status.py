"""A session at a glance: what it is, and what would answer it."""

from homarus.agent.agent import Agent
from homarus.core.value import dataclass
from homarus.providers.models import Models, Wish
from homarus.sessions.session import Session


@dataclass(frozen=True, slots=True)
class Status:
    """A session at a glance."""

    key: str
    agent: str
    model: str
    why: str
    note: str
    session_id: str
    messages: int
    context_tokens: int
    window: int
    workspace: str


async def status_of(session: Session, agent: Agent, models: Models) -> Status:
    """What a session is and what would answer it."""
    named = session.model or agent.model
    choice = None if named else await models.choice()
    _, model = await models.road(Wish(agent.id, named, agent.fallbacks))
    return Status(
        key=session.key,
        agent=agent.id,
        model=model.ref,
        why=choice.why if choice else "set for this session" if session.model else "configured",
        note=model.note,
        session_id=session.session_id,
        messages=len(session.messages),
        context_tokens=session.context_tokens,
        window=model.window,
        workspace=str(agent.workspace),
    )
