"""Run GGUF models inside this process with llama.cpp (xllamacpp); streaming, no tools.

One model has one slot: its thread loads the weights at the first request and answers in order. The
conversation is trimmed to the window here, oldest turns first.
"""

import asyncio
import importlib.util
import os
import secrets
import socket
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from pathlib import Path
from threading import Event
from typing import Protocol, TypeAlias

from homarus.core.clock import Clock, SystemClock
from homarus.core.errors import (
    BadRequestError,
    ContextOverflowError,
    CorruptDataError,
    ProviderError,
    StreamError,
    UserError,
)
from homarus.core.fast_dataclass import dataclass
from homarus.core.installation import extra_command
from homarus.core.message import Image, Json, Message, Origin, Text
from homarus.core.text import repair_surrogates
from homarus.providers.base import Delta, ModelRequest
from homarus.providers.catalog import GGUF_MAGIC, LOCAL_MAX_TOKENS, LOCAL_WINDOW, Price
from homarus.providers.chat_stream import ChatStreamAssembler, MalformedChunkError
from homarus.providers.verified_files import verify_file

# The engine has no tokenizer call; Markdown and prose measured 3.1 to 3.8 characters per token.
CHARS_PER_TOKEN = 3.3
# The overhead of a chat template per turn.
TURN_TOKENS = 6
# While it reads a prompt, llama.cpp checks for a stop once per batch: 64 tokens ≈ 0.5 s.
BATCH_TOKENS = 64
# A small model rambles at high temperature; the penalty prevents repetition at low temperature.
SAMPLING: Mapping[str, Json] = {"temperature": 0.1, "top_p": 0.9, "repeat_penalty": 1.1}
_TUNABLE = frozenset({*SAMPLING, "top_k", "min_p", "seed"})
_ATTEMPTS = 3
FREE = Price()
# A Unix socket's path is limited to 104 bytes on macOS, 108 on Linux.
_SOCKET_PATH_BYTES = 100

Chunk: TypeAlias = dict[str, Json]
See: TypeAlias = Callable[[Chunk], bool]


class Engine(Protocol):
    """The one call of `xllamacpp.Server` we use: `see` gets each chunk and returns True to stop."""

    def handle_chat_completions(self, body: Chunk, see: See, /) -> None: ...


@dataclass(frozen=True, slots=True)
class LocalModelSettings:
    """The weights and the resources they may use.

    `prompt_tokens` limits the prompt when history can be left out (default: the window), to bound
    the reading time. Default of `threads`: every core but one. `sha256` is that of weights we
    know; a user's own file has none.
    """

    path: Path
    window: int = LOCAL_WINDOW
    max_tokens: int = LOCAL_MAX_TOKENS
    prompt_tokens: int | None = None
    threads: int | None = None
    sha256: str = ""


def create(settings: LocalModelSettings, *, clock: Clock | None = None) -> "LocalProvider":
    """Return a provider for these weights. Raises an error for missing or invalid files."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise UserError(
            "a model inside this process needs the package xllamacpp, which is not installed",
            fix=extra_command("local"),
        )
    check_weights(settings.path)
    return LocalProvider(settings, load, clock or SystemClock())


def check_weights(path: Path) -> None:
    """Raise an error for a file that is no GGUF model, by its first bytes."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(GGUF_MAGIC))
    except FileNotFoundError:
        raise UserError(f"there is no model file {path}", fix="check the path") from None
    except OSError as exc:
        raise UserError(f"cannot read {path}: {exc.strerror or exc}", fix="check the path") from exc
    if magic != GGUF_MAGIC:
        raise UserError(f"{path} is not a GGUF model", fix="give the path of a .gguf file")


