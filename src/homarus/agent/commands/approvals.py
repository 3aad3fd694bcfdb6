"""`/approve`: answer a question about a tool call, or list those that wait."""

from typing import Final

from homarus.agent.commands.context import AgentCommandContext
from homarus.core.errors import UserError
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
_USAGE: Final = "/approve <id> allow-once|allow-always|deny"
_MAX_LISTED: Final = 20
_DEVICE_ID_CHARS: Final = 64  # of a client of the gateway, in hexadecimal


@command("approve")
async def approve(context: AgentCommandContext) -> CommandReply:
    """`/approve [<id> allow-once|allow-always|deny]`: from the owner, or from a target chat."""
    words = context.args.split()
    if not words:
        return CommandReply(await _list_pending(context))
    decision = _DECISIONS.get(words[1].lower()) if len(words) == 2 else None
    if decision is None:
        raise UserError("an answer is an id and a decision", fix=_USAGE)
    return await _resolve(context, words[0], decision)


async def _list_pending(context: AgentCommandContext) -> str:
    from homarus.agent.approval_prompts import format_pending

    pending = await context.services.get_approvals().list_pending()
    answerable = [record for record in pending if _may_approve(context, record)]
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
    by = ApproverIdentity(describe_sender(inbound), lambda each: _may_approve(context, each))
    with context.services.get_approval_prompts().answering(record.id, inbound.address):
        resolved = await service.resolve(record.id, decision, by)
    # The prompt that a button is under shows the outcome itself.
    return CommandReply("" if inbound.metadata.approval else format_outcome(resolved))


def _may_approve(context: AgentCommandContext, record: ApprovalRecord) -> bool:
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
