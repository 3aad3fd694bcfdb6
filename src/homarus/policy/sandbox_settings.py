"""The settings of sandboxes that hold for an agent, and which sessions have one. Pure.

`resolve_exec_place` decides where a command runs: in the sandbox of its session, or on the machine
of the gateway. A command of a session with a sandbox leaves it only as an elevated one.
"""

from collections.abc import Iterator
from typing import Any, Final, Literal, TypeAlias, TypeVar

from homarus.config.agent_settings import agent_entry
from homarus.config.sandbox_schema import ContainerConfig, SandboxConfig
from homarus.config.schema import Config
from homarus.core.errors import ToolDeniedError
from homarus.core.fast_dataclass import dataclass
from homarus.core.session_keys import main_key
from homarus.policy.exec_settings import ElevatedLevel, ExecHost, config_exec_settings
from homarus.policy.tool_call import CallerFacts

SandboxMode: TypeAlias = Literal["off", "non-main", "all"]
SandboxScope: TypeAlias = Literal["session", "agent", "shared"]
SandboxAccess: TypeAlias = Literal["none", "ro", "rw"]
ExecPlace: TypeAlias = Literal["sandbox", "gateway"]

_V = TypeVar("_V")
AUTO_BACKEND: Final = "auto"
IDLE_HOURS, MAX_AGE_DAYS = 24, 7
MIN_LEVEL: Final = "L2"  # of a sandbox that the config sets no level for


@dataclass(frozen=True, slots=True)
class SandboxSettings:
    """How the sessions of an agent are sandboxed.

    `workspace_root` is "" for the default, `sandboxes` in the state directory. `level` is the
    lowest that is accepted. `container` is the section `docker`, each key the agent's own where it
    has one. `allows_host_browser`: sandboxed sessions may use the browser of this machine.
    `idle_hours` and `max_age_days` are 0 where nothing is pruned for that reason.
    `sees_spawned_only`: their tools reach no other sessions than those they started.
    """

    mode: SandboxMode = "off"
    scope: SandboxScope = "agent"
    access: SandboxAccess = "none"
    workspace_root: str = ""
    backend: str = AUTO_BACKEND
    level: str = MIN_LEVEL
    allowed_hosts: tuple[str, ...] = ()
    read_only: tuple[str, ...] = ()
    container: ContainerConfig = ContainerConfig.model_construct()
    idle_hours: int = IDLE_HOURS
    max_age_days: int = MAX_AGE_DAYS
    allows_host_browser: bool = False
    sees_spawned_only: bool = True


def resolve_sandbox(config: Config, agent_id: str) -> SandboxSettings:
    """Return the settings for an agent: its own, else those for all agents, key by key.

    The entries of `docker.env` and `docker.ulimits` are merged, those of `docker.binds` added. A
    shared sandbox is the same for every agent: of `docker` and `prune` only what holds for all
    agents counts there, as in OpenClaw.
    """
    own, common = agent_entry(config, agent_id).sandbox, config.agents.defaults.sandbox
    first = _first
    per_session = first(own.per_session, common.per_session)  # OpenClaw's older form of `scope`
    default_scope: SandboxScope = "agent"
    if per_session is not None:
        default_scope = "session" if per_session else "shared"
    scope: SandboxScope = first(own.scope, common.scope) or default_scope
    mine = SandboxConfig() if scope == "shared" else own
    idle = first(mine.prune.idle_hours, common.prune.idle_hours)
    age = first(mine.prune.max_age_days, common.prune.max_age_days)
    return SandboxSettings(
        mode=first(own.mode, common.mode) or "off",
        scope=scope,
        access=first(own.workspace_access, common.workspace_access) or "none",
        workspace_root=first(own.workspace_root, common.workspace_root) or "",
        backend=first(own.backend, common.backend) or AUTO_BACKEND,
        level=first(own.level, common.level) or MIN_LEVEL,
        allowed_hosts=_network(own, common),
        read_only=first(own.read_only_folders, common.read_only_folders) or (),
        container=_merge_containers(common.docker, mine.docker),
        idle_hours=IDLE_HOURS if idle is None else idle,
        max_age_days=MAX_AGE_DAYS if age is None else age,
        allows_host_browser=bool(
            first(own.browser.allow_host_control, common.browser.allow_host_control)
        ),
        sees_spawned_only=first(own.session_tools_visibility, common.session_tools_visibility)
        != "all",
    )


