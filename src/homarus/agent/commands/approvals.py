"""`/approve`: answer a question about a tool call or one of the agent, or list those that wait."""

from typing import Final

from homarus.agent.commands.context import AgentCommandContext
from homarus.core.errors import ApprovalError, UserError
from homarus.core.message import NO_OUTBOX_CHANNELS, Inbound
from homarus.core.text import one_line
from homarus.plugins.commands import CommandReply, command
from homarus.policy.approvals import ApprovalDecision
from homarus.store.approvals import ApprovalRecord

_DECISIONS: Final[dict[str, ApprovalDecision]] = {
    "allow-once": "allow-once",
    "allow": "allow-once",
    "once": "allow-once",
    "allow-always": "allow-always",
    "always": "allow-always",
    "deny": "deny",
    "reject": "deny",
}
_USAGE: Final = "/approve <id> allow-once|allow-always|deny, or the answer to a question"
_MAX_LISTED: Final = 20
_DEVICE_ID_CHARS: Final = 64  # of a client of the gateway, in hexadecimal


@command("approve")
async def approve(context: AgentCommandContext) -> CommandReply:
    """`/approve [<id> allow-once|allow-always|deny]`: from the owner, or from a target chat."""
    named, _, rest = context.args.strip().partition(" ")
    if not named:
        return CommandReply(await _list_pending(context))
    decision = _DECISIONS.get(rest.strip().lower())
    if question := await _find_question(context, named) if rest.strip() else None:
        return await _answer_question(context, question, rest.strip())
    if decision is None:
        raise UserError("an answer is an id and a decision", fix=_USAGE)
    return await _resolve(context, named, decision)


async def _find_question(context: AgentCommandContext, named: str) -> ApprovalRecord | None:
    try:
        record = await context.services.get_approvals().get(named)
    except ApprovalError:
        return None
    return record if record.is_question else None


async def _answer_question(
    context: AgentCommandContext, record: ApprovalRecord, text: str
) -> CommandReply:
    """Answer a question by a choice, its number or a text; a word for no dismisses it."""
    from homarus.agent.approval_ports import ApproverIdentity
    from homarus.agent.approval_prompts import format_outcome
    from homarus.agent.approval_service import parse_answer

    service, inbound = context.services.get_approvals(), context.inbound
    by = ApproverIdentity(describe_sender(inbound), lambda each: may_approve(context, each))
    is_no = _DECISIONS.get(text.lower()) == "deny" and text.lower() not in record.choices
    with context.services.get_approval_prompts().answering(record.id, inbound.address):
        if is_no and (record.takes_text or parse_answer(record, text) is None):
            resolved = await service.resolve(record.id, "deny", by)
        else:
            resolved = await service.answer(record.id, text, by)
    # The prompt shows the outcome itself, and the agent goes on.
    return CommandReply("" if inbound.metadata.approval else format_outcome(resolved))


def find_answered_question(context: AgentCommandContext) -> str:
    """Return the id and the answer if a plain message answers a question asked in its chat."""
    from homarus.agent.approval_service import parse_answer

    inbound = context.inbound
    for record in context.services.open_questions():
        if parse_answer(record, inbound.text) is None or not may_approve(context, record):
            continue
        if inbound.address.channel in NO_OUTBOX_CHANNELS:
            is_asked_here = record.session == context.key
        else:
            prompts = context.services.get_approval_prompts()
            is_asked_here = prompts.is_asked_in(record, inbound.address)
        if is_asked_here:
            return f"{record.id} {inbound.text.strip()}"
    return ""


async def _list_pending(context: AgentCommandContext) -> str:
    from homarus.agent.approval_prompts import format_pending

    pending = await context.services.get_approvals().list_pending()
    answerable = [record for record in pending if may_approve(context, record)]
    if not answerable:
        return "Nothing waits for your approval."
    now_ms = context.services.clock.now_ms()
    lines = [format_pending(record, now_ms) for record in answerable[:_MAX_LISTED]]
    more = len(answerable) - _MAX_LISTED
    return "\n".join([*lines, *([f"… and {more} more"] if more > 0 else []), f"Answer: {_USAGE}"])


async def _resolve(
    context: AgentCommandContext, named: str, decision: ApprovalDecision
) -> CommandReply:
    from homarus.agent.approval_ports import ApproverIdentity
    from homarus.agent.approval_prompts import format_outcome, is_shown_completely

    service, inbound = context.services.get_approvals(), context.inbound
    record = await service.get(named)
    is_chat = inbound.address.channel not in NO_OUTBOX_CHANNELS
    if is_chat and decision != "deny" and not is_shown_completely(record):
        raise UserError(
            "a chat does not show all of what would be done", fix="answer on the page or a terminal"
        )
    by = ApproverIdentity(describe_sender(inbound), lambda each: may_approve(context, each))
    with context.services.get_approval_prompts().answering(record.id, inbound.address):
        resolved = await service.resolve(record.id, decision, by)
    # The prompt that a button is under shows the outcome itself.
    return CommandReply("" if inbound.metadata.approval else format_outcome(resolved))


def may_approve(context: AgentCommandContext, record: ApprovalRecord) -> bool:
    """Return whether the sender may answer: the owner, or the person of a target chat.

    A target is a direct chat that the config names. Its person never answers their own request.
    """
    inbound = context.inbound
    if context.is_owner:
        return True
    is_direct = inbound.metadata.kind == "direct"
    is_requester = record.requester == f"{inbound.address.channel}:{inbound.sender}"
    is_person = inbound.address.channel not in NO_OUTBOX_CHANNELS and is_direct
    if not is_person or is_requester:
        return False
    return context.services.get_approval_prompts().is_target(record, inbound.address)


def describe_sender(inbound: Inbound) -> str:
    """Return how an approval names the person who answered it."""
    is_device = len(inbound.sender) == _DEVICE_ID_CHARS and inbound.sender.isalnum()
    sender = inbound.sender[:8] if is_device else inbound.sender  # as short as an approval's id
    identity = f"{inbound.address.channel}:{sender}"
    name = one_line(inbound.metadata.name, 40)
    return one_line(f"{name} ({identity})" if name else identity, 120)
