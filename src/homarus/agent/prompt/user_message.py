"""Format a user message for the model: sender, chat, time, and the latest daily notes."""

from datetime import date

from homarus.agent.agent import Agent
from homarus.agent.prompt.daily_notes import opening_notes
from homarus.agent.prompt.injection import session_kind
from homarus.config.timezone import local_date
from homarus.core.channel_traits import FindTraits
from homarus.core.message import Inbound
from homarus.sessions.envelope import format_envelope, prepend_notes


def format_user_message(
    agent: Agent,
    key: str,
    inbound: Inbound,
    last_ms: int | None,
    find_traits: FindTraits,
    *,
    prefix: str = "",
) -> str:
    """Return the text for the transcript.

    `last_ms` is the time of the session's last message; None: the session starts with this one.
    `prefix` is `messages.messagePrefix`.
    """
    is_group = inbound.metadata.kind != "direct" or session_kind(key) == "group"
    text = format_envelope(
        inbound,
        agent.envelope,
        find_traits=find_traits,
        previous_ms=last_ms or 0,
        group=is_group,
        prefix=prefix,
    )
    if last_ms is not None:
        return text
    today = date.fromisoformat(local_date(agent.timezone, inbound.at_ms))
    return prepend_notes(text, opening_notes(agent.workspace, key, today))
