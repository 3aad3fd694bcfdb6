"""Decide whether a tool call may run, by the tool's name and the rules."""

from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass

ToolAction: TypeAlias = Literal["allow", "ask", "deny"]


@dataclass(frozen=True, slots=True)
class ToolRules:
    """Globs of tool names; deny wins over ask, ask over allow. An empty allow list allows all."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolDecision:
    """The decision and the rule that made it."""

    action: ToolAction
    reason: str


def decide_tool_call(tool: str, *layers: ToolRules) -> ToolDecision:
    """Decide by several sets of rules: each must allow, and any may deny or ask."""
    ask_glob = ""
    for rules in layers:
        if glob := _match(tool, rules.deny):
            return ToolDecision("deny", f"{tool} is denied by {glob!r}")
        if rules.allow and not _match(tool, rules.allow):
            return ToolDecision("deny", f"{tool} is not on the allow list")
        ask_glob = ask_glob or _match(tool, rules.ask)
    return (
        ToolDecision("ask", f"{tool} asks first") if ask_glob else ToolDecision("allow", "allowed")
    )


def _match(tool: str, globs: tuple[str, ...]) -> str:
    return next((glob for glob in globs if fnmatchcase(tool, glob)), "")
