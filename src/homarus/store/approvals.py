"""Approval records: questions about tool calls, and how they were answered."""

from collections.abc import Mapping
from dataclasses import field
from typing import Final, Literal, TypeAlias, get_args

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json

ApprovalState: TypeAlias = Literal["pending", "allowed", "denied", "expired", "cancelled"]
APPROVAL_STATES: Final = get_args(ApprovalState)
ENDED_STATES: Final[tuple[ApprovalState, ...]] = ("allowed", "denied", "expired", "cancelled")
QUESTION: Final = "question"  # the kind of a record that asks for an answer
ANSWER: Final = "answer:"  # the start of the decision of an answered question


@dataclass(frozen=True, slots=True)
class ApprovalRecord:
    """A question about one tool call of a run, and its answer.

    It is bound to the agent, the session, the run, the call and the digest of what would run.
    `requester` is the sender whose message led to the call. `request` has what approvers see.
    `decision` is allow-once, allow-always or deny, once it is resolved. `used_ms` is set when the
    approved call starts: an approval is used once. A client of the gateway may ask about a command
    of its own: then `run` is "".

    A record of kind `question` allows nothing: the call is a question to a person, with the choices
    of `request`. Its answer is the decision, after `answer:`; a denial dismisses it.
    """

    id: str
    agent: str
    session: str
    run: str
    call_id: str
    tool: str
    requester: str
    digest: str
    request: Mapping[str, Json]
    created_ms: int
    expires_ms: int
    state: ApprovalState = "pending"
    decision: str = ""
    resolved_by: str = ""
    resolved_ms: int = 0
    used_ms: int = 0
    extra: Mapping[str, Json] = field(default_factory=dict)

    @property
    def is_question(self) -> bool:
        """Whether a person is asked for an answer, not for permission."""
        return self.request.get("kind") == QUESTION

    @property
    def choices(self) -> tuple[str, ...]:
        """The answers that a question offers."""
        choices = self.request.get("choices")
        return tuple(map(str, choices)) if isinstance(choices, list) else ()

    @property
    def takes_text(self) -> bool:
        """Whether a question may be answered by any text."""
        return self.request.get("freeText") is True

    @property
    def answer(self) -> str:
        """The answer to a question; "" before it is answered."""
        return self.decision.removeprefix(ANSWER) if self.decision.startswith(ANSWER) else ""

    def is_usable(self, digest: str, at_ms: int) -> bool:
        """Return whether this approval allows exactly this call to start now."""
        is_unused = self.state == "allowed" and not self.used_ms
        return is_unused and self.digest == digest and at_ms < self.expires_ms
