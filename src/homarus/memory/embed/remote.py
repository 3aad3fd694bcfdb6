"""An embedder behind HTTP: the common part of OpenAI, Google, Voyage and Ollama.

Texts are sent in batches within the limits of the service, vectors are validated, and costs are
reported. It runs its own event loop, as the threads of memory have none.
"""

import asyncio
import logging
import math
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, Protocol, TypeAlias, TypeVar

from homarus.config.memory import EmbeddingBatchConfig
from homarus.core.clock import Clock, SystemClock
from homarus.core.errors import ContextOverflowError, ProviderError, StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.memory.embed.base import (
    EmbeddingCost,
    EmbeddingModel,
    OnCost,
    OnNotice,
    ignore_cost,
    to_embeddable,
)
from homarus.memory.embed.batch_jobs import (
    MAX_JOB_TEXTS,
    BatchApi,
    BatchContext,
    EmbeddedTexts,
    run_jobs,
)
from homarus.memory.embed.client import EmbeddingClient, EmbedRetryPolicy, ServiceAccess, identity

TextKind: TypeAlias = Literal["note", "question"]
T = TypeVar("T")

QUESTION_S: Final = 4.0
_MIN_JOB_TEXTS = 200  # fewer are sent directly: a job takes minutes at best
_JOB_TEXTS_AT_ONCE = 2 * MAX_JOB_TEXTS
_TEXTS_AT_ONCE = 256
_SHORTEST_CHARS = 200  # a text that does not fit at this length is refused
_NUMBER_BYTES = 40
_MOST_DIMS = 16_384
_SHORTEST = 1e-150  # shorter vectors have too little precision for a direction
_CHARS_PER_TOKEN = 4
_MAX_FAILED_JOBS = 2
_SIZE = EmbedRetryPolicy(attempts=2, each_s=30.0, whole_s=30.0)  # a search may wait for it, too
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EmbedRequestLimits:
    """What a service accepts in one request."""

    max_texts: int = 100
    max_chars: int = 200_000
    max_text_chars: int = 8_000


@dataclass(frozen=True, slots=True)
class HostedModel:
    """One model of one service. With `dims` 0, the first response tells. Prices are per million."""

    provider: str
    model: str
    access: ServiceAccess
    dims: int = 0
    price: float = 0.0
    limits: EmbedRequestLimits = EmbedRequestLimits()
    batch: EmbeddingBatchConfig = EmbeddingBatchConfig.model_construct()
    question_s: float = QUESTION_S


class EmbeddingApi(Protocol):
    """The request and response format of one vendor."""

    @property
    def path(self) -> str: ...

    @property
    def key_header(self) -> str: ...

    @property
    def unknown_fix(self) -> str:
        """Return what to do when the service does not know the model; empty for the default."""
        ...

    @property
    def jobs(self) -> BatchApi | None: ...

    def body(self, texts: Sequence[str], kind: TextKind) -> bytes: ...

    def read(self, data: bytes) -> EmbeddedTexts:
        """Parse the vectors of a response. Raises ValueError."""
        ...


