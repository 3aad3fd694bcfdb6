"""The words around an answer: its prefix, its usage line, notices, and thoughts made readable."""

import re
from collections.abc import Mapping

from homarus.core.message import Usage
from homarus.sessions.levels import UsageDisplay

EMPTY = "The model gave an empty answer. Ask again, or choose another model."
COMPACTED = "🧹 Auto-compaction complete"

_VARIABLE = re.compile(r"\{([A-Za-z][\w.]{0,40})\}")
_DATED = re.compile(r"-(?:\d{8}|\d{4}-\d{2}-\d{2}|latest)\Z")


def new_session(session_id: str) -> str:
    """The notice that a conversation begins anew."""
    return f"🧠 New session: {session_id}"


def fill_prefix(template: str, names: Mapping[str, str]) -> str:
    """A prefix with its variables replaced; a variable nobody knows stays as it is."""

    def value(found: re.Match[str]) -> str:
        return names.get(found[1].lower(), found[0])

    return _VARIABLE.sub(value, template)


def prefix_names(provider: str, model: str, thinking: str, identity: str) -> dict[str, str]:
    """The variables of a prefix, by their names in lower case."""
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
    """A model's name without what stands before its last slash, and without its date."""
    return _DATED.sub("", model.rsplit("/", 1)[-1])


def add_prefix(prefix: str, text: str) -> str:
    """The text after its prefix, unless it has it already."""
    if not prefix or not text or text.startswith(prefix):
        return text
    return f"{prefix}{text}" if prefix[-1].isspace() else f"{prefix} {text}"


def usage_line(usage: Usage, display: UsageDisplay, session_key: str = "") -> str:
    """What an answer took; empty when nobody asked or nothing is known."""
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
    """Thoughts as a message of their own: in italics, so that nobody takes them for the answer."""
    lines = (line.strip() for line in thought.strip().split("\n"))
    return "\n".join(["Reasoning:", *(f"_{line}_" if line else "" for line in lines)])


def _count(tokens: int) -> str:
    if tokens < 1_000:
        return str(tokens)
    if tokens < 999_950:
        return f"{tokens / 1_000:.1f}k"
    return f"{tokens / 1_000_000:.1f}m"
