"""The approval seam: what a person is asked before a call runs, and the port that asks."""

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Literal, Protocol, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.policy.exec_settings import ExecSettings
from homarus.policy.tool_call import ExecEvaluation

ApprovalDecision: TypeAlias = Literal["allow-once", "allow-always", "deny"]
DECISIONS: tuple[ApprovalDecision, ...] = ("allow-once", "allow-always", "deny")
# A client of the gateway declares it when a person answers approvals there.
APPROVER_CAPABILITY = "exec-approvals"


@dataclass(frozen=True, slots=True)
class ApprovalQuestion:
    """What a person is asked about one prepared call.

    `digest` identifies exactly what would run: an approval of it allows nothing else. `detail` is
    shown verbatim, with deceptive characters escaped. `wire` has the fields that OpenClaw's clients
    read: command, cwd, host, security, ask, resolvedPath. `always` says what allow-always would
    save; "" when it is not offered, and then `allow_always` is None. `allow_always` saves it.
    `is_allowed_by_fallback` is what `askFallback` says where no approver can be reached. With
    `on_answer` a person is asked for an answer, which it gets, and not for permission.
    """

    tool: str
    title: str
    detail: str
    digest: str
    reason: str = ""  # the rule that asks
    wire: Mapping[str, Json] = field(default_factory=dict)
    always: str = ""
    allow_always: Callable[[], None] | None = None
    is_allowed_by_fallback: bool = False
    on_answer: Callable[[str], None] | None = None


@dataclass(frozen=True, slots=True)
class ApprovalAnswer:
    """The answer to a question: `decision` None when it expired or no approver can be reached.

    `why` says so in words for the model. `by` names who answered, `approval_id` the record.
    """

    decision: ApprovalDecision | None
    why: str = ""
    by: str = ""
    approval_id: str = ""

    @property
    def is_allowed(self) -> bool:
        return self.decision in ("allow-once", "allow-always")


def is_allowed_by_fallback(exec: ExecSettings, evaluation: ExecEvaluation | None) -> bool:  # noqa: A002 - the section's name
    """Return whether `askFallback` allows a command that no person can be asked about."""
    if evaluation is None:
        return False
    if exec.ask_fallback == "full":
        return True
    return exec.ask_fallback == "allowlist" and evaluation.is_satisfied


class Approvals(Protocol):
    """Asks for the approvals of one run."""

    async def request(self, call_id: str, question: ApprovalQuestion) -> ApprovalAnswer:
        """Return the answer for a call of the run.

        A call that was asked about before (by an earlier attempt of the run) is not asked again.
        Raises RunSuspendedError when no answer comes in the time that a run waits: the run ends
        suspended, and is resumed when the question is answered or expires.
        """
        ...
