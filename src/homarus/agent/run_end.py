"""How a run ends, for those whose writes belong into the transaction that settles its messages.

A sub-agent's record and the message that announces its end are written there, so that a crash
leaves both or neither.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import TypeAlias

from homarus.core.errors import HomarusError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Message
from homarus.policy.tool_call import TaintSource
from homarus.store.base import Transaction, UsageRecord


@dataclass(frozen=True, slots=True)
class RunEnd:
    """The messages that are settled, and the answer, the error or the reason they have none.

    `usage` are the model calls that are written with it; `taint` is what the run has read.
    """

    session_key: str
    ids: Sequence[str]
    reply: Message | None = None
    error: HomarusError | None = None
    reason: str = ""
    usage: Sequence[UsageRecord] = ()
    taint: Sequence[TaintSource] = ()


WriteEnd: TypeAlias = Callable[[Transaction], None]
# Entered around the transaction that settles messages; what it returns is called in it.
OnRunEnd: TypeAlias = Callable[[RunEnd], AbstractAsyncContextManager[WriteEnd]]


def write_nothing(_transaction: Transaction) -> None:
    """Write nothing: the run is not that of a sub-agent."""


def ignore_run_end(_end: RunEnd) -> AbstractAsyncContextManager[WriteEnd]:
    """Add nothing to the transaction."""
    return nullcontext(write_nothing)
