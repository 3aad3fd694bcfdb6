"""`exec.approvals.get|set`: the rules for commands in `exec-approvals.json`."""

import asyncio
from typing import Annotated, Any

from pydantic import Field

from homarus.core.errors import ConflictError, InvalidRequestError
from homarus.core.message import Json
from homarus.gateway.method import MethodCall, NoParams, Params, method

Hash = Annotated[str, Field(min_length=1, max_length=128)]


@method("exec.approvals.get", scope="admin", params=NoParams)
async def get(call: MethodCall, _params: NoParams) -> Json:
    """The rules for commands, with the hash that a change must name. The token is not shown."""
    from homarus.config.approvals_snapshot import read_approvals_snapshot

    found = await asyncio.to_thread(read_approvals_snapshot, call.services.paths.state)
    return found.to_json()


class ExecApprovalsSetParams(Params):
    """The new file; `base_hash` is that of the one it replaces."""

    file: dict[str, Any]
    base_hash: Hash | None = None


@method("exec.approvals.set", scope="admin", params=ExecApprovalsSetParams)
async def set_(call: MethodCall, params: ExecApprovalsSetParams) -> Json:
    """Replace the rules for commands, unless they have changed since they were read."""
    from homarus.config.approvals_snapshot import write_approvals

    state, base_hash = call.services.paths.state, params.base_hash or ""
    try:
        written = await asyncio.to_thread(write_approvals, state, params.file, base_hash)
    except ConflictError as exc:
        raise InvalidRequestError(f"{exc.message}; re-run exec.approvals.get and retry") from None
    return written.to_json()
