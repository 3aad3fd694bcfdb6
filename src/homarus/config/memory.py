"""The typed settings of memory: the section `memory`, and `memorySearch` of the agents.

An agent's own `memorySearch` is merged over the defaults'. The config holds both sections as plain
objects; they are parsed when memory is used.
"""

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, Field, Strict, ValidationError
from pydantic_core import PydanticCustomError

from homarus.config.edit import apply_merge_patch
from homarus.config.resolve import entry_of
from homarus.config.schema import (
    Config,
    Count,
    Duration,
    Section,
    SendMatch,
    SendRule,
    Share,
    Text,
    Texts,
    Wait,
)
from homarus.core.errors import ConfigError
from homarus.core.value import dataclass


@dataclass(frozen=True, slots=True)
class _BackendNames:
    """Names of backends, without importing one.

    Their loader, `homarus.plugins.backends`, is above this package and decides when a backend is
    used; here a name is one of a module with `marker` at its top level, or of an entry point.
    """

    package: str
    group: str
    marker: str
    special: tuple[str, ...] = ()

    def all(self) -> list[str]:
        own = (name for name in self._modules() if self._is_own(name))
        return [*self.special, *sorted({*own, *self._entries()})]

    def check(self, name: str) -> str:
        if name in self.special or self._is_own(name) or name in (names := self.all()):
            return name
        *others, last = map(repr, names)
        expected = f"{', '.join(others)} or {last}"
        raise PydanticCustomError(
            "literal_error", "Input should be {expected}", {"expected": expected}
        )

    def add_to(self, schema: dict[str, Any]) -> None:
        schema["enum"] = self.all()

    def _modules(self) -> Iterator[str]:
        for file in files(self.package).iterdir():
            yield file.name.removesuffix(".py").replace("_", "-")

    def _is_own(self, name: str) -> bool:
        if not name.replace("-", "").isalnum():
            return False
        folder, module = files(self.package), name.replace("-", "_")
        line = rf"^(def |from \S+ import (\w+ as )?)?{self.marker}\b".encode()
        for source in (folder / f"{module}.py", folder / module / "__init__.py"):
            if source.is_file():
                return re.search(line, source.read_bytes(), re.MULTILINE) is not None
        return False

    def _entries(self) -> Iterator[str]:
        from importlib.metadata import entry_points  # slow to import

        return (entry.name for entry in entry_points(group=self.group))


_EMBEDDERS = _BackendNames("homarus.memory.embed", "homarus.embedders", "AUTO", ("auto", "none"))
_BACKENDS = _BackendNames("homarus.memory", "homarus.memory", "sync_interval_s")


def embedder_names() -> list[str]:
    """Return the names of all embedders, without `auto` and `none`; nothing is imported."""
    return _EMBEDDERS.all()[len(_EMBEDDERS.special) :]


# `auto` selects the first embedder that is available; `none` compares words alone.
Embedding: TypeAlias = Annotated[
    str,
    AfterValidator(_EMBEDDERS.check),
    Field(json_schema_extra=_EMBEDDERS.add_to),
]
MemoryBackendName: TypeAlias = Annotated[
    str,
    AfterValidator(_BACKENDS.check),
    Field(json_schema_extra=_BACKENDS.add_to),
]
Source: TypeAlias = Literal["memory", "sessions"]
S = TypeVar("S", bound=Section)


class Batch(Section):
    """The batch API of an embedding service: cheaper, with results within hours."""

    enabled: bool = False
    wait: bool = True
    concurrency: Count = 2
    poll_interval_ms: Wait = 2_000
    timeout_minutes: Count = 60


class Remote(Section):
    """Another URL, key or headers for the embedding service."""

    base_url: Text | None = None
    api_key: str | None = Field(None, repr=False)
    headers: Mapping[str, str] = Field({}, repr=False)
    batch: Batch = Batch.model_construct()


class Local(Section):
    """A folder or file of model weights, and the cache for downloaded ones."""

    model_path: Text | None = None
    model_cache_dir: Text | None = None


class VectorStore(Section):
    """Whether vectors are stored. `extensionPath` is OpenClaw's and has no effect."""

    enabled: bool = True
    extension_path: str | None = None


class IndexStore(Section):
    """The path of the index, in which `{agentId}` is replaced."""

    driver: Literal["sqlite"] = "sqlite"
    path: Text | None = None
    vector: VectorStore = VectorStore.model_construct()


class Chunking(Section):
    """The size of a chunk, in tokens of four characters. Another size has no effect."""

    tokens: Count = 400
    overlap: Wait = 80


class SessionSync(Section):
    """How much a session grows before its new messages are indexed."""

    delta_bytes: Wait = 100_000
    delta_messages: Wait = 50


class Sync(Section):
    """When the index is updated from the files."""

    on_session_start: bool = True
    on_search: bool = True
    watch: bool = True
    watch_debounce_ms: Wait = 1_500
    interval_minutes: Wait = 0
    sessions: SessionSync = SessionSync.model_construct()


