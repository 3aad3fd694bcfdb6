"""Pruning: shrink old tool results in what is sent, never in the transcript. Pure.

Done only when the vendor's prompt cache is cold anyway: a prompt that changes in the middle is
charged in full from there on. Pruned results stay pruned, and no others are added until the next
such moment: in between, the prompt only grows at its end.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from homarus.agent.context.tokens import BYTES_PER_TOKEN, message_bytes
from homarus.config.schema import ContextPruningConfig
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Image, Message, Text, ToolResult
from homarus.core.units import parse_duration_ms
from homarus.policy.tool_call import ToolDeclaration
from homarus.policy.tool_policy import find_allow, find_match
from homarus.sessions.transcript import is_injected

# The provider that charges for cache writes: pruning is on by default there.
CACHING = "anthropic"
_CACHING_TTL, _TTL = "1h", "5m"

ResultKey = tuple[str, int]  # call id and time of a result


@dataclass(frozen=True, slots=True)
class PrunedResults:
    """Which results are sent trimmed or cleared."""

    trimmed: frozenset[ResultKey] = frozenset()
    cleared: frozenset[ResultKey] = frozenset()

    def __bool__(self) -> bool:
        return bool(self.trimmed or self.cleared)


NO_CUTS = PrunedResults()


def is_pruned_provider(rules: ContextPruningConfig, provider: str) -> bool:
    """Return whether pruning is on for this provider."""
    return (rules.mode or ("cache-ttl" if provider == CACHING else "off")) == "cache-ttl"


def is_due(rules: ContextPruningConfig, messages: Sequence[Message], now_ms: int) -> bool:
    """Return whether the vendor's cache has expired: the last answer is older than the TTL."""
    ttl_ms = parse_duration_ms(rules.ttl or (_TTL if rules.mode else _CACHING_TTL), "m")
    last = next(
        (m for m in reversed(messages) if m.role == "assistant" and not is_injected(m)), None
    )
    return last is not None and ttl_ms > 0 and now_ms - last.at_ms >= ttl_ms


def prune(
    messages: Sequence[Message],
    rules: ContextPruningConfig,
    window: int,
    before: PrunedResults = NO_CUTS,
) -> PrunedResults:
    """Return the results to prune: those pruned before, and those that are old and large now."""
    old = list(_old(messages, rules))
    window_bytes = window * BYTES_PER_TOKEN
    if not old or window_bytes <= 0:
        return before
    size = sum(message_bytes(apply_pruning(message, before, rules)) for message in messages)
    cuts = before
    if size / window_bytes >= rules.soft_trim_ratio:
        long = (m for m in old if len(_result(m).text) > rules.soft_trim.max_chars)
        cuts = PrunedResults(before.trimmed | {result_key(m) for m in long}, before.cleared)
        size = sum(message_bytes(apply_pruning(message, cuts, rules)) for message in messages)
    if not rules.hard_clear.enabled or size / window_bytes < rules.hard_clear_ratio:
        return cuts
    shown = [(result_key(m), message_bytes(apply_pruning(m, cuts, rules))) for m in old]
    if sum(weight for _, weight in shown) < rules.min_prunable_tool_chars:
        return cuts
    placeholder = len(rules.hard_clear.placeholder)
    cleared = set(cuts.cleared)
    for result, weight in shown:  # the oldest first
        if size / window_bytes < rules.hard_clear_ratio:
            break
        if result not in cleared:
            cleared.add(result)
            size -= max(0, weight - placeholder)
    return PrunedResults(cuts.trimmed, frozenset(cleared))


def apply_pruning(message: Message, cuts: PrunedResults, rules: ContextPruningConfig) -> Message:
    """Return a message as it is sent; the same object when nothing is pruned."""
    if message.role != "tool" or not cuts:
        return message
    result, name = _result(message), result_key(message)
    if name in cuts.cleared:
        text = rules.hard_clear.placeholder
    elif name in cuts.trimmed:
        text = _trimmed(result.text, rules)
    else:
        return message
    return replace(message, parts=(replace(result, content=(Text(text),)),))


def result_key(message: Message) -> ResultKey:
    """Return the key of a result, which is the same however often the transcript is read."""
    return _result(message).call_id, message.at_ms


def _trimmed(text: str, rules: ContextPruningConfig) -> str:
    """Trim a text, with OpenClaw's marker, which readers of transcripts may match."""
    head, tail = rules.soft_trim.head_chars, rules.soft_trim.tail_chars
    if head + tail >= len(text):
        return text
    end = text[len(text) - tail :]
    note = f"kept first {head} chars and last {tail} chars of {len(text)} chars."
    return f"{text[:head]}\n...\n{end}\n\n[Tool result trimmed: {note}]"


def _old(messages: Sequence[Message], rules: ContextPruningConfig) -> Iterator[Message]:
    """Yield results between the first question and the last answers, of prunable tools."""
    start = next((n for n, m in enumerate(messages) if m.role == "user"), len(messages))
    stop = _protected(messages, rules.keep_last_assistants)
    allowed: dict[str, bool] = {}
    for message in messages[start:stop]:
        if message.role != "tool":
            continue
        result = _result(message)
        tool = result.name.lower()
        if tool not in allowed:
            allowed[tool] = _is_prunable(tool, rules)
        if allowed[tool] and not _holds_images(result.content):
            yield message


def _is_prunable(tool: str, rules: ContextPruningConfig) -> bool:
    """Return whether the results of a tool are pruned, by the lists of the config."""
    allow, deny = rules.tools.allow, rules.tools.deny
    if not allow and not deny:
        return True
    from homarus.tools.catalog import find_declaration  # only for configs with such lists

    found = find_declaration(tool) or ToolDeclaration(tool)
    return not find_match(found, deny) and (not allow or bool(find_allow(found, allow)))


def _protected(messages: Sequence[Message], count: int) -> int:
    """Return where the last answers start; 0 when there are fewer of them than are kept."""
    if not count:
        return len(messages)
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].role == "assistant":
            count -= 1
            if not count:
                return at
    return 0


def _holds_images(content: Collection[Text | Image]) -> bool:
    return any(isinstance(part, Image) for part in content)


def _result(message: Message) -> ToolResult:
    return next(part for part in message.parts if isinstance(part, ToolResult))
