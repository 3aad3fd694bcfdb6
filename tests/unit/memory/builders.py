"""Where a memory is in tests, and how one of its threads is waited for."""

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from homarus.config.memory import MemoryConfig, MemorySearchConfig
from homarus.memory.spec import MemorySpec

GUARD_S = 60.0


def make_spec(base: Path, search: Mapping[str, Any] | None = None, **memory: Any) -> MemorySpec:
    """An agent's memory with a workspace that is there; by words unless `search` says otherwise."""
    workspace = base / "workspace"
    (workspace / "memory").mkdir(parents=True, exist_ok=True)
    return MemorySpec(
        agent="main",
        workspace=workspace,
        database=base / "memory" / "main.sqlite",
        agent_folder=base / "agents" / "main",
        models_cache=base / "models",
        home=base,
        search=MemorySearchConfig.model_validate({"provider": "none", **(search or {})}),
        settings=MemoryConfig.model_validate(memory),
        timezone="UTC",
    )


async def until(is_so: Callable[[], bool]) -> None:
    """Come back once another thread has made it so."""
    await asyncio.to_thread(_wait, is_so)


def _wait(is_so: Callable[[], bool]) -> None:
    end_s = time.monotonic() + GUARD_S
    while not is_so():
        assert time.monotonic() < end_s, "it never came to be"
        time.sleep(0.01)
