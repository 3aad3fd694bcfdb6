"""A message as an agent's model reads it: who, where, when; and first of all the latest notes."""

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
    """The words for the transcript. `last_ms`: when something was said here before, if ever."""
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
