"""List the unsettled messages and unsent replies of the journal for people.

Ids are shown in full, so that they can be used in a command; text of senders is shown in one
line, with characters that would hide or reorder text made visible.
"""

from collections.abc import Mapping
from typing import Final

from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.core.text import closest_names, one_line
from homarus.store.journal import UNSETTLED, InboxRecord, Journal, OutboxRecord, OutboxState

LIMIT: Final = 200
DISCARDED: Final = "discarded by a person"
_MIN_PREFIX_CHARS = 4


async def list_backlog(
    journal: Journal, now_ms: int, *, stuck: bool = False, limit: int = LIMIT
) -> dict[str, Json]:
    """Return open and parked messages, and replies that are pending, unknown or dead.

    With `stuck`, only what needs a person: parked, unknown and dead.
    """
    records = await journal.inbox_records(*(() if stuck else UNSETTLED), "parked", limit=limit)
    unsent: tuple[OutboxState, ...] = () if stuck else ("pending", "sending")
    replies = await journal.outbox_records(*unsent, "unknown", "dead", limit=limit)
    return {
        "ts": now_ms,
        "messages": [_inbox_fields(record, now_ms) for record in records],
        "parcels": [_outbox_fields(reply, now_ms) for reply in replies],
    }


def _inbox_fields(record: InboxRecord, now_ms: int) -> dict[str, Json]:
    return {
        "id": record.id,
        "sessionKey": record.session,
        "channel": record.channel,
        "accountId": record.account,
        "sender": one_line(record.sender),
        "preview": one_line(record.preview, 120),
        "state": record.state,
        "why": one_line(record.why, 200),
        "at": record.at_ms,
        "ageMs": max(0, now_ms - record.at_ms),
        "attempts": record.attempts,
        "duplicates": record.duplicates,
    }


def _outbox_fields(reply: OutboxRecord, now_ms: int) -> dict[str, Json]:
    return {
        "id": reply.id,
        "runId": reply.run,
        "channel": reply.address.channel,
        "accountId": reply.address.account,
        "chat": one_line(reply.address.chat),
        "preview": one_line(reply.text, 120),
        "state": reply.state,
        "why": one_line(reply.why, 200),
        "at": reply.at_ms,
        "ageMs": max(0, now_ms - reply.at_ms),
        "attempts": reply.attempts,
    }


def resolve_backlog_id(backlog: Mapping[str, Json], prefix: str) -> str:
    """Return the id that equals `prefix` or is the only one to start with it; raises UserError."""
    ids = [str(each["id"]) for kind in ("messages", "parcels") for each in backlog.get(kind, ())]
    if prefix in ids:
        return prefix
    matches = [each for each in ids if len(prefix) >= _MIN_PREFIX_CHARS and each.startswith(prefix)]
    if len(matches) == 1:
        return matches[0]
    shown = one_line(prefix, 40)
    if matches:
        raise UserError(f"{shown!r} could be {len(matches)} things", fix="write more of the id")
    close = closest_names(prefix, ids)
    hint = f"did you mean {' or '.join(close)}?" if close else "homarus inbox --stuck lists them"
    raise UserError(f"nothing that is stuck has the id {shown!r}", fix=hint)
