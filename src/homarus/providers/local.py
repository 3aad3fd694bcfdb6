"""GGUF models inside this process, by llama.cpp (xllamacpp): streaming and abort, no tools.

One model, one slot: a thread of its own loads the weights at the first question and answers in
the order of asking. What is said to the model is cut to its window here, oldest first.
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
    BadRequest,
    ContextOverflow,
    ProviderError,
    StreamBroken,
    UserError,
)
from homarus.core.message import Image, Json, Message, Origin, Text
from homarus.core.value import dataclass
from homarus.providers.base import Delta, Request
from homarus.providers.catalog import GGUF_MAGIC, LOCAL_MAX_TOKENS, LOCAL_WINDOW, Price
from homarus.providers.chat_reply import Malformed, Reply

# The engine has no tokenizer call; markdown and prose measured 3.1 to 3.8 characters per token.
CHARS_PER_TOKEN = 3.3
# What a chat template puts around each turn.
TURN_TOKENS = 6
# While it reads a prompt, llama.cpp looks once per batch whether to stop: 64 tokens ≈ 0.5 s.
BATCH_TOKENS = 64
# A small model babbles when it is hot; the penalty keeps it from repeating itself when cold.
SAMPLING: Mapping[str, Json] = {"temperature": 0.1, "top_p": 0.9, "repeat_penalty": 1.1}
_TUNABLE = frozenset({*SAMPLING, "top_k", "min_p", "seed"})
_ATTEMPTS = 3
FREE = Price()
# A Unix socket's path may be 104 bytes long on macOS, 108 on Linux.
_SOCKET_PATH_BYTES = 100

Chunk: TypeAlias = dict[str, Json]
See: TypeAlias = Callable[[Chunk], bool]


class Engine(Protocol):
    """The one call of `xllamacpp.Server` we use: `see` gets each chunk, and True stops it."""

    def handle_chat_completions(self, body: Chunk, see: See, /) -> None: ...


@dataclass(frozen=True, slots=True)
class Settings:
    """Which weights, and how much of the machine they may take.

    `prompt_tokens` is the most it is given to read when history can be left out (without it, what
    the window holds): a slow reader's time. Without `threads`, every core but one works.
    """

    path: Path
    window: int = LOCAL_WINDOW
    max_tokens: int = LOCAL_MAX_TOKENS
    prompt_tokens: int | None = None
    threads: int | None = None


def create(settings: Settings, *, clock: Clock | None = None) -> "Local":
    """A provider for these weights; what is missing is said before anything is asked of it."""
    if importlib.util.find_spec("xllamacpp") is None:
        raise UserError(
            "a model inside this process needs the package xllamacpp, which is not installed",
            fix="pip install 'homarus[local]'",
        )
    check_weights(settings.path)
    return Local(settings, load, clock or SystemClock())


def check_weights(path: Path) -> None:
    """Refuse a file that cannot be a GGUF model, by its first bytes."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(GGUF_MAGIC))
    except FileNotFoundError:
        raise UserError(f"there is no model file {path}", fix="check the path") from None
    except OSError as exc:
        raise UserError(f"cannot read {path}: {exc.strerror or exc}", fix="check the path") from exc
    if magic != GGUF_MAGIC:
        raise UserError(f"{path} is not a GGUF model", fix="give the path of a .gguf file")


