"""The check of `homarus doctor` about web search: which provider is used, and why."""

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

from homarus.config.schema import Config
from homarus.core.errors import HomarusError

# What it is about, the state, the text and the fix, as of a finding of doctor.
WebFinding: TypeAlias = tuple[str, Literal["ok", "info", "bad"], str, str]


def check_web_search(config: Config, env: Mapping[str, str]) -> Iterator[WebFinding]:
    """Yield the provider of `web_search`, or why it has none; nothing where it is switched off."""
    search = config.tools.web.search
    if not search.enabled:
        return
    from homarus.tools.web.search_selection import select_provider

    try:
        selected = select_provider(search, env)
    except HomarusError as exc:
        yield "web search", "bad", exc.message, exc.fix
        return
    text = f"{selected.module.LABEL}: {selected.reason}"
    if selected.access.is_fallback:
        yield "web search", "info", text, selected.module.FIX
    else:
        yield "web search", "ok", text, ""
