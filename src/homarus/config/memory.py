"""The typed settings of memory: the section `memory`, and `memorySearch` of the agents.

An agent's own `memorySearch` is merged over the defaults'. The config holds both sections as plain
objects; they are parsed when memory is used.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import AfterValidator, Field, Strict, ValidationError

from homarus.config.agent_settings import agent_entry
from homarus.config.backend_names import EMBEDDER_NAMES, MEMORY_BACKEND_NAMES
from homarus.config.schema import Config
from homarus.config.section import (
    ConfigSection,
    Duration,
    Fraction,
    NonEmptyStr,
    NonNegativeInt,
    PositiveInt,
    StrTuple,
)
from homarus.config.session_rule_schema import SendMatch, SendRule
from homarus.config.tree_edit import apply_merge_patch
from homarus.core.errors import ConfigError


def embedder_names() -> list[str]:
    """Return the names of all embedders, without `auto` and `none`; nothing is imported."""
    return EMBEDDER_NAMES.all()[len(EMBEDDER_NAMES.special) :]


# `auto` selects the first embedder that is available; `none` compares words alone.
EmbeddingProviderName: TypeAlias = Annotated[
    str, AfterValidator(EMBEDDER_NAMES.check), Field(json_schema_extra=EMBEDDER_NAMES.add_to)
]
MemoryBackendName: TypeAlias = Annotated[
    str,
    AfterValidator(MEMORY_BACKEND_NAMES.check),
    Field(json_schema_extra=MEMORY_BACKEND_NAMES.add_to),
]
MemorySource: TypeAlias = Literal["memory", "sessions"]
S = TypeVar("S", bound=ConfigSection)


class EmbeddingBatchConfig(ConfigSection):
    """The batch API of an embedding service: cheaper, with results within hours."""

    enabled: bool = False
    wait: bool = True
    concurrency: PositiveInt = 2
    poll_interval_ms: NonNegativeInt = 2_000
    timeout_minutes: PositiveInt = 60


class RemoteEmbeddingConfig(ConfigSection):
    """Another URL, key or headers for the embedding service."""

    base_url: NonEmptyStr | None = None
    api_key: str | None = Field(None, repr=False)
    headers: Mapping[str, str] = Field({}, repr=False)
    batch: EmbeddingBatchConfig = EmbeddingBatchConfig.model_construct()


class LocalEmbeddingConfig(ConfigSection):
    """A folder or file of model weights, and the cache for downloaded ones."""

    model_path: NonEmptyStr | None = None
    model_cache_dir: NonEmptyStr | None = None


class VectorStoreConfig(ConfigSection):
    """Whether vectors are stored. `extensionPath` is OpenClaw's and has no effect."""

    enabled: bool = True
    extension_path: str | None = None


class IndexStoreConfig(ConfigSection):
    """The path of the index, in which `{agentId}` is replaced."""

    driver: Literal["sqlite"] = "sqlite"
    path: NonEmptyStr | None = None
    vector: VectorStoreConfig = VectorStoreConfig.model_construct()


class ChunkingConfig(ConfigSection):
    """The size of a chunk in tokens of four characters, and how much two chunks share."""

    tokens: PositiveInt = 400
    overlap: NonNegativeInt = 80


class SessionSyncConfig(ConfigSection):
    """How much a session grows before its new messages are indexed."""

    delta_bytes: NonNegativeInt = 100_000
    delta_messages: NonNegativeInt = 50


class MemorySyncConfig(ConfigSection):
    """When the index is updated from the files."""

    on_session_start: bool = True
    on_search: bool = True
    watch: bool = True
    watch_debounce_ms: NonNegativeInt = 1_500
    interval_minutes: NonNegativeInt = 0
    sessions: SessionSyncConfig = SessionSyncConfig.model_construct()


class DiversityConfig(ConfigSection):
    """Prefer diverse results over similar ones (maximal marginal relevance)."""

    enabled: bool = False
    lambda_: Fraction = Field(0.7, alias="lambda")


class TemporalDecayConfig(ConfigSection):
    """Lower the score of old notes."""

    enabled: bool = False
    half_life_days: PositiveInt = 30


class HybridConfig(ConfigSection):
    """OpenClaw's weighted sum of scores, if configured; else Homarus ranks lines."""

    enabled: bool | None = None
    vector_weight: Fraction = 0.7
    text_weight: Fraction = 0.3
    candidate_multiplier: PositiveInt = 4
    mmr: DiversityConfig = DiversityConfig.model_construct()
    temporal_decay: TemporalDecayConfig = TemporalDecayConfig.model_construct()

    @property
    def is_asked(self) -> bool:
        """Return whether the config enables this formula, or sets its weights."""
        if self.enabled is not None:
            return self.enabled
        return not {"vector_weight", "text_weight"}.isdisjoint(self.model_fields_set)


class MemoryQueryConfig(ConfigSection):
    """The number of results and their minimum score."""

    max_results: PositiveInt = 6
    min_score: Fraction | None = None
    hybrid: HybridConfig = HybridConfig.model_construct()


