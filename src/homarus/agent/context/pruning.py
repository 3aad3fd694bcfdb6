"""Pruning: old tool results made small in what is sent, never in the transcript. Pure.

Done only when the vendor's cache of the conversation is cold anyway: a prompt that changes in the
middle is paid for anew from there on. What was cut stays cut, and nothing else is, until the next
such moment: between two of them the prompt only grows at its end.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from homarus.agent.context.tokens import BYTES_PER_TOKEN, message_bytes
from homarus.config.schema import ContextPruning
from homarus.core.message import Image, Message, Text, ToolReturn
from homarus.core.units import parse_duration_ms
from homarus.core.value import dataclass
from homarus.policy.decide import Rules, decide
from homarus.policy.groups import expand
from homarus.sessions.transcript import is_injected

# The vendor whose cache is paid for: there pruning is on unless it was switched off.
CACHING = "anthropic"
_CACHING_TTL, _TTL = "1h", "5m"

Mark = tuple[str, int]  # a result: its call's id and its time


@dataclass(frozen=True, slots=True)
class Cuts:
    """Which results are sent cut, and how."""

    trimmed: frozenset[Mark] = frozenset()
    cleared: frozenset[Mark] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.trimmed or self.cleared)


NO_CUTS = Cuts()


def applies(rules: ContextPruning, provider: str) -> bool:
    """Whether anything is pruned for this provider."""
    return (rules.mode or ("cache-ttl" if provider == CACHING else "off")) == "cache-ttl"


def is_due(rules: ContextPruning, messages: Sequence[Message], now_ms: int) -> bool:
    """Whether the vendor has forgotten the conversation: its last answer is older than the TTL."""
    ttl_ms = parse_duration_ms(rules.ttl or (_TTL if rules.mode else _CACHING_TTL), "m")
    last = next(
        (m for m in reversed(messages) if m.role == "assistant" and not is_injected(m)), None
    )
    return last is not None and ttl_ms > 0 and now_ms - last.at_ms >= ttl_ms


def prune(
    messages: Sequence[Message], rules: ContextPruning, window: int, before: Cuts = NO_CUTS
) -> Cuts:
    """What to cut from now on: what was cut before, and what is old and large by now."""
    old = list(_old(messages, rules))
    room = window * BYTES_PER_TOKEN
    if not old or room <= 0:
        return before
    size = sum(message_bytes(cut(message, before, rules)) for message in messages)
    cuts = before
    if size / room >= rules.soft_trim_ratio:
        long = (m for m in old if len(_result(m).text) > rules.soft_trim.max_chars)
        cuts = Cuts(before.trimmed | {mark(m) for m in long}, before.cleared)
        size = sum(message_bytes(cut(message, cuts, rules)) for message in messages)
    if not rules.hard_clear.enabled or size / room < rules.hard_clear_ratio:
        return cuts
    shown = [(mark(m), message_bytes(cut(m, cuts, rules))) for m in old]
    if sum(weight for _, weight in shown) < rules.min_prunable_tool_chars:
        return cuts
    placeholder = len(rules.hard_clear.placeholder)
    cleared = set(cuts.cleared)
    for result, weight in shown:  # the oldest first
        if size / room < rules.hard_clear_ratio:
            break
        if result not in cleared:
            cleared.add(result)
            size -= max(0, weight - placeholder)
    return Cuts(cuts.trimmed, frozenset(cleared))


def cut(message: Message, cuts: Cuts, rules: ContextPruning) -> Message:
    """A message as it is sent; the very same object when nothing of it is cut."""
    if message.role != "tool" or not cuts:
        return message
    result, name = _result(message), mark(message)
    if name in cuts.cleared:
        text = rules.hard_clear.placeholder
    elif name in cuts.trimmed:
        text = _trimmed(result.text, rules)
    else:
        return message
    return replace(message, parts=(replace(result, content=(Text(text),)),))


def mark(message: Message) -> Mark:
    """A result's name: the same however often the transcript is read."""
    return _result(message).call_id, message.at_ms


def _trimmed(text: str, rules: ContextPruning) -> str:
    """In the original's words: a transcript's reader may know them."""
    head, tail = rules.soft_trim.head_chars, rules.soft_trim.tail_chars
    if head + tail >= len(text):
        return text
    end = text[len(text) - tail :]
    told = f"kept first {head} chars and last {tail} chars of {len(text)} chars."
    return f"{text[:head]}\n...\n{end}\n\n[Tool result trimmed: {told}]"


def _old(messages: Sequence[Message], rules: ContextPruning) -> Iterator[Message]:
    """Results between the first question and the last answers, of tools that may be cut."""
    start = next((n for n, m in enumerate(messages) if m.role == "user"), len(messages))
    stop = _protected(messages, rules.keep_last_assistants)
    names = Rules(expand(rules.tools.allow), deny=expand(rules.tools.deny))
    allowed: dict[str, bool] = {}
    for message in messages[start:stop]:
        if message.role != "tool":
            continue
        result = _result(message)
        tool = result.name.lower()
        if tool not in allowed:
            allowed[tool] = decide(tool, names).action == "allow"
        if allowed[tool] and not _holds_images(result.content):
            yield message


def _protected(messages: Sequence[Message], kept: int) -> int:
    """Where the last answers begin; with fewer of them than are kept, everything is protected."""
    if not kept:
        return len(messages)
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].role == "assistant":
            kept -= 1
            if not kept:
                return at
    return 0


def _holds_images(content: Collection[Text | Image]) -> bool:
    return any(isinstance(part, Image) for part in content)


def _result(message: Message) -> ToolReturn:
    return next(part for part in message.parts if isinstance(part, ToolReturn))
