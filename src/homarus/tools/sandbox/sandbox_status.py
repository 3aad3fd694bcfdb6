"""The state of sandboxes as it is shown: backend, measured level, access. Nothing is measured."""

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from homarus.config.agent_settings import agent_ids
from homarus.config.schema import Config
from homarus.core.message import Json
from homarus.policy.sandbox_settings import SandboxSettings, resolve_sandbox, sandbox_mode

if TYPE_CHECKING:
    from homarus.tools.sandbox.base import SandboxReport

# The report about the backend of settings, None where it was not measured yet.
FindReport: TypeAlias = "Callable[[SandboxSettings], SandboxReport | None]"


def no_report(_settings: SandboxSettings) -> "SandboxReport | None":
    """Return that a backend was not measured."""
    return None


def describe_sandbox(
    config: Config, agent_id: str, *, is_sandboxed: bool, access: str, find_report: FindReport
) -> str:
    """Return the sandbox of a session as text: "off", or backend, level and access."""
    mode = sandbox_mode(config, agent_id)
    if not is_sandboxed:
        return "off" if mode == "off" else f"off in this session (mode {mode})"
    from homarus.tools.sandbox.session_sandbox import resolve_backend

    settings = resolve_sandbox(config, agent_id)
    backend = resolve_backend(settings)
    report = find_report(settings)
    level: str = "not measured yet" if report is None else report.level
    if report is not None and report.level < settings.level:
        level = f"{report.level}, {settings.level} is demanded: commands are refused"
    return f"{backend} · {level} · workspace {access}"


def encode_sandboxes(config: Config, find_report: FindReport) -> list[dict[str, Json]]:
    """Return the sandbox of each agent for clients; `level` is None before it is measured."""
    return [_encode(config, agent, find_report) for agent in agent_ids(config)]


def _encode(config: Config, agent_id: str, find_report: FindReport) -> dict[str, Json]:
    mode = sandbox_mode(config, agent_id)
    if mode == "off":
        return {"agentId": agent_id, "mode": mode}
    from homarus.tools.sandbox.session_sandbox import resolve_backend

    settings = resolve_sandbox(config, agent_id)
    backend = resolve_backend(settings)
    report = find_report(settings)
    row: dict[str, Json] = {
        "agentId": agent_id,
        "mode": mode,
        "scope": settings.scope,
        "backend": backend,
        "workspaceAccess": settings.access,
        "demanded": settings.level,
        "level": report.level if report else None,
    }
    if report is not None and report.problem:
        row |= {"problem": report.problem, "fix": report.fix}
    return row
