"""Execute one tool call of a model and return a ToolResult.

Look up the tool, parse the arguments, prepare the call, decide, ask for approval, run, cut to size.
Every failure on the way becomes a ToolResult, so that the model can correct its call. Only
cancellation and suspension pass through.
"""

import asyncio
import hashlib
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from homarus.config.redaction import mask_known_secrets
from homarus.core.errors import (
    HomarusError,
    LeaseLostError,
    RunSuspendedError,
    ToolDeniedError,
    ToolError,
    ToolTimeoutError,
)
from homarus.core.message import Image, Json, Text, ToolCall, ToolResult
from homarus.core.text import (
    clip_middle,
    escape_invisible,
    one_line,
    repair_surrogates,
)
from homarus.policy.approvals import ApprovalQuestion
from homarus.policy.taint import output_source
from homarus.policy.tool_call import TaintSource, ToolCallFacts, ToolDecision
from homarus.tools.registry import ToolRegistry
from homarus.tools.tool import PreparedCall, Tool, ToolContext, ToolOutput, check_decision

log = logging.getLogger(__name__)

MAX_CHARS = 30_000
MAX_IMAGES = 20
MAX_IMAGE_CHARS = 7_000_000  # base64 of five megabytes

DecideCall: TypeAlias = Callable[[ToolCallFacts], Awaitable[ToolDecision]]
OnCallStart: TypeAlias = Callable[[Tool], Awaitable[None]]  # called right before a tool runs
OnFault: TypeAlias = Callable[[Exception], None]  # called with a bug of the tool


async def _at_once(_tool: Tool) -> None:
    """Accept the start of a call without recording it."""


async def execute_tool_call(
    registry: ToolRegistry,
    ctx: ToolContext,
    call: ToolCall,
    judge: DecideCall,
    *,
    begin: OnCallStart = _at_once,
    max_chars: int = MAX_CHARS,
    on_fault: OnFault = lambda _exc: None,
) -> ToolResult:
    """Execute the call or return the reason why not.

    `judge` sees the tool's own declaration, whatever name the model used.
    """
    try:
        result = await _answer(registry, ctx, call, judge, begin)
        content = tuple(_bounded(result, max_chars))
        details = _plain(call, result.details)
        if source := result.untrusted:
            content = tuple(_wrapped(part, source) for part in content)
            mark: Json = {"kind": source.kind, "origin": source.origin}
            details = {**(details or {}), "untrusted": [mark]}
        return ToolResult(call.id, call.name, content, result.is_error, details)
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # This run was not cancelled: something that the tool awaited was.
        log.exception("tool %s was cut off", one_line(call.name))
        return _failed(call, f"{one_line(call.name)} was cut off before it was done")
    except (LeaseLostError, RunSuspendedError):  # another run takes over
        raise
    except HomarusError as exc:
        log.info("tool %s: %s", one_line(call.name), one_line(str(exc), 300))
        return _failed(call, clip_middle(str(exc), max_chars))
    except Exception as exc:
        log.exception("tool %s failed", one_line(call.name))
        on_fault(exc)
        told = f"{type(exc).__name__}: {one_line(str(exc), 200)}"
        return _failed(call, f"{one_line(call.name)} failed by a fault of its own: {told}")


async def _answer(
    registry: ToolRegistry, ctx: ToolContext, call: ToolCall, judge: DecideCall, begin: OnCallStart
) -> ToolOutput:
    tool = registry.find_called(call.name)
    if tool.name not in registry:  # it was not offered: nothing of it is used, only its rules
        verdict = await judge(ToolCallFacts(tool.declaration, call.args))
        if verdict.action == "deny":
            raise ToolDeniedError(verdict.reason)
    if call.broken:
        raise ToolError(
            f"{tool.name}: the arguments are not a JSON object: {one_line(call.broken, 200)}",
            fix="call again with one JSON object",
        )
    values = tool.parse(call.args)
    prepared = await prepare_call(tool, ctx, call, values)
    try:
        verdict = await judge(prepared.facts)
        await check_decision(replace(ctx, call_id=call.id), prepared, verdict)
        await begin(tool)
        return await _run_marked(tool, prepared)
    finally:
        prepared.close()


