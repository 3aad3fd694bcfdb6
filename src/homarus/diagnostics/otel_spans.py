"""Convert traces of runs to OpenTelemetry spans, with the attributes of generative AI.

The ids of a span follow from the run: an attempt to deliver a reply, perhaps in a later process,
is a span of the same trace. No text of a person, a model or a tool is in a span.
"""

from collections.abc import Iterator, Mapping
from hashlib import sha256
from typing import Final

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from homarus import __version__
from homarus.core.diagnostics import DeliveryAttempted, RunTraced
from homarus.core.message import Json

SCOPE: Final = InstrumentationScope("homarus", __version__)
_MS: Final = 1_000_000  # nanoseconds
_OPEN: Final = ("suspended", "cancelled")


def is_sampled(run: str, rate: float) -> bool:
    """Return whether a run is exported; the same for everything of the run."""
    return _trace_id(run) & ((1 << 64) - 1) < round(rate * (1 << 64))


def make_run_spans(event: RunTraced, resource: Resource) -> Iterator[ReadableSpan]:
    """Yield the span of a run and those of its model and tool calls."""
    data = event.data
    times: Mapping[str, int] = data.get("times", {})
    started = times.get("submitted", times.get("started", 0))
    ended = times.get("settled", max((*times.values(), started)))
    attempt = str(times.get("started", 0))
    root = _root(event.run)
    totals = data.get("totals", {})
    provider, _, model = str(data.get("model", "")).partition("/")
    # The attempt that settles the run is its span; those before it are below that.
    is_last = event.outcome not in _OPEN
    own = root if is_last else _context(event.run, f"attempt:{attempt}")
    yield _span(
        f"invoke_agent {data.get('agent', '')}".strip(),
        (own, None if is_last else root),
        resource,
        (started, ended),
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.id": data.get("agent"),
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": model,
            "gen_ai.conversation.id": event.session_key,
            "gen_ai.usage.input_tokens": totals.get("input"),
            "gen_ai.usage.output_tokens": totals.get("output"),
            "homarus.run.id": event.run,
            "homarus.run.outcome": event.outcome,
            "homarus.channel": event.channel,
            "homarus.lane": data.get("lane"),
            "homarus.queue.mode": data.get("mode"),
            "homarus.cost_usd": totals.get("cost"),
        },
        error=event.outcome == "failed",
    )
    for number, step in enumerate(data.get("steps", ())):
        context = _context(event.run, f"step:{attempt}:{number}")
        if step["kind"] == "model":
            yield _model_span(step, context, own, resource)
        elif step["kind"] == "tool":
            yield _tool_span(step, context, own, resource)


def make_delivery_span(event: DeliveryAttempted, resource: Resource) -> ReadableSpan:
    """Return the span of an attempt to send a part of a reply."""
    return _span(
        f"send {event.channel}",
        (
            _context(event.run, f"send:{event.record_id}:{event.started_ms}"),
            _root(event.run),
        ),
        resource,
        (event.started_ms, event.ended_ms),
        {
            "messaging.operation.name": "send",
            "messaging.system": event.channel,
            "homarus.run.id": event.run,
            "homarus.delivery.state": event.state,
        },
        kind=SpanKind.PRODUCER,
        error=event.state != "sent",
    )


def _model_span(
    step: Mapping[str, Json], context: SpanContext, parent: SpanContext, resource: Resource
) -> ReadableSpan:
    ttfb_ms = step.get("ttfbMs")
    return _span(
        f"chat {step['model']}",
        (context, parent),
        resource,
        (step["at"], step["at"] + (step["ms"] or 0)),
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": step["provider"],
            "gen_ai.request.model": step["model"],
            "gen_ai.usage.input_tokens": step["input"] + step["cacheRead"] + step["cacheWrite"],
            "gen_ai.usage.output_tokens": step["output"],
            "gen_ai.usage.cache_read.input_tokens": step["cacheRead"],
            "gen_ai.usage.cache_creation.input_tokens": step["cacheWrite"],
            "gen_ai.response.time_to_first_chunk": None if ttfb_ms is None else ttfb_ms / 1000,
            "homarus.attempt": step["attempt"],
            "homarus.cost_usd": step["cost"],
        },
        kind=SpanKind.CLIENT,
        error=bool(step["error"]),
    )


def _tool_span(
    step: Mapping[str, Json], context: SpanContext, parent: SpanContext, resource: Resource
) -> ReadableSpan:
    return _span(
        f"execute_tool {step.get('name', '')}".strip(),
        (context, parent),
        resource,
        (step["at"], step["at"] + (step["ms"] or 0)),
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": step.get("name"),
            "gen_ai.tool.call.id": step["call"],
            "homarus.tool.decision": step.get("decision"),
            "homarus.tool.approval_ms": step.get("approvalMs"),
            "homarus.tool.result_chars": step.get("chars"),
        },
        error=step.get("outcome") == "error",
    )


def _span(
    name: str,
    contexts: tuple[SpanContext, SpanContext | None],
    resource: Resource,
    times_ms: tuple[int, int],
    attributes: Mapping[str, Json],
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    error: bool = False,
) -> ReadableSpan:
    (start_ms, end_ms), (context, parent) = times_ms, contexts
    return ReadableSpan(
        name,
        context,
        parent,
        resource,
        {key: value for key, value in attributes.items() if value not in (None, "")},
        kind=kind,
        status=Status(StatusCode.ERROR if error else StatusCode.UNSET),
        start_time=start_ms * _MS,
        end_time=max(start_ms, end_ms) * _MS,
        instrumentation_scope=SCOPE,
    )


def _trace_id(run: str) -> int:
    return int.from_bytes(sha256(f"run {run}".encode("utf-8", "replace")).digest()[:16]) or 1


def _context(run: str, part: str) -> SpanContext:
    span_id = int.from_bytes(sha256(f"{run} {part}".encode("utf-8", "replace")).digest()[:8]) or 1
    return SpanContext(_trace_id(run), span_id, is_remote=False, trace_flags=TraceFlags(1))


def _root(run: str) -> SpanContext:
    return _context(run, "root")
