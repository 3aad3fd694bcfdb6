"""The embedders behind `/v1/embeddings`: those of the agents' memory settings, loaded when used.

They are apart from the ones that index notes, so that a client cannot make a search wait. One
thread works for all clients; an embedder that is idle for minutes is closed.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from homarus.core.errors import HomarusError, UnavailableError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Usage
from homarus.gateway.http_api.api_error import ApiError
from homarus.store.base import UsageRecord

if TYPE_CHECKING:
    from homarus.gateway.server import Gateway
    from homarus.memory.embed.base import EmbeddingCost
    from homarus.memory.embed.selection import EmbedderSelection
    from homarus.memory.shared_embedder import SharedEmbedder
    from homarus.memory.spec import MemorySpec

RUN: Final = "embeddings"  # the run id of usage records: a request belongs to no run
MAX_WAITING: Final = 16  # requests that wait for the thread
TIMEOUT_S: Final = 120.0
_MAX_OPEN: Final = 4  # embedders that are loaded
_CHARS_PER_TOKEN: Final = 4


@dataclass(frozen=True, slots=True)
class EmbeddedInput:
    """The vectors of some texts, which model made them, and of how many tokens."""

    model: str
    dims: int
    vectors: list[list[float]]
    tokens: int


@dataclass(frozen=True, slots=True)
class EmbedderChoiceRequest:
    """Which embedder: that of an agent's memory, or another provider and model."""

    agent: str
    provider: str = ""
    model: str = ""


@dataclass(slots=True)
class _OpenEmbedder:
    spec: "MemorySpec"
    shared: "SharedEmbedder"
    costs: "list[EmbeddingCost]"


