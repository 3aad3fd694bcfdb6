"""Methods for the audit log: its rows, and whether one of them was changed.

They are for admins: rows have commands, settings and the ids of people, also of sessions that a
client with fewer scopes may not read. These methods are our own: OpenClaw has no audit log.
"""

from typing import Annotated

from pydantic import Field

from homarus.core.message import Json
from homarus.gateway.method import MethodCall, NoParams, Params, method
from homarus.gateway.params import MAX_INT, Ms, Name
from homarus.store.audit import AuditKind, encode_entry
from homarus.store.audit_anchor import ANCHOR_FILE, load_anchor

_DEFAULT_ROWS = 100
_MAX_ROWS = 500


class AuditListParams(Params):
    """Which rows, and how many at most; `beforeSeq` is the lowest number that is known."""

    since_ms: Ms | None = None
    agent_id: Name | None = None
    tool: Name | None = None
    kind: AuditKind | None = None
    before_seq: Annotated[int, Field(ge=1, le=MAX_INT)] | None = None
    limit: Annotated[int, Field(ge=1, le=_MAX_ROWS)] = _DEFAULT_ROWS


@method("audit.list", scope="admin", params=AuditListParams, advertised=False)
async def list_(call: MethodCall, params: AuditListParams) -> Json:
    """Rows of the audit log, the newest first. Ours.

    `nextBeforeSeq` is the `beforeSeq` of the next page; null on the last one.
    """
    services = call.services
    await services.audit.write()  # rows that wait for the next transaction of a run
    found = await services.store.audit_entries(
        since_ms=params.since_ms or 0,
        agent=params.agent_id,
        tool=params.tool,
        kind=params.kind,
        before_seq=params.before_seq,
        limit=params.limit + 1,
    )
    rows = list(reversed(found))[: params.limit]
    return {
        "ts": services.clock.now_ms(),
        "rows": [encode_entry(entry) for entry in rows],
        "nextBeforeSeq": rows[-1].seq if len(found) > params.limit else None,
    }


@method("audit.verify", scope="admin", params=NoParams, advertised=False)
async def verify(call: MethodCall, _params: NoParams) -> Json:
    """Check that no row of the audit log was changed, removed or moved. Ours.

    `seq` and `hash` are those of the last row that is in order.
    """
    services = call.services
    anchor = load_anchor(services.paths.state)
    found = await services.store.check_audit(**{ANCHOR_FILE: anchor})
    return {
        "ok": not found.problem,
        "seq": found.anchor.seq,
        "hash": found.anchor.hash,
        "problem": found.problem,
        "checkedAtMs": services.clock.now_ms(),
    }