class RemoteEmbedder:
    """An embedder whose model runs on a service, to which the texts are sent."""

    def __init__(
        self,
        hosted: HostedModel,
        wire: EmbeddingApi,
        *,
        paid: OnCost = ignore_cost,
        tell: OnNotice = _log.warning,
        clock: Clock | None = None,
    ) -> None:
        self._hosted, self._wire, self._paid, self._tell = hosted, wire, paid, tell
        self._dims = hosted.dims
        self._runner: asyncio.Runner | None = None
        self._running: asyncio.Task[Any] | None = None
        self._is_stopped = False
        self._mark = identity(hosted.access)
        self._failed_jobs = 0
        self._open_jobs: dict[str, str] = {}
        self._link = EmbeddingClient(
            hosted.provider,
            hosted.model,
            hosted.access,
            clock or SystemClock(),
            key_header=wire.key_header,
            unknown_fix=wire.unknown_fix,
        )

    @property
    def model(self) -> EmbeddingModel:
        """Return the model; an unknown one is determined by one request."""
        hosted = self._hosted
        if not self._dims:
            self._run(self._request(["size"], "note", _SIZE))
        return EmbeddingModel(hosted.provider, hosted.model, self._dims, self._mark)

    @property
    def texts_at_once(self) -> int:
        return _JOB_TEXTS_AT_ONCE if self._uses_jobs else _TEXTS_AT_ONCE

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        said = {at: text for at, text in enumerate(map(self._clean, texts)) if text}
        made = self._run(self._notes(list(said.values()))) if said else []
        found = dict(zip(said, made, strict=True))
        nothing = [0.0] * (0 if len(found) == len(texts) else self.model.dims)
        return [found.get(at, nothing) for at in range(len(texts))]

    def embed_question(self, text: str) -> list[float]:
        """Return the vector of a query within the query timeout."""
        said = self._clean(text)
        if not said:
            return [0.0] * self.model.dims
        seconds = self._hosted.question_s
        patience = EmbedRetryPolicy(attempts=2, each_s=seconds, whole_s=seconds, longest_wait_s=1.0)
        return self._run(self._part([said], "question", patience))[0]

    def stop(self) -> None:
        """Cancel the current request, from another thread."""
        self._is_stopped = True
        if running := self._running:
            with suppress(RuntimeError):  # the task has just ended, and its loop was closed
                running.get_loop().call_soon_threadsafe(running.cancel)

    def close(self) -> None:
        """Close the connections and the event loop."""
        self._is_stopped = False
        runner, self._runner = self._runner, None
        if runner is not None:
            with runner:
                runner.run(self._link.close())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._runner is None:
            self._runner = asyncio.Runner()
        try:
            return self._runner.run(self._heeding(work))
        except asyncio.CancelledError:
            raise StoreError(f"{self._hosted.provider} was not waited for: memory ends") from None

    async def _heeding(self, work: Coroutine[Any, Any, T]) -> T:
        """Await the work until `stop` is called."""
        self._running = asyncio.current_task()
        try:
            if self._is_stopped:
                work.close()
                raise asyncio.CancelledError
            return await work
        finally:
            self._running = None

    def _clean(self, text: str) -> str:
        """Return what is sent of a text; empty for a blank one."""
        return to_embeddable(text.strip(), self._hosted.limits.max_text_chars)

    # --- one request after the other

    async def _notes(self, texts: list[str]) -> list[list[float]]:
        parts = list(split_batches(texts, self._hosted.limits))
        found: dict[int, list[list[float]]] = {}
        if self._uses_jobs and len(texts) >= _MIN_JOB_TEXTS:
            found = await self._by_jobs(parts)
        made: list[list[float]] = []
        for number, part in enumerate(parts):
            had = found.get(number)
            made += await self._part(part, "note", EmbedRetryPolicy()) if had is None else had
        return made

    async def _part(
        self, texts: list[str], kind: TextKind, patience: EmbedRetryPolicy
    ) -> list[list[float]]:
        """Embed one batch; if it is too large it is halved, and a single text is shortened."""
        try:
            return await self._request(texts, kind, patience)
        except ContextOverflowError:
            if len(texts) > 1:
                half = len(texts) // 2
                first = await self._part(texts[:half], kind, patience)
                return first + await self._part(texts[half:], kind, patience)
            if len(texts[0]) <= _SHORTEST_CHARS:
                raise
            return await self._part([texts[0][: len(texts[0]) // 2]], kind, patience)

    async def _request(
        self, texts: list[str], kind: TextKind, patience: EmbedRetryPolicy
    ) -> list[list[float]]:
        data = await self._link.request(
            "POST",
            self._wire.path,
            self._wire.body(texts, kind),
            patience=patience,
            max_bytes=(1 << 20) + len(texts) * (self._dims or _MOST_DIMS) * _NUMBER_BYTES,
        )
        try:
            read = self._wire.read(data)
        except ValueError as exc:
            raise self._link.bad_response_error(_told(data, exc)) from None
        self._pay(texts, read.tokens, self._hosted.price)
        return self._checked(read.vectors, len(texts))

    def _pay(self, texts: Sequence[str], tokens: int | None, price: float) -> None:
        guessed = tokens is None
        count = sum(map(len, texts)) // _CHARS_PER_TOKEN + 1 if tokens is None else tokens
        cost_usd = count * price / 1_000_000
        hosted = self._hosted
        self._paid(
            EmbeddingCost(hosted.provider, hosted.model, len(texts), count, cost_usd, guessed)
        )

    def _checked(self, vectors: list[list[float]], count: int) -> list[list[float]]:
        """Return unit vectors. Raises BadRequestError for a wrong number or size of them."""
        if len(vectors) != count:
            raise self._link.bad_response_error(f"{len(vectors)} vectors for {count} texts")
        if not self._dims:
            dims = len(vectors[0])
            if not 0 < dims <= _MOST_DIMS:
                raise self._link.bad_response_error(f"a vector of {dims} numbers")
            self._dims = dims
        for vector in vectors:
            if len(vector) != self._dims:
                raise self._link.bad_response_error(
                    f"a vector of {len(vector)} numbers, not {self._dims}"
                )
        made = [to_unit(vector) for vector in vectors]
        if None in made:
            raise self._link.bad_response_error("a vector with numbers that are none")
        return [vector for vector in made if vector is not None]

    # --- by the vendor's batch API

    @property
    def _uses_jobs(self) -> bool:
        asked = self._hosted.batch.enabled and self._wire.jobs is not None
        return asked and self._failed_jobs < _MAX_FAILED_JOBS

    async def _by_jobs(self, parts: list[list[str]]) -> dict[int, list[list[float]]]:
        """Return the parts that jobs embedded; the caller embeds the others, which is logged."""
        jobs = self._wire.jobs
        assert jobs is not None  # noqa: S101 - see _uses_jobs
        bundle = BatchContext(self._link, jobs, self._hosted.batch, self._open_jobs)
        outcome = await run_jobs(bundle, parts)
        found: dict[int, list[list[float]]] = {}
        trouble = outcome.trouble
        for number, read in outcome.parts.items():
            self._pay(parts[number], read.tokens, self._hosted.price * jobs.price_share)
            try:
                found[number] = self._checked(read.vectors, len(parts[number]))
            except ProviderError as exc:
                trouble = trouble or exc.message
        missing = len(parts) - len(found)
        self._failed_jobs = 0 if found else self._failed_jobs + 1
        if missing:
            why = trouble or "not everything came back"
            self._tell(
                f"memory: the batch service of {self._hosted.provider} did not bring"
                f" {missing} of {len(parts)} parts ({why}); they are embedded one by one"
            )
        return found


def split_batches(texts: Sequence[str], limits: EmbedRequestLimits) -> Iterator[list[str]]:
    """Yield batches of texts within the limits of a service."""
    part: list[str] = []
    chars = 0
    for text in texts:
        full = len(part) >= limits.max_texts or chars + len(text) > limits.max_chars
        if part and full:
            yield part
            part, chars = [], 0
        part.append(text)
        chars += len(text)
    if part:
        yield part


def to_unit(vector: Sequence[float]) -> list[float] | None:
    """Return the vector with length 1, or zeros; None when its numbers are not finite."""
    length = math.hypot(*vector)
    if not math.isfinite(length):
        return None
    if length < _SHORTEST:
        return [0.0] * len(vector)
    return [number / length for number in vector]


def _told(data: bytes, exc: ValueError) -> str:
    if data.lstrip()[:1] == b"<":
        return "it is a web page"
    return one_line(str(exc), 160)