def load(settings: Settings) -> Engine:
    """Read the weights into memory: about half a second for the demo model, and it blocks."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = str(settings.path)
    params.n_ctx = settings.window
    params.n_parallel = 1
    params.n_batch = params.n_ubatch = BATCH_TOKENS
    threads = settings.threads or max(1, _cores() - 1)
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.cache_ram_mib = 0  # its default keeps up to 8 GB of earlier prompts
    params.prefill_assistant = False
    params.verbosity = -1
    # The library opens an HTTP server beside the calls we make. It gets one thread, a key nobody
    # knows and, where there is such a thing, a socket that is unlinked before anyone can find it.
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
            raise BadRequest(
                f"llama.cpp cannot load {settings.path}: damaged, or of a kind it does not know",
                fix="fetch the file again, or choose another model",
            ) from exc
    return engine


class Local:
    """The Provider seam over one engine."""

    name = "local"
    api = "local"

    def __init__(
        self, settings: Settings, load: Callable[[Settings], Engine], clock: Clock
    ) -> None:
        self._settings, self._load, self._clock = settings, load, clock
        self._engine: Engine | None = None
        # One worker is the slot: it serialises, keeps the order, and is joined before the
        # interpreter goes away, so that llama.cpp never calls back into a dead one.
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="homarus-local")
        self._running: set[Event] = set()
        self._closed = False

    async def stream(self, request: Request) -> AsyncGenerator[Delta | Message, None]:
        system, turns = render(request)
        if not turns:
            raise BadRequest("there is no message to answer")
        most = self._settings.max_tokens
        max_tokens = max(1, min(request.max_tokens or most, most, self._settings.window // 2))
        room = self._settings.window - max_tokens
        room = min(room, self._settings.prompt_tokens or room)
        chars_per_token = CHARS_PER_TOKEN
        for _ in range(_ATTEMPTS):
            kept = fit(system, turns, room, chars_per_token)
            body = _body(request, system, kept, max_tokens)
            reply = Reply()
            try:
                async with aclosing(self._chunks(body)) as chunks:
                    async for chunk in chunks:
                        for delta in reply.add(chunk):
                            yield delta
            except _TooLong as exc:
                turns = kept
                chars_per_token = 0.95 * _chars(system, kept) / exc.tokens
                continue
            except Malformed as exc:
                raise StreamBroken(f"the embedded model's answer is malformed: {exc}") from exc
            yield self._message(reply, request.model)
            return
        raise ContextOverflow(
            f"the message does not fit the model's window of {self._settings.window} tokens",
            fix="send less, or choose a model with a larger window",
        )

    async def _chunks(self, body: Chunk) -> AsyncGenerator[Chunk, None]:
        """What the engine says, from its thread to this loop; leaving early stops it."""
        if self._closed:
            raise ProviderError("the embedded model has been closed")
        loop = asyncio.get_running_loop()
        # Not bounded: it holds at most max_tokens chunks, and the engine must not wait for us.
        queue: asyncio.Queue[Chunk | None] = asyncio.Queue()
        stop = Event()

        def post(chunk: Chunk | None) -> bool:
            try:
                loop.call_soon_threadsafe(queue.put_nowait, chunk)
            except RuntimeError:  # the loop is closed: nobody listens any more
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
        """In the worker: one answer from beginning to end."""
        try:
            if self._engine is None:
                self._engine = self._load(self._settings)
            self._engine.handle_chat_completions(body, see)
        except (RuntimeError, OSError, ImportError) as exc:
            raise ProviderError(f"the embedded model failed: {exc}") from exc

    def _message(self, reply: Reply, model: str) -> Message:
        if not reply.finish:
            raise StreamBroken("the embedded model stopped in the middle of its answer")
        origin = Origin(self.api, self.name, model, reply.stop(), reply.usage(FREE))
        return Message("assistant", reply.message_parts(), self._clock.now_ms(), origin)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for stop in self._running:
            stop.set()
        # The engine ends in the thread that used it, after the answer under way has stopped.
        dropped = self._worker.submit(setattr, self, "_engine", None)
        self._worker.shutdown(wait=False)
        await asyncio.wrap_future(dropped)


class _TooLong(Exception):
    """The engine counted more tokens than its window has."""

    def __init__(self, tokens: int) -> None:
        super().__init__(tokens)
        self.tokens = max(1, tokens)


def _failure(error: Mapping[str, Json]) -> Exception:
    said = str(error.get("message") or "no reason given")
    if error.get("type") == "exceed_context_size_error":
        return _TooLong(int(error.get("n_prompt_tokens") or 1))
    status = int(error.get("code") or 0)
    failure = BadRequest if 400 <= status < 500 else ProviderError
    return failure(f"the embedded model refused: {said}", status=status)


def render(request: Request) -> tuple[str, tuple[tuple[str, str], ...]]:
    """The system text, and (role, text) turns that alternate, as strict chat templates demand.

    Tool calls and their results are left out: this model has no tools, and they are long.
    """
    turns: list[tuple[str, str]] = []
    for message in request.messages:
        said = [
            p.text if isinstance(p, Text) else "[image]"
            for p in message.parts
            if isinstance(p, Text | Image)
        ]
        text = _encodable("\n".join(filter(None, said))).strip()
        if not text:
            continue
        if turns and turns[-1][0] == message.role:
            turns[-1] = (message.role, f"{turns[-1][1]}\n\n{text}")
        else:
            turns.append((message.role, text))
    return _encodable(request.system).strip(), tuple(turns)


def fit(
    system: str, turns: Sequence[tuple[str, str]], max_tokens: int, chars_per_token: float
) -> tuple[tuple[str, str], ...]:
    """The newest turns that fit, beginning with the person; the last one is always kept.

    Old turns go half a window at a time: a prompt whose beginning changes at every turn would be
    read anew at every turn, and reading is the slow part.
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
    request: Request, system: str, turns: Sequence[tuple[str, str]], max_tokens: int
) -> Chunk:
    told = [("system", system), *turns] if system else turns
    tuned = {name: value for name, value in request.params.items() if name in _TUNABLE}
    return {
        **SAMPLING,
        **tuned,
        "messages": [{"role": role, "content": text} for role, text in told],
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
        "return_progress": True,  # without it nothing is called, and nothing stops, while reading
    }


def _chars(system: str, turns: Sequence[tuple[str, str]]) -> int:
    return len(system) + sum(len(text) for _, text in turns)


def _encodable(text: str) -> str:
    """Half a surrogate pair cannot be written as UTF-8; the engine would refuse the whole."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
