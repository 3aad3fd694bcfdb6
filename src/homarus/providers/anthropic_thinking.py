"""Choose the thinking fields for each generation of Claude.

The vendor changed them with almost every generation: first a token budget, then an effort level
with the model deciding, then thinking that is on unless it is turned off, then thinking that cannot
be turned off. The model's name decides which apply; unknown newer names get the newest rules,
models that are not Claude the oldest.
"""

import re
from collections.abc import Mapping
from typing import TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.providers.base import ThinkLevel

# Reasoning may be replayed only behind the exact context it was produced in, or the request is
# refused. These two ask the service to drop it instead: a compaction changes the context.
BINDING_BETA = "thinking-binding-controls-2026-08-01"
_BINDING = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}
# Lets a model with a budget think between its calls; later models do so by default.
INTERLEAVED_BETA = "interleaved-thinking-2025-05-14"
MIN_BUDGET = 1024  # the vendor's minimum; the answer gets at least as much

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
class ClaudeModel:
    """A Claude model's family and version, parsed from its name."""

    line: str
    version: Version

    @property
    def adapts(self) -> bool:
        """Return whether the model decides how much to think, guided by an effort level."""
        return self.version >= (4, 6)

    @property
    def binds(self) -> bool:
        """Return whether reasoning is bound to the context before it."""
        return self.version >= ((5, 1) if self._always_thinks else (5, 5))

    @property
    def takes_sampling(self) -> bool:
        """Return whether sampling parameters are accepted while the model does not think."""
        return self.version < (4, 7)

    @property
    def _always_thinks(self) -> bool:
        return self.line in {"fable", "mythos"}

    def off(self) -> Mapping[str, Json] | None:
        """Return the field that turns thinking off, or None when it cannot be turned off."""
        if self.version < (5, 0):
            return {}
        if self._always_thinks:
            return None
        if self.version < (5, 5) or (self.line, self.version) == ("haiku", (5, 5)):
            return {"thinking": {"type": "disabled"}}
        if (self.line, self.version) == ("sonnet", (5, 5)):
            return {"thinking": {"type": "between_tools"}}
        return None


def parse_claude_model(model: str) -> ClaudeModel | None:
    """Parse the Claude model from a model id of any service, or return None."""
    found = _NAME.search(model.lower())
    if found is None:
        return None
    if found["old"]:
        return ClaudeModel(found["line"], (int(found["old"]), int(found["older"])))
    if not found["major"]:  # `claude-mythos-preview`; other names without a number give no version
        return ClaudeModel("mythos", (5, 0)) if found["line"] == "mythos" else None
    return ClaudeModel(found["line"], (int(found["major"]), int(found["minor"] or 0)))


def thinking_fields(
    claude: ClaudeModel | None, level: ThinkLevel, max_tokens: int
) -> Mapping[str, Json]:
    """Return the fields that request a thinking level; empty when none is needed."""
    if claude is None or not claude.adapts:
        return {} if level == "off" else _budgeted(level, max_tokens)
    if level == "off" and (off := claude.off()) is not None:
        return off
    thinking: dict[str, Json] = {"type": "adaptive"}
    if claude.version >= (4, 7):
        thinking["display"] = "summarized"  # without it the reasoning text is empty
    if claude.binds:
        thinking |= _BINDING
    effort = _EFFORTS[level]
    if effort == "xhigh" and claude.version < (4, 7):
        effort = "max"  # both levels were one
    return {"thinking": thinking, "output_config": {"effort": effort}}


def is_thinking(fields: Mapping[str, Json]) -> bool:
    """Return whether a request with these fields asks for reasoning."""
    thinking = fields.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") in {"adaptive", "enabled"}


def _budgeted(level: ThinkLevel, max_tokens: int) -> Mapping[str, Json]:
    budget = min(_BUDGETS[level], max_tokens - MIN_BUDGET)
    if budget < MIN_BUDGET:
        return {}
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}


def has_budget(fields: Mapping[str, Json]) -> bool:
    """Return whether a request sets a token budget for thinking."""
    thinking = fields.get("thinking")
    return isinstance(thinking, dict) and thinking.get("type") == "enabled"