def load(settings: LocalModelSettings) -> Engine:
    """Load the weights: about half a second for the demo model. Blocks."""
    if settings.sha256:
        _verify(settings)
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(settings.path)
    params.n_ctx = settings.window
    params.n_parallel = 1
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    threads = settings.threads or max(1, _cores() - 1)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.cache_ram_mib = 0  # the default caches up to 8 GB of earlier prompts
    params.prefill_assistant = False
    params.verbosity = -1
    # The library also opens an HTTP server. It gets one thread, a random key and, where supported,
    # a socket that is unlinked before another process can find it.
    params.n_threads_http = 1
    params.ui = params.endpoint_slots = params.endpoint_props = False
    params.api_keys = [secrets.token_hex(32)]
    with tempfile.TemporaryDirectory(prefix="hm-") as folder:
        address = f"{folder}/s.sock"
        if hasattr(socket, "AF_UNIX") and len(os.fsencode(address)) <= _SOCKET_PATH_BYTES:
            params.hostnames = [address]
        try:
            engine: Engine = xllamacpp.Server(params)
        except RuntimeError as exc:
            raise BadRequestError(
                f"llama.cpp cannot load {settings.path}: damaged, or of a kind it does not know",
                fix="fetch the file again, or choose another model",
            ) from exc
    return engine


def _verify(settings: LocalModelSettings) -> None:
    fix = "run `homarus models pull demo` again"
    try:
        verify_file(settings.path, settings.sha256, fix=fix)
    except CorruptDataError as exc:
        raise BadRequestError(exc.message, fix=exc.fix) from exc
    except OSError as exc:
        raise BadRequestError(f"cannot read {settings.path}: {exc.strerror}", fix=fix) from exc


