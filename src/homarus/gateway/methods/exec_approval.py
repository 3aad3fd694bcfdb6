"""`exec.approval.*`: ask for the approval of a command, wait for it, answer it."""

import hashlib
import json
from typing import TYPE_CHECKING, Annotated, Final

from pydantic import Field

from homarus.core.errors import ApprovalError, InvalidRequestError
from homarus.core.message import Json
from homarus.core.session_keys import agent_id_of
from homarus.gateway.approval_payloads import show_decision, show_pending, show_resolved
from homarus.gateway.method import Caller, MethodCall, NoParams, Params, method
from homarus.gateway.params import Count, Id, Name

if TYPE_CHECKING:
    from homarus.store.approvals import ApprovalRecord

_TIMEOUT_MS: Final = 120_000
_ALWAYS: Final = "as the program that asks saves it"
_MAX_COMMAND_CHARS: Final = 100_000

CommandText = Annotated[str, Field(min_length=1, max_length=_MAX_COMMAND_CHARS)]
Text = Annotated[str, Field(max_length=4_096)]


class ExecApprovalRequestParams(Params):
    """A command that the client would run itself, and where. `id` names the approval."""

    id: Id | None = None
    command: CommandText
    cwd: Text | None = None
    host: Text | None = None
    security: Text | None = None
    ask: Text | None = None
    agent_id: Name | None = None
    resolved_path: Text | None = None
    session_key: Name | None = None
    timeout_ms: Count = _TIMEOUT_MS
    two_phase: bool = False


@method("exec.approval.request", scope="approvals", params=ExecApprovalRequestParams)
async def request(call: MethodCall, params: ExecApprovalRequestParams) -> Json:
    """Ask people to approve a command; answered with the decision, null after the timeout.

    With `twoPhase`, a first response has the id.
    """
    from homarus.tools.exec.approval import escape_deceptive_chars

    asked: dict[str, Json] = params.model_dump(
        by_alias=True, exclude={"id", "timeout_ms", "two_phase"}
    )
    if params.id and not _is_new_id(params.id):
        raise InvalidRequestError("an id has 8 to 64 letters, digits and -")
    agent = params.agent_id or agent_id_of(params.session_key or "")
    facts = [f"folder: {escape_deceptive_chars(params.cwd)}"] if params.cwd else []
    shown = escape_deceptive_chars(params.command)
    detail = "\n".join([*facts, f"command ({_size(params.command)}):", f"    {shown}"])
    digest = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
    service = call.services.get_approvals()
    record = await service.request_external(
        {**asked, "title": "Run this command?", "detail": detail, "always": _ALWAYS},
        agent=agent,
        session=params.session_key or "",
        requester=describe_caller(call.caller),
        digest=digest,
        record_id=params.id or "",
        timeout_ms=params.timeout_ms,
    )
    if params.two_phase:
        call.accept({"status": "accepted", **_times(record)})
    return show_decision(await service.wait(record.id))


class ExecApprovalIdParams(Params):
    """An approval."""

    id: Id


@method("exec.approval.waitDecision", scope="approvals", params=ExecApprovalIdParams)
async def wait_decision(call: MethodCall, params: ExecApprovalIdParams) -> Json:
    """Wait for the decision of an approval; one that was resolved is answered at once."""
    try:
        return show_decision(await call.services.get_approvals().wait(params.id))
    except ApprovalError as exc:
        raise InvalidRequestError(f"approval expired or not found: {exc.message}") from None


class ExecApprovalResolveParams(Params):
    """An approval and the decision: allow-once, allow-always or deny."""

    id: Id
    decision: Name


@method("exec.approval.resolve", scope="approvals", params=ExecApprovalResolveParams)
async def resolve(call: MethodCall, params: ExecApprovalResolveParams) -> Json:
    """Answer an approval. The first answer counts; a later one is told whose that was."""
    from homarus.agent.approval_ports import ApproverIdentity
    from homarus.policy.approvals import DECISIONS

    decision = next((each for each in DECISIONS if each == params.decision), None)
    if decision is None:
        raise InvalidRequestError(f"invalid decision: use {', '.join(DECISIONS)}")
    by = ApproverIdentity(describe_caller(call.caller))
    await call.services.get_approvals().resolve(params.id, decision, by)
    return {"ok": True}


@method("exec.approval.list", scope="approvals", params=NoParams)
async def list_(call: MethodCall, _params: NoParams) -> Json:
    """The approvals that can be answered now, oldest first."""
    pending = await call.services.get_approvals().list_pending()
    return [show_pending(each) for each in pending if not each.is_question]


class ExecApprovalHistoryParams(Params):
    """How many approvals, and of which session."""

    limit: Annotated[int, Field(ge=1, le=200)] = 50
    session_key: Name | None = None


@method(
    "exec.approval.history", scope="approvals", params=ExecApprovalHistoryParams, advertised=False
)
async def history(call: MethodCall, params: ExecApprovalHistoryParams) -> Json:
    """Return approvals and questions that were answered, expired or cancelled, newest first."""
    found = await call.services.get_approvals().list_resolved(params.limit, params.session_key)
    return {"approvals": [show_resolved(each) for each in found]}


def describe_caller(caller: Caller) -> str:
    """Return how an approval names a client."""
    from homarus.core.text import one_line

    return one_line(caller.display_name or caller.client_id)


def _times(record: "ApprovalRecord") -> dict[str, Json]:
    return {
        "id": record.id,
        "createdAtMs": record.created_ms,
        "expiresAtMs": record.expires_ms,
    }


def _size(command: str) -> str:
    lines = command.count("\n") + 1
    return (
        f"{lines} lines, {len(command)} characters" if lines > 1 else f"{len(command)} characters"
    )


def _is_new_id(approval_id: str) -> bool:
    is_plain = approval_id.isascii() and approval_id.replace("-", "").isalnum()
    return is_plain and 8 <= len(approval_id) <= 64
