"""Embed texts with the batch APIs of vendors: cheaper, and done within hours.

They are used when the config enables them. A job has many parts, each with the texts of one
request. It is submitted, polled until it is done or timed out, read, and deleted. The caller embeds
the parts that it did not return.
"""

import asyncio
import hashlib
import json
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Final, TypeAlias

from homarus.config.memory import EmbeddingBatchConfig
from homarus.core.errors import ProviderError, ProviderTimeoutError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.memory.embed.client import EmbeddingClient, EmbedRetryPolicy
from homarus.memory.embed.response import ResponseModel, parse_response

MAX_FILE_BYTES: Final = 200 << 20  # OpenAI's limit
# Vendors accept 50,000 and more; but all vectors of a job are in memory at once.
MAX_JOB_TEXTS: Final = 1_000
_MAX_ANSWER_BYTES = 1 << 20
_PATIENCE = EmbedRetryPolicy(attempts=4, each_s=120.0, whole_s=600.0)
_BRIEF = EmbedRetryPolicy(attempts=1, each_s=10.0, whole_s=10.0)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")


@dataclass(frozen=True, slots=True)
class EmbeddedTexts:
    """The vectors of one response; `tokens` is None when the service does not report them."""

    vectors: list[list[float]]
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class BatchStatus:
    """The status of a job; once it is `over`, `output` is what `BatchApi.results` needs."""

    over: bool
    output: str = ""
    trouble: str = ""


BatchParts: TypeAlias = Mapping[int, list[str]]


class BatchApi(ABC):
    """A vendor's batch API: the same steps for all, with the vendor's formats in between.

    Errors are ProviderErrors, or ValueErrors for a response that cannot be used.
    """

    __slots__ = ()

    max_texts: int
    max_bytes: int  # of a request; a text counts twice its bytes
    price_share: float  # of the price of a single request
    cancel_suffix: str  # of the job's path

    async def submit(self, link: EmbeddingClient, parts: BatchParts) -> str:
        """Start a job; return its id."""
        path, body = await self.make_request(link, parts)
        return self.parse_id(await request_json(link, "POST", path, body))

    async def poll(self, link: EmbeddingClient, job: str) -> BatchStatus:
        """Return the status of a job."""
        max_texts = self.max_texts if self.has_inline_results else 0
        return self.parse_status(await request_results(link, "GET", _job_path(job), max_texts))

    async def results(
        self, link: EmbeddingClient, look: BatchStatus, parts: BatchParts
    ) -> dict[int, EmbeddedTexts]:
        """Return the results by part, without those that failed, and delete the job's data.

        Raises ValueError with the reason when there is no result.
        """
        output = await self.fetch_results(link, look, parts)
        for path in output.deletable:
            await request_best_effort(link, "DELETE", path)
        if not output.parts:
            raise ValueError(output.trouble)
        return output.parts

    async def cancel(self, link: EmbeddingClient, job: str) -> None:
        await request_json(link, "POST", f"{_job_path(job)}{self.cancel_suffix}", {})

    @property
    def has_inline_results(self) -> bool:
        """Whether the status of a job that is over contains its results."""
        return False

    @abstractmethod
    async def make_request(self, link: EmbeddingClient, parts: BatchParts) -> tuple[str, object]:
        """Return the path and the body that start a job; upload its files first."""

    @abstractmethod
    def parse_id(self, data: bytes) -> str: ...

    @abstractmethod
    def parse_status(self, data: bytes) -> BatchStatus: ...

    @abstractmethod
    async def fetch_results(
        self, link: EmbeddingClient, look: BatchStatus, parts: BatchParts
    ) -> "BatchOutput": ...


@dataclass(frozen=True, slots=True)
class BatchOutput:
    """The results of a job by part, the paths to delete, and why there are no results."""

    parts: dict[int, EmbeddedTexts]
    deletable: Iterable[str]
    trouble: str = ""


def _job_path(job: str) -> str:
    return f"/batches/{checked_id(job)}"


@dataclass(frozen=True, slots=True)
class BatchContext:
    """The client, API and settings of jobs; `open` maps a digest of texts to its pending job."""

    link: EmbeddingClient
    jobs: BatchApi
    batch: EmbeddingBatchConfig
    open: MutableMapping[str, str]


@dataclass(slots=True)
class BatchOutcome:
    """The results of all jobs, and the first error."""

    parts: dict[int, EmbeddedTexts] = field(default_factory=dict)
    trouble: str = ""


async def run_jobs(bundle: BatchContext, parts: Sequence[list[str]]) -> BatchOutcome:
    """Run jobs for all parts, a few at a time. Raises BatchPendingError if `wait` is off."""
    outcome = BatchOutcome()
    slots = asyncio.Semaphore(bundle.batch.concurrency)
    pending: list[BatchPendingError] = []

    async def one(some: BatchParts) -> None:
        async with slots:
            try:
                outcome.parts.update(await _run(bundle, some))
            except BatchPendingError as exc:
                pending.append(exc)
            except ProviderError as exc:
                outcome.trouble = outcome.trouble or exc.message
            except ValueError as exc:
                outcome.trouble = outcome.trouble or f"it answered oddly: {one_line(str(exc), 160)}"

    async with asyncio.TaskGroup() as group:
        for some in _grouped(parts, bundle.jobs):
            group.create_task(one(some))
    if pending:
        raise pending[0]
    return outcome


