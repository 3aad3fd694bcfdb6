"""The status card: model, context, queue and settings of a session in a few lines."""

from collections.abc import Mapping
from dataclasses import replace

from homarus import __version__
from homarus.agent.agent import Agent
from homarus.agent.commands.context import AgentCommandContext
from homarus.agent.commands.exec_settings import (
    EXEC_FIELDS,
    describe_exec,
    resolve_sender_level,
)
from homarus.agent.commands.models import describe_model
from homarus.core.message import Json, Usage
from homarus.policy.sandbox_settings import is_sandboxed, resolve_sandbox
from homarus.providers.catalog import ModelInfo
from homarus.sessions import queue_policy
from homarus.sessions.envelope import header
from homarus.sessions.send_policy import send_policy
from homarus.sessions.session import Session
from homarus.sessions.transcript import is_injected
from homarus.sessions.usage import last_prompt_tokens
from homarus.store.usage import UsageFilter
from homarus.tools.sandbox.sandbox_status import describe_sandbox

_MINUTE_MS = 60_000


async def status_card(context: AgentCommandContext) -> str:
    """Return the text of `/status`."""
    session, default = await context.session(), await context.default_model()
    data, config = session.record.data, context.config
    rules = queue_policy.resolve_queue_settings(
        config.messages.queue, channel=context.inbound.address.channel, entry=data
    )
    waiting = context.control.queue_depth(context.key)
    running = bool(context.control.active_runs(context.key))
    answered = send_policy(
        config.session.send_policy, context.key, data, channel=context.inbound.address.channel
    )
    now_ms = context.services.clock.now_ms()
    lines = [
        f"🦞 Homarus {__version__}",
        _time(context.agent, now_ms),
        f"Model: {describe_model(session, default)}",
        f"Context: {_context(session, await context.model())}",
        *_last_run_tokens(data),
        *await _spent(context),
        f"Session: {context.key} · {_messages(session)} · {_age(session, now_ms)}",
        f"Thinking: {await context.thinking()} · " + " · ".join(_levels(context, data)),
        f"Queue: {queue_policy.format_queue_settings(rules)}"
        + (f" · {waiting} waiting" if waiting else ""),
        *_exec(context, data),
        f"Sandbox: {_sandbox(context)}",
        *([f"Workspace: {context.agent.workspace}"] if context.is_for_owner_alone else []),
        *(["Running: an answer is being made"] if running else []),
        *await _subagents(context),
        *(["Send: off, the gateway answers nothing here"] if answered == "deny" else []),
        *(_failures(context) if context.is_owner else []),
    ]
    return "\n".join(lines)


def _time(agent: Agent, now_ms: int) -> str:
    """Return the line with the time now, in the person's zone and form."""
    options = replace(agent.envelope, zone=agent.envelope.own_zone, timestamp=True)
    time = header("Time:", at_ms=now_ms, rules=options).strip("[]")
    return time if time.endswith(agent.timezone) else f"{time} ({agent.timezone})"


def _context(session: Session, model: ModelInfo | None) -> str:
    data = session.record.data
    used, window = last_prompt_tokens(data), _number(data, "contextTokens")
    window = window or (model.window if model else 0)
    size = f"{used:,}" if used is not None else "unknown" if session.is_used else "0"
    share = f" ({100 * used // window}%)" if window and used is not None else ""
    count = _number(data, "compactionCount")
    compactions = f" · {count} compaction{'' if count == 1 else 's'}" if count else ""
    return (
        f"{size} of {window:,} tokens{share}{compactions}"
        if window
        else f"{size} tokens{compactions}"
    )


def _last_run_tokens(data: Mapping[str, Json]) -> list[str]:
    """Return the line about the last run's tokens; none before there was a run."""
    input_tokens, output_tokens = _number(data, "inputTokens"), _number(data, "outputTokens")
    if not input_tokens and not output_tokens:
        return []
    read, written = _number(data, "cacheRead"), _number(data, "cacheWrite")
    prompt = input_tokens + read + written
    cached = f" · {100 * read // prompt}% of the prompt from a cache" if read and prompt else ""
    return [f"Last run: {prompt:,} tokens in · {output_tokens:,} out{cached}"]


async def _spent(context: AgentCommandContext) -> list[str]:
    """Return the line about all model calls of the session; none before the first."""
    totals = await context.services.store.usage_totals(wanted=UsageFilter(session=context.key))
    total = totals[0].usage if totals else Usage()
    if not total.total:
        return []
    cost = f" · ${total.cost:.4f}" if total.cost else ""
    return [f"Session so far: {total.prompt:,} tokens in · {total.output:,} out{cost}"]


async def _subagents(context: AgentCommandContext) -> list[str]:
    """Return the line about the sub-agents that work for the session; none without any."""
    if not await context.services.store.records("subagent"):
        return []
    from homarus.store.subagents import list_subagents

    store = context.services.store
    active = await list_subagents(store, requester=context.key, active_only=True)
    return [f"Sub-agents: {len(active)} active"] if active else []


def _failures(context: AgentCommandContext) -> list[str]:
    """Return a line for each hook that failed since the program started."""
    return [
        f"Hook {one.hook} of plugin {one.plugin}: "
        f"{one.count} failure{'' if one.count == 1 else 's'}, last {one.last_error}"
        for one in context.services.hooks.failures
    ]


def _messages(session: Session) -> str:
    count = sum(not is_injected(message) for message in session.messages)
    return f"{count} message{'' if count == 1 else 's'}"


def _age(session: Session, now_ms: int) -> str:
    if not session.record.version:
        return "new"
    minutes = max(0, now_ms - session.record.updated_ms) // _MINUTE_MS
    if minutes < 1:
        return "used just now"
    if minutes < 120:
        return f"used {minutes} min ago"
    return f"used {minutes // 60} h ago" if minutes < 2_880 else f"used {minutes // 1440} d ago"


def _levels(context: AgentCommandContext, data: Mapping[str, Json]) -> list[str]:
    defaults = {
        "verbose": ("verboseLevel", context.config.agents.defaults.verbose_default),
        "reasoning": ("reasoningLevel", "off"),
        "usage": ("responseUsage", "off"),
    }
    stored = {name: data.get(field) for name, (field, _) in defaults.items()}
    shown = [
        f"{name}: {stored[name] if isinstance(stored[name], str) else level}"
        for name, (_, level) in defaults.items()
    ]
    return [*shown[:2], f"elevated: {resolve_sender_level(context, data)[0]}", *shown[2:]]


def _exec(context: AgentCommandContext, data: Mapping[str, Json]) -> list[str]:
    """Return the line about the session's commands, for the owner who set something."""
    is_set = any(data.get(name) is not None for name in EXEC_FIELDS)
    return [f"Exec: {describe_exec(context, data)}"] if is_set and context.is_owner else []


def _sandbox(context: AgentCommandContext) -> str:
    """Return the sandbox of the session, as far as it is known without measuring it."""
    config, agent = context.config, context.agent
    has_sandbox = is_sandboxed(config, agent.id, context.key)
    access: str = resolve_sandbox(config, agent.id).access if has_sandbox else ""
    if access == "rw" and not context.is_for_owner_alone:
        access = "ro"
    return describe_sandbox(
        config,
        agent.id,
        is_sandboxed=has_sandbox,
        access=access,
        find_report=context.services.find_sandbox_report,
    )


def _number(data: Mapping[str, Json], name: str) -> int:
    value = data.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
