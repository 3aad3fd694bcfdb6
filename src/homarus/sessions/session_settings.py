"""Settings of a session that people change: valid values and how they are stored. Pure.

Chat commands and `sessions.patch` use this, so that both accept and store the same.
"""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.sessions import levels

Reader: TypeAlias = Callable[[str], str | None]

CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "execHost": ("sandbox", "gateway", "node"),
    "execSecurity": ("deny", "allowlist", "full"),
    "execAsk": ("off", "on-miss", "always"),
    "sendPolicy": ("allow", "deny"),
    "groupActivation": ("mention", "always"),
}
LEVELS: Final[Mapping[str, tuple[Reader, str]]] = {
    "thinkingLevel": (levels.think_level, "off, minimal, low, medium, high or xhigh"),
    "verboseLevel": (levels.verbose_level, "off, on or full"),
    "reasoningLevel": (levels.reasoning_level, "off, on or stream"),
    "elevatedLevel": (levels.elevated_level, "off, on, ask or full"),
    "responseUsage": (levels.usage_display, "off, tokens or full"),
}
_OFF_IS_NONE: Final = frozenset({"reasoningLevel", "responseUsage"})


def to_stored_value(name: str, value: Json) -> Json:
    """Return the stored value of a setting, None to remove it; raises UserError when invalid."""
    if name in LEVELS:
        level = parse_level(name, value)
        return None if level == "off" and name in _OFF_IS_NONE else level
    if name in CHOICES and value not in CHOICES[name]:
        raise UserError(f"invalid {name}", fix=f"use {', '.join(CHOICES[name])}")
    return value


def check_exec_setting(name: str, value: Json, *, is_sandboxed: bool) -> None:
    """Raise UserError for a setting of commands that cannot be obeyed in a session.

    `is_sandboxed`: the session has a sandbox.
    """
    if value is None:
        return
    if (name, value) == ("execHost", "sandbox"):
        if is_sandboxed:
            return
        reason = "this conversation has no sandbox (sandbox.mode): commands would not run at all"
    elif name == "execNode" or (name, value) == ("execHost", "node"):
        reason = "this version runs no commands on nodes"
    else:
        return
    raise UserError(f"{name} {one_line(str(value), 40)!r}: {reason}", fix="use gateway")


def parse_level(name: str, word: str) -> str:
    """Parse a level; raises UserError that lists the valid ones."""
    read, words = LEVELS[name]
    level = read(word)
    if level is None:
        raise UserError(f"invalid {name}", fix=f"use {words}")
    return level


def check_thinking(level: str | None, ref: str) -> None:
    """Raise UserError when the model `ref` does not support the thinking level."""
    provider, _, model = ref.partition("/")
    if level == "xhigh" and "xhigh" not in levels.think_levels(provider, model):
        raise UserError(
            f"thinkingLevel xhigh is not supported by {ref}",
            fix=f"use {', '.join(levels.think_labels(provider, model))}",
        )
