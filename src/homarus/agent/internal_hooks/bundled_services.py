"""What the bundled hooks are given: they are part of this program, and run in its process."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from homarus.agent.agent import Agent
from homarus.config.internal_hooks_schema import InternalHookEntryConfig
from homarus.core.clock import Clock
from homarus.core.fast_dataclass import dataclass
from homarus.sessions.session import Session


@dataclass(frozen=True, slots=True)
class BundledHookServices:
    """The ports of bundled hooks, and the settings of the one that is called."""

    load_session: Callable[[str], Awaitable[Session]]
    get_agent: Callable[[str], Agent]
    run_boot: Callable[[], Awaitable[None]]
    local_date: Callable[[int], str]
    logs: Path
    clock: Clock
    entry: InternalHookEntryConfig = InternalHookEntryConfig.model_construct()