class LocalProvider:
    """A Provider over one engine."""

    name = "local"
    api = "local"

    def __init__(
        self,
        settings: LocalModelSettings,
        load: Callable[[LocalModelSettings], Engine],
        clock: Clock,
    ) -> None:
        self._settings, self._load, self._clock = settings, load, clock
        self._engine: Engine | None = None
        # One worker is the slot: it serialises requests in order and is joined before the
        # interpreter exits, so that llama.cpp never calls back into a finished one.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="homarus-local")
        self._running: set[Event] = set()
        self._closed = False

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Delta | Message, None]:
        system, turns = render_turns(request)
        if not turns:
            raise BadRequestError("there is no message to answer")
        most = self._settings.max_tokens
        max_tokens = max(1, min(request.max_tokens or most, most, self._settings.window // 2))
        room = self._settings.window - max_tokens
        room = min(room, self._settings.prompt_tokens or room)
        chars_per_token = CHARS_PER_TOKEN
        for _ in range(_ATTEMPTS):
            kept = fit_turns(system, turns, room, chars_per_token)
            body = _body(request, system, kept, max_tokens)
            reply = ChatStreamAssembler()
            try:
                async with aclosing(self._chunks(body)) as chunks:
                    async for chunk in chunks:
                        for delta in reply.add(chunk):
                            yield delta
            except _PromptTooLongError as exc:
                turns = kept
                chars_per_token = 0.95 * _chars(system, kept) / exc.tokens
                continue
            except MalformedChunkError as exc:
                raise StreamError(f"the embedded model's answer is malformed: {exc}") from exc
            yield self._message(reply, request.model)
            return
        raise ContextOverflowError(
            f"the message does not fit the model's window of {self._settings.window} tokens",
            fix="send less, or choose a model with a larger window",
        )

    async def _chunks(self, body: Chunk) -> AsyncGenerator[Chunk, None]:
        """Yield the engine's chunks from its thread; leaving early stops it."""
        if self._closed:
            raise ProviderError("the embedded model has been closed")
        loop = asyncio.get_running_loop()
        # Unbounded: it holds at most max_tokens chunks, and the engine must not wait for us.
        queue: asyncio.Queue[Chunk | None] = asyncio.Queue()
        stop = Event()

        def post(chunk: Chunk | None) -> bool:
            try:
                loop.call_soon_threadsafe(queue.put_nowait, chunk)
            except RuntimeError:  # the loop is closed: there is no consumer
                return True
            return stop.is_set()

        def work() -> None:
            try:
                if not stop.is_set():
                    self._answer(body, post)
            finally:
                post(None)

        self._running.add(stop)
        job = self._worker.submit(work)
        try:
            while (chunk := await queue.get()) is not None:
                if error := chunk.get("error"):
                    raise _failure(error)
                yield chunk
            await asyncio.wrap_future(job)
        finally:
            self._running.discard(stop)
            stop.set()
            job.cancel()

    def _answer(self, body: Chunk, see: See) -> None:
        try:
            if self._engine is None:
                self._engine = self._load(self._settings)
            self._engine.handle_chat_completions(body, see)
        except (RuntimeError, OSError, ImportError) as exc:
            raise ProviderError(f"the embedded model failed: {exc}") from exc

    def _message(self, reply: ChatStreamAssembler, model: str) -> Message:
        if not reply.finish:
            raise StreamError("the embedded model stopped in the middle of its answer")
        origin = Origin(self.api, self.name, model, reply.stop(), reply.usage(FREE))
        return Message("assistant", reply.message_parts(), self._clock.now_ms(), origin)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for stop in self._running:
            stop.set()
        # The engine ends in the thread that used it, after the current answer has stopped.
        dropped = self._worker.submit(setattr, self, "_engine", None)
        self._worker.shutdown(wait=False)
        await asyncio.wrap_future(dropped)


class _PromptTooLongError(Exception):
    """The engine counted more tokens than its window has."""

    def __init__(self, tokens: int) -> None:
        super().__init__(tokens)
        self.tokens = max(1, tokens)


def _failure(error: Mapping[str, Json]) -> Exception:
    said = str(error.get("message") or "no reason given")
    if error.get("type") == "exceed_context_size_error":
        return _PromptTooLongError(int(error.get("n_prompt_tokens") or 1))
    status = int(error.get("code") or 0)
    failure = BadRequestError if 400 <= status < 500 else ProviderError
    return failure(f"the embedded model refused: {said}", status=status)


def render_turns(request: ModelRequest) -> tuple[str, tuple[tuple[str, str], ...]]:
    """Return the system text and alternating (role, text) turns, as strict chat templates require.

    Tool calls and results are left out: this model has no tools, and they are long.
    """
    turns: list[tuple[str, str]] = []
    for message in request.messages:
        said = [
            p.text if isinstance(p, Text) else "[image]"
            for p in message.parts
            if isinstance(p, Text | Image)
        ]
        text = repair_surrogates("\n".join(filter(None, said))).strip()
        if not text:
            continue
        if turns and turns[-1][0] == message.role:
            turns[-1] = (message.role, f"{turns[-1][1]}\n\n{text}")
        else:
            turns.append((message.role, text))
    return repair_surrogates(request.system).strip(), tuple(turns)


def fit_turns(
    system: str, turns: Sequence[tuple[str, str]], max_tokens: int, chars_per_token: float
) -> tuple[tuple[str, str], ...]:
    """Return the newest turns that fit, starting with a user's; the last is always kept.

    Old turns are dropped half a window at a time: a prompt whose prefix changes must be read again,
    which is the slow part.
    """

    def cost(text: str) -> float:
        return len(text) / chars_per_token + TURN_TOKENS

    room = max_tokens - cost(system)
    over = sum(cost(text) for _, text in turns) - room
    step = max(room, 0) / 2
    to_drop = 0.0
    if over > 0:
        to_drop = -(-over // step) * step if step else over
    dropped = 0.0
    first = 0
    while first < len(turns) - 1 and (dropped < to_drop or turns[first][0] != "user"):
        dropped += cost(turns[first][1])
        first += 1
    return tuple(turns[first:])


def _body(
    request: ModelRequest, system: str, turns: Sequence[tuple[str, str]], max_tokens: int
) -> Chunk:
    all_turns = [("system", system), *turns] if system else turns
    tuned = {name: value for name, value in request.params.items() if name in _TUNABLE}
    return {
        **SAMPLING,
        **tuned,
        "messages": [{"role": role, "content": text} for role, text in all_turns],
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        # Without it no callback runs, and nothing stops, while the prompt is read.
        "return_progress": True,
    }


def _chars(system: str, turns: Sequence[tuple[str, str]]) -> int:
    return len(system) + sum(len(text) for _, text in turns)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
