"""Commands that change how one conversation is answered: each says what holds, and changes it."""

from collections.abc import Mapping
from typing import Final

from homarus.agent.commands.orders import Order, Reply
from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.sessions import levels, queue
from homarus.sessions.reset import reset_type
from homarus.sessions.settings import CHOICES, LEVELS, check_thinking, to_field
from homarus.sessions.transcript import INJECTED
from homarus.sessions.usage import Spent, summarise

_NAMES: Final[Mapping[str, tuple[str, str]]] = {  # command → its field, and what it is called
    "think": ("thinkingLevel", "Thinking"),
    "verbose": ("verboseLevel", "Verbose"),
    "reasoning": ("reasoningLevel", "Reasoning"),
    "elevated": ("elevatedLevel", "Elevated"),
    "usage": ("responseUsage", "Usage line"),
}
_SEND: Final[Mapping[str, str | None]] = {"on": "allow", "off": "deny", "inherit": None}
_UNBOUND = " Commands do not run in a sandbox yet: each one is asked about, whatever this says."


async def think(order: Order) -> Reply:
    """`/think LEVEL`."""
    model = await order.model()
    ref = (await order.session()).model or (model.ref if model else "")
    if not order.word:
        provider, _, name = ref.partition("/")
        known = ", ".join(levels.think_labels(provider, name))
        return Reply(f"Thinking: {await order.thinking()}. Levels: {known}.")
    field = _read("think", order.word)
    check_thinking(field, ref)
    return _changed("think", field)


async def verbose(order: Order) -> Reply:
    """`/verbose LEVEL`."""
    return await _level(order, "verbose", order.config.agents.defaults.verbose_default)


async def reasoning(order: Order) -> Reply:
    """`/reasoning LEVEL`."""
    return await _level(order, "reasoning", "off")


async def elevated(order: Order) -> Reply:
    """`/elevated LEVEL`."""
    reply = await _level(order, "elevated", "off")
    return Reply(reply.text + _UNBOUND, reply.fields)


async def usage(order: Order) -> Reply:
    """`/usage LEVEL`, or `/usage cost`: what this conversation has cost."""
    if order.word == "cost":
        return Reply(await _cost(order))
    return await _level(order, "usage", "off")


async def send(order: Order) -> Reply:
    """`/send on|off|inherit`: whether this conversation is answered."""
    if not order.word:
        held = (await order.session()).record.data.get("sendPolicy")
        words = {action: word for word, action in _SEND.items()}
        return Reply(f"Send: {words.get(held, 'inherit') if isinstance(held, str) else 'inherit'}.")
    if order.word not in _SEND:
        raise UserError(
            f"/send does not understand {one_line(order.args, 40)!r}", fix="on, off or inherit"
        )
    told = {
        "on": "This conversation is answered.",
        "off": "The gateway answers nothing here any more; /send on takes that back.",
        "inherit": "This conversation is answered as the configuration says.",
    }
    return Reply(told[order.word], {"sendPolicy": _SEND[order.word]})


async def activation(order: Order) -> Reply:
    """`/activation mention|always`: when a group is answered."""
    session = await order.session()
    kind = session.record.data.get("chatType")
    if reset_type(order.key, chat_type=kind if isinstance(kind, str) else "") == "direct":
        raise UserError("/activation is for groups; here every message is answered")
    if not order.word:
        held = session.record.data.get("groupActivation")
        return Reply(f"Activation: {held if isinstance(held, str) else 'as configured'}.")
    if order.word not in CHOICES["groupActivation"]:
        fix = "mention (answer when named) or always"
        raise UserError(f"/activation does not understand {one_line(order.args, 40)!r}", fix=fix)
    fields: dict[str, Json] = {
        "groupActivation": order.word,
        "groupActivationNeedsSystemIntro": True,
    }
    return Reply(f"Activation: {order.word}.", fields)


async def set_queue(order: Order) -> Reply:
    """`/queue MODE debounce: cap: drop:`."""
    session = await order.session()
    text, fields = queue.answer(
        order.config.messages.queue,
        session.record.data,
        queue.read_args(order.args),
        channel=order.inbound.address.channel,
    )
    return Reply(text, fields)


async def _level(order: Order, name: str, usual: str) -> Reply:
    if order.word:
        return _changed(name, _read(name, order.word))
    field, title = _NAMES[name]
    held = (await order.session()).record.data.get(field)
    return Reply(
        f"{title}: {held if isinstance(held, str) else usual}. Levels: {LEVELS[field][1]}."
    )


def _read(name: str, word: str) -> str | None:
    field = _NAMES[name][0]
    try:
        found = to_field(field, word)
    except UserError:
        told = f"/{name} does not understand {one_line(word, 40)!r}"
        raise UserError(told, fix=f"use {LEVELS[field][1]}") from None
    return found if isinstance(found, str) else None


def _changed(name: str, level: str | None) -> Reply:
    field, title = _NAMES[name]
    return Reply(f"{title}: {level or 'off'}.", {field: level})


async def _cost(order: Order) -> str:
    session = await order.session()
    entries = await order.program.store.entries(session.session_id) if session.leaf else ()
    spent = Spent()
    for (provider, name), each in summarise(entries, lambda _at_ms: "").whole.models.items():
        if (provider, name) != (INJECTED.provider, INJECTED.model):
            spent.add(each)
    used = spent.usage
    told = (
        f"This conversation: {spent.answers} answers, {used.prompt:,} tokens in"
        f" ({used.cache_read:,} of them from a cache), {used.output:,} out, ${used.cost:.4f}"
    )
    return (
        f"{told}. {spent.unpriced} answers came without a price." if spent.unpriced else f"{told}."
    )
