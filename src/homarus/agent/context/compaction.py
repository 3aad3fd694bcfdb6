"""Compaction: summarise the old part of a session; the rest stays as it is.

    budget = token_budget(rules, rendered)
    if is_due(rendered, budget):
        result = await compact_messages(context_messages(path), budget=budget, summarise=call)
        await session.append(result.to_entry())

It is planned first: where to cut so that the rest fits and is at least a fifth smaller. When there
is no such place, no model is called and the user gets an error. No request is larger than the
context window: a long history is summarised piece by piece, and the summaries are merged. A model
that fails is not called again; the summary is then made without it. Nothing is deleted: the summary
is one more entry of the transcript, and the entries it replaces stay readable.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from homarus.agent.context.render import RenderedContext, max_result_chars
from homarus.agent.context.sanitize import is_single_result, truncate_result
from homarus.agent.context.tokens import BYTES_PER_TOKEN, message_tokens, tokens_in
from homarus.config import schema
from homarus.core.errors import ContextOverflowError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, Message
from homarus.sessions import transcript
from homarus.sessions.transcript import NewEntry, TranscriptMessage, is_injected, summary_in

if TYPE_CHECKING:  # imported when a summary is made
    from homarus.agent.context.summarizer import Summarise

MAX_PER_TURN = 3
SHRUNK = 0.8  # of the tokens before: a compaction that leaves more does not help
_MAX_SUMMARY_TOKENS, _MIN_SUMMARY_TOKENS = 6_000, 100
_FRAME_TOKENS = 40  # of the summary's message, around the summary


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """How the context window is shared out, in tokens. `scale` turns estimates into counts."""

    window: int
    reserve: int  # for the answer
    keep: int  # of the newest messages, unchanged
    fixed: int  # the system prompt and the tools
    scale: float = 1.2

    @property
    def usable(self) -> int:
        """The maximum of a request."""
        return self.window - self.reserve

    @property
    def summary(self) -> int:
        """The maximum of a summary."""
        return min(_MAX_SUMMARY_TOKENS, self.window // 8)


def token_budget(rules: schema.CompactionConfig, rendered: RenderedContext) -> TokenBudget:
    """Return the token budget of a rendering."""
    window = rendered.params.window
    scale = rendered.tokens / max(rendered.estimate, 1)
    fixed = round(rendered.params.fixed * scale)
    reserve = min(max(rules.reserve_tokens, rules.reserve_tokens_floor), window // 3)
    free = max(window - reserve - fixed, 0)
    keep = min(rules.keep_recent_tokens, int(free * rules.max_history_share))
    return TokenBudget(window, reserve, keep, fixed, scale)


def is_due(rendered: RenderedContext, budget: TokenBudget) -> bool:
    """Return whether the next request would leave too little for its answer."""
    return rendered.tokens > budget.usable


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """Where to cut, and the resulting tokens."""

    first_kept: int
    before: int
    kept: int
    summary: int  # at most


def plan_compaction(
    entries: Sequence[TranscriptMessage], budget: TokenBudget, *, is_requested: bool = False
) -> CompactionPlan | None:
    """Return the cut that keeps the most recent messages; None when no cut helps.

    `is_requested`: a person requested it, and the session may be short.
    """
    weights = _weights(entries, budget)
    before = sum(weights)
    keep = min(budget.keep, before // 4) if is_requested else budget.keep
    while True:
        cut = _cut(entries, weights, keep)
        removed = sum(weights[:cut])
        kept = before - removed
        summary = max(min(budget.summary, removed // 2), _MIN_SUMMARY_TOKENS)
        fits = is_requested or budget.fixed + kept + summary <= budget.usable
        if cut > _first_replaceable(entries) and fits and kept + summary <= before * SHRUNK:
            return CompactionPlan(cut, before, kept, summary)
        if not keep:
            return None
        keep //= 2


def _weights(entries: Sequence[TranscriptMessage], budget: TokenBudget) -> list[int]:
    """Return the tokens of each message as it is sent, with truncated results."""
    weights: list[int] = []
    calls = 1
    for message in (entry.message for entry in entries):
        calls = len(message.calls) or calls
        shown = message
        if message.role == "tool" and is_single_result(message):
            shown = truncate_result(message, max_result_chars(budget.window, calls))
        weights.append(round(message_tokens(shown) * budget.scale))
    return weights


def _first_replaceable(entries: Sequence[TranscriptMessage]) -> int:
    """Return the first line that a new summary can replace: an old summary alone is not enough."""
    return 1 if entries and summary_in(entries[0].message) else 0


def _cut(entries: Sequence[TranscriptMessage], weights: Sequence[int], keep: int) -> int:
    """Return the first line to keep: the start of a turn if possible, never a tool result."""
    edge, kept = len(entries), 0
    while edge and kept + weights[edge - 1] <= keep:
        edge -= 1
        kept += weights[edge]
    openers = [at for at, entry in enumerate(entries) if _can_start(entry.message)]
    after = [at for at in openers if at >= edge]
    questions = [at for at in after if entries[at].message.role == "user"]
    if questions and sum(weights[questions[0] :]) * 2 >= kept:
        return questions[0]
    return after[0] if after else openers[-1] if openers else 0


def _can_start(message: Message) -> bool:
    return message.role != "tool" and not is_injected(message)


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """The result of a compaction. Tokens are those of the full request, before and after."""

    summary: str
    first_kept: str  # the id of an entry
    tokens_before: int
    tokens_after: int
    by_model: bool  # False: the model failed, and the summary was made without it
    details: Mapping[str, Json]

    def to_entry(self) -> NewEntry:
        """Return the transcript entry of the compaction."""
        return transcript.compaction(
            self.summary, self.first_kept, self.tokens_before, self.details
        )

    def fields(self, data: Mapping[str, Json]) -> dict[str, Json]:
        """Return the changes of the session's entry."""
        return {
            "compactionCount": compactions(data) + 1,
            "totalTokens": self.tokens_after,
            "totalTokensFresh": True,
        }


