"""Choose the thinking config for each Gemini model.

Generations differ: a token budget up to 2.5, a level from 3 on, and models of one generation accept
different ones. A model that cannot stop thinking gets its minimum.
"""

import re

from homarus.core.message import Json
from homarus.providers.base import ThinkLevel

_VERSION = re.compile(r"\bgemini-(\d{1,3})(?:\.(\d{1,3}))?(?![\d.])")
_LATEST = re.compile(r"\bgemini-.*latest")
# The last Flash that accepts `minimal`; after it only the Lite models do.
_LAST_MINIMAL = (3, 6)
_BUDGETS: dict[ThinkLevel, int] = {
    "off": 0,
    "minimal": 128,
    "low": 2_048,
    "medium": 8_192,
    "high": 24_576,
    "xhigh": 24_576,
}
_PRO_BUDGETS: dict[ThinkLevel, int] = {**_BUDGETS, "off": 128, "high": 32_768, "xhigh": 32_768}
_LITE_BUDGETS: dict[ThinkLevel, int] = {**_BUDGETS, "minimal": 512}


def generation(model_id: str) -> tuple[int, int]:
    """Return the generation: (2, 5), (3, 0) …; (0, 0) when it is unknown."""
    name = model_id.lower()
    found = _VERSION.search(name)
    if found:
        return int(found[1]), int(found[2] or 0)
    return (99, 0) if _LATEST.search(name) else (0, 0)


def thinks(model_id: str) -> bool:
    """Return whether a model of this name reasons and accepts a level."""
    return generation(model_id) >= (2, 5) and "image" not in model_id.lower()


def thinking_config(model_id: str, level: ThinkLevel) -> dict[str, Json]:
    """Return the `thinkingConfig` for a level; empty when none is needed."""
    name, version = model_id.lower(), generation(model_id)
    shown: dict[str, Json] = {} if level == "off" else {"includeThoughts": True}
    if version >= (3, 0):
        return {**shown, "thinkingLevel": _level(name, version, level)}
    if version == (0, 0) and level == "off":
        return {}
    if "lite" in name:
        return {**shown, "thinkingBudget": _LITE_BUDGETS[level]}
    budgets = _PRO_BUDGETS if "pro" in name else _BUDGETS
    return {**shown, "thinkingBudget": budgets[level]}


def _level(name: str, version: tuple[int, int], level: ThinkLevel) -> str:
    match level:
        case "off" | "minimal":
            takes_minimal = "flash" in name and ("lite" in name or version <= _LAST_MINIMAL)
            return "minimal" if takes_minimal else "low"
        case "low":
            return "low"
        case "medium":  # the first Pro accepts only low and high
            return "high" if "pro" in name and version == (3, 0) else "medium"
        case "high" | "xhigh":
            return "high"
