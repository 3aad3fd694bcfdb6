"""The answer of a run for a client of the HTTP API: of a run that ends now, or of an earlier one.

With an Idempotency-Key the journal finds a run again, also after a restart. Its inbox record has
the digest of the request as the message's id, and the time of it; the answer is in the transcript.
"""

from typing import Final

from homarus.agent.reply.reply_cleaner import clean_message
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import ToolCall, Usage
from homarus.gateway.http_api.api_error import ApiError
from homarus.gateway.http_api.endpoint import ApiCall
from homarus.gateway.http_api.request_key import RequestKey
from homarus.gateway.http_api.run_errors import stopped_error
from homarus.sessions.client_turn import client_calls_in
from homarus.sessions.control import ABORTED
from homarus.sessions.transcript import decode_message
from homarus.store.journal import InboxRecord

_LENGTH: Final = "length"
CALLS: Final = "tool_calls"


@dataclass(frozen=True, slots=True)
class RunAnswer:
    """The answer of a run: its text, the calls that the client must run, and all tokens."""

    text: str
    usage: Usage
    calls: tuple[ToolCall, ...] = ()
    stop: str = "stop"

    @property
    def is_cut(self) -> bool:
        """Whether it reached the limit of tokens."""
        return self.stop == _LENGTH


def message_name(key: RequestKey, created_s: int) -> str:
    """Return the id of the message of a request with a key: what it is, and when it came."""
    return f"{key.id}:{key.digest}:{created_s}"


async def find_record(call: ApiCall, key: RequestKey, run_id: str) -> InboxRecord | None:
    """Return what the journal has of a request's key. Raises ApiError (409) for another request."""
    row = await call.services.store.journal.inbox_record(run_id)
    if row is not None:
        parts = row.message_id.split(":")
        key.check_same(parts[1] if len(parts) == 3 else "")
    return row


def created_s_of(row: InboxRecord) -> int:
    """Return when the request of a record was made."""
    stored = row.message_id.rpartition(":")[2]
    return int(stored) if stored.isdecimal() else row.at_ms // 1000


async def read_answer(call: ApiCall, row: InboxRecord) -> RunAnswer:
    """Return the stored answer of a settled run; raises ApiError for one that has none."""
    if row.why == ABORTED:
        raise stopped_error()
    if row.state in {"reported", "parked"}:
        raise ApiError(500, row.why or "the run failed", reason="run_failed")
    entries = await call.services.store.entries(row.session_id) if row.reply else ()
    message = next((decode_message(entry) for entry in entries if entry.id == row.reply), None)
    if message is None:
        raise ApiError(500, "the answer is not stored any more", reason="answer_deleted")
    run = row.run or row.id
    ids = {call_id for entry in entries for call_id in client_calls_in(entry, run)}
    calls = tuple(each for each in message.calls if each.id in ids)
    stop = message.origin.stop if message.origin else "stop"
    usage = await run_usage(call, row.session, run)
    return RunAnswer(clean_message(message).text, usage, calls, CALLS if calls else stop)


async def run_usage(call: ApiCall, session_key: str, run_id: str) -> Usage:
    """Return the tokens of all model calls of a run, as they are stored."""
    total = Usage()
    for record in await call.services.store.usage_records(session=session_key):
        if record.run == run_id:
            total += record.usage
    return total
