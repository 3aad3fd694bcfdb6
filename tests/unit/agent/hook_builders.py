"""Hook folders, catalogs and dispatchers for tests of internal hooks."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from homarus.agent.agent import Agent
from homarus.agent.internal_hooks.bundled_services import BundledHookServices
from homarus.agent.internal_hooks.catalog import HookCatalog
from homarus.agent.internal_hooks.dispatcher import HookDispatcher
from homarus.agent.internal_hooks.event import HookEvent
from homarus.agent.internal_hooks.handler_process import ProcessServices
from homarus.config.load import LoadedConfig
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.core.clock import SystemClock
from homarus.sessions.session import Session
from homarus.testing.clock import START_MS

MANAGED = ".openclaw/hooks"
WORKSPACE = ".openclaw/workspace/hooks"
ON: dict[str, Any] = {"hooks": {"internal": {"enabled": True}}}
HANDLER = "def handle(event):\n    event.messages.append(f'{event.type}:{event.action}')\n"


def write_hook(
    root: Path,
    name: str,
    handler: str | None = HANDLER,
    *,
    events: str = '["command"]',
    metadata: str = "",
    file: str = "handler.py",
) -> Path:
    """Write a hook into a root; return its folder."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    more = f", {metadata}" if metadata else ""
    (folder / "HOOK.md").write_text(
        f"---\nname: {name}\ndescription: A test hook\n"
        f'metadata: {{"openclaw": {{"events": {events}{more}}}}}\n---\n\n# {name}\n'
    )
    if handler is not None:
        (folder / file).write_text(handler)
    return folder


def switched_on(**internal: Any) -> dict[str, Any]:
    """Return a config tree with internal hooks on, and these settings of them."""
    return {"hooks": {"internal": {"enabled": True, **internal}}}


def make_catalog(
    home: Path,
    tree: dict[str, Any] | None = None,
    env: dict[str, str] | None = None,
    bundled: Path | None = None,
) -> HookCatalog:
    """Return the catalog of a home; without `bundled` it has no bundled hooks."""
    raw = ON if tree is None else tree
    (home / ".openclaw" / "workspace").mkdir(parents=True, exist_ok=True)
    config = Config.model_validate(raw)
    loaded = LoadedConfig(config, raw, "", "", exists=True, env=env or {"PATH": "/usr/bin:/bin"})
    paths = Paths.find({"HOME": str(home)})
    return HookCatalog(lambda: loaded, paths, bundled or home / "no-bundled-hooks")


def event(name: str = "command:new", **context: Any) -> HookEvent:
    kind, _, action = name.partition(":")
    return HookEvent(kind, action, "agent:main:main", {"agent": "main", **context}, START_MS)


async def no_session(_key: str) -> Session:
    raise AssertionError("no session is loaded here")


async def no_boot() -> None:
    raise AssertionError("BOOT.md is not run here")


def bundled_services(
    home: Path,
    load_session: Callable[[str], Awaitable[Session]] = no_session,
    run_boot: Callable[[], Awaitable[None]] = no_boot,
) -> BundledHookServices:
    workspace = home / ".openclaw" / "workspace"
    return BundledHookServices(
        load_session=load_session,
        get_agent=lambda name: Agent(name, name, workspace),
        run_boot=run_boot,
        local_date=lambda _at_ms: "2027-01-15",
        logs=home / ".openclaw" / "logs",
        clock=SystemClock(),
    )


@asynccontextmanager
async def open_dispatcher(
    home: Path,
    catalog: HookCatalog | None = None,
    *,
    deadline_s: float = 20.0,
    services: BundledHookServices | None = None,
) -> AsyncIterator[HookDispatcher]:
    """Open a dispatcher; its processes end with the block."""
    found = catalog or make_catalog(home)
    async with asyncio.TaskGroup() as group:

        def spawn(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
            return group.create_task(work, name=name)

        process = ProcessServices(
            found.get_loaded, home, SystemClock(), spawn, deadline_s=deadline_s
        )
        dispatcher = HookDispatcher(found, services or bundled_services(home), process)
        try:
            yield dispatcher
        finally:
            dispatcher.close()
