"""Where the files of an agent's memory are, and its settings: all that a backend needs."""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from homarus.config.agent_settings import resolve_agent_settings
from homarus.config.memory import MemoryConfig, MemorySearchConfig, memory_search, memory_settings
from homarus.config.paths import Paths, expand
from homarus.config.schema import Config
from homarus.core.fast_dataclass import dataclass
from homarus.memory.chunking import ChunkSize
from homarus.memory.database import own_index_path
from homarus.memory.embed.access import resolve_access
from homarus.memory.embed.client import FindAccess, no_access
from homarus.store.state_paths import INDEX

_AGENT = "{agentId}"


@dataclass(frozen=True, slots=True)
class MemorySpec:
    """The files and settings of one agent's memory; `agent_folder` is `agents/<id>`."""

    agent: str
    workspace: Path
    database: Path
    agent_folder: Path
    models_cache: Path
    home: Path
    search: MemorySearchConfig = MemorySearchConfig()
    settings: MemoryConfig = MemoryConfig()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    access: FindAccess = field(default=no_access, repr=False)
    timezone: str = ""
    session_list: Path | None = None  # of `session.store`; else in the agent's folder

    @property
    def session_index(self) -> Path:
        """The file with the agent's list of sessions."""
        return self.session_list or self.agent_folder / "sessions" / INDEX

    @property
    def transcripts(self) -> Path:
        return self.session_index.parent

    @property
    def max_results(self) -> int:
        """Return the default number of results: the agent's own setting, else the limit."""
        query, limits = self.search.query, self.settings.qmd.limits
        return query.max_results if "max_results" in query.model_fields_set else limits.max_results

    @property
    def chunk_size(self) -> ChunkSize:
        """The size of the passages, by `chunking`; two share at most half of one."""
        chunking = self.search.chunking
        return ChunkSize(chunking.tokens, min(chunking.overlap, chunking.tokens // 2))

    def extra(self) -> tuple[Path, ...]:
        """Return the configured extra folders and files."""
        return tuple(map(self.file, self.search.extra_paths))

    def file(self, written: str) -> Path:
        """Resolve a path of the config: `~` is home, a relative path is in the workspace."""
        return expand(written, self.home) if written.startswith("~") else self.workspace / written


def resolve_memory_spec(
    config: Config, paths: Paths, env: Mapping[str, str], agent: str
) -> MemorySpec:
    """Return the memory spec of an agent. Raises UnknownNameError, ConfigError."""
    own = resolve_agent_settings(config, paths, agent)
    search = memory_search(config, own.id)
    written = search.store.path
    return MemorySpec(
        agent=own.id,
        workspace=own.workspace,
        database=own_index_path(
            expand(written.replace(_AGENT, own.id), paths.home)
            if written
            else paths.state / "memory" / f"{own.id}.sqlite"
        ),
        agent_folder=paths.agent_dir(own.id).parent,
        session_list=paths.sessions_index(own.id),
        models_cache=paths.models_cache,
        home=paths.home,
        search=search,
        settings=memory_settings(config),
        env=env,
        access=resolve_access(config, paths, env, own.id),
        timezone=own.timezone,
    )