def compactions(data: Mapping[str, Json]) -> int:
    """Return how often a session was compacted."""
    count = data.get("compactionCount")
    return count if isinstance(count, int) else 0


async def compact_messages(
    entries: Sequence[TranscriptMessage],
    *,
    budget: TokenBudget,
    summarise: "Summarise",
    instructions: str = "",
    is_requested: bool = False,
    is_safeguarded: bool = True,
) -> CompactionResult:
    """Summarise the old turns.

    `is_safeguarded` is `compaction.mode` `safeguard`: in pieces that surely fit a request, with
    what must not be lost added to what the model wrote. Else one request makes the summary.
    Raises ContextOverflowError when that cannot help, and UserError when it is not needed.
    """
    from homarus.agent.context import summary_text
    from homarus.agent.context.summarizer import Summarizer

    plan = plan_compaction(entries, budget, is_requested=is_requested)
    if plan is None:
        raise _not_compactable_error(entries, budget, is_requested=is_requested)
    before = summary_in(entries[0].message)
    messages = [entry.message for entry in entries[_first_replaceable(entries) : plan.first_kept]]
    summarizer = Summarizer(
        summarise,
        window=budget.window,
        tokens=plan.summary,
        scale=budget.scale,
        focus=instructions,
        is_staged=is_safeguarded,
    )
    notes = await summarizer.summarize(messages, before)
    summary = summary_text.compose_summary(
        notes,
        messages,
        before=before,
        open_question=_split_question(entries, plan.first_kept),
        max_bytes=int((plan.summary - _FRAME_TOKENS) * BYTES_PER_TOKEN / budget.scale),
        has_lists=is_safeguarded,
    )
    files = summary_text.files_in(messages)
    after = budget.fixed + plan.kept + round((tokens_in(summary) + _FRAME_TOKENS) * budget.scale)
    return CompactionResult(
        summary,
        entries[plan.first_kept].id,
        budget.fixed + plan.before,
        after,
        not summarizer.failed,
        {"readFiles": list(files.read), "modifiedFiles": list(files.changed)},
    )


def _split_question(entries: Sequence[TranscriptMessage], cut: int) -> str:
    """Return the question whose answer is cut in two: the summary must keep it."""
    if entries[cut].message.role == "user":
        return ""
    before = (entry.message for entry in reversed(entries[:cut]))
    question = next((m for m in before if m.role == "user" and not summary_in(m)), None)
    return question.text if question else ""


def _not_compactable_error(
    entries: Sequence[TranscriptMessage], budget: TokenBudget, *, is_requested: bool
) -> UserError | ContextOverflowError:
    if is_requested:
        return UserError("there is nothing to summarise yet")
    longest = max(_weights(entries, budget), default=0)
    return ContextOverflowError(
        f"the conversation does not fit the model's window of {budget.window:,} tokens, and "
        f"summarising it would not help: one message alone counts about {longest:,}",
        fix="send less at once, choose a model with a larger window, or start over with /new",
    )
