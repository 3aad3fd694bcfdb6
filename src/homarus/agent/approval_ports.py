"""How the parts of the program that reach people connect to approvals.

The gateway, the channels and the terminal add what they provide to `ApprovalPorts` when they
start. The service that uses them is not imported until the first approval is requested.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field
from typing import Protocol, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Json
from homarus.store.approvals import ApprovalRecord
from homarus.store.journal import OutboxRecord

# Returns the messages about an approval, to be saved in the transaction that changes the approval.
BuildApprovalMessages: TypeAlias = Callable[[ApprovalRecord], Sequence[OutboxRecord]]
CanApprove: TypeAlias = Callable[[ApprovalRecord], bool]


def _every_record(_record: ApprovalRecord) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class ApproverIdentity:
    """Who answers an approval: `name` is stored with the answer and shown to others.

    The caller has authenticated the approver. `can_approve` says which approvals are theirs to
    answer; an answer to any other is refused.
    """

    name: str
    can_approve: CanApprove = _every_record


class InProcessApprover(Protocol):
    """A person at the terminal of this process."""

    identity: ApproverIdentity

    def is_reachable(self, record: ApprovalRecord) -> bool:
        """Return whether the person can be asked about this call now."""
        ...

    def ask(self, record: ApprovalRecord) -> Awaitable[str | None]:
        """Ask, and return the decision, or the answer to a question.

        None: an approval has no answer, and a question is dismissed.
        It is cancelled when the approval is answered by another approver, expires or is cancelled.
        """
        ...


@dataclass(slots=True)
class ApprovalPorts:
    """What the service uses to reach approvers; each part of the program adds its own.

    `prompts` build the messages that ask in chats: an approval with at least one prompt can be
    answered. `notices` build the messages about an approval that was answered, expired or
    cancelled; `on_resolved` is called after that is saved. `reach` says whether an approver is
    connected in another way, as a client of the gateway is.
    """

    prompts: list[BuildApprovalMessages] = field(default_factory=list)
    notices: list[BuildApprovalMessages] = field(default_factory=list)
    reach: list[CanApprove] = field(default_factory=list)
    approvers: list[InProcessApprover] = field(default_factory=list)
    on_resolved: list[Callable[[ApprovalRecord], None]] = field(default_factory=list)

    def register_approver(self, approver: InProcessApprover) -> Callable[[], None]:
        """Add a person at a terminal; return what removes them."""
        self.approvers.append(approver)
        return lambda: self.approvers.remove(approver)

    def build_prompts(self, record: ApprovalRecord) -> tuple[OutboxRecord, ...]:
        return tuple(message for build in self.prompts for message in build(record))

    def build_notices(self, record: ApprovalRecord) -> tuple[OutboxRecord, ...]:
        return tuple(message for build in self.notices for message in build(record))

    def is_reachable(self, record: ApprovalRecord) -> bool:
        """Return whether an approver is present who needs no message in a chat."""
        return any(each.is_reachable(record) for each in self.approvers) or any(
            is_reachable(record) for is_reachable in self.reach
        )


def encode_address(address: Address) -> dict[str, Json]:
    """Return the chat of the requester as `ApprovalRecord.extra` has it."""
    return {
        "channel": address.channel,
        "chat": address.chat,
        "account": address.account,
        "thread": address.thread,
    }


def requester_address(record: ApprovalRecord) -> Address | None:
    """Return the chat that the request came from; None for one of a client of the gateway."""
    stored = record.extra.get("address")
    if not isinstance(stored, dict):
        return None
    return Address(stored["channel"], stored["chat"], stored["account"], stored["thread"])
