"""How a run ends, for those whose writes belong into the transaction that settles its messages.

A sub-agent's record and the message that announces its end are written there, and the slot of a
cron job, so that a crash leaves all of it or nothing.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
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
    """Write nothing: the run is neither that of a sub-agent nor that of a job."""


def ignore_run_end(_end: RunEnd) -> AbstractAsyncContextManager[WriteEnd]:
    """Add nothing to the transaction."""
    return nullcontext(write_nothing)


def combine_run_ends(*handlers: OnRunEnd) -> OnRunEnd:
    """Return what calls several handlers in order; each adds its writes to the transaction."""

    @asynccontextmanager
    async def enter(end: RunEnd) -> AsyncIterator[WriteEnd]:
        async with AsyncExitStack() as stack:
            writes = [await stack.enter_async_context(handler(end)) for handler in handlers]

            def write(transaction: Transaction) -> None:
                for one in writes:
                    one(transaction)

            yield write

    return enter
