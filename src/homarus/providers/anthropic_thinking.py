"""How each generation of Claude is asked to think, and to leave it.

The vendor changed this with almost every generation: first a budget of tokens, then a level of
effort with the model deciding, then thinking that is on unless it is turned off, then thinking
that cannot be. What a model takes follows from its name; the newest rules hold for names that
come later, and the oldest for models that are not Claude.
"""

import re
from collections.abc import Mapping
from typing import TypeAlias

from homarus.core.message import Json
from homarus.core.value import dataclass
from homarus.providers.base import ThinkLevel

# Reasoning may be replayed only behind the very words it was thought behind, or it is refused;
# these two ask to leave it out instead. A compaction changes those words.
BINDING_BETA = "thinking-binding-controls-2026-08-01"
_BINDING = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}
# Lets a model with a budget think between its calls too; later ones do it unasked.
INTERLEAVED_BETA = "interleaved-thinking-2025-05-14"
MIN_BUDGET = 1024  # the vendor's; the answer gets as much at least

_BUDGETS: Mapping[ThinkLevel, int] = {
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16_384,
    "xhigh": 32_768,
}
_EFFORTS: Mapping[ThinkLevel, str] = {
    "off": "low",
    "minimal": "low",
    "low": "low",
    "medium": "medium",
    "high": "high",
    "xhigh": "xhigh",
}
_NAME = re.compile(
    r"claude-(?:(?P<old>\d)[-.](?P<older>\d)-)?(?P<line>opus|sonnet|haiku|fable|mythos)"
    r"(?:-(?P<major>\d{1,2})(?:[-.](?P<minor>\d{1,2}))?(?!\d))?"
)
Version: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Claude:
    """A model's line and version, as its name tells them."""

    line: str
    version: Version

    @property
    def adapts(self) -> bool:
        """It decides itself how much to think; a level of effort guides it."""
        return self.version >= (4, 6)

    @property
    def binds(self) -> bool:
        """Its reasoning is bound to what stood before it."""
        return self.version >= ((5, 1) if self._always_thinks else (5, 5))

    @property
    def takes_sampling(self) -> bool:
        """It accepts temperature and the like, as long as it does not think."""
        return self.version < (4, 7)

    @property
    def _always_thinks(self) -> bool:
        return self.line in {"fable", "mythos"}

    def off(self) -> Mapping[str, Json] | None:
        """How thinking is turned off; None when it cannot be."""
        if self.version < (5, 0):
            return {}
        if self._always_thinks:
            return None
        if self.version < (5, 5) or (self.line, self.version) == ("haiku", (5, 5)):
            return {"thinking": {"type": "disabled"}}
        if (self.line, self.version) == ("sonnet", (5, 5)):
            return {"thinking": {"type": "between_tools"}}
        return None


def claude_of(model: str) -> Claude | None:
    """The Claude that a model's name speaks of, wherever it is served."""
    found = _NAME.search(model.lower())
    if found is None:
        return None
    if found["old"]:
        return Claude(found["line"], (int(found["old"]), int(found["older"])))
    if not found["major"]:  # `claude-mythos-preview`; another without a number tells nothing
        return Claude("mythos", (5, 0)) if found["line"] == "mythos" else None
    return Claude(found["line"], (int(found["major"]), int(found["minor"] or 0)))


def thinking_fields(
    claude: Claude | None, level: ThinkLevel, max_tokens: int
) -> Mapping[str, Json]:
    """What a request says about thinking; nothing, when nothing need be said."""
    if claude is None or not claude.adapts:
        return {} if level == "off" else _budgeted(level, max_tokens)
    if level == "off" and (off := claude.off()) is not None:
        return off
    thinking: dict[str, Json] = {"type": "adaptive"}
    if claude.version >= (4, 7):
        thinking["display"] = "summarized"  # without it the reasoning comes empty
    if claude.binds:
        thinking |= _BINDING
    effort = _EFFORTS[level]
    if effort == "xhigh" and claude.version < (4, 7):
        effort = "max"  # the two levels were one
    return {"thinking": thinking, "output_config": {"effort": effort}}


def is_thinking(fields: Mapping[str, Json]) -> bool:
    """Tell whether a request with these fields asks for reasoning."""
    thinking = fields.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") in {"adaptive", "enabled"}


def _budgeted(level: ThinkLevel, max_tokens: int) -> Mapping[str, Json]:
    budget = min(_BUDGETS[level], max_tokens - MIN_BUDGET)
    if budget < MIN_BUDGET:
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}
