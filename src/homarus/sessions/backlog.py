"""List the unsettled messages and unsent replies of the journal for people.

Ids are shown in full, so that they can be used in a command; text of senders is shown in one
line, with characters that would hide or reorder text made visible.
"""

from collections.abc import Mapping
from typing import Final

from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.core.text import closest_names, one_line
from homarus.store.journal import OPEN, InboxRecord, Journal, OutboxRecord, OutboxState

LIMIT: Final = 200
DISCARDED: Final = "discarded by a person"
_MIN_PREFIX_CHARS = 4


async def list_backlog(
    journal: Journal, now_ms: int, *, stuck: bool = False, limit: int = LIMIT
) -> dict[str, Json]:
    """Return open and parked messages, and replies that are pending, unknown or dead.

    With `stuck`, only what needs a person: parked, unknown and dead.
    """
    rows = await journal.inbox_records(*(() if stuck else OPEN), "parked", limit=limit)
    unsent: tuple[OutboxState, ...] = () if stuck else ("pending", "sending")
    parcels = await journal.outbox_records(*unsent, "unknown", "dead", limit=limit)
    return {
        "ts": now_ms,
        "messages": [_message(row, now_ms) for row in rows],
        "parcels": [_parcel(parcel, now_ms) for parcel in parcels],
    }


def _message(row: InboxRecord, now_ms: int) -> dict[str, Json]:
    return {
        "id": row.id,
        "sessionKey": row.session,
        "channel": row.channel,
        "accountId": row.account,
        "sender": one_line(row.sender),
        "preview": one_line(row.preview, 120),
        "state": row.state,
        "why": one_line(row.why, 200),
        "at": row.at_ms,
        "ageMs": max(0, now_ms - row.at_ms),
        "attempts": row.attempts,
        "duplicates": row.duplicates,
    }


def _parcel(parcel: OutboxRecord, now_ms: int) -> dict[str, Json]:
    return {
        "id": parcel.id,
        "runId": parcel.run,
        "channel": parcel.address.channel,
        "accountId": parcel.address.account,
        "chat": one_line(parcel.address.chat),
        "preview": one_line(parcel.text, 120),
        "state": parcel.state,
        "why": one_line(parcel.why, 200),
        "at": parcel.at_ms,
        "ageMs": max(0, now_ms - parcel.at_ms),
        "attempts": parcel.attempts,
    }


def resolve_backlog_id(backlog: Mapping[str, Json], named: str) -> str:
    """Return the id that equals `named` or is the only one to start with it; raises UserError."""
    known = [str(one["id"]) for kind in ("messages", "parcels") for one in backlog.get(kind, ())]
    if named in known:
        return named
    matches = [one for one in known if len(named) >= _MIN_PREFIX_CHARS and one.startswith(named)]
    if len(matches) == 1:
        return matches[0]
    shown = one_line(named, 40)
    if matches:
        raise UserError(f"{shown!r} could be {len(matches)} things", fix="write more of the id")
    close = closest_names(named, known)
    hint = f"did you mean {' or '.join(close)}?" if close else "homarus inbox --stuck lists them"
    raise UserError(f"nothing that is stuck has the id {shown!r}", fix=hint)
