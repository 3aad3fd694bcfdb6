"""Commands that show or change a setting of one session."""

from collections.abc import Mapping
from typing import Final

from homarus.agent.commands.context import AgentCommandContext
from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.plugins.commands import CommandContext, CommandReply, command
from homarus.sessions import levels, queue_policy
from homarus.sessions.reset import reset_type
from homarus.sessions.session_settings import CHOICES, LEVELS, check_thinking, to_stored_value
from homarus.sessions.transcript import INJECTED
from homarus.sessions.usage import ModelUsage, summarize_usage

_NAMES: Final[Mapping[str, tuple[str, str]]] = {  # command → field of the entry, title
    "think": ("thinkingLevel", "Thinking"),
    "verbose": ("verboseLevel", "Verbose"),
    "reasoning": ("reasoningLevel", "Reasoning"),
    "usage": ("responseUsage", "Usage line"),
}
_SEND: Final[Mapping[str, str | None]] = {"on": "allow", "off": "deny", "inherit": None}


@command("think")
async def think(context: AgentCommandContext) -> CommandReply:
    """`/think LEVEL`."""
    model = await context.model()
    ref = (await context.session()).model or (model.ref if model else "")
    if not context.single_arg:
        provider, _, name = ref.partition("/")
        known = ", ".join(levels.think_labels(provider, name))
        return CommandReply(f"Thinking: {await context.thinking()}. Levels: {known}.")
    field = _read("think", context.single_arg)
    check_thinking(field, ref)
    return _changed("think", field)


@command("verbose")
async def verbose(context: CommandContext) -> CommandReply:
    """`/verbose LEVEL`."""
    return await _level(context, "verbose", context.config.agents.defaults.verbose_default)


@command("reasoning")
async def reasoning(context: CommandContext) -> CommandReply:
    """`/reasoning LEVEL`."""
    return await _level(context, "reasoning", "off")


@command("usage")
async def usage(context: AgentCommandContext) -> CommandReply:
    """`/usage LEVEL`, or `/usage cost`: the cost of this session."""
    if context.single_arg == "cost":
        return CommandReply(await _cost(context))
    return await _level(context, "usage", "off")


@command("send")
async def send(context: CommandContext) -> CommandReply:
    """`/send on|off|inherit`: whether replies are sent to this session."""
    if not context.single_arg:
        stored = (await context.entry()).get("sendPolicy")
        words = {action: word for word, action in _SEND.items()}
        return CommandReply(
            f"Send: {words.get(stored, 'inherit') if isinstance(stored, str) else 'inherit'}."
        )
    if context.single_arg not in _SEND:
        raise UserError(
            f"/send does not understand {one_line(context.args, 40)!r}", fix="on, off or inherit"
        )
    replies = {
        "on": "This conversation is answered.",
        "off": "The gateway answers nothing here any more; /send on takes that back.",
        "inherit": "This conversation is answered as the configuration says.",
    }
    return CommandReply(replies[context.single_arg], {"sendPolicy": _SEND[context.single_arg]})


@command("activation")
async def activation(context: CommandContext) -> CommandReply:
    """`/activation mention|always`: which messages of a group are answered."""
    entry = await context.entry()
    kind = entry.get("chatType")
    if reset_type(context.key, is_group=kind in ("group", "channel")) == "direct":
        raise UserError("/activation is for groups; here every message is answered")
    if not context.single_arg:
        stored = entry.get("groupActivation")
        shown = stored if isinstance(stored, str) else "as configured"
        return CommandReply(f"Activation: {shown}.")
    if context.single_arg not in CHOICES["groupActivation"]:
        fix = "mention (answer when named) or always"
        raise UserError(f"/activation does not understand {one_line(context.args, 40)!r}", fix=fix)
    fields: dict[str, Json] = {
        "groupActivation": context.single_arg,
        "groupActivationNeedsSystemIntro": True,
    }
    return CommandReply(f"Activation: {context.single_arg}.", fields)


@command("queue")
async def set_queue(context: CommandContext) -> CommandReply:
    """`/queue MODE debounce: cap: drop:`."""
    text, fields = queue_policy.apply_queue_command(
        context.config.messages.queue,
        await context.entry(),
        queue_policy.parse_queue_args(context.args),
        channel=context.inbound.address.channel,
    )
    return CommandReply(text, fields)


async def _level(context: CommandContext, name: str, default: str) -> CommandReply:
    if context.single_arg:
        return _changed(name, _read(name, context.single_arg))
    field, title = _NAMES[name]
    stored = (await context.entry()).get(field)
    level = stored if isinstance(stored, str) else default
    return CommandReply(f"{title}: {level}. Levels: {LEVELS[field][1]}.")


def _read(name: str, word: str) -> str | None:
    field = _NAMES[name][0]
    try:
        found = to_stored_value(field, word)
    except UserError:
        message = f"/{name} does not understand {one_line(word, 40)!r}"
        raise UserError(message, fix=f"use {LEVELS[field][1]}") from None
    return found if isinstance(found, str) else None


def _changed(name: str, level: str | None) -> CommandReply:
    field, title = _NAMES[name]
    return CommandReply(f"{title}: {level or 'off'}.", {field: level})


async def _cost(context: AgentCommandContext) -> str:
    session = await context.session()
    entries = await context.services.store.entries(session.session_id) if session.leaf else ()
    spent = ModelUsage()
    for (provider, name), each in summarize_usage(entries, lambda _at_ms: "").totals.models.items():
        if (provider, name) != (INJECTED.provider, INJECTED.model):
            spent.add(each)
    used = spent.usage
    summary = (
        f"This conversation: {spent.answers} answers, {used.prompt:,} tokens in"
        f" ({used.cache_read:,} of them from a cache), {used.output:,} out, ${used.cost:.4f}"
    )
    return (
        f"{summary}. {spent.unpriced} answers came without a price."
        if spent.unpriced
        else f"{summary}."
    )
