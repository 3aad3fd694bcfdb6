"""The messages of sub-agents: the task, what steers it, and the announcement of its end. Pure."""

from collections.abc import Sequence
from typing import Final
from uuid import UUID, uuid5

from homarus.core.fast_dataclass import replace
from homarus.core.message import Inbound, InputProvenance
from homarus.core.session_keys import announce_key
from homarus.policy.tool_call import TaintSource
from homarus.store.subagents import SubagentRecord

# No chat: the answer of a sub-agent goes to its parent session alone.
NOWHERE: Final = ("agent", "", "default", "")
# As long as OpenClaw's longest timeout: a run without a deadline of its own.
NO_DEADLINE_S: Final = 2_147_000.0
_NAMESPACE: Final = UUID("6c1f64a2-5d1f-4e0b-9c53-7a0f3f1f7c55")


def derive_id(seed: str) -> str:
    """Return an id that is the same for the same seed, and else unique."""
    return str(uuid5(_NAMESPACE, seed))


def announcement_id(record: SubagentRecord) -> str:
    """Return the id of the message that announces the end of a sub-agent."""
    return derive_id(announce_key(record.child_key, record.run_id))


def make_task(
    record: SubagentRecord, text: str, prompt: str, taint: Sequence[TaintSource]
) -> Inbound:
    """Return the first message of a sub-agent; its id in the journal is the run's."""
    return _to_child(record, f"spawn:{record.run_id}", record.run_id, text, prompt, taint)


def make_steering(
    record: SubagentRecord, message_id: str, text: str, prompt: str, at_ms: int
) -> Inbound:
    """Return a message to a sub-agent that replaces what it works on."""
    message = _to_child(record, f"steer:{message_id}", message_id, text, prompt, ())
    return replace(message, at_ms=at_ms)


def _to_child(  # noqa: PLR0917 - one message, and whose it is
    record: SubagentRecord,
    name: str,
    run_id: str,
    text: str,
    prompt: str,
    taint: Sequence[TaintSource],
) -> Inbound:
    origin = record.origin
    sources = tuple((source.kind, source.origin) for source in taint) or origin.options.taint
    return replace(
        origin,
        id=name,
        run_id=run_id,
        text=text,
        at_ms=record.created_ms,
        options=replace(
            origin.options,
            deliver_to=NOWHERE,
            timeout_s=record.timeout_s or NO_DEADLINE_S,
            extra_system_prompt=prompt,
            taint=sources,
            provenance=InputProvenance(
                "inter_session",
                record.requester_key,
                origin.address.channel,
                "sessions_spawn",
            ),
        ),
    )


def make_announcement(record: SubagentRecord, text: str) -> Inbound:
    """Return the message with which a sub-agent's end reaches its parent, once.

    It has the chat, the sender and the authority of the message that the parent was answering.
    """
    origin = record.origin
    return replace(
        origin,
        id=announce_key(record.child_key, record.run_id),
        run_id=announcement_id(record),
        text=text,
        at_ms=record.ended_ms,
        options=replace(
            origin.options,
            taint=(),
            provenance=InputProvenance(
                "inter_session", record.child_key, origin.address.channel, "subagent_announce"
            ),
        ),
    )
