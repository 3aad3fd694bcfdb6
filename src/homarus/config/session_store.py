"""Resolve `session.store`: the file with an agent's list of sessions, next to its transcripts."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from homarus.config.paths import AGENT_MARK, Paths, SessionStorePath, expand
from homarus.core.errors import ConfigError

if TYPE_CHECKING:  # `find_session_store` mostly needs no schema
    from homarus.config.schema import Config


def check_session_store(config: "Config") -> Iterator[tuple[str, str]]:
    """Yield what is wrong with `session.store`, and the fix."""
    from homarus.config.agent_settings import agent_ids

    text = config.session.store
    if not text:
        return
    if "\0" in text or text.endswith("/") or ".." in text.split("/"):
        yield "not the path of a file", f"write it as ~/sessions/{AGENT_MARK}/sessions.json"
    elif AGENT_MARK not in text and len(agent_ids(config)) > 1:
        fix = f"write {AGENT_MARK} into the path: each agent has a list of its own"
        yield f"one file for {len(agent_ids(config))} agents", fix


def with_session_store(paths: Paths, config: "Config") -> Paths:
    """Return the paths with the place of the sessions that the config names."""
    from homarus.config.agent_settings import agent_ids

    text = config.session.store
    if not text:
        return paths
    # A relative path is one of the state directory: commands run in many folders.
    template = str(expand(text if text.startswith("~") else str(paths.state / text), paths.home))
    default = replace(paths, session_store=None).sessions_index("x")
    if template.replace(AGENT_MARK, "x") == str(default):
        return paths
    agent = "" if AGENT_MARK in template else agent_ids(config)[0]
    return replace(paths, session_store=SessionStorePath(template, agent))


def find_session_store(paths: Paths, env: Mapping[str, str]) -> Paths:
    """Return the paths with the place of the sessions, for a command without a loaded config.

    A config that cannot be read is one without `session.store`.
    """
    from homarus.config.load import load_config, read_raw

    try:
        section = read_raw(paths).get("session")
        if not isinstance(section, dict) or "store" not in section:
            return paths  # without importing the schema
        return with_session_store(paths, load_config(paths, env).config)
    except ConfigError:
        return paths
