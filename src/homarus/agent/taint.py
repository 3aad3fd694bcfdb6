"""What untrusted content a run has read.

A run is tainted by what its messages contain that others wrote, by the untrusted output of its
tools, and by such content of the last turns of the session, which the model still reads. Nothing
that a run has read is forgotten before the run ends. All of it is in the transcript and in the
messages of the run, so a run that is resumed has the same taint.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from homarus.core.message import Inbound, Message, Text, ToolResult
from homarus.core.session_keys import is_subagent
from homarus.core.untrusted import untrusted_sources
from homarus.policy.audience import session_readers
from homarus.policy.taint import inbound_taint
from homarus.policy.tool_call import TaintSource
from homarus.sessions.notices import Notice, is_external

# How many turns before the current one count. An instruction in a page is followed in the same
# turn, or when the person answers a question about it; after more turns it is a rare case, and the
# rules for tools hold anyway.
EARLIER_TURNS: Final = 3


class RunTaint:
    """The sources of untrusted content that one run has read, in order.

    The transcript is searched when the sources are first asked for: a run without tool calls never
    does.
    """

    def __init__(
        self,
        inbounds: Sequence[Inbound] = (),
        get_messages: Callable[[], Sequence[Message]] = tuple,
    ) -> None:
        self._get_messages = get_messages
        self._sources: dict[TaintSource, None] = {}
        self._is_searched = False
        for inbound in inbounds:
            self.add_inbound(inbound)

    @property
    def sources(self) -> tuple[TaintSource, ...]:
        self.search()
        return tuple(self._sources)

    def search(self) -> None:
        """Search the transcript, once; to be called before a compaction shortens it."""
        if not self._is_searched:
            self._is_searched = True
            self._add(*messages_taint(recent_messages(self._get_messages())))

    def add_inbound(self, inbound: Inbound) -> None:
        """Add what a message contains that others wrote; also one that steers the run."""
        self._add(*inbound_taint(inbound))

    def add_notices(self, notices: Sequence[Notice]) -> None:
        """Add the sources of notices whose texts others wrote."""
        self._add(*(TaintSource("hook", one.source) for one in notices if is_external(one)))

    def add_result(self, result: ToolResult) -> None:
        """Add the source of a tool's untrusted output."""
        self._add(*_result_taint(result))

    def _add(self, *sources: TaintSource) -> None:
        self._sources.update(dict.fromkeys(sources))


def recent_messages(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages of the current turn and of those that count before it."""
    turns = 0
    for at in range(len(messages) - 1, -1, -1):
        is_start = at == 0 or messages[at - 1].role == "assistant"
        if messages[at].role == "user" and is_start:
            turns += 1
            if turns > EARLIER_TURNS:
                return messages[at:]
    return messages


def messages_taint(messages: Sequence[Message]) -> Iterator[TaintSource]:
    """Yield the sources of untrusted content in messages."""
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolResult):
                yield from _result_taint(part)
            elif isinstance(part, Text) and message.role == "user":
                yield from (TaintSource(*found) for found in untrusted_sources(part.text))


def find_session_taint(key: str, messages: Sequence[Message]) -> TaintSource | None:
    """Return the source for another session that reads these messages; None if all are ours.

    What people write in a session other than the agent's own may be anybody's. A sub-agent reads
    what its parent gives it, and what its tools return.
    """
    has_others = session_readers(key) in {"others", "person"} and not is_subagent(key)
    if has_others or next(messages_taint(messages), None):
        return TaintSource("session", key)
    return None


def _result_taint(result: ToolResult) -> Iterator[TaintSource]:
    listed = (result.details or {}).get("untrusted")
    for source in listed if isinstance(listed, list) else ():
        if isinstance(source, dict):
            yield TaintSource(str(source.get("kind", "")), str(source.get("origin", "")))
    if not listed:  # as a tool that reads an old transcript returns it
        yield from (TaintSource(*found) for found in untrusted_sources(result.text))