class BatchPendingError(ProviderError):
    """A job is pending, and the config says not to wait for it."""


def _grouped(parts: Sequence[list[str]], jobs: BatchApi) -> list[dict[int, list[str]]]:
    """Group parts into jobs within the limits of the service."""
    groups: list[dict[int, list[str]]] = []
    texts = size = 0
    for number, part in enumerate(parts):
        part_bytes = 2 * sum(len(text.encode()) + 100 for text in part)
        full = texts + len(part) > jobs.max_texts or size + part_bytes > jobs.max_bytes
        if full or not groups:
            groups.append({})
            texts = size = 0
        groups[-1][number] = part
        texts += len(part)
        size += part_bytes
    return groups


async def _run(bundle: BatchContext, parts: BatchParts) -> dict[int, EmbeddedTexts]:
    jobs, link = bundle.jobs, bundle.link
    digest = hashlib.sha256(json.dumps(list(parts.values())).encode()).hexdigest()
    job = bundle.open.get(digest) or await jobs.submit(link, parts)
    bundle.open[digest] = job
    look = await _wait(bundle, job)
    del bundle.open[digest]
    if not look.output:
        reason = look.trouble or "it does not say why"
        raise ProviderError(f"the batch job {job} brought nothing: {reason}")
    return await jobs.results(link, look, parts)


async def _wait(bundle: BatchContext, job: str) -> BatchStatus:
    """Poll a job until it is over; cancel it when it times out."""
    clock, batch = bundle.link.clock, bundle.batch
    until_s = clock.monotonic() + batch.timeout_minutes * 60
    while True:
        look = await bundle.jobs.poll(bundle.link, job)
        if look.over:
            return look
        if not batch.wait:
            raise BatchPendingError(
                f"the batch job {job} is not done yet",
                fix="it is looked at again with the next sync; batch.wait would wait for it",
            )
        if clock.monotonic() >= until_s:
            await _cancel(bundle, job)
            raise ProviderTimeoutError(
                f"the batch job {job} was not done within {batch.timeout_minutes} minutes",
                fix="raise memorySearch.remote.batch.timeoutMinutes",
            )
        await clock.sleep(max(batch.poll_interval_ms, 1) / 1000)


async def _cancel(bundle: BatchContext, job: str) -> None:
    for digest in [digest for digest, name in bundle.open.items() if name == job]:
        del bundle.open[digest]
    with suppress(ProviderError):  # the vendor ends the job within a day
        await bundle.jobs.cancel(bundle.link, job)


async def request_best_effort(link: EmbeddingClient, method: str, path: str) -> None:
    """Send a request whose failure is ignored."""
    with suppress(ProviderError):
        await link.request(method, path, patience=_BRIEF, max_bytes=_MAX_ANSWER_BYTES)


async def request_json(link: EmbeddingClient, method: str, path: str, body: object = None) -> bytes:
    """Send a request about a job; return the body of the response."""
    sent = b"" if body is None else json.dumps(body).encode()
    return await link.request(method, path, sent, patience=_PATIENCE, max_bytes=_MAX_ANSWER_BYTES)


async def request_results(link: EmbeddingClient, method: str, path: str, texts: int) -> bytes:
    """Request the results of a job with this many texts."""
    max_bytes = min(_MAX_ANSWER_BYTES + texts * 16_384 * 24, MAX_FILE_BYTES)
    return await link.request(method, path, patience=_PATIENCE, max_bytes=max_bytes)


async def send_file(link: EmbeddingClient, lines: bytes) -> str:
    """Upload a file for a job as multipart form data; return its id."""
    boundary = secrets.token_hex(16)
    head = (
        f"--{boundary}\r\n"
        'Content-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        f"--{boundary}\r\n"
        'Content-Disposition: form-data; name="file"; filename="memory.jsonl"\r\n'
        "Content-Type: application/jsonl\r\n\r\n"
    )
    body = head.encode() + lines + f"\r\n--{boundary}--\r\n".encode()
    data = await link.request(
        "POST",
        "/files",
        body,
        patience=_PATIENCE,
        max_bytes=_MAX_ANSWER_BYTES,
        content_type=f"multipart/form-data; boundary={boundary}",
    )
    return checked_id(parse_response(_File, data).id)


def checked_id(text: str) -> str:
    """Return an id that a service gave, if it can be part of a path. Raises ValueError."""
    if not _ID.fullmatch(text):
        raise ValueError("a name that cannot be one")
    return text


class _File(ResponseModel):
    id: str
