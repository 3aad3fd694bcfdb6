"""The checks of `homarus doctor` about sandboxes, whose level is measured."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, TypeAlias

from homarus.config.agent_settings import agent_ids
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.errors import HomarusError, SandboxError
from homarus.policy.sandbox_settings import SandboxSettings, resolve_sandbox, sandbox_mode

# What it is about, the state, the text and the fix, as of a finding of doctor.
SandboxFinding: TypeAlias = tuple[str, Literal["ok", "info", "note", "bad"], str, str]


def check_sandboxes(paths: Paths, config: Config) -> Iterator[SandboxFinding]:
    """Yield the level of the sandboxes of each agent that has them, and what is not obeyed."""
    agents = [agent for agent in agent_ids(config) if sandbox_mode(config, agent) != "off"]
    if not agents:
        return
    from homarus.policy.unobeyed_settings import unobeyed_settings
    from homarus.tools.sandbox.session_sandbox import resolve_backend
    from homarus.tools.sandbox.shown_files import check_shown_folder

    checker = _LevelChecker(paths, config)
    for agent in agents:
        settings = resolve_sandbox(config, agent)
        backend = resolve_backend(settings)
        yield (f"agent {agent}", *checker.check(settings, backend))
        for each in settings.read_only:
            try:
                check_shown_folder(Path(each).expanduser(), paths.state, ())
            except SandboxError as exc:
                text = f"commands in sandboxes are refused: {exc.message}"
                yield f"agent {agent}", "bad", text, exc.fix
        for one in unobeyed_settings(settings, backend):
            key = f"sandbox.{one.key}"
            if one.is_refused:
                text = f"commands in sandboxes are refused: {key} cannot be obeyed: {one.reason}"
                yield f"agent {agent}", "bad", text, one.fix
            else:
                text = f"{key} has no effect: {one.reason}"
                yield f"agent {agent}", "note", text, f"remove {key}"


class _LevelChecker:
    """Compares what backends hold against with what agents demand; each is measured once."""

    def __init__(self, paths: Paths, config: Config) -> None:
        from homarus.tools.sandbox.registry import SandboxRegistry

        self._registry = SandboxRegistry(lambda: config, paths.state)

    def check(
        self, settings: SandboxSettings, backend: str
    ) -> tuple[Literal["ok", "info", "bad"], str, str]:
        """Return the state, the text and the fix."""
        from homarus.tools.sandbox.session_sandbox import container_options

        which = "all sessions" if settings.mode == "all" else "sessions besides the main one"
        try:
            report = asyncio.run(self._registry.report(backend, container_options(settings)))
        except HomarusError as exc:
            return "bad", f"commands of {which} are refused: {exc.message}", exc.fix
        if report.level < settings.level:
            text = (
                f"commands of {which} are refused: a sandbox of {backend} has level {report.level}"
                f" on this machine, and {settings.level} is demanded: {report.problem}"
            )
            return "bad", text, report.fix
        text = f"{which} have a sandbox of {backend}, measured level {report.level}"
        if report.problem:
            return "info", f"{text}: {report.problem}", report.fix
        return "ok", text, ""
