"""Find what a state directory has for features of OpenClaw that do not work here yet.

A job or a heartbeat that is silently ignored would be missed late; the gateway names them when it
starts, and `status` and `doctor` do.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from homarus.config.agent_settings import agent_ids, resolve_agent_settings
from homarus.config.json5_document import Value
from homarus.config.paths import Paths, expand, shorten
from homarus.config.schema import Config
from homarus.core.text import one_line

_MAX_NAMES: Final = 3
# What a HEARTBEAT.md may have without being content: headings and empty list items.
_EMPTY_LINE: Final = re.compile(r"\s*(#+(\s.*)?|[-*+]\s*(\[[\sXx]?\]\s*)?)?")


def find_unused(config: Config, raw: Mapping[str, Value], paths: Paths) -> tuple[str, ...]:
    """Return a sentence for each thing that is set up and does not work. `raw` is the config."""
    return (*_jobs(raw, paths), *_heartbeats(config, raw, paths))


def _jobs(raw: Mapping[str, Value], paths: Paths) -> Iterator[str]:
    cron = _section(raw, "cron")
    if cron.get("enabled") is False:
        return  # neither would OpenClaw run them
    store = cron.get("store")
    file = expand(store, paths.home) if isinstance(store, str) else paths.state / "cron/jobs.json"
    jobs = _read_json(file).get("jobs")
    enabled = [
        job for job in (jobs if isinstance(jobs, list) else ())
        if isinstance(job, dict) and job.get("enabled") is not False
    ]  # fmt: skip
    if enabled:
        names = [one_line(str(job.get("name") or job.get("id") or "?"), 40) for job in enabled]
        more = ", …" if len(names) > _MAX_NAMES else ""
        count = "1 scheduled job does" if len(names) == 1 else f"{len(names)} scheduled jobs do"
        shown = f"{shorten(file, paths.home)}: {', '.join(names[:_MAX_NAMES])}{more}"
        yield f"{count} not run: schedules are not built yet ({shown})"


def _heartbeats(config: Config, raw: Mapping[str, Value], paths: Paths) -> Iterator[str]:
    agents = _section(raw, "agents")
    common = _section(_section(agents, "defaults"), "heartbeat")
    listed = agents.get("list")
    entries = [
        each for each in (listed if isinstance(listed, list) else ()) if isinstance(each, dict)
    ]
    own = {str(each.get("id")).strip().lower(): _section(each, "heartbeat") for each in entries}
    for agent in agent_ids(config):
        settings = {**common, **own.get(agent, {})}
        if settings.get("enabled") is False or _is_zero(settings.get("every")):
            continue
        file = resolve_agent_settings(config, paths, agent).workspace / "HEARTBEAT.md"
        if not _has_content(file):
            continue
        shown = shorten(file, paths.home)
        yield f"agent {agent} has no heartbeat: heartbeats are not built yet ({shown})"


def _is_zero(every: Value) -> bool:
    return isinstance(every, str) and re.fullmatch(r"\s*0+(\.0+)?\s*[a-z]*\s*", every) is not None


def _has_content(file: Path) -> bool:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(not _EMPTY_LINE.fullmatch(line) for line in text.splitlines())


def _section(tree: Mapping[str, Value], key: str) -> Mapping[str, Value]:
    found = tree.get(key)
    return found if isinstance(found, dict) else {}


def _read_json(file: Path) -> Mapping[str, Value]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
