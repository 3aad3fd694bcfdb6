"""The status card: a conversation at a glance, in a few lines."""

from collections.abc import Mapping

from homarus import __version__
from homarus.agent.commands.models import describe
from homarus.agent.commands.orders import Order
from homarus.core.message import Json
from homarus.providers.catalog import Model
from homarus.sessions import queue
from homarus.sessions.send_policy import send_policy
from homarus.sessions.session import Session
from homarus.sessions.transcript import is_injected
from homarus.sessions.usage import fresh_tokens

_MINUTE_MS = 60_000


async def status_card(order: Order) -> str:
    """What answers here, how full its window is, and what is set."""
    session, usual = await order.session(), await order.usual_model()
    data, config = session.record.data, order.config
    rules = queue.resolve(config.messages.queue, channel=order.inbound.address.channel, entry=data)
    waiting = order.program.waiting(order.key)
    running = bool(order.program.live_runs(order.key))
    answered = send_policy(
        config.session.send_policy, order.key, data, channel=order.inbound.address.channel
    )
    now_ms = order.program.clock.now_ms()
    lines = [
        f"🦞 Homarus {__version__}",
        f"Model: {describe(session, usual)}",
        f"Context: {_context(session, await order.model())}",
        *_spent(data),
        f"Session: {order.key} · {_messages(session)} · {_age(session, now_ms)}",
        f"Thinking: {await order.thinking()} · " + " · ".join(_levels(order, data)),
        f"Queue: {queue.describe(rules)}{f' · {waiting} waiting' if waiting else ''}",
        *([f"Workspace: {order.agent.workspace}"] if order.is_owner else []),
        *(["Running: an answer is being made"] if running else []),
        *(["Send: off, the gateway answers nothing here"] if answered == "deny" else []),
        *(_failures(order) if order.is_owner else []),
    ]
    return "\n".join(lines)


def _context(session: Session, model: Model | None) -> str:
    data = session.record.data
    used, window = fresh_tokens(data), _number(data, "contextTokens")
    window = window or (model.window if model else 0)
    size = f"{used:,}" if used is not None else "unknown" if session.is_used else "0"
    share = f" ({100 * used // window}%)" if window and used is not None else ""
    count = _number(data, "compactionCount")
    noted = f" · {count} compaction{'' if count == 1 else 's'}" if count else ""
    return f"{size} of {window:,} tokens{share}{noted}" if window else f"{size} tokens{noted}"


def _spent(data: Mapping[str, Json]) -> list[str]:
    """What the last run took; nothing before there was one."""
    given, made = _number(data, "inputTokens"), _number(data, "outputTokens")
    if not given and not made:
        return []
    read, written = _number(data, "cacheRead"), _number(data, "cacheWrite")
    prompt = given + read + written
    cached = f" · {100 * read // prompt}% of the prompt from a cache" if read and prompt else ""
    return [f"Last run: {prompt:,} tokens in · {made:,} out{cached}"]


def _failures(order: Order) -> list[str]:
    """Hooks that went wrong since the program began."""
    return [
        f"Hook {one.hook} of plugin {one.plugin}: "
        f"{one.count} failure{'' if one.count == 1 else 's'}, last {one.last}"
        for one in order.program.hooks.failures
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


def _levels(order: Order, data: Mapping[str, Json]) -> list[str]:
    usual = {
        "verbose": ("verboseLevel", order.config.agents.defaults.verbose_default),
        "reasoning": ("reasoningLevel", "off"),
        "elevated": ("elevatedLevel", "off"),
        "usage": ("responseUsage", "off"),
    }
    held = {name: data.get(field) for name, (field, _) in usual.items()}
    return [
        f"{name}: {held[name] if isinstance(held[name], str) else level}"
        for name, (_, level) in usual.items()
    ]


def _number(data: Mapping[str, Json], name: str) -> int:
    value = data.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
