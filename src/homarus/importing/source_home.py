"""Find the agents, workspaces and session folders of a home that OpenClaw wrote.

SOURCE is a state directory (`~/.openclaw`), or a folder that contains one. Its config is read only
for what names other parts of it: agents, workspaces, the file of cron jobs.
"""

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Final

from homarus.config.json5_document import Value, parse_json5, to_plain
from homarus.config.legacy_keys import is_newer_config
from homarus.config.newer_config import to_known_keys
from homarus.core.errors import ConfigError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.session_keys import DEFAULT_AGENT, normalize_agent_id
from homarus.importing.report import ImportReport
from homarus.importing.source_tree import RefusedSourceError, SourceTree
from homarus.store.state_paths import is_agent_id

_CONFIGS: Final = ("openclaw.json", "clawdbot.json", "moldbot.json", "moltbot.json")
_STATES: Final = (".openclaw", ".clawdbot", ".moldbot", ".moltbot")
_PARTS: Final = (*_CONFIGS, "agents", "sessions", "workspace", "cron", "credentials")
_MAX_CONFIG_BYTES: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class SourceWorkspace:
    """The folder of an agent's notes. `path` is its place in `tree`."""

    agent: str
    tree: SourceTree
    path: str


@dataclass(frozen=True, slots=True)
class SourceHome:
    """A home that is read and never written."""

    tree: SourceTree
    config: Mapping[str, Value]
    agents: tuple[str, ...]
    default_agent: str
    workspaces: tuple[SourceWorkspace, ...]


def find_state(source: Path) -> Path:
    """Return the state directory that SOURCE is or contains. Raises UserError."""
    if not source.is_dir():
        raise UserError(
            f"{source} is no folder", fix="name the folder to import, for example ~/.openclaw"
        )
    for place in (source, *(source / name for name in _STATES)):
        if any((place / name).exists() for name in _PARTS):
            return place
    raise UserError(
        f"{source} holds nothing to import: no openclaw.json, agents, workspace, cron or"
        " credentials",
        fix="name OpenClaw's state directory, for example ~/.openclaw",
    )


def open_source(state: Path, report: ImportReport, workspace: Path | None = None) -> SourceHome:
    """Read what a home consists of. `workspace` replaces that of its default agent."""
    tree = SourceTree(state)
    config = _read_config(tree, report)
    entries = _agent_entries(config)
    folders = [name for name in tree.names("agents") if tree.is_folder(f"agents/{name}")]
    for name in folders:
        if not is_agent_id(name):
            report.note("agents", name, "skipped: its name is not an agent id")
    configured = tuple(normalize_agent_id(str(entry["id"])) for entry in entries)
    default = next(
        (
            id_
            for id_, entry in zip(configured, entries, strict=True)
            if entry.get("default") is True
        ),
        configured[0] if configured else DEFAULT_AGENT,
    )
    agents = tuple(dict.fromkeys([*configured, *filter(is_agent_id, folders), default]))
    home = SourceHome(tree, config, agents, default, ())
    found = [_workspace(home, entries, agent, workspace, report) for agent in agents]
    return SourceHome(tree, config, agents, default, tuple(one for one in found if one))


def section(tree: Mapping[str, Value], *keys: str) -> Mapping[str, Value]:
    """Return an object inside a tree; an empty one if it is missing."""
    for key in keys:
        inner = tree.get(key)
        tree = inner if isinstance(inner, dict) else {}
    return tree


def place_in(tree: SourceTree, named: str) -> str | None:
    """Return where in the source a path of its config is; None if it is outside.

    The source may be a copy of a home that was at another place: then the part after the name of
    the state directory counts.
    """
    parts = PurePosixPath(named).parts
    if not named.startswith(("/", "~")) or ".." in parts:
        return None
    path = Path(named).absolute()
    if path.is_relative_to(tree.root):
        return path.relative_to(tree.root).as_posix()
    for name in (*_STATES, tree.root.name):
        if name in parts[:-1]:
            at = len(parts) - 1 - parts[::-1].index(name)
            return "/".join(parts[at + 1 :]) or None
    return None


def _workspace(
    home: SourceHome,
    entries: list[dict[str, Value]],
    agent: str,
    given: Path | None,
    report: ImportReport,
) -> SourceWorkspace | None:
    is_default = agent == home.default_agent
    if given is not None and is_default:
        return SourceWorkspace(agent, SourceTree(given), ".")
    own = next(
        (entry for entry in entries if normalize_agent_id(str(entry["id"])) == agent), {}
    ).get("workspace")
    named = own or (
        section(home.config, "agents", "defaults").get("workspace")
        or section(home.config, "agent").get("workspace")
        if is_default
        else None
    )
    place = place_in(home.tree, named) if isinstance(named, str) else None
    default = "workspace" if is_default else f"workspace-{agent}"
    for path in filter(None, (place, default)):
        if home.tree.is_folder(path):
            return SourceWorkspace(agent, home.tree, path)
    if home.tree.exists(default) or (isinstance(named, str) and place is None):
        fix = "import it with --workspace DIR" if is_default else "copy its notes yourself"
        report.note(
            "memory", str(named or default), f"skipped: this workspace is outside SOURCE; {fix}"
        )
    return None


def _read_config(tree: SourceTree, report: ImportReport) -> Mapping[str, Value]:
    for name in _CONFIGS:
        try:
            text = tree.read(name, _MAX_CONFIG_BYTES).decode("utf-8", "replace")
            value = to_plain(parse_json5(text))
        except FileNotFoundError:
            continue
        except (RefusedSourceError, ConfigError) as exc:
            report.note("config", name, f"not read, so default places are used: {exc}")
            return {}
        config = value if isinstance(value, dict) else {}
        return to_known_keys(config) if is_newer_config(config) else config
    return {}


def _agent_entries(config: Mapping[str, Value]) -> list[dict[str, Value]]:
    """Return the configured agents, each with its `id`."""
    listed = section(config, "agents").get("list")
    found = listed if isinstance(listed, list) else ()
    return [one for one in found if isinstance(one, dict) and isinstance(one.get("id"), str)]