class Spread(Section):
    """Prefer diverse results over similar ones (maximal marginal relevance)."""

    enabled: bool = False
    lambda_: Share = Field(0.7, alias="lambda")


class Decay(Section):
    """Lower the score of old notes."""

    enabled: bool = False
    half_life_days: Count = 30


class Hybrid(Section):
    """OpenClaw's weighted sum of scores, if configured; else Homarus ranks lines."""

    enabled: bool | None = None
    vector_weight: Share = 0.7
    text_weight: Share = 0.3
    candidate_multiplier: Count = 4
    mmr: Spread = Spread.model_construct()
    temporal_decay: Decay = Decay.model_construct()

    @property
    def is_asked(self) -> bool:
        """Return whether the config enables this formula, or sets its weights."""
        if self.enabled is not None:
            return self.enabled
        return not {"vector_weight", "text_weight"}.isdisjoint(self.model_fields_set)


class Query(Section):
    """The number of results and their minimum score."""

    max_results: Count = 6
    min_score: Share | None = None
    hybrid: Hybrid = Hybrid.model_construct()


class Cache(Section):
    """The cache of computed vectors."""

    enabled: bool = True
    max_entries: Count | None = None


class Experimental(Section):
    """Experimental features; `sessionMemory` also searches past sessions."""

    session_memory: bool = False


class MemorySearch(Section):
    """How one agent's memory is indexed and searched."""

    enabled: bool = True
    sources: Annotated[tuple[Source, ...], Strict(strict=False)] = ("memory",)
    extra_paths: Texts = ()
    experimental: Experimental = Experimental.model_construct()
    provider: Embedding = "auto"
    remote: Remote = Remote.model_construct()
    fallback: Embedding = "none"
    model: Text | None = None
    local: Local = Local.model_construct()
    store: IndexStore = IndexStore.model_construct()
    chunking: Chunking = Chunking.model_construct()
    sync: Sync = Sync.model_construct()
    query: Query = Query.model_construct()
    cache: Cache = Cache.model_construct()


class Collection(Section):
    """A folder that qmd indexes in addition to the agent's own."""

    path: Text
    name: Text | None = None
    pattern: Text | None = None


class QmdSessions(Section):
    """The export of past sessions as Markdown for qmd."""

    enabled: bool = False
    export_dir: Text | None = None
    retention_days: Wait = 30


class QmdUpdate(Section):
    """When qmd updates its index, and its timeouts."""

    interval: Duration = "5m"
    debounce_ms: Wait = 15_000
    on_boot: bool = True
    wait_for_boot_sync: bool = False
    embed_interval: Duration = "60m"
    command_timeout_ms: Wait = 30_000
    update_timeout_ms: Wait = 120_000
    embed_timeout_ms: Wait = 120_000


class Limits(Section):
    """The size of search results, and the timeout of a search."""

    max_results: Count = 6
    max_snippet_chars: Count = 700
    max_injected_chars: Count = 4_000
    timeout_ms: Wait = 4_000  # 0: no timeout


class Scope(Section):
    """The sessions that may search. A rule that denies wins over one that allows."""

    default: Literal["allow", "deny"] = "deny"
    rules: Annotated[tuple[SendRule, ...], Strict(strict=False)] = ()


_PRIVATE_CHATS = SendRule.model_construct(
    action="allow", match=SendMatch.model_construct(chat_type="direct")
)
_DIRECT_ONLY = Scope.model_construct(default="deny", rules=(_PRIVATE_CHATS,))


class Qmd(Section):
    """The qmd program. `limits` and `scope` apply to every backend."""

    command: Text = "qmd"
    search_mode: Literal["query", "search", "vsearch"] = "search"
    include_default_memory: bool = True
    paths: Annotated[tuple[Collection, ...], Strict(strict=False)] = ()
    sessions: QmdSessions = QmdSessions.model_construct()
    update: QmdUpdate = QmdUpdate.model_construct()
    limits: Limits = Limits.model_construct()
    scope: Scope = _DIRECT_ONLY


class MemorySettings(Section):
    """`memory`: who keeps the index, and whether answers say where they come from."""

    backend: MemoryBackendName = "builtin"
    citations: Literal["auto", "on", "off"] = "auto"
    qmd: Qmd = Qmd.model_construct()


def memory_search(config: Config, agent: str) -> MemorySearch:
    """Return an agent's `memorySearch` merged over the defaults'. Raises ConfigError."""
    defaults, own = config.agents.defaults.memory_search, entry_of(config, agent).memory_search
    return _read(MemorySearch, apply_merge_patch(dict(defaults), dict(own)), "memorySearch")


def memory_settings(config: Config) -> MemorySettings:
    """Return the section `memory` of the config. Raises ConfigError."""
    return _read(MemorySettings, dict(config.memory), "memory")


def _read(kind: type[S], tree: Any, name: str) -> S:
    try:
        return kind.model_validate(tree)
    except ValidationError as exc:
        error = exc.errors(include_url=False, include_input=False)[0]
        raise ConfigError(error["msg"], key=".".join(map(str, (name, *error["loc"])))) from None
