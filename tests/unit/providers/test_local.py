"""The in-process provider: over a scripted engine, and over llama.cpp with the demo model."""

import asyncio
import itertools
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.errors import (
    BadRequestError,
    ContextOverflowError,
    ProviderError,
    StreamError,
    UserError,
)
from homarus.core.message import (
    Image,
    Message,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Usage,
    user_message,
)
from homarus.providers import local
from homarus.providers.base import Delta, ModelRequest, TextDelta, ThinkingDelta
from homarus.providers.catalog import LOCAL_MAX_TOKENS
from homarus.providers.local import (
    Chunk,
    LocalModelSettings,
    LocalProvider,
    See,
    fit_turns,
    render_turns,
)
from homarus.testing.clock import FakeClock

Answer = Callable[[Chunk, See], None]


class Engine:
    """Plays its part in the worker thread, as `xllamacpp.Server` does."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.bodies: list[Chunk] = []

    def handle_chat_completions(self, body: Chunk, see: See, /) -> None:
        self.bodies.append(body)
        self.answer(body, see)


def says(*pieces: str, finish: str = "stop", prompt: int = 7, cached: int = 0) -> list[Chunk]:
    chunks: list[Chunk] = [{"choices": [{"delta": {"role": "assistant", "content": None}}]}]
    chunks += [{"choices": [{"delta": {"content": piece}}]} for piece in pieces]
    chunks.append({"choices": [{"delta": {}, "finish_reason": finish}]})
    usage = {"prompt_tokens": prompt, "completion_tokens": len(pieces)}
    details = {"prompt_tokens_details": {"cached_tokens": cached}}
    chunks.append({"choices": [], "usage": {**usage, **details}})
    return chunks


def plays(*chunks: Chunk) -> Answer:
    def answer(_body: Chunk, see: See) -> None:
        for chunk in chunks:
            if see(chunk):
                return

    return answer


def provider(engine: Engine, **settings: Any) -> LocalProvider:
    return LocalProvider(
        LocalModelSettings(Path("model.gguf"), **settings), lambda _: engine, FakeClock()
    )


def ask(text: str = "Hello?", *, max_tokens: int | None = None) -> ModelRequest:
    return ModelRequest("demo", "Be brief.", (user_message(text),), max_tokens=max_tokens)


async def heard(stream: AsyncIterator[Delta | Message]) -> tuple[list[Delta], Message]:
    items = [item async for item in stream]
    last = items.pop()
    assert isinstance(last, Message)
    assert not any(isinstance(item, Message) for item in items)
    return [item for item in items if not isinstance(item, Message)], last


async def answer_of(
    engine: Engine, request: ModelRequest, **settings: int
) -> tuple[list[Delta], Message]:
    model = provider(engine, **settings)
    try:
        return await heard(model.stream(request))
    finally:
        await model.close()


async def test_local_answer_streams_and_ends_in_one_message() -> None:
    deltas, message = await answer_of(Engine(plays(*says("He", "llo.", prompt=9, cached=4))), ask())
    assert deltas == [TextDelta("He"), TextDelta("llo.")]
    assert message.text == "Hello."
    assert message.origin is not None
    assert (message.origin.provider, message.origin.model, message.origin.stop) == (
        "local",
        "demo",
        "stop",
    )
    assert message.origin.usage == Usage(input=5, output=2, cache_read=4)


async def test_local_answer_cut_by_limit_has_stop_length() -> None:
    _, message = await answer_of(Engine(plays(*says("And then", finish="length"))), ask())
    assert message.origin is not None
    assert message.origin.stop == "length"


async def test_local_reasoning_separated_from_text() -> None:
    thought: Chunk = {"choices": [{"delta": {"reasoning_content": "Hm."}}]}
    deltas, message = await answer_of(Engine(plays(thought, *says("Yes."))), ask())
    assert deltas == [ThinkingDelta("Hm."), TextDelta("Yes.")]
    assert message.thinking == "Hm."
    assert message.text == "Yes."


async def test_local_engine_gets_expected_request() -> None:
    engine = Engine(plays(*says("Yes.")))
    request = ModelRequest(
        "demo",
        "Be brief.",
        (user_message("Hello?"),),
        max_tokens=9999,
        params={"temperature": 0.9, "grammar": "root ::= evil", "messages": []},
    )
    await answer_of(engine, request)
    (body,) = engine.bodies
    assert body["messages"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hello?"},
    ]
    assert body["max_tokens"] == LOCAL_MAX_TOKENS
    assert body["temperature"] == 0.9
    assert "grammar" not in body
    assert body["return_progress"]


async def test_local_limits_can_be_lowered_not_raised() -> None:
    engine = Engine(plays(*says("Yes.")))
    await answer_of(engine, ask(max_tokens=12))
    await answer_of(engine, ask(max_tokens=100_000), max_tokens=64)
    await answer_of(engine, ask(), window=100, max_tokens=5000)
    assert [body["max_tokens"] for body in engine.bodies] == [12, 64, 50]


def endless(stopped: threading.Event, chunk: Chunk) -> Answer:
    """Says the same until it is told to stop; a test that waits in vain is a failed one."""

    def answer(body: Chunk, see: See) -> None:
        if "again" in str(body["messages"]):
            plays(*says("Here."))(body, see)
            return
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if see(chunk):
                stopped.set()
                return

    return answer


WORD: Chunk = {"choices": [{"delta": {"content": "la "}}]}
READING: Chunk = {"choices": [{"delta": {}}], "prompt_progress": {"processed": 64}}


async def test_local_stream_closed_stops_engine_and_next_is_answered() -> None:
    stopped = threading.Event()
    model = provider(Engine(endless(stopped, WORD)))
    async with aclosing(model.stream(ask())) as stream:
        async for _ in stream:
            break
    _, message = await heard(model.stream(ask("again")))
    await model.close()
    result = message
    assert result.text == "Here."
    assert stopped.is_set()


async def test_local_cancel_while_reading_prompt_stops_engine() -> None:
    stopped = threading.Event()
    model = provider(Engine(endless(stopped, READING)))
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await heard(model.stream(ask()))
    _, message = await heard(model.stream(ask("again")))
    assert message.text == "Here."
    await model.close()
    assert stopped.is_set()


async def test_local_requests_answered_in_order() -> None:
    busy = threading.Lock()

    def answer(body: Chunk, see: See) -> None:
        assert busy.acquire(blocking=False), "two answers at once"
        try:
            plays(*says(body["messages"][-1]["content"]))(body, see)
        finally:
            busy.release()

    engine = Engine(answer)
    model = provider(engine)
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(heard(model.stream(ask(str(n))))) for n in range(5)]
    await model.close()
    assert [body["messages"][-1]["content"] for body in engine.bodies] == list("01234")
    result = [task.result()[1].text for task in tasks]
    assert result == list("01234")


async def test_local_request_cancelled_in_queue_never_reaches_engine() -> None:
    begun, stopped = threading.Event(), threading.Event()

    def answer(body: Chunk, see: See) -> None:
        begun.set()
        endless(stopped, WORD)(body, see)

    engine = Engine(answer)
    model = provider(engine)
    async with asyncio.TaskGroup() as group:
        first = group.create_task(heard(model.stream(ask("first"))))
        second = group.create_task(heard(model.stream(ask("second"))))
        await asyncio.to_thread(begun.wait, 30)
        second.cancel()
        await asyncio.wait([second])
        first.cancel()
    await model.close()
    assert [body["messages"][-1]["content"] for body in engine.bodies] == ["first"]


def refuses_over(max_tokens: int, chars_per_token: float) -> Answer:
    def answer(body: Chunk, see: See) -> None:
        chars = sum(len(turn["content"]) for turn in body["messages"])
        tokens = int(chars / chars_per_token)
        if tokens > max_tokens:
            kind = {"type": "exceed_context_size_error", "n_prompt_tokens": tokens}
            see({"error": {"code": 400, "message": "too long", **kind}})
        else:
            plays(*says("Fine."))(body, see)

    return answer


def long_talk(turns: int) -> tuple[Message, ...]:
    talk: list[Message] = []
    for n in range(turns):
        talk += [
            user_message(f"question {n} " + "x" * 200),
            Message("assistant", (Text("y" * 200),)),
        ]
    return (*talk, user_message("the last question"))


async def test_local_long_history_trimmed_oldest_first() -> None:
    engine = Engine(refuses_over(900, local.CHARS_PER_TOKEN))
    request = ModelRequest("demo", "Be brief.", long_talk(40))
    _, message = await answer_of(engine, request, window=1000, max_tokens=100)
    assert message.text == "Fine."
    (body,) = engine.bodies
    contents = [turn["content"] for turn in body["messages"]]
    assert contents[0] == "Be brief."
    assert contents[-1] == "the last question"
    assert contents[-3].startswith("question 39 ")
    assert not any(content.startswith("question 0 ") for content in contents)


async def test_local_underestimated_text_trimmed_harder_and_retried() -> None:
    engine = Engine(refuses_over(900, 1.5))  # far fewer characters per token than in English
    request = ModelRequest("demo", "Be brief.", long_talk(40))
    _, message = await answer_of(engine, request, window=1000, max_tokens=100)
    assert message.text == "Fine."
    sizes = [len(body["messages"]) for body in engine.bodies]
    assert len(sizes) > 1
    assert sizes == sorted(sizes, reverse=True)


async def test_local_message_too_long_raises_context_overflow() -> None:
    engine = Engine(refuses_over(900, local.CHARS_PER_TOKEN))
    with pytest.raises(ContextOverflowError, match="1000 tokens"):
        await answer_of(engine, ask("x" * 100_000), window=1000)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        ({"code": 400, "message": "bad", "type": "invalid_request_error"}, BadRequestError),
        ({"code": 500, "message": "oops", "type": "server_error"}, ProviderError),
        ({}, StreamError),
    ],
)
async def test_local_engine_refusal_raises_provider_error(
    error: Chunk, kind: type[ProviderError]
) -> None:
    with pytest.raises(ProviderError) as caught:
        await answer_of(Engine(plays({"error": error})), ask())
    assert type(caught.value) is kind


async def test_local_engine_exception_raises_provider_error() -> None:
    def answer(_body: Chunk, _see: See) -> None:
        raise RuntimeError("parse error")

    with pytest.raises(ProviderError, match="parse error"):
        await answer_of(Engine(answer), ask())


async def test_local_invalid_engine_output_raises_stream_error() -> None:
    with pytest.raises(StreamError):
        await answer_of(Engine(plays({"choices": ["?"]})), ask())


async def test_local_answer_without_end_raises_stream_error() -> None:
    with pytest.raises(StreamError):
        await answer_of(Engine(plays(WORD, WORD)), ask())


async def test_local_empty_request_is_refused() -> None:
    with pytest.raises(BadRequestError):
        await answer_of(Engine(plays(*says("?"))), ModelRequest("demo", "Be brief.", ()))


async def test_local_failed_load_is_retried_at_next_request() -> None:
    engine = Engine(plays(*says("Now.")))
    attempts: Iterator[Engine | None] = iter([None, engine])

    def load(_: LocalModelSettings) -> Engine:
        loaded = next(attempts)
        if loaded is None:
            raise OSError(12, "Cannot allocate memory")
        return loaded

    async def main() -> None:
        model = LocalProvider(LocalModelSettings(Path("model.gguf")), load, FakeClock())
        with pytest.raises(ProviderError, match="allocate memory"):
            await heard(model.stream(ask()))
        _, message = await heard(model.stream(ask()))
        assert message.text == "Now."
        await model.close()

    await main()


async def test_local_close_ends_answer_and_is_idempotent() -> None:
    stopped = threading.Event()
    model = provider(Engine(endless(stopped, WORD)))
    stream = model.stream(ask())
    assert await anext(stream) == TextDelta("la ")
    await model.close()
    assert stopped.is_set()
    with pytest.raises(StreamError):
        await heard(stream)
    await model.close()
    with pytest.raises(ProviderError, match="closed"):
        await heard(model.stream(ask()))


def test_local_turns_omit_tools_and_alternate() -> None:
    call = ToolCall("1", "read", {"path": "x"})
    request = ModelRequest(
        "demo",
        " Be brief. ",
        (
            user_message("Look.", Image("AAAA", "image/png")),
            Message("assistant", (Thinking("Hm."), Text("I read."), call)),
            Message("tool", (ToolResult("1", "read", (Text("a lot"),)),)),
            Message("assistant", (Text("Done."),)),
            Message("assistant", ()),
            user_message("Thanks \ud83d."),
        ),
    )
    assert render_turns(request) == (
        "Be brief.",
        (
            ("user", "Look.\n[image]"),
            ("assistant", "I read.\n\nDone."),
            ("user", "Thanks \ufffd."),
        ),
    )


talks = st.lists(
    st.tuples(st.sampled_from(["user", "assistant"]), st.text(min_size=1, max_size=300)),
    min_size=1,
    max_size=30,
)


@given(talks, st.integers(10, 2000), st.sampled_from([1.0, 3.3]))
def test_local_fit_keeps_the_end_that_fits(
    talk: list[tuple[str, str]], room: int, chars_per_token: float
) -> None:
    kept = fit_turns("system", talk, room, chars_per_token)
    assert kept
    assert list(kept) == talk[-len(kept) :]
    if len(kept) > 1:
        assert kept[0][0] == "user"
        tokens = sum(len(text) / chars_per_token + local.TURN_TOKENS for _, text in kept)
        assert tokens + 6 / chars_per_token + local.TURN_TOKENS <= room + 1e-6


def test_local_growing_history_keeps_prefix_for_many_turns() -> None:
    talk: list[tuple[str, str]] = []
    beginnings: list[str] = []
    for n in range(200):
        talk += [("user", f"{n} " + "x" * 50), ("assistant", "y" * 50)]
        beginnings.append(fit_turns("system", talk, 1000, 3.3)[0][1])
    changes = sum(a != b for a, b in itertools.pairwise(beginnings))
    assert 0 < changes <= 20


def test_local_missing_package_error_names_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(UserError) as caught:
        local.create(LocalModelSettings(tmp_path / "model.gguf"))
    assert "homarus[local]" in caught.value.fix


@pytest.mark.parametrize("content", [b"", b"GGU", b"{}", b"PK\x03\x04"])
def test_local_wrong_file_kind_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    with pytest.raises(UserError, match="not a GGUF model"):
        local.create(LocalModelSettings(path))


def test_local_missing_file_and_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no model file"):
        local.create(LocalModelSettings(tmp_path / "none.gguf"))
    with pytest.raises(UserError, match="cannot read"):
        local.create(LocalModelSettings(tmp_path))


@pytest.mark.parametrize("rest", [b"", b"\x03\0\0\0" + b"\xff" * 500, bytes(range(256)) * 40])
async def test_local_damaged_model_is_an_error_without_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], rest: bytes
) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF" + rest)
    model = local.create(LocalModelSettings(path))
    with pytest.raises(BadRequestError, match="cannot load"):
        await heard(model.stream(ask()))
    await model.close()
    assert capfd.readouterr() == ("", "")


# With the weights.


@pytest.mark.model
async def test_demo_model_answers_without_other_output(
    demo_weights: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = local.create(LocalModelSettings(demo_weights, max_tokens=16))
    deltas, message = await heard(model.stream(ask("What is the capital of France?")))
    assert message.text
    assert message.text == "".join(d.text for d in deltas if isinstance(d, TextDelta))
    assert message.origin is not None
    first = message.origin.usage
    assert first.prompt > 10
    assert 0 < first.output <= 16
    _, message = await heard(model.stream(ask("What is the capital of France?")))
    assert message.origin is not None
    assert message.origin.usage.cache_read > 0
    await model.close()
    assert capfd.readouterr() == ("", "")


@pytest.mark.model
async def test_demo_model_stops_while_writing_and_reading(demo_weights: Path) -> None:
    model = local.create(LocalModelSettings(demo_weights))
    stream = model.stream(ask("Tell me a very long story."))
    await anext(stream)
    await stream.aclose()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.2):
            await heard(model.stream(ask("The lazy dog sleeps. " * 500)))
    # Reading all of it would take ten seconds and more.
    async with asyncio.timeout(8):
        _, message = await heard(model.stream(ask("Hi", max_tokens=2)))
    assert message.origin is not None
    await model.close()


@pytest.mark.model
async def test_demo_model_counts_tokens_and_history_fits(demo_weights: Path) -> None:
    request = ModelRequest("demo", "Be brief.", long_talk(60), max_tokens=4)
    model = local.create(LocalModelSettings(demo_weights, window=512, max_tokens=8))
    _, message = await heard(model.stream(request))
    assert message.origin is not None
    assert message.origin.usage.prompt < 512
    with pytest.raises(ContextOverflowError):
        await heard(model.stream(ask("many words " * 2000)))
    await model.close()


@pytest.mark.model
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
async def test_local_engine_is_not_reachable_from_outside(demo_weights: Path) -> None:
    before = listening()
    model = local.create(LocalModelSettings(demo_weights, max_tokens=2))
    await heard(model.stream(ask("Hi")))
    during = listening()
    await model.close()
    assert during == before


def listening() -> set[str]:
    """TCP ports of this process, and Unix sockets of it that have a name in the file system."""
    own = set()
    for fd in Path("/proc/self/fd").iterdir():
        try:
            target = str(fd.readlink())
        except OSError:
            continue
        if target.startswith("socket:["):
            own.add(target[8:-1])
    found = set()
    for table in ("tcp", "tcp6"):
        for row in Path("/proc/self/net", table).read_text().splitlines()[1:]:
            columns = row.split()
            if columns[3] == "0A" and columns[9] in own:
                found.add(columns[1])
    for row in Path("/proc/self/net/unix").read_text().splitlines()[1:]:
        columns = row.split()
        if len(columns) > 7 and columns[6] in own and Path(columns[7]).exists():
            found.add(columns[7])
    return found


ENDS = {
    "closed": "await heard(model); await model.close()",
    "left open": "await heard(model)",
    "never asked": "pass",
    "left in the middle": "stream = model.stream(ask); await anext(stream)",
    "interrupted in the middle": (
        "stream = model.stream(ask); await anext(stream); raise KeyboardInterrupt"
    ),
    "an error in the middle": "stream = model.stream(ask); await anext(stream); sys.exit(7)",
}


@pytest.mark.model
@pytest.mark.parametrize("end", ENDS)
def test_local_process_exits_cleanly(demo_weights: Path, end: str) -> None:
    script = f"""
import asyncio, sys
from pathlib import Path
from homarus.core.message import user_message
from homarus.providers import local
from homarus.providers.base import ModelRequest

ask = ModelRequest("demo", "", (user_message("Tell me a long story."),))

async def heard(model):
    async for _ in model.stream(ModelRequest("demo", "", (user_message("Hi"),), max_tokens=3)):
        pass

async def main():
    model = local.create(local.LocalModelSettings(Path({str(demo_weights)!r})))
    {ENDS[end]}

try:
    asyncio.run(main())
except KeyboardInterrupt:
    sys.exit(130)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    expected = {"interrupted in the middle": 130, "an error in the middle": 7}.get(end, 0)
    assert (done.returncode, done.stdout, done.stderr) == (expected, "", "")
