"""Methods for runs: where the time of one went. Ours: OpenClaw has no journal."""

from typing import Annotated

from pydantic import Field

from homarus.core.errors import InvalidRequestError, UserError
from homarus.core.message import Json
from homarus.gateway.method import MethodCall, Params, method
from homarus.sessions.trace_report import LAST, find_traced, report_trace

_Id = Annotated[str, Field(min_length=1, max_length=1_024)]


class RunTraceParams(Params):
    """A run, a message or a reply by its id, or `last`; of one session, with its key."""

    id: _Id = LAST
    session_key: _Id | None = None


@method("runs.trace", scope="read", params=RunTraceParams, advertised=False)
async def trace(call: MethodCall, params: RunTraceParams) -> Json:
    """The ten hops of a run with their timings. Secrets are blotted out. Ours."""
    services = call.services
    try:
        traced = await find_traced(services.store, params.id, params.session_key)
    except UserError as exc:
        raise InvalidRequestError(exc.message, fix=exc.fix) from None
    live = services.find_live_trace(traced.run)
    return await report_trace(services.store, traced, services.clock.now_ms(), live)