class EmbeddingPool:
    """The open embedders of one gateway. `select` chooses the embedder of a spec."""

    def __init__(
        self, gateway: "Gateway", select: "Callable[..., EmbedderSelection] | None" = None
    ) -> None:
        self._gateway, self._select = gateway, select
        self._open: OrderedDict[EmbedderChoiceRequest, _OpenEmbedder] = OrderedDict()
        self._thread, self._waiting = asyncio.Lock(), 0
        self._has_closer = False

    async def embed(self, request: EmbedderChoiceRequest, texts: Sequence[str]) -> EmbeddedInput:
        """Return the vectors of texts; raises ApiError (404) if no embedder can be had."""
        if self._waiting >= MAX_WAITING:
            raise ApiError(503, "too many embedding requests at once", after_s=2)
        self._waiting += 1
        try:
            async with self._thread:
                return await self._embed(request, texts)
        finally:
            self._waiting -= 1

    async def _embed(self, request: EmbedderChoiceRequest, texts: Sequence[str]) -> EmbeddedInput:
        opened: _OpenEmbedder | None = None
        is_done = False
        if not self._has_closer:
            self._gateway.start("embedders", self._close_at_end)
            self._has_closer = True
        try:
            async with asyncio.timeout(TIMEOUT_S):
                opened = await asyncio.to_thread(self._get, request)
                found = await asyncio.to_thread(_run, opened, texts)
            is_done = True
        except TimeoutError:
            message = f"the texts were not embedded within {TIMEOUT_S:g} s"
            raise ApiError(504, message, fix="send fewer texts at once") from None
        except HomarusError:
            is_done = True  # the embedder has ended its work itself
            raise
        finally:
            if opened is not None and not is_done:  # its thread would go on
                self._open.pop(request, None)
                opened.shared.stop()
                await asyncio.to_thread(opened.shared.close)
        await self._save_costs(opened)
        return found

    async def _close_at_end(self) -> None:
        """Close the embedders when the gateway stops."""
        try:
            await asyncio.Event().wait()
        finally:
            opened, self._open = list(self._open.values()), OrderedDict()
            for each in opened:
                each.shared.stop()
                await asyncio.to_thread(each.shared.close)

    def _get(self, request: EmbedderChoiceRequest) -> _OpenEmbedder:
        """Return the embedder for a request, opening it. Imports memory: called in a thread."""
        from homarus.memory.shared_embedder import SharedEmbedder

        spec = self._resolve_spec(request)
        opened = self._open.pop(request, None)
        if opened is not None and replace(spec, access=opened.spec.access) != opened.spec:
            opened.shared.close()  # the settings changed; functions are never equal
            opened = None
        if opened is None:
            costs: list[EmbeddingCost] = []
            selected = self._selector()(spec, paid=costs.append, clock=self._gateway.clock)
            if selected.embedder is None:
                raise ApiError(
                    404,
                    f"the agent {spec.agent} has no embedder: {selected.problem or selected.why}",
                    reason="no_embedder",
                    fix="set agents.defaults.memorySearch.provider, or run"
                    " `homarus models pull minilm`",
                )
            opened = _OpenEmbedder(spec, SharedEmbedder(selected.embedder), costs)
        self._open[request] = opened
        while len(self._open) > _MAX_OPEN:
            self._open.popitem(last=False)[1].shared.close()
        return opened

    def _selector(self) -> "Callable[..., EmbedderSelection]":
        if self._select is not None:
            return self._select
        from homarus.memory.embed.selection import select_embedder

        return partial(select_embedder)

    def _resolve_spec(self, request: EmbedderChoiceRequest) -> "MemorySpec":
        """Return the memory settings of an agent, with the provider and model of the request."""
        from homarus.config.memory import (
            EmbeddingBatchConfig,
            LocalEmbeddingConfig,
            RemoteEmbeddingConfig,
            VectorStoreConfig,
        )
        from homarus.memory.spec import resolve_memory_spec

        services = self._gateway.services
        config, env = services.loaded.config, services.loaded.env
        spec = resolve_memory_spec(config, services.paths, env, request.agent)
        search = spec.search
        if request.provider:
            is_same = request.provider == search.provider
            # The address and the key of one service are not sent to another.
            remote = search.remote if is_same else RemoteEmbeddingConfig.model_construct()
            local = search.local if is_same else LocalEmbeddingConfig.model_construct()
            changes = {"provider": request.provider, "model": request.model or None}
            search = search.model_copy(
                update={**changes, "remote": remote, "local": local, "fallback": "none",
                        "store": search.store.model_copy(
                            update={"vector": VectorStoreConfig.model_construct()})}
            )  # fmt: skip
        # Jobs of a batch API take minutes to hours: for notes, not for a client that waits.
        batch = EmbeddingBatchConfig.model_construct()
        search = search.model_copy(
            update={"remote": search.remote.model_copy(update={"batch": batch})}
        )
        return replace(spec, search=search)

    async def _save_costs(self, opened: _OpenEmbedder) -> None:
        """Record what a service took, in the table of model calls."""
        costs, now_ms = list(opened.costs), self._gateway.clock.now_ms()
        opened.costs.clear()
        records = [
            UsageRecord(
                RUN, "", cost.provider, cost.model, now_ms,
                Usage(input=cost.tokens, cost=cost.cost_usd),
            )
            for cost in costs
        ]  # fmt: skip
        if records:
            async with self._gateway.services.store.transaction() as transaction:
                transaction.add_usage(*records)


def _run(opened: _OpenEmbedder, texts: Sequence[str]) -> EmbeddedInput:
    """Return the vectors of texts; called in a thread."""
    size = max(1, min(opened.shared.texts_at_once, len(texts)))
    vectors = list[list[float]]()
    for start in range(0, len(texts), size):
        vectors += opened.shared.embed(texts[start : start + size])
    model = opened.shared.wait_for_model()
    if any(len(each) != model.dims for each in vectors):
        raise UnavailableError(f"{model.provider} returned vectors of different sizes")
    tokens = sum(cost.tokens for cost in opened.costs)
    guessed = sum(-(-len(text) // _CHARS_PER_TOKEN) for text in texts)
    return EmbeddedInput(f"{model.provider}/{model.name}", model.dims, vectors, tokens or guessed)