class VectorCacheConfig(ConfigSection):
    """The cache of computed vectors."""

    enabled: bool = True
    max_entries: PositiveInt | None = None


class ExperimentalConfig(ConfigSection):
    """Experimental features; `sessionMemory` also searches past sessions."""

    session_memory: bool = False


class MemorySearchConfig(ConfigSection):
    """How one agent's memory is indexed and searched."""

    enabled: bool = True
    sources: Annotated[tuple[MemorySource, ...], Strict(strict=False)] = ("memory",)
    extra_paths: StrTuple = ()
    experimental: ExperimentalConfig = ExperimentalConfig.model_construct()
    provider: EmbeddingProviderName = "auto"
    remote: RemoteEmbeddingConfig = RemoteEmbeddingConfig.model_construct()
    fallback: EmbeddingProviderName = "none"
    model: NonEmptyStr | None = None
    local: LocalEmbeddingConfig = LocalEmbeddingConfig.model_construct()
    store: IndexStoreConfig = IndexStoreConfig.model_construct()
    chunking: ChunkingConfig = ChunkingConfig.model_construct()
    sync: MemorySyncConfig = MemorySyncConfig.model_construct()
    query: MemoryQueryConfig = MemoryQueryConfig.model_construct()
    cache: VectorCacheConfig = VectorCacheConfig.model_construct()


class QmdCollectionConfig(ConfigSection):
    """A folder that qmd indexes in addition to the agent's own."""

    path: NonEmptyStr
    name: NonEmptyStr | None = None
    pattern: NonEmptyStr | None = None


class QmdSessionsConfig(ConfigSection):
    """The export of past sessions as Markdown for qmd."""

    enabled: bool = False
    export_dir: NonEmptyStr | None = None
    retention_days: NonNegativeInt = 30


class QmdUpdateConfig(ConfigSection):
    """When qmd updates its index, and its timeouts."""

    interval: Duration = "5m"
    debounce_ms: NonNegativeInt = 15_000
    on_boot: bool = True
    wait_for_boot_sync: bool = False
    embed_interval: Duration = "60m"
    command_timeout_ms: NonNegativeInt = 30_000
    update_timeout_ms: NonNegativeInt = 120_000
    embed_timeout_ms: NonNegativeInt = 120_000


class QmdLimitsConfig(ConfigSection):
    """The size of search results, and the timeout of a search."""

    max_results: PositiveInt = 6
    max_snippet_chars: PositiveInt = 700
    max_injected_chars: PositiveInt = 4_000
    timeout_ms: NonNegativeInt = 4_000  # 0: no timeout


class MemoryScopeConfig(ConfigSection):
    """The sessions that may search. A rule that denies wins over one that allows."""

    default: Literal["allow", "deny"] = "deny"
    rules: Annotated[tuple[SendRule, ...], Strict(strict=False)] = ()


_PRIVATE_CHATS = SendRule.model_construct(
    action="allow", match=SendMatch.model_construct(chat_type="direct")
)
_DIRECT_ONLY = MemoryScopeConfig.model_construct(default="deny", rules=(_PRIVATE_CHATS,))


class QmdConfig(ConfigSection):
    """The qmd program. `limits` and `scope` apply to every backend."""

    command: NonEmptyStr = "qmd"
    search_mode: Literal["query", "search", "vsearch"] = "search"
    include_default_memory: bool = True
    paths: Annotated[tuple[QmdCollectionConfig, ...], Strict(strict=False)] = ()
    sessions: QmdSessionsConfig = QmdSessionsConfig.model_construct()
    update: QmdUpdateConfig = QmdUpdateConfig.model_construct()
    limits: QmdLimitsConfig = QmdLimitsConfig.model_construct()
    scope: MemoryScopeConfig = _DIRECT_ONLY


class MemoryConfig(ConfigSection):
    """`memory`: who keeps the index, and whether answers say where they come from."""

    backend: MemoryBackendName = "builtin"
    citations: Literal["auto", "on", "off"] = "auto"
    qmd: QmdConfig = QmdConfig.model_construct()


def memory_search(config: Config, agent: str) -> MemorySearchConfig:
    """Return an agent's `memorySearch` merged over the defaults'. Raises ConfigError."""
    defaults, own = config.agents.defaults.memory_search, agent_entry(config, agent).memory_search
    return _read(MemorySearchConfig, apply_merge_patch(dict(defaults), dict(own)), "memorySearch")


def memory_settings(config: Config) -> MemoryConfig:
    """Return the section `memory` of the config. Raises ConfigError."""
    return _read(MemoryConfig, dict(config.memory), "memory")


def _read(kind: type[S], tree: Any, name: str) -> S:
    try:
        return kind.model_validate(tree)
    except ValidationError as exc:
        error = exc.errors(include_url=False, include_input=False)[0]
        raise ConfigError(error["msg"], key=".".join(map(str, (name, *error["loc"])))) from None
