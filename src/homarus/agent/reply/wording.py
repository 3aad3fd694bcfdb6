"""Format the texts around an answer: prefix, usage line, notices, reasoning."""

import re
from collections.abc import Mapping

from homarus.core.message import Usage
from homarus.core.text import one_line
from homarus.sessions.levels import UsageDisplay

EMPTY = "The model gave an empty answer. Ask again, or choose another model."
COMPACTED = "🧹 Auto-compaction complete"
ANSWER_RESTARTED = "I was interrupted; my answer starts again."

_VARIABLE = re.compile(r"\{([A-Za-z][\w.]{0,40})\}")
_DATED = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2}|latest)\Z")


def new_session_notice(session_id: str) -> str:
    """Return the notice that a new session starts."""
    return f"🧠 New session: {session_id}"


def failed_tool_notice(name: str) -> str:
    """Return the warning of a run whose tool failed and whose model then wrote nothing.

    It has the tool's name alone: arguments and output may not be for everyone in the chat.
    """
    shown = one_line(name, 60)
    return f"⚠️ The tool {shown} failed, and the model gave an empty answer. Ask again."


def fill_prefix(template: str, names: Mapping[str, str]) -> str:
    """Replace the variables of a prefix; unknown variables stay."""

    def value(found: re.Match[str]) -> str:
        return names.get(found[1].lower(), found[0])

    return _VARIABLE.sub(value, template)


def prefix_names(provider: str, model: str, thinking: str, identity: str) -> dict[str, str]:
    """Return the variables of a prefix, by their names in lower case."""
    return {
        "provider": provider,
        "model": short_model(model),
        "modelfull": f"{provider}/{model}" if provider else model,
        "thinkinglevel": thinking,
        "think": thinking,
        "identity.name": identity,
        "identityname": identity,
    }


def short_model(model: str) -> str:
    """Return a model's name without the path before its last slash and without its date."""
    return _DATED.sub("", model.rsplit("/", 1)[-1])


def add_prefix(prefix: str, text: str) -> str:
    """Return the text after its prefix, unless it already starts with it."""
    if not prefix or not text or text.startswith(prefix):
        return text
    return f"{prefix}{text}" if prefix[-1].isspace() else f"{prefix} {text}"


def usage_line(usage: Usage, display: UsageDisplay, session_key: str = "") -> str:
    """Return the usage of an answer; "" when it is off or unknown."""
    if display == "off" or not usage.total:
        return ""
    parts = [f"Usage: {_count(usage.prompt)} in / {_count(usage.output)} out"]
    if display == "full":
        if usage.cache_read:
            parts.append(f"{_count(usage.cache_read)} cached")
        if usage.cost:
            parts.append(f"est ${usage.cost:.4f}" if usage.cost < 1 else f"est ${usage.cost:.2f}")
        if session_key:
            parts.append(f"session `{session_key}`")
    return " · ".join(parts)


def reasoning_text(thought: str) -> str:
    """Format reasoning as a message of its own, in italics to set it apart from the answer."""
    lines = (line.strip() for line in thought.strip().split("\n"))
    return "\n".join(["Reasoning:", *(f"_{line}_" if line else "" for line in lines)])


def _count(tokens: int) -> str:
    if tokens < 1_000:
        return str(tokens)
    if tokens < 999_950:
        return f"{tokens / 1_000:.1f}k"
    return f"{tokens / 1_000_000:.1f}m"
