"""Decide whether a tool call may run, by the tool's name and the rules."""

from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from homarus.core.value import dataclass

Action: TypeAlias = Literal["allow", "ask", "deny"]


@dataclass(frozen=True, slots=True)
class Rules:
    """Globs of tool names; deny wins over ask, ask over allow. An empty allow list allows all."""

    allow: tuple[str, ...] = ()
    ask: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision and the rule that made it."""

    action: Action
    why: str


def decide(tool: str, *layers: Rules) -> Verdict:
    """Decide by several sets of rules: each must allow, and any may deny or ask."""
    asked = ""
    for rules in layers:
        if glob := _match(tool, rules.deny):
            return Verdict("deny", f"{tool} is denied by {glob!r}")
        if rules.allow and not _match(tool, rules.allow):
            return Verdict("deny", f"{tool} is not on the allow list")
        asked = asked or _match(tool, rules.ask)
    return Verdict("ask", f"{tool} asks first") if asked else Verdict("allow", "allowed")


def _match(tool: str, globs: tuple[str, ...]) -> str:
    return next((glob for glob in globs if fnmatchcase(tool, glob)), "")
