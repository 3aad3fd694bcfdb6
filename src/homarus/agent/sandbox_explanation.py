"""Explain the sandbox of a session: what holds, and which key of the config decides it.

For `homarus sandbox explain`. Nothing is created, measured or run.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from homarus.agent.agent import make_agent
from homarus.agent.policy_explanation import PolicyQuestion, explain_tool_call
from homarus.agent.prompt.chat_context import key_chat_context
from homarus.config.agent_settings import agent_entry, resolve_agent_settings
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.channel_traits import FindTraits
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Json
from homarus.core.session_keys import agent_id_of, channel_of, main_key
from homarus.policy.sandbox_settings import SandboxSettings, is_sandboxed, resolve_sandbox
from homarus.policy.unobeyed_settings import OCI
from homarus.sessions.last_route import last_address
from homarus.tools.catalog import known_declarations
from homarus.tools.sandbox.base import AGENT_DIR, WORKDIR
from homarus.tools.sandbox.folders import make_sandbox_name
from homarus.tools.sandbox.limits import resolve_limits
from homarus.tools.sandbox.registry import resolve_workspace_root
from homarus.tools.sandbox.session_sandbox import resolve_backend

DEFAULT: Final = "default"
_MB: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ExplainedSetting:
    """A fact about a sandbox: its name, its value as text, and the key that decides it."""

    name: str
    value: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class SandboxExplanation:
    """What holds for the sandbox of a session."""

    session_key: str
    agent_id: str
    is_sandboxed: bool
    sandbox_name: str
    backend: str
    level: str
    settings: tuple[ExplainedSetting, ...]
    allowed_tools: tuple[str, ...]
    denied_tools: tuple[str, ...]
    is_elevated_allowed: bool
    elevated: str


async def explain_sandbox(
    config: Config,
    paths: Paths,
    session_key: str,
    entry: Mapping[str, Json],
    find_traits: FindTraits,
) -> SandboxExplanation:
    """Return what holds for a session, whose stored state is `entry`."""
    agent_id = agent_id_of(session_key)
    settings = resolve_sandbox(config, agent_id)
    has_sandbox = is_sandboxed(config, agent_id, session_key)
    allowed: list[str] = []
    denied: list[str] = []
    is_allowed, elevated = False, "off"
    for tool in known_declarations():
        found = await explain_tool_call(
            config, paths, PolicyQuestion(tool.name, session_key, entry), find_traits
        )
        is_allowed, elevated = found.caller.is_elevated_allowed, found.caller.elevated
        is_denied = any(
            each.action == "deny"
            for each in found.decision.verdicts
            if each.layer.startswith("sandbox")
        )
        (denied if is_denied else allowed).append(tool.name)
    is_full = _has_full_access(config, paths, session_key, entry, find_traits)
    rows = tuple(_describe(config, paths, settings, session_key, is_full=is_full))
    return SandboxExplanation(
        session_key,
        agent_id,
        has_sandbox,
        make_sandbox_name(settings.scope, agent_id, session_key),
        resolve_backend(settings),
        settings.level,
        rows,
        tuple(sorted(allowed)),
        tuple(sorted(denied)),
        is_allowed,
        elevated,
    )


def _has_full_access(
    config: Config,
    paths: Paths,
    key: str,
    entry: Mapping[str, Json],
    find_traits: FindTraits,
) -> bool:
    """Return whether the conversation may use the complete workspace of its agent."""
    agent = make_agent(resolve_agent_settings(config, paths, agent_id_of(key)), config.tools)
    address = last_address(entry)
    if not address.channel:
        address = Address(channel_of(key), "")
    chat = key_chat_context(config, key, address, (), find_traits=find_traits)
    return chat.file_access(agent.rules).is_full


def _describe(
    config: Config,
    paths: Paths,
    settings: SandboxSettings,
    session_key: str,
    *,
    is_full: bool,
) -> Iterator[ExplainedSetting]:
    agent_id = agent_id_of(session_key)
    agent = resolve_agent_settings(config, paths, agent_id)

    def row(name: str, value: object, *path: str) -> ExplainedSetting:
        return ExplainedSetting(name, str(value), find_deciding_key(config, agent_id, *path))

    mode = f"{settings.mode} ({_describe_mode(settings.mode, session_key)})"
    yield row("mode", mode, "mode")
    scope_path = ("scope",)
    if find_deciding_key(config, agent_id, "scope") == DEFAULT:
        scope_path = ("per_session",)
    yield row("scope", settings.scope, *scope_path)
    backend = resolve_backend(settings)
    by_image = settings.backend != backend and settings.container.image
    yield row("backend", backend, *(("docker", "image") if by_image else ("backend",)))
    yield row("level demanded", settings.level, "level")
    access = settings.access
    if access == "rw" and not is_full:
        yield row("workspace access", "ro (rw, narrowed for this conversation)", "workspace_access")
        access = "ro"
    else:
        yield row("workspace access", access, "workspace_access")
    name = make_sandbox_name(settings.scope, agent_id, session_key)
    root = resolve_workspace_root(settings, paths.state)
    workdir = settings.container.workdir or WORKDIR
    if access == "rw":
        yield row("folder", f"{workdir} is {agent.workspace}", "workspace_access")
    else:
        yield row("folder", f"{workdir} is {root / name}", "workspace_root")
    if access == "ro":
        shown = "" if is_full else ", only what this conversation may see"
        yield row(
            "mount", f"{AGENT_DIR} is {agent.workspace}, read-only{shown}", "workspace_access"
        )
    for folder in settings.read_only:
        path = Path(folder).expanduser()
        yield row("mount", f"{path}, read-only", "read_only_folders")
    yield from _describe_limits(config, agent_id, settings)
    for bind in settings.container.binds or () if backend == OCI else ():
        yield row("mount", f"{bind} (SOURCE:TARGET)", "docker", "binds")
    hosts = ", ".join(settings.allowed_hosts)
    named = settings.container.network or "none"
    if backend == OCI and named != "none":
        yield row("network", f"{named}, without a proxy", "docker", "network")
    else:
        network = f"only {hosts}, through the gateway's proxy" if hosts else "none"
        yield row("network", network, "network", "allow")
    idle = f"{settings.idle_hours} h without use" if settings.idle_hours else "never when unused"
    yield row("removed after", idle, "prune", "idle_hours")
    age = f"{settings.max_age_days} days" if settings.max_age_days else "never for its age"
    yield row("removed after", age, "prune", "max_age_days")


def _describe_mode(mode: str, session_key: str) -> str:
    if mode == "off":
        return "no session has a sandbox"
    if mode == "all":
        return "every session has one"
    is_main = session_key == main_key(agent_id_of(session_key))
    return f"{'the main session has none' if is_main else 'a session besides the main one has one'}"


def _describe_limits(
    config: Config, agent_id: str, settings: SandboxSettings
) -> Iterator[ExplainedSetting]:
    limits = resolve_limits(settings.container)

    def row(value: str, *path: str) -> ExplainedSetting:
        key = find_deciding_key(config, agent_id, "docker", *path) if path else DEFAULT
        return ExplainedSetting("limit", value, key)

    if limits.pids:
        yield row(f"{limits.pids} processes", "pids_limit")
    if limits.memory_bytes:
        yield row(f"{limits.memory_bytes / _MB:g} MB of memory", "memory")
    if limits.cpus:
        yield row(f"{limits.cpus:g} processors", "cpus")
    if limits.cpu_s:
        yield row(f"{limits.cpu_s} s of processor time for a process", "ulimits")
    if limits.file_bytes:
        yield row(f"{limits.file_bytes / _MB:g} MB for a file", "ulimits")
    if limits.open_files:
        yield row(f"{limits.open_files} open files", "ulimits")
    if limits.disk_bytes:
        yield row(f"{limits.disk_bytes / _MB:g} MB more on disk during a command")


def find_deciding_key(config: Config, agent_id: str, *path: str) -> str:
    """Return the key of the config that a setting comes from, or "default"."""
    from pydantic.alias_generators import to_camel

    shown = ".".join(to_camel(part) for part in path)
    own, common = agent_entry(config, agent_id).sandbox, config.agents.defaults.sandbox
    places = ((own, f"agents.list[{agent_id}].sandbox"), (common, "agents.defaults.sandbox"))
    for section, prefix in places:
        found: object = section
        for part in path:
            if part not in getattr(found, "model_fields_set", ()):
                found = None
                break
            found = getattr(found, part)
        if found is not None:
            return f"{prefix}.{shown}"
    return DEFAULT
