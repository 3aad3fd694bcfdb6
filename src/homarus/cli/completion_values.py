"""Values that a shell completes: ids of agents and jobs, session keys, channels, config keys.

They are read from files without checks, because a person waits for them. A value that a shell could
interpret is left out: session keys contain ids that senders chose.
"""

import json
import os
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click

from homarus.config.paths import Paths

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_PLAIN = re.compile(r"[A-Za-z0-9_.:@/+=-]{1,200}")
_MAX_FILE_BYTES = 20 << 20
Completion = Callable[[click.Context, click.Parameter, str], list[str]]


def _complete(names: Callable[[str], Iterable[str]]) -> Completion:
    """Return a completion function of click; a value that cannot be read completes nothing."""

    def complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
        from homarus.core.errors import HomarusError

        try:
            found = sorted(set(names(incomplete)))
        except (HomarusError, OSError, ValueError, AttributeError, TypeError, LookupError):
            return []
        return [name for name in found if name.startswith(incomplete) and _PLAIN.fullmatch(name)]

    return complete


def directories(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> "list[CompletionItem[str]]":
    """Let the shell complete the name of a directory."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="dir")]


def files(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> "list[CompletionItem[str]]":
    """Let the shell complete the name of a file."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]


def _tree() -> dict[str, Any]:
    from homarus.config.load import read_raw

    return read_raw(Paths.find(os.environ))


def _agents(_incomplete: str) -> Iterable[str]:
    agents = _tree().get("agents") or {}
    return [str(entry["id"]) for entry in agents.get("list") or () if "id" in entry] or ["main"]


def _sessions(_incomplete: str) -> Iterable[str]:
    for file in (Paths.find(os.environ).state / "agents").glob("*/sessions/sessions.json"):
        if file.stat().st_size <= _MAX_FILE_BYTES:
            yield from json.loads(file.read_text(encoding="utf-8"))


def _channels(_incomplete: str) -> Iterable[str]:
    from homarus.channels.registry import available_channels

    return available_channels()


def _providers(_incomplete: str) -> Iterable[str]:
    from homarus.providers.catalog import VENDORS

    models = _tree().get("models") or {}
    return [*VENDORS, *(models.get("providers") or {})]


def _models(_incomplete: str) -> Iterable[str]:
    from homarus.providers.catalog import MODELS

    own = (_tree().get("models") or {}).get("providers") or {}
    return [
        *(f"{provider}/{name}" for provider, name in MODELS),
        *(
            f"{provider}/{model['id']}"
            for provider, entry in own.items()
            for model in entry.get("models") or ()
        ),
    ]


def _wizard_sections(_incomplete: str) -> Iterable[str]:
    from homarus.gateway.wizard.flow import SECTIONS

    return SECTIONS


def _config_keys(incomplete: str) -> Iterable[str]:
    from homarus.config.known_keys import lookup, root_key

    path, dot, _ = incomplete.rpartition(".")
    node = lookup(path.split(".")) if path else root_key()
    return [f"{path}{dot}{name}" for name in node.names] if node else ()


def _cron_jobs(_incomplete: str) -> Iterable[str]:
    from homarus.config.paths import expand

    paths, store = Paths.find(os.environ), (_tree().get("cron") or {}).get("store")
    file = expand(store, paths.home) if isinstance(store, str) else paths.state / "cron/jobs.json"
    if file.stat().st_size <= _MAX_FILE_BYTES:
        yield from (str(job["id"]) for job in json.loads(file.read_text(encoding="utf-8"))["jobs"])


agents = _complete(_agents)
sessions = _complete(_sessions)
channels = _complete(_channels)
providers = _complete(_providers)
models = _complete(_models)
wizard_sections = _complete(_wizard_sections)
config_keys = _complete(_config_keys)
cron_jobs = _complete(_cron_jobs)
