"""The `process` tool: the background commands of this conversation."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from homarus.core.errors import ToolError
from homarus.core.message import Json, Text
from homarus.core.text import one_line
from homarus.policy.approvals import ApprovalQuestion
from homarus.policy.taint import command_taint
from homarus.policy.tool_call import ExecEvaluation, TaintSource, ToolCallFacts
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import PreparedCall, Tool, ToolContext, ToolOutput, tool

if TYPE_CHECKING:  # imported by the first command
    from homarus.tools.exec.process_table import CommandJob, ProcessTable

Action: TypeAlias = Literal[
    "list", "poll", "log", "write", "send-keys", "submit", "paste", "kill", "clear", "remove"
]
_INPUT_ACTIONS: Final = frozenset(("write", "send-keys", "submit", "paste"))
DEFAULT_LOG_LINES = 200
MAX_POLL_MS = 120_000
_NAME_CHARS = 60


@tool(group="runtime", name="process", serial=True, timeout_s=180)
async def _process(
    ctx: ToolContext,
    *,
    action: Action,
    session_id: Annotated[str | None, Field(validation_alias="sessionId")] = None,
    data: Annotated[str | None, Field(description="For write")] = None,
    keys: Annotated[list[str] | None, Field(description="Enter, C-c, Up, Escape …")] = None,
    hex_bytes: Annotated[list[str] | None, Field(validation_alias="hex")] = None,
    literal: Annotated[str | None, Field(description="Text for send-keys")] = None,
    text: Annotated[str | None, Field(description="For paste")] = None,
    bracketed: bool | None = None,
    eof: Annotated[bool | None, Field(description="write: close the input")] = None,
    offset: Annotated[int | None, Field(ge=0, description="log: line")] = None,
    limit: Annotated[int | None, Field(ge=1, description="log: lines")] = None,
    timeout_ms: Annotated[
        int | None, Field(validation_alias="timeout", ge=0, description="poll: ms to wait")
    ] = None,
) -> ToolOutput:
    """Manage the commands that exec left in the background."""
    raise ToolError("process is prepared before it is run")


def tools(context: ToolSourceContext) -> Sequence[Tool]:
    """Return the tool."""

    async def prepare(ctx: ToolContext, **args: Any) -> PreparedCall:
        if context.get_processes is None:
            raise ToolError("commands do not go on in the background here")
        return await _prepare(made, ctx, context.get_processes(), args)

    made = replace(_process, prepare=prepare)
    return [made]


async def _prepare(
    made: Tool, ctx: ToolContext, table: "ProcessTable", args: dict[str, Any]
) -> PreparedCall:
    """Find the command, and say what is sent to it: input is as good as a command."""
    owner, action = (ctx.agent, ctx.session_key), args["action"]
    digest = hashlib.sha256(json.dumps(args, sort_keys=True).encode()).hexdigest()
    if action == "list":
        question = ApprovalQuestion("process", "List the running commands?", "", digest)
        return PreparedCall(
            ToolCallFacts(made.declaration), question, partial(_list, table.jobs(owner))
        )
    job_id = (args.get("session_id") or "").strip()
    if not job_id:
        raise ToolError(f"process {action} needs a sessionId", fix="`list` shows them")
    job = table.find(owner, job_id)
    if job is None:
        raise ToolError(f"no session {one_line(job_id, 60)}", fix="`list` shows them")
    if action not in _INPUT_ACTIONS:
        question = ApprovalQuestion("process", f"May the agent {action} {job.id}?", "", digest)
        facts = ToolCallFacts(made.declaration)
        return PreparedCall(facts, question, partial(_act, table, job, action, args))
    from homarus.tools.exec.approval import escape_deceptive_chars

    sent = _encode_input(action, args)
    shown = escape_deceptive_chars(sent.decode("utf-8", "backslashreplace"))
    detail = f"command: {escape_deceptive_chars(one_line(job.command, 500))}\ninput:\n    " + (
        "\n    ".join(shown.split("\n"))
    )
    title = "Send this input to a running command?"
    question = ApprovalQuestion("process", title, detail, digest)
    # What is typed into a command that ran without a question was never seen by a person.
    match = f"session:{job.id}" if job.is_input_approved else ""
    evaluation = ExecEvaluation(
        is_parsed=True,
        matches=(match,),
        reason="it is input for a command that ran unasked",
    )
    facts = ToolCallFacts(
        made.declaration,
        effects=frozenset({"exec"}),
        exec=evaluation,
        sandbox_level=job.sandbox_level,
    )
    is_eof = action == "write" and bool(args.get("eof"))
    return PreparedCall(facts, question, partial(_send, job, action, sent, is_eof))


def _encode_input(action: Action, args: dict[str, Any]) -> bytes:
    from homarus.tools.exec.terminal import encode_hex, encode_keys, encode_paste

    if action == "write":
        sent: str = args.get("data") or ""
        if not sent and not args.get("eof"):
            raise ToolError("process write needs data or eof")
        return sent.encode("utf-8", "surrogateescape")
    if action == "submit":
        return b"\r"
    if action == "paste":
        if not (text := args.get("text") or ""):
            raise ToolError("process paste needs text")
        return encode_paste(text, bracketed=args.get("bracketed") is not False)
    data = encode_keys(args.get("keys") or ()) + encode_hex(args.get("hex_bytes") or ())
    data += (args.get("literal") or "").encode("utf-8", "surrogateescape")
    if not data:
        raise ToolError("process send-keys needs keys, hex or literal")
    return data


async def _send(job: "CommandJob", action: Action, data: bytes, is_eof: bool) -> ToolOutput:  # noqa: FBT001 - by partial
    job.running.write(data, eof=is_eof)
    text = {
        "submit": f"Submitted session {job.id}.",
        "paste": f"Pasted {len(data)} bytes to session {job.id}.",
        "write": f"Wrote {len(data)} bytes to session {job.id}{', input closed' * is_eof}.",
    }.get(action, f"Sent {len(data)} bytes to session {job.id}.")
    return _output(text, _describe(job))


def _output_source(job: "CommandJob") -> TaintSource | None:
    """Return where the output of a command comes from, if it is untrusted."""
    from homarus.tools.exec.result_text import network_taint

    return command_taint(job.command) or network_taint(job.running.accesses)


async def _act(
    table: "ProcessTable", job: "CommandJob", action: Action, args: dict[str, Any]
) -> ToolOutput:
    if action == "poll":
        polled = await _poll(table, job, min(args.get("timeout_ms") or 0, MAX_POLL_MS))
        return replace(polled, untrusted=_output_source(job))
    if action == "log":
        logged = _log(job, args.get("offset"), args.get("limit"))
        return replace(logged, untrusted=_output_source(job))
    if action == "clear":
        if job.result is None:
            raise ToolError(f"session {job.id} still runs", fix="kill or remove ends it")
        table.remove(job)
        return _output(f"Cleared session {job.id}.", {"status": "completed"})
    if action == "kill" and job.result is not None:
        raise ToolError(f"session {job.id} has ended already")
    await table.end(job)
    if action == "kill":
        return _output(f"Killed session {job.id}.", _describe(job))
    table.remove(job)
    return _output(f"Removed session {job.id}.", {"status": "completed"})


async def _list(jobs: "Sequence[CommandJob]") -> ToolOutput:
    lines = [
        f"{job.id} {job.status} {_duration_s(job)} s :: {derive_name(job.command)}" for job in jobs
    ]
    sessions: list[Json] = []
    for job in jobs:
        result = job.result
        row = _describe(job) | {
            "pid": job.running.pid,
            "startedAt": job.started_at_ms,
            "runtimeMs": round(_duration_s(job) * 1000),
            "cwd": job.folder,
            "command": job.command,
            "tail": job.tail,
        }
        if result is not None:
            row |= {"endedAt": job.ended_at_ms}
        sessions.append(row)
    text = "\n".join(lines) or "No running or recent sessions."
    return _output(text, {"status": "completed", "sessions": sessions})


async def _poll(table: "ProcessTable", job: "CommandJob", timeout_ms: int) -> ToolOutput:
    text = (await table.poll(job, timeout_ms / 1000)).rstrip("\n")
    ending = "Process still running."
    details = _describe(job) | {"aggregated": job.running.output}
    if (result := job.result) is not None:
        from homarus.tools.exec.result_text import (
            format_ending,
            format_hosts,
            format_refused_hosts,
        )

        ending = "\n\n".join(filter(None, (format_ending(result), format_refused_hosts(result))))
        if result.accesses:
            details["network"] = format_hosts(result)
    return _output(f"{text or '(no new output)'}\n\n{ending}", details)


def _log(job: "CommandJob", offset: int | None, limit: int | None) -> ToolOutput:
    """Return lines of the output: the last ones without an offset."""
    lines = job.running.output.splitlines()
    if offset is None:
        first = max(0, len(lines) - (limit or DEFAULT_LOG_LINES))
        shown = lines[first:]
    else:
        first = offset
        shown = lines[offset : offset + limit if limit else None]
    hint = ""
    if offset is None and limit is None and first:
        hint = f"\n\n[the last {DEFAULT_LOG_LINES} of {len(lines)} lines; offset and limit page]"
    details = _describe(job) | {
        "totalLines": len(lines),
        "totalChars": job.running.total_chars,
        "truncated": job.running.total_chars > len(job.running.output),
    }
    return _output(("\n".join(shown) or "(no output)") + hint, details)


def derive_name(command: str) -> str:
    """Return a short name of a command: its first words."""
    return one_line(command.strip(), _NAME_CHARS)


def _describe(job: "CommandJob") -> dict[str, Json]:
    details: dict[str, Json] = {
        "status": job.status,
        "sessionId": job.id,
        "name": derive_name(job.command),
    }
    if (result := job.result) is not None:
        details["exitCode"] = result.exit_code
    return details


def _duration_s(job: "CommandJob") -> float:
    result = job.result
    return round(job.running.runtime_s if result is None else result.duration_ms / 1000, 1)


def _output(text: str, details: dict[str, Json]) -> ToolOutput:
    return ToolOutput((Text(text),), details)
