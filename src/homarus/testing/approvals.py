"""Approvals that a test answers."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.policy.approvals import ApprovalAnswer, ApprovalQuestion

AskApproval: TypeAlias = Callable[[ApprovalQuestion], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class AskingApprovals:
    """Asks a function about each call."""

    ask: AskApproval

    async def request(self, call_id: str, question: ApprovalQuestion) -> ApprovalAnswer:
        """Return the answer of the function, for once."""
        return ApprovalAnswer("allow-once" if await self.ask(question) else "deny")


async def deny_approval(_question: ApprovalQuestion) -> bool:
    """Deny every call."""
    return False


async def allow_approval(_question: ApprovalQuestion) -> bool:
    """Allow every call once."""
    return True
