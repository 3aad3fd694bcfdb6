"""Format a user message for the model: sender, chat, time, and the latest daily notes."""

from datetime import date

from homarus.agent.agent import Agent
from homarus.agent.prompt.daily import opening_notes
from homarus.agent.prompt.injection import kind_of
from homarus.config.zone import day_in
from homarus.core.channel_traits import FindTraits
from homarus.core.message import Inbound
from homarus.sessions.envelope import envelope, with_notes


def hear(
    agent: Agent, key: str, inbound: Inbound, last_ms: int | None, find_traits: FindTraits
) -> str:
    """Return the text for the transcript.

    `last_ms` is the time of the session's last message; None: the session starts with this one.
    """
    is_group = inbound.occasion.kind != "direct" or kind_of(key) == "group"
    text = envelope(
        inbound,
        agent.envelope,
        find_traits=find_traits,
        previous_ms=last_ms or 0,
        group=is_group,
    )
    if last_ms is not None:
        return text
    today = date.fromisoformat(day_in(agent.timezone, inbound.at_ms))
    return with_notes(text, opening_notes(agent.workspace, key, today))
