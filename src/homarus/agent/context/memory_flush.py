"""The memory flush: before a compaction, the agent saves notes of what should be remembered.

It is a hidden turn: the model gets `prompt`, may use its tools, and answers with the silent word.
It runs once between two compactions. Pure.
"""

from collections.abc import Mapping
from typing import Final

from homarus.agent.context.compaction import TokenBudget, compactions
from homarus.config.schema import CompactionConfig
from homarus.core.message import Json
from homarus.core.silent_reply import SILENT_WORD
from homarus.sessions.usage import last_prompt_tokens

TOOL: Final = "memory_write"
_DATE, _FOLDER, _SESSION = "YYYY-MM-DD", "{folder}", "{session}"
_BY_HAND = (
    f"Append what is not written down yet to {_FOLDER}/{_DATE}.md, under the heading "
    f"`## Session: {_SESSION}`, in short lines that make sense by themselves; make the folder and "
    f"the file when they are missing, and change nothing that stands there."
)
_BY_TOOL = (
    f"Write it down with {TOOL}, in short lines that make sense by themselves, without a path: it "
    f"goes to the note of {_DATE}, and what stands there already is not added again."
)
_PROMPT = (
    "Parts of this conversation will soon be replaced by a summary. Look through it for what "
    "should outlast that: facts about the person, decisions, promises, plans, where work stands. "
    "{how} Do no other work and write to nobody. "
    f"Then answer {SILENT_WORD}; answer it at once when there is nothing to add."
)
_SYSTEM = (
    f"This turn is for your notes only: the person does not see it. Your answer must be "
    f"{SILENT_WORD} and nothing else."
)


def is_due(
    rules: CompactionConfig, data: Mapping[str, Json], budget: TokenBudget, tokens: int
) -> bool:
    """Return whether a compaction is near and no flush was done for it, by the request's tokens.

    A request that no longer fits the context window cannot be used for a flush either.
    """
    soft = rules.memory_flush.soft_threshold_tokens
    if not rules.memory_flush.enabled or not rules.enabled or tokens + soft > budget.window:
        return False
    now = {**data, "totalTokens": tokens, "totalTokensFresh": True}
    return is_near(now, window=budget.window, reserve=budget.reserve, soft=soft)


def is_near(data: Mapping[str, Json], *, window: int, reserve: int, soft: int) -> bool:
    """Return whether little is left of the context window, and no flush was done for that."""
    tokens = last_prompt_tokens(data)
    threshold = window - reserve - soft
    if not tokens or threshold <= 0 or tokens < threshold:
        return False
    done = data.get("memoryFlushCompactionCount")
    return not isinstance(done, int) or done != compactions(data)


def prompt(
    rules: CompactionConfig,
    today: str,
    *,
    by_tool: bool = False,
    folder: str = "memory",
    session: str = "main",
) -> str:
    """Return the user message of the flush; `today` is the user's date, as 2026-01-31.

    `folder` has the session's notes, and `session` is its name, for agents without the memory tool.
    """
    how = _BY_TOOL if by_tool else _BY_HAND.replace(_FOLDER, folder)
    default = _PROMPT.replace("{how}", how)
    text = rules.memory_flush.prompt or default
    if SILENT_WORD not in text:
        text = f"{text}\n\nAnswer {SILENT_WORD} when that is done, or when there is nothing to do."
    return text.replace(_DATE, today).replace(_SESSION, session)


def system_addition(rules: CompactionConfig) -> str:
    """Return the addition to the system prompt."""
    return rules.memory_flush.system_prompt or _SYSTEM


def flush_fields(data: Mapping[str, Json], now_ms: int) -> dict[str, Json]:
    """Return the changes of the session's entry after a flush, also a failed one."""
    return {"memoryFlushAt": now_ms, "memoryFlushCompactionCount": compactions(data)}