def is_sandboxed(config: Config, agent_id: str, session_key: str) -> bool:
    """Return whether the settings want a session in a sandbox."""
    mode = sandbox_mode(config, agent_id)
    return mode == "all" or (mode == "non-main" and session_key != main_key(agent_id))


def sandbox_mode(config: Config, agent_id: str) -> SandboxMode:
    """Return which sessions of an agent have a sandbox."""
    modes = (agent_entry(config, agent_id).sandbox.mode, config.agents.defaults.sandbox.mode)
    return _first(*modes) or "off"


def elevated_level(caller: CallerFacts, *, requested: bool | None) -> ElevatedLevel:
    """Return the level at which a command is elevated; `requested` is what the call itself says.

    A call with `elevated: false` is never elevated, one with `true` at least `on`, and a sender
    whom `tools.elevated` does not name has no elevated commands.
    """
    if not caller.is_elevated_allowed or requested is False:
        return "off"
    return "on" if requested and caller.elevated == "off" else caller.elevated


def resolve_exec_place(
    config: Config,
    caller: CallerFacts,
    *,
    host: ExecHost | None = None,
    node: str | None = None,
    elevated: bool | None = None,
) -> ExecPlace:
    """Return where a command runs: in the session's sandbox, or on the machine of the gateway.

    `host`, `node` and `elevated` are those of the call. Settings that want a command in a sandbox
    that the session does not have, or on a node, are obeyed by refusing it: raises ToolDeniedError.
    """
    wanted = (host, caller.exec.host, config_exec_settings(config, caller.agent_id).host)
    if node or "node" in wanted:
        has_own = node or host == "node"
        raise ToolDeniedError(
            "exec denied: this version runs no commands on nodes",
            fix="call it without host and node" if has_own else _fix_host(wanted[2]),
        )
    has_sandbox = caller.is_sandboxed or is_sandboxed(config, caller.agent_id, caller.session_key)
    if has_sandbox and elevated and not caller.is_elevated_allowed:
        raise ToolDeniedError(
            "exec denied: tools.elevated does not allow this sender commands outside the sandbox",
            fix="call it without elevated: it then runs in the sandbox",
        )
    if host != "sandbox" and elevated_level(caller, requested=elevated) != "off":
        return "gateway"
    if not has_sandbox:
        if "sandbox" not in wanted:
            return "gateway"
        own = host == "sandbox"
        raise ToolDeniedError(
            f"exec denied: {'the call' if own else 'the config or the session'} wants the command"
            " in a sandbox, and this conversation has none (sandbox.mode is"
            f" {sandbox_mode(config, caller.agent_id)})",
            fix="call it without host" if own else _fix_host(wanted[2]),
        )
    if host == "gateway":
        raise ToolDeniedError(
            "exec denied: commands of this conversation run in a sandbox, host gateway included",
            fix=(
                "call it without host; elevated: true runs it outside, with approval"
                if caller.is_elevated_allowed
                else "call it without host: it then runs in the sandbox"
            ),
        )
    return "sandbox"


def _fix_host(config_host: ExecHost) -> str:
    if config_host == "gateway":  # the session wants another one
        return "continue without commands; the owner can send `/exec host=gateway`"
    return (
        "continue without commands; only the owner can change tools.exec.host or sandbox.mode"
        " in the config"
    )


def _network(own: SandboxConfig, common: SandboxConfig) -> tuple[str, ...]:
    """Return the allowed hosts: the agent's list, also an empty one, replaces the common one."""
    section = own if "network" in own.model_fields_set else common
    return section.network.allow


def _merge_containers(common: ContainerConfig, own: ContainerConfig) -> ContainerConfig:
    merged = dict(_set_keys(common))
    for key, value in _set_keys(own):
        before = merged.get(key)
        if before is None or key not in {"env", "ulimits", "binds"}:
            merged[key] = value
        elif key == "binds":
            merged[key] = tuple(dict.fromkeys((*before, *value)))
        else:
            merged[key] = {**before, **value}
    return ContainerConfig.model_construct(None, **merged)


def _set_keys(section: ContainerConfig) -> Iterator[tuple[str, Any]]:
    for key in section.model_fields_set:
        if (value := getattr(section, key)) is not None:
            yield key, value


def _first(*values: _V | None) -> _V | None:
    return next((each for each in values if each is not None), None)
