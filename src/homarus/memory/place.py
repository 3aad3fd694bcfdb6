"""Where one agent's memory is, and what the config says of it: all that a backend needs."""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from homarus.config.memory import MemorySearch, MemorySettings, memory_search, memory_settings
from homarus.config.paths import Paths, expand
from homarus.config.resolve import agent_settings
from homarus.config.schema import Config
from homarus.core.value import dataclass
from homarus.memory.embed.keys import read_accesses
from homarus.memory.embed.link import Accesses, no_access

_AGENT = "{agentId}"


@dataclass(frozen=True, slots=True)
class Place:
    """One agent's memory. `agent_folder` is `agents/<id>`, where its conversations are."""

    agent: str
    workspace: Path
    database: Path
    agent_folder: Path
    models_cache: Path
    home: Path
    search: MemorySearch = MemorySearch()
    settings: MemorySettings = MemorySettings()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    access: Accesses = field(default=no_access, repr=False)
    timezone: str = ""

    @property
    def transcripts(self) -> Path:
        return self.agent_folder / "sessions"

    @property
    def max_results(self) -> int:
        """How many results, unless more are asked for: the agent's own number, else the limit."""
        query, limits = self.search.query, self.settings.qmd.limits
        return query.max_results if "max_results" in query.model_fields_set else limits.max_results

    def extra(self) -> tuple[Path, ...]:
        """Folders and files beside the workspace's own; relative ones are in the workspace."""
        return tuple(map(self.file, self.search.extra_paths))

    def file(self, written: str) -> Path:
        """A path of the config: from home with a `~`, from the workspace when it is relative."""
        return expand(written, self.home) if written.startswith("~") else self.workspace / written


def find_place(config: Config, paths: Paths, env: Mapping[str, str], agent: str) -> Place:
    """The memory of an agent; UnknownName when there is none of that name."""
    own = agent_settings(config, paths, agent)
    search = memory_search(config, own.id)
    written = search.store.path
    return Place(
        agent=own.id,
        workspace=own.workspace,
        database=expand(written.replace(_AGENT, own.id), paths.home)
        if written
        else paths.state / "memory" / f"{own.id}.sqlite",
        agent_folder=paths.sessions_dir(own.id).parent,
        models_cache=paths.models_cache,
        home=paths.home,
        search=search,
        settings=memory_settings(config),
        env=env,
        access=read_accesses(config, paths, env, own.id),
        timezone=own.timezone,
    )