async def _run_marked(tool: Tool, prepared: PreparedCall) -> ToolOutput:
    """Run the call; what others write of its output or error has its source."""
    source = output_source(prepared.facts)
    if source is None and tool.output == "untrusted":
        source = TaintSource(tool.group, tool.name)
    try:
        result = await _run(tool, prepared)
    except (LeaseLostError, RunSuspendedError):
        raise
    except HomarusError as exc:
        if source is None:
            raise
        return ToolOutput((Text(str(exc)),), is_error=True, untrusted=source)
    output = ToolOutput((Text(result),)) if isinstance(result, str) else result
    return replace(output, untrusted=output.untrusted or source) if source else output


async def prepare_call(
    tool: Tool, ctx: ToolContext, call: ToolCall, values: Mapping[str, Any]
) -> PreparedCall:
    """Return what is decided on and then run: by the tool itself, or its arguments."""
    if tool.prepare:
        prepared = await tool.prepare(ctx, **values)
        facts = prepared.facts if prepared.facts.args else replace(prepared.facts, args=call.args)
        return replace(prepared, facts=facts)
    args = json.dumps(dict(call.args), ensure_ascii=False, indent=2, sort_keys=True)
    digest = hashlib.sha256(f"{tool.name}\n{args}".encode("utf-8", "surrogatepass")).hexdigest()
    title = f"May the agent use {tool.name}?"
    question = ApprovalQuestion(tool.name, title, escape_invisible(args), digest)
    effects = await tool.find_effects(ctx, **values) if tool.find_effects else tool.effects
    facts = ToolCallFacts(tool.declaration, call.args, effects)
    return PreparedCall(facts, question, partial(tool.run, ctx, **values))


async def _run(tool: Tool, prepared: PreparedCall) -> str | ToolOutput:
    try:
        async with asyncio.timeout(tool.timeout_s) as deadline:
            return await prepared.run()
    except TimeoutError as exc:
        if not deadline.expired():
            raise
        raise ToolTimeoutError(f"{tool.name} was not done after {tool.timeout_s:g} s") from exc
    except ExceptionGroup as exc:
        # One plain reason inside a task group is that reason.
        if len(exc.exceptions) == 1 and isinstance(exc.exceptions[0], HomarusError):
            raise exc.exceptions[0] from exc
        raise


def _wrapped(part: Text | Image, source: TaintSource) -> Text | Image:
    from homarus.core.untrusted import wrap_untrusted  # only for what others wrote

    return (
        Text(wrap_untrusted(part.text, source.kind, source.origin))
        if isinstance(part, Text)
        else part
    )


def _failed(call: ToolCall, text: str) -> ToolResult:
    content = (Text(mask_known_secrets(repair_surrogates(text))),)
    return ToolResult(call.id, call.name, content, is_error=True)


def _bounded(result: ToolOutput, max_chars: int) -> Iterator[Text | Image]:
    """Return the content within its limits, with a remark where something was left out."""
    parts = [part for part in result.content if not isinstance(part, Text) or part.text]
    if not parts:
        yield Text("(no output)")
    left, images = max_chars, 0
    for part in parts:
        if isinstance(part, Text):
            # Masked before it is cut, so that no part of a secret remains.
            fits = (
                clip_middle(mask_known_secrets(part.text), left)
                if left > 0
                else "[… more text left out …]"
            )
            yield Text(repair_surrogates(fits))
            left -= len(part.text)
        elif len(part.data) > MAX_IMAGE_CHARS or images == MAX_IMAGES:
            yield Text(f"[an image ({part.mime}, {len(part.data)} characters) was left out]")
        else:
            images += 1
            yield part


def _plain(call: ToolCall, details: Mapping[str, Json] | None) -> Mapping[str, Json] | None:
    """Return details that can be stored; others are dropped and logged."""
    try:
        json.dumps(details, ensure_ascii=False, allow_nan=False).encode()
    except (TypeError, ValueError, RecursionError):
        log.exception("tool %s gave details that are not JSON", one_line(call.name))
        return None
    return None if details is None else {name: _masked(each) for name, each in details.items()}


def _masked(value: Json) -> Json:
    """Mask the texts of a value one by one: JSON would escape the quotes within a secret."""
    if isinstance(value, str):
        return mask_known_secrets(value)
    if isinstance(value, Mapping):
        return {mask_known_secrets(str(name)): _masked(each) for name, each in value.items()}
    return [_masked(each) for each in value] if isinstance(value, list | tuple) else value
