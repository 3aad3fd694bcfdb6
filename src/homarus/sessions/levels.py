"""Parse the words for levels and modes.

One table per setting. An unknown word gives None: the caller lists the valid words.
"""

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias, TypeVar

ThinkLevel: TypeAlias = Literal["off", "minimal", "low", "medium", "high", "xhigh"]
VerboseLevel: TypeAlias = Literal["off", "on", "full"]
ReasoningLevel: TypeAlias = Literal["off", "on", "stream"]
ElevatedLevel: TypeAlias = Literal["off", "on", "ask", "full"]
ElevatedMode: TypeAlias = Literal["off", "ask", "full"]
UsageDisplay: TypeAlias = Literal["off", "tokens", "full"]
QueueMode: TypeAlias = Literal["steer", "followup", "collect", "steer-backlog", "interrupt"]
QueueDrop: TypeAlias = Literal["old", "new", "summarize"]

_L = TypeVar("_L", bound=str)

_NO = "off false no 0"
_YES = "on true yes 1"
_SEPARATORS = re.compile(r"[\s_-]+")


def _words(table: Mapping[_L, str]) -> dict[str, _L]:
    return {word: level for level, words in table.items() for word in words.split()}


_THINK: dict[str, ThinkLevel] = _words(
    {
        "off": "off",
        "minimal": "minimal min think",
        "low": "low on enable enabled thinkhard think-hard think_hard",
        "medium": "medium med mid harder thinkharder think-harder",
        "high": "high highest max ultra ultrathink thinkhardest",
    }
)
_XHIGH_WORDS = frozenset({"xhigh", "extrahigh"})
_VERBOSE: dict[str, VerboseLevel] = _words(
    {"off": _NO, "on": f"{_YES} minimal", "full": "full all everything"}
)
_REASONING: dict[str, ReasoningLevel] = _words(
    {
        "off": f"{_NO} hide hidden disable disabled",
        "on": f"{_YES} show visible enable enabled",
        "stream": "stream streaming draft live",
    }
)
_ELEVATED: dict[str, ElevatedLevel] = _words(
    {
        "off": _NO,
        "on": _YES,
        "ask": "ask prompt approval approve",
        "full": "full auto auto-approve autoapprove",
    }
)
_USAGE: dict[str, UsageDisplay] = _words(
    {
        "off": f"{_NO} disable disabled",
        "tokens": f"{_YES} enable enabled tokens token tok minimal min",
        "full": "full session",
    }
)
_QUEUE_MODES: dict[str, QueueMode] = _words(
    {
        "steer": "steer steering queued",
        "followup": "followup follow-up followups follow-ups queue",
        "collect": "collect coalesce",
        "steer-backlog": "steer-backlog steer+backlog steer_backlog",
        "interrupt": "interrupt interrupts abort",
    }
)
_QUEUE_DROPS: dict[str, QueueDrop] = _words(
    {"old": "old oldest", "new": "new newest", "summarize": "summarize summary"}
)

_THINK_LEVELS: tuple[ThinkLevel, ...] = ("off", "minimal", "low", "medium", "high")
_XHIGH_MODELS = frozenset(
    {
        "openai/gpt-5.2",
        "openai-codex/gpt-5.3-codex",
        "openai-codex/gpt-5.3-codex-spark",
        "openai-codex/gpt-5.2-codex",
        "openai-codex/gpt-5.1-codex",
        "github-copilot/gpt-5.2-codex",
        "github-copilot/gpt-5.2",
    }
)
_ON_OFF_PROVIDERS = frozenset({"zai", "z.ai", "z-ai"})


def think_level(word: str | None) -> ThinkLevel | None:
    """Parse a thinking level; `xhigh` may be divided: `x-high`, `extra high`."""
    plain = _plain(word)
    joined = _SEPARATORS.sub("", plain)
    return "xhigh" if joined in _XHIGH_WORDS else _THINK.get(plain)


def verbose_level(word: str | None) -> VerboseLevel | None:
    """Parse how much of the tool calls is shown."""
    return _VERBOSE.get(_plain(word))


def notice_level(word: str | None) -> VerboseLevel | None:
    """Parse how much of its maintenance is shown; the words of `verbose`."""
    return verbose_level(word)


def reasoning_level(word: str | None) -> ReasoningLevel | None:
    """Parse whether the model's reasoning is shown."""
    return _REASONING.get(_plain(word))


def elevated_level(word: str | None) -> ElevatedLevel | None:
    """Parse whether commands may leave the sandbox."""
    return _ELEVATED.get(_plain(word))


def elevated_mode(level: ElevatedLevel | None) -> ElevatedMode:
    """Return what an elevated level means for a command: `on` still asks."""
    if level in {None, "off"}:
        return "off"
    return "full" if level == "full" else "ask"


def usage_display(word: str | None) -> UsageDisplay | None:
    """Parse what the usage line below a reply shows."""
    return _USAGE.get(_plain(word))


def queue_mode(word: str | None) -> QueueMode | None:
    """Parse a queue mode."""
    return _QUEUE_MODES.get(_plain(word))


def queue_drop(word: str | None) -> QueueDrop | None:
    """Parse which message is dropped when the queue is full."""
    return _QUEUE_DROPS.get(_plain(word))


def think_levels(provider: str | None = None, model: str | None = None) -> tuple[ThinkLevel, ...]:
    """Return the levels of a model; without a provider, its name alone decides."""
    name = _plain(model)
    known = _XHIGH_MODELS if _plain(provider) else {ref.partition("/")[2] for ref in _XHIGH_MODELS}
    ref = f"{_plain(provider)}/{name}" if _plain(provider) else name
    return (*_THINK_LEVELS, "xhigh") if ref in known else _THINK_LEVELS


def think_labels(provider: str | None = None, model: str | None = None) -> tuple[str, ...]:
    """Return the levels that people choose from; some providers have only on and off."""
    if _plain(provider) in _ON_OFF_PROVIDERS:
        return ("off", "on")
    return think_levels(provider, model)


def _plain(word: str | None) -> str:
    return (word or "").strip().lower()
