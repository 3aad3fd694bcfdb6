"""Vendors' batch services: cheaper, and done within hours. Used when the config asks for it.

A job takes many parts, each the texts of one request. It is sent, looked at until it is done or
the time is over, read, and cleared away. Whatever it did not bring is the caller's to get.
"""

import asyncio
import hashlib
import json
import re
import secrets
from collections.abc import Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import field
from typing import Final, Protocol, TypeAlias

from homarus.config.memory import Batch
from homarus.core.errors import ProviderError, ProviderTimeout
from homarus.core.text import one_line
from homarus.core.value import dataclass
from homarus.memory.embed.answer import Part, read_part
from homarus.memory.embed.link import Link, Patience

MAX_FILE_BYTES: Final = 200 << 20  # as OpenAI's
# Vendors take 50,000 and more; but all vectors of a job are in memory at once.
MAX_JOB_TEXTS: Final = 1_000
_MAX_ANSWER_BYTES = 1 << 20
_PATIENCE = Patience(attempts=4, each_s=120.0, whole_s=600.0)
_BRIEF = Patience(attempts=1, each_s=10.0, whole_s=10.0)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,199}")


@dataclass(frozen=True, slots=True)
class Read:
    """What one answer held; `tokens` None when it does not tell."""

    vectors: list[list[float]]
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """How a job is doing. Once it is over, `output` is what `Jobs.results` needs."""

    over: bool
    output: str = ""
    trouble: str = ""


Parts: TypeAlias = Mapping[int, list[str]]


class Jobs(Protocol):
    """One vendor's batch service. Errors are ProviderErrors, or ValueErrors of an odd answer."""

    @property
    def max_texts(self) -> int: ...

    @property
    def max_bytes(self) -> int:
        """Of what is sent; a text is taken for twice its bytes."""
        ...

    @property
    def price_share(self) -> float:
        """Of the price that a request of one's own has."""
        ...

    async def submit(self, link: Link, parts: Parts) -> str:
        """Begin a job; its name."""
        ...

    async def look(self, link: Link, job: str) -> Look: ...

    async def results(self, link: Link, look: Look, parts: Parts) -> dict[int, Read]:
        """What it brought, by part; those that failed are not there."""
        ...

    async def cancel(self, link: Link, job: str) -> None: ...


@dataclass(frozen=True, slots=True)
class Bundle:
    """Where jobs are sent and how. `open` has those that are under way, by their texts."""

    link: Link
    jobs: Jobs
    batch: Batch
    open: MutableMapping[str, str]


@dataclass(slots=True)
class Outcome:
    """What all jobs brought, and the first thing that went wrong."""

    parts: dict[int, Read] = field(default_factory=dict)
    trouble: str = ""


async def run_jobs(bundle: Bundle, parts: Sequence[list[str]]) -> Outcome:
    """Run jobs for all parts, a few at a time; JobUnderWay when they are not waited for."""
    outcome = Outcome()
    places = asyncio.Semaphore(bundle.batch.concurrency)
    waiting: list[JobUnderWay] = []

    async def one(some: Parts) -> None:
        async with places:
            try:
                outcome.parts.update(await _run(bundle, some))
            except JobUnderWay as exc:
                waiting.append(exc)
            except ProviderError as exc:
                outcome.trouble = outcome.trouble or exc.message
            except ValueError as exc:
                outcome.trouble = outcome.trouble or f"it answered oddly: {one_line(str(exc), 160)}"

    async with asyncio.TaskGroup() as group:
        for some in _grouped(parts, bundle.jobs):
            group.create_task(one(some))
    if waiting:
        raise waiting[0]
    return outcome


class JobUnderWay(ProviderError):
    """A job is under way, and nobody waits for it."""


def _grouped(parts: Sequence[list[str]], jobs: Jobs) -> list[dict[int, list[str]]]:
    """Parts in jobs that the service takes."""
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


async def _run(bundle: Bundle, parts: Parts) -> dict[int, Read]:
    jobs, link = bundle.jobs, bundle.link
    mark = hashlib.sha256(json.dumps(list(parts.values())).encode()).hexdigest()
    job = bundle.open.get(mark) or await jobs.submit(link, parts)
    bundle.open[mark] = job
    look = await _wait(bundle, job)
    del bundle.open[mark]
    if not look.output:
        why = look.trouble or "it does not say why"
        raise ProviderError(f"the batch job {job} brought nothing: {why}")
    return await jobs.results(link, look, parts)


async def _wait(bundle: Bundle, job: str) -> Look:
    """Look at a job until it is over. One that takes too long is called off."""
    clock, batch = bundle.link.clock, bundle.batch
    until_s = clock.monotonic() + batch.timeout_minutes * 60
    while True:
        look = await bundle.jobs.look(bundle.link, job)
        if look.over:
            return look
        if not batch.wait:
            raise JobUnderWay(
                f"the batch job {job} is not done yet",
                fix="it is looked at again with the next sync; batch.wait would wait for it",
            )
        if clock.monotonic() >= until_s:
            await _call_off(bundle, job)
            raise ProviderTimeout(
                f"the batch job {job} was not done within {batch.timeout_minutes} minutes",
                fix="raise memorySearch.remote.batch.timeoutMinutes",
            )
        await clock.sleep(max(batch.poll_interval_ms, 1) / 1000)


async def _call_off(bundle: Bundle, job: str) -> None:
    for mark in [mark for mark, name in bundle.open.items() if name == job]:
        del bundle.open[mark]
    with suppress(ProviderError):  # it ends by itself, within a day
        await bundle.jobs.cancel(bundle.link, job)


async def ask_briefly(link: Link, method: str, path: str) -> None:
    """Ask for something that does not matter much."""
    with suppress(ProviderError):
        await link.ask(method, path, patience=_BRIEF, max_bytes=_MAX_ANSWER_BYTES)


async def ask_json(link: Link, method: str, path: str, body: object = None) -> bytes:
    """Ask about a job."""
    sent = b"" if body is None else json.dumps(body).encode()
    return await link.ask(method, path, sent, patience=_PATIENCE, max_bytes=_MAX_ANSWER_BYTES)


async def ask_whole(link: Link, method: str, path: str, texts: int) -> bytes:
    """Ask for what a job brought."""
    max_bytes = min(_MAX_ANSWER_BYTES + texts * 16_384 * 24, MAX_FILE_BYTES)
    return await link.ask(method, path, patience=_PATIENCE, max_bytes=max_bytes)


async def send_file(link: Link, lines: bytes) -> str:
    """Upload a file for a job, as a browser would send a form; its id."""
    mark = secrets.token_hex(16)
    head = (
        f"--{mark}\r\n"
        'Content-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
        f"--{mark}\r\n"
        'Content-Disposition: form-data; name="file"; filename="memory.jsonl"\r\n'
        "Content-Type: application/jsonl\r\n\r\n"
    )
    body = head.encode() + lines + f"\r\n--{mark}--\r\n".encode()
    told = await link.ask(
        "POST",
        "/files",
        body,
        patience=_PATIENCE,
        max_bytes=_MAX_ANSWER_BYTES,
        content_type=f"multipart/form-data; boundary={mark}",
    )
    return checked_id(read_part(_File, told).id)


def checked_id(text: str) -> str:
    """A name that a service gave, fit to be part of an address."""
    if not _ID.fullmatch(text):
        raise ValueError("a name that cannot be one")
    return text


class _File(Part):
    id: str
