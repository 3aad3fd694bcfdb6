"""Detect whether a text mentions an agent, by the patterns of its names.

Patterns are regular expressions of the config: the agent's own, else the global ones, else the
channel's, else those derived from the agent's name and emoji. An invalid pattern is skipped, and
logged once.
"""

import logging
import re
import unicodedata
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Final

from homarus.config.agent_settings import agent_entry
from homarus.config.channels import AccountSettings
from homarus.config.schema import Config
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.regex import MAX_TEXT_CHARS, Search, compile_search
from homarus.core.text import one_line

log = logging.getLogger(__name__)

MAX_PATTERNS: Final = 50
_CJK: Final = "\u2e80"  # from here on scripts write no spaces between words
_SELECTORS: Final = frozenset(chr(code) for code in range(0xFE00, 0xFE10))


@dataclass(frozen=True, slots=True)
class AgentNames:
    """An agent's name and emoji."""

    name: str = ""
    emoji: str = ""


def names_from_config(config: Config, agent: str) -> AgentNames:
    """Return an agent's names by the config; its identity file may have others."""
    identity = agent_entry(config, agent).identity
    return AgentNames(identity.name or "", identity.emoji or "")


class MentionMatcher:
    """Compile patterns, each once."""

    def __init__(self) -> None:
        self._compiled: dict[str, Search | None] = {}

    def patterns(
        self,
        config: Config,
        agent: str,
        settings: AccountSettings,
        names: Callable[[], AgentNames],
    ) -> tuple[Search, ...]:
        """Return an agent's patterns on an account. An empty list in the config is none."""
        listed = (
            agent_entry(config, agent).group_chat.mention_patterns,
            config.messages.group_chat.mention_patterns,
            settings.mention_patterns,
        )
        chosen = next((each for each in listed if each is not None), None)
        if chosen is None:
            return patterns_for(names())
        found = (self._find_compiled(source) for source in chosen[:MAX_PATTERNS])
        return tuple(each for each in found if each)

    def _find_compiled(self, source: str) -> Search | None:
        if source not in self._compiled:
            if len(self._compiled) >= 10 * MAX_PATTERNS:
                self._compiled.clear()
            self._compiled[source] = _compile(source)
        return self._compiled[source]


def is_mentioned(text: str, patterns: Iterable[Search]) -> bool:
    """Return whether one of the patterns is in a text."""
    plain = normalize_text(text)
    return any(search(plain) for search in patterns)


def normalize_text(text: str) -> str:
    """Return the text for matching: without invisible characters, white space folded."""
    seen = "".join(ch for ch in text if not _is_unseen(ch))
    return " ".join(seen.lower().split())


def patterns_for(names: AgentNames) -> tuple[Search, ...]:
    """Return patterns for a name as a word, perhaps with an `@`, and for an emoji."""
    words = [word for word in normalize_text(names.name).split() if word]
    found = list[str]()
    if words:
        first, last = words[0][0], words[-1][-1]
        spelled = r"\s+".join(map(re.escape, words))
        found.append(f"{_edge(first, '(?<!{})')}@?{spelled}{_edge(last, '(?!{})')}")
    if emoji := normalize_text(names.emoji):
        found.append(re.escape(emoji))
    return tuple(map(_own, found))


def _edge(ch: str, form: str) -> str:
    """Return a word boundary, for scripts that have them."""
    return form.format(r"\w") if ch < _CJK and (ch.isalnum() or ch == "_") else ""


def _is_unseen(ch: str) -> bool:
    return ch in _SELECTORS or (not ch.isascii() and unicodedata.category(ch) == "Cf")


@lru_cache(64)
def _own(source: str) -> Search:
    """Compile a derived pattern; it contains nothing that could be slow."""
    pattern = re.compile(source, re.IGNORECASE)
    return lambda text: pattern.search(text[:MAX_TEXT_CHARS]) is not None


def _compile(source: str) -> Search | None:
    try:
        return compile_search("".join(ch for ch in source if not _is_unseen(ch)))
    except UserError as exc:
        shown = one_line(source, 60)
        log.warning("the mention pattern %r is not used: %s", shown, exc)
        return None
