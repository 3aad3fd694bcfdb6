"""Methods for inbox records without an answer, and for undelivered outbox records.

These methods are our own: OpenClaw has no journal.
"""

from typing import Annotated

from pydantic import Field

from homarus.core.errors import InvalidRequestError
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.gateway.method import MethodCall, Params, method
from homarus.sessions.backlog import DISCARDED, LIMIT, list_backlog

_MAX_LISTED = 1_000

# An id of the journal: of a client or a channel, perhaps with the number of a part.
Id = Annotated[str, Field(min_length=1, max_length=1_024)]


class InboxListParams(Params):
    """Which records, and how many at most."""

    stuck: bool = False
    limit: Annotated[int, Field(ge=1, le=_MAX_LISTED)] = LIMIT


class InboxItemParams(Params):
    """One inbox or outbox record."""

    id: Id


@method("inbox.list", scope="read", params=InboxListParams, advertised=False)
async def list_(call: MethodCall, params: InboxListParams) -> Json:
    """Messages that wait, run or are parked, and parcels pending, unknown or dead. Ours.

    With `stuck`, only what will not move by itself: parked messages, unknown and dead parcels.
    """
    services = call.services
    return await list_backlog(
        services.store.journal, services.clock.now_ms(), stuck=params.stuck, limit=params.limit
    )


@method("inbox.retry", scope="write", params=InboxItemParams, advertised=False)
async def retry(call: MethodCall, params: InboxItemParams) -> Json:
    """Have a parked message answered, or an unknown or dead parcel sent, now. Ours.

    An unknown parcel may have arrived: then its reader gets it twice.
    """
    services, journal = call.services, call.services.store.journal
    if not await journal.retry(params.id, at_ms=services.clock.now_ms()):
        raise _not_stuck(params.id)
    row = await journal.inbox_record(params.id)
    if row is None:
        services.wake_workers()
        return {"ok": True, "id": params.id, "kind": "parcel"}
    outcome = services.control.submit_stored(row.session, row)
    call.gateway.runs.track(row.id, row.session, outcome, lambda _outcome: None)
    return {"ok": True, "id": row.id, "kind": "message", "sessionKey": row.session}


@method("inbox.discard", scope="admin", params=InboxItemParams, advertised=False)
async def discard(call: MethodCall, params: InboxItemParams) -> Json:
    """Give up a parked message, or an unknown or dead parcel, for good. Ours."""
    services = call.services
    now_ms = services.clock.now_ms()
    if not await services.store.journal.discard(params.id, at_ms=now_ms, why=DISCARDED):
        raise _not_stuck(params.id)
    return {"ok": True, "id": params.id}


def _not_stuck(item_id: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"nothing that is stuck has the id {one_line(item_id, 64)!r}",
        fix="inbox.list with stuck shows what is",
    )
