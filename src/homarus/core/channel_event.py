"""What happens in a chat besides a message: presses, edits, reactions, deletions, joins.

A channel passes each to its InboundHandler as one case of InboundEvent. Messages and presses are
answered. The others are notices before the next message of the session, and start no run.
"""

from typing import TypeAlias

from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.message import DIRECT, Address, Inbound, InboundMetadata


@dataclass(frozen=True, slots=True)
class ButtonPressed:
    """A person pressed a button of ours: it is answered like a message with its visible label.

    `message_id` is the message with the button, and `quoted` its text. `approval` is the decision
    (core/approval_button.py) when the button is under a message of ours and answers an approval.
    """

    id: str
    address: Address
    sender: str
    label: str
    message_id: str = ""
    quoted: str = ""
    approval: str = ""
    at_ms: int = 0
    metadata: InboundMetadata = DIRECT

    def to_message(self) -> Inbound:
        """Return the message that the press stands for."""
        metadata = replace(
            self.metadata,
            mentioned=True,
            reply_to=self.message_id,
            replies_to_us=True,
            quoted=self.quoted,
            is_press=True,
            approval=self.approval,
        )
        return Inbound(
            self.id, self.address, self.sender, self.label, at_ms=self.at_ms, metadata=metadata
        )


@dataclass(frozen=True, slots=True)
class MessageEdited:
    """A person changed a message; `text` is the new text."""

    id: str
    address: Address
    sender: str
    message_id: str
    text: str
    at_ms: int = 0
    metadata: InboundMetadata = DIRECT


@dataclass(frozen=True, slots=True)
class MessageDeleted:
    """A message was deleted; `sender` is who did it, "" where the service does not say."""

    id: str
    address: Address
    sender: str
    message_id: str
    at_ms: int = 0
    metadata: InboundMetadata = DIRECT


@dataclass(frozen=True, slots=True)
class ReactionChanged:
    """A person added or removed reactions; `metadata.replies_to_us`: the message was ours."""

    id: str
    address: Address
    sender: str
    message_id: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    at_ms: int = 0
    metadata: InboundMetadata = DIRECT


@dataclass(frozen=True, slots=True)
class MemberJoined:
    """A person, `sender`, joined a group."""

    id: str
    address: Address
    sender: str
    at_ms: int = 0
    metadata: InboundMetadata = DIRECT


ChatEvent: TypeAlias = MessageEdited | MessageDeleted | ReactionChanged | MemberJoined
InboundEvent: TypeAlias = Inbound | ButtonPressed | ChatEvent
