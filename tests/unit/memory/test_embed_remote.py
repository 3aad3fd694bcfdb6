"""Embedders behind HTTP, against a real server that answers as the vendors do, or does not."""

import asyncio
import json
import logging
import math
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.errors import (
    AuthError,
    BadRequestError,
    BillingError,
    ContextOverflowError,
    OverloadedError,
    ProviderError,
    ProviderTimeoutError,
    RateLimitError,
    StoreError,
    StreamError,
    UnreachableError,
)
from homarus.memory.embed.access import config_key
from homarus.memory.embed.base import EmbeddingCost, batch_size, embed_question
from homarus.memory.embed.circuit_breaker import REST_S, CircuitBreakerEmbedder
from homarus.memory.embed.client import ServiceAccess, identity
from homarus.memory.embed.gemini import GeminiEmbeddingApi
from homarus.memory.embed.ollama import OllamaEmbeddingApi, root_of
from homarus.memory.embed.openai import OpenAIEmbeddingApi
from homarus.memory.embed.remote import (
    EmbeddingApi,
    EmbedRequestLimits,
    HostedModel,
    RemoteEmbedder,
    split_batches,
    to_unit,
)
from homarus.memory.embed.voyage import VoyageEmbeddingApi
from homarus.testing.clock import FakeClock
from tests.unit.memory.embed_server import DIMS, EmbedServer, Reply, numbers

KEY = "sk-test-0123456789abcdef"
TEXTS = ["Ada moved to Lisbon", "tea at four", "Ada moved to Lisbon", "ünïcödé 日本語"]
WIRES: dict[str, tuple[str, EmbeddingApi]] = {
    "openai": ("/v1", OpenAIEmbeddingApi("m")),
    "voyage": ("/v1", VoyageEmbeddingApi("m")),
    "gemini": ("/v1beta", GeminiEmbeddingApi("m")),
    "ollama": ("", OllamaEmbeddingApi("m")),
}


@contextmanager
def opened(
    server: EmbedServer, vendor: str = "openai", **given_: Any
) -> Iterator[tuple[RemoteEmbedder, list[EmbeddingCost], FakeClock]]:
    base, wire = WIRES[vendor]
    key = config_key("OPENAI_API_KEY", given_.pop("key", KEY))
    access = ServiceAccess(server.url + base, given_.pop("headers", {}), key)
    hosted = replace(HostedModel(vendor, "m", access, dims=DIMS, price=2.0), **given_)
    paid: list[EmbeddingCost] = []
    clock = FakeClock(patient=False)
    remote = RemoteEmbedder(hosted, wire, paid=paid.append, tell=lambda _text: None, clock=clock)
    try:
        yield remote, paid, clock
    finally:
        remote.close()


def unit(text: str) -> list[float]:
    made = to_unit(numbers(text))
    assert made is not None
    return made


@pytest.mark.parametrize("vendor", WIRES)
def test_embed_texts_return_own_vectors_and_report_cost(vendor: str) -> None:
    with EmbedServer() as server, opened(server, vendor) as (remote, paid, _):
        assert remote.embed(TEXTS) == [pytest.approx(unit(text)) for text in TEXTS]
        assert remote.embed(["tea at four"]) == [pytest.approx(unit("tea at four"))]
        assert [one.texts for one in paid] == [4, 1]
        assert all(one.tokens > 0 and one.provider == vendor for one in paid)
        assert paid[0].cost_usd == pytest.approx(paid[0].tokens * 2.0 / 1e6)
        assert paid[0].guessed is (vendor == "gemini")


@pytest.mark.parametrize(
    ("vendor", "note", "question"),
    [("voyage", "document", "query"), ("gemini", "RETRIEVAL_DOCUMENT", "RETRIEVAL_QUERY")],
)
def test_embed_query_is_marked_as_query(vendor: str, note: str, question: str) -> None:
    with EmbedServer() as server, opened(server, vendor) as (remote, _, _):
        remote.embed(["a note"])
        assert embed_question(remote, "where?") == pytest.approx(unit("where?"))
        asked = [seen.json for seen in server.seen]
        if vendor == "gemini":
            asked = [one["requests"][0] for one in asked]
        said = [one.get("input_type") or one.get("taskType") for one in asked]
        assert said == [note, question]


def test_ollama_known_model_gets_its_training_prefix() -> None:
    wire = OllamaEmbeddingApi("nomic-embed-text:v1.5")
    assert json.loads(wire.body(["x"], "note"))["input"] == ["search_document: x"]
    assert json.loads(wire.body(["x"], "question"))["input"] == ["search_query: x"]
    assert root_of("http://h:11434/v1/") == root_of("http://h:11434/api") == "http://h:11434"


def test_embed_blank_text_is_not_sent() -> None:
    with EmbedServer() as server, opened(server) as (remote, _, _):
        nothing = [0.0] * DIMS
        assert remote.embed(["", "tea", " \n"]) == [nothing, pytest.approx(unit("tea")), nothing]
        assert remote.embed_question(" ") == nothing
        assert remote.embed([]) == []
        assert [seen.json["input"] for seen in server.seen] == [["tea"]]


def test_embed_lone_surrogate_is_sent_as_valid_text() -> None:
    with EmbedServer() as server, opened(server) as (remote, _, _):
        remote.embed(["a\ud800b"])
        assert server.seen[0].json["input"] == ["a?b"]


def test_embed_many_texts_are_batched_and_long_text_is_cut() -> None:
    limits = EmbedRequestLimits(max_texts=3, max_chars=30, max_text_chars=20)
    with EmbedServer() as server, opened(server, limits=limits) as (remote, paid, _):
        texts = [f"text {at}" for at in range(7)] + ["x" * 500]
        made = remote.embed(texts)
        assert made[:7] == [pytest.approx(unit(text)) for text in texts[:7]]
        assert made[7] == pytest.approx(unit("x" * 20))
        assert [len(seen.json["input"]) for seen in server.seen] == [3, 3, 2]
        assert len(paid) == 3


@given(
    st.lists(st.text(max_size=40), max_size=40),
    st.integers(1, 9),
    st.integers(1, 60),
)
def test_split_batches_keeps_order_and_limits(texts: list[str], most: int, chars: int) -> None:
    parts = list(split_batches(texts, EmbedRequestLimits(most, chars)))
    assert [text for part in parts for text in part] == texts
    for part in parts:
        assert 0 < len(part) <= most
        assert len(part) == 1 or sum(map(len, part)) <= chars


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1, max_size=6))
def test_to_unit_returns_unit_zero_or_none(vector: list[float]) -> None:
    made = to_unit(vector)
    if made is None:
        assert not all(map(math.isfinite, vector)) or math.isinf(math.hypot(*vector))
    else:
        length = math.hypot(*made)
        assert length == 0 or length == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    "told",
    [
        {"error": {"message": "maximum context length is 600 tokens", "code": "x"}},
        {"error": {"message": "Requested too many", "code": "max_tokens_per_request"}},
        {"detail": "The max allowed tokens per submitted batch is 600. Your batch has 601."},
    ],
)
def test_embed_context_overflow_halves_batch_then_shortens_text(told: Any) -> None:
    def refuse(seen: Any) -> Reply | None:
        if sum(map(len, seen.json["input"])) <= 600:
            return None
        return Reply(400, json.dumps(told).encode())

    with EmbedServer() as server, opened(server) as (remote, _, _):
        server.refuse = refuse
        texts = ["a" * 400, "b" * 1500, "c" * 100]
        assert remote.embed(texts) == [
            pytest.approx(unit(text)) for text in ("a" * 400, "b" * 375, "c" * 100)
        ]
        server.refuse = lambda _seen: Reply(413, b"{}")
        with pytest.raises(ContextOverflowError):
            remote.embed(["x" * 5000])


def test_embed_unknown_model_learns_dims_from_first_response() -> None:
    with EmbedServer(dims=5) as server, opened(server, dims=0) as (remote, _, _):
        assert remote.model.dims == 5
        assert len(server.seen) == 1
        assert server.seen[0].json["input"] == ["size"]  # nothing of anybody's notes
        assert len(remote.embed(["tea"])[0]) == 5


# Servers that misbehave


def odd(vectors: Any, **more: Any) -> Reply:
    data = [{"index": at, "embedding": vector} for at, vector in enumerate(vectors)]
    return Reply(body=json.dumps({"data": data, **more}).encode())


GOOD = [[1.0] * DIMS] * 2


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (odd(GOOD[:1]), "1 vectors for 2 texts"),
        (odd([*GOOD, [1.0] * DIMS]), "3 vectors for 2 texts"),
        (odd([[1.0] * DIMS, [1.0] * 3]), "3 numbers, not 8"),
        (odd([[1.0] * DIMS, []]), "0 numbers, not 8"),
        (odd([[1.0] * DIMS, [math.nan] * DIMS]), "finite"),
        (odd([[1.0] * DIMS, [math.inf] * DIMS]), "finite"),
        (odd([[1.0] * DIMS, [1.7e308] * DIMS]), "numbers that are none"),
        (odd([[1.0] * DIMS, ["1.0"] * DIMS]), "valid number"),
        (odd([[1.0] * DIMS, None]), "embedding"),
        (Reply(body=b'{"data": [{"index": 5, "embedding": [1]}, {"index": 5, "embedding": [1]}]}'),
         "numbered wrongly"),
        (Reply(body=b"{"), "JSON"),
        (Reply(body=b""), "JSON"),
        (Reply(body=b"[]"), "object"),
        (Reply(body=b'{"error": "no"}'), "data"),
        (Reply(body=b"\xff\xfe\x00"), "JSON"),
        (Reply(body=b"<!doctype html><p>sign in</p>"), "web page"),
        (Reply(body=b"<p>sign in</p>", type="text/html; charset=utf-8"), "web page"),
        (Reply(body=b"[" * 100_000), "JSON"),
    ],
)  # fmt: skip
def test_embed_invalid_response_is_one_error_without_retry(reply: Reply, words: str) -> None:
    with EmbedServer() as server, opened(server) as (remote, _, _):
        server.replies.append(reply)
        with pytest.raises(BadRequestError, match=words) as caught:
            remote.embed(["my secret diary", "b"])
        assert "\n" not in str(caught.value) and caught.value.fix
        assert "diary" not in str(caught.value)
        assert len(server.seen) == 1
        assert len(remote.embed(["a", "b"])) == 2


def test_embed_oversized_response_is_not_read_to_end() -> None:
    with EmbedServer() as server, opened(server) as (remote, _, _):
        server.replies.append(Reply(body=b" " * (8 << 20)))
        with pytest.raises(BadRequestError, match="too long"):
            remote.embed(["a"])


def test_embed_endless_response_is_aborted() -> None:
    with EmbedServer() as server, opened(server) as (remote, _, _):
        body = b"ffff\r\n" + b"x" * 65535 + b"\r\n"
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        server.replies.append(Reply(raw=head + body * 64))
        with pytest.raises(BadRequestError, match="too long"):
            remote.embed(["a"])


@pytest.mark.parametrize(
    "cut",
    [
        b'HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n{"data"',
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Le",
        b"what?\r\n\r\n",
        b"",
    ],
)
def test_embed_broken_response_is_retried(cut: bytes) -> None:
    with EmbedServer() as server, opened(server) as (remote, _, clock):
        server.replies += [Reply(raw=cut), Reply(raw=cut)]
        assert remote.embed(["tea"]) == [pytest.approx(unit("tea"))]
        assert len(server.seen) == 3
        assert len(clock.slept) == 2
        server.replies += [Reply(raw=cut)] * 5
        with pytest.raises((StreamError, UnreachableError)):
            remote.embed(["tea"])
        assert len(server.seen) == 8


def test_embed_rate_limited_waits_as_requested() -> None:
    with EmbedServer() as server, opened(server) as (remote, _, clock):
        server.replies += [
            Reply(429, b'{"error": {"message": "slow down"}}', {"Retry-After": "7"}),
            Reply(503, b""),
            Reply(500, b"oops", {"retry-after-ms": "1500"}),
        ]
        remote.embed(["tea"])
        assert clock.slept[0] == 7.0
        assert len(clock.slept) == 3


def test_embed_rate_limited_too_long_is_not_retried() -> None:
    with EmbedServer() as server, opened(server) as (remote, _, clock):
        server.replies.append(Reply(429, b"{}", {"Retry-After": "3600"}))
        with pytest.raises(RateLimitError) as caught:
            remote.embed(["tea"])
        assert caught.value.after_s == 3600
        assert clock.slept == []
        server.replies += [Reply(429, b"{}", {"Retry-After": "5"})]
        with pytest.raises(RateLimitError):  # a question is not worth five seconds
            remote.embed_question("tea?")
        assert clock.slept == []


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(401, b'{"error": {"message": "Incorrect API key provided"}}'), AuthError),
        (Reply(403, b"{}"), AuthError),
        (Reply(400, b'{"error": {"status": "INVALID_ARGUMENT", "message": "API key not valid"}}'),
         AuthError),
        (Reply(402, b"{}"), BillingError),
        (Reply(429, b'{"error": {"code": "insufficient_quota", "message": "x"}}'), BillingError),
        (Reply(404, b'{"error": {"message": "no such model"}}'), BadRequestError),
        (Reply(302, b"", {"Location": "http://elsewhere.test/"}), BadRequestError),
    ],
)  # fmt: skip
def test_embed_permanent_error_is_not_retried(reply: Reply, error: type[ProviderError]) -> None:
    with EmbedServer() as server, opened(server) as (remote, _, _):
        server.replies.append(reply)
        with pytest.raises(error) as caught:
            remote.embed(["tea"])
        assert len(server.seen) == 1
        if error is AuthError:
            assert caught.value.fix == "check the key in OPENAI_API_KEY"


def test_ollama_missing_model_error_says_how_to_pull() -> None:
    with EmbedServer() as server, opened(server, "ollama") as (remote, _, _):
        server.replies.append(Reply(404, b'{"error": "model \\"m\\" not found"}'))
        with pytest.raises(BadRequestError) as caught:
            remote.embed(["tea"])
        assert caught.value.fix == "run `ollama pull m`"


def test_embed_query_silent_server_ends_at_deadline() -> None:
    with EmbedServer() as server, opened(server, question_s=0.3) as (remote, _, _):
        server.replies += [Reply(hold=True)] * 2
        with pytest.raises(ProviderTimeoutError):
            remote.embed_question("tea?")
        assert remote.embed(["tea"])


def test_embed_stopped_during_request_ends_at_once() -> None:
    with EmbedServer() as server, opened(server) as (remote, _, _):
        server.replies.append(Reply(hold=True))
        caught: list[Exception] = []

        def embed() -> None:
            try:
                remote.embed(["tea"])
            except StoreError as exc:
                caught.append(exc)

        thread = threading.Thread(target=embed)
        thread.start()
        while not server.seen:
            time.sleep(0.001)
        remote.stop()
        thread.join(30.0)
        assert not thread.is_alive()
        assert [str(exc) for exc in caught] == ["openai was not waited for: memory ends"]
        with pytest.raises(StoreError, match="memory ends"):
            remote.embed_question("tea?")
        remote.close()
        assert remote.embed(["tea"]) and len(server.seen) == 2


def test_embed_unreachable_server_error_names_address() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, and nobody listens
        port = taken.getsockname()[1]
        access = ServiceAccess(f"http://127.0.0.1:{port}/v1", {}, config_key("K", KEY))
        clock = FakeClock(patient=False)
        remote = RemoteEmbedder(
            HostedModel("openai", "m", access, DIMS), OpenAIEmbeddingApi("m"), clock=clock
        )
        with pytest.raises(UnreachableError, match=f"127.0.0.1:{port}"):
            remote.embed(["tea"])
        assert len(clock.slept) == 4
        remote.close()
        remote.close()


@pytest.mark.parametrize(
    "base_url", ["", "nowhere", "ftp://x/", "http://", "http://[::1", "http://h:0"]
)
def test_embed_invalid_address_is_reported(base_url: str) -> None:
    clock = FakeClock(patient=False)
    remote = RemoteEmbedder(
        HostedModel("openai", "m", ServiceAccess(base_url), DIMS),
        OpenAIEmbeddingApi("m"),
        clock=clock,
    )
    with pytest.raises(UnreachableError, match="not an address"):
        remote.embed(["tea"])
    remote.close()


@pytest.mark.parametrize("vendor", WIRES)
def test_embed_key_is_sent_in_header_and_never_logged(
    vendor: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    with (
        EmbedServer() as server,
        opened(server, vendor, headers={"X-Own": "secret-header-1"}) as (
            remote,
            _,
            _,
        ),
    ):
        remote.embed(["tea"])
        headers = server.seen[0].headers
        assert headers["x-own"] == "secret-header-1"
        if vendor == "gemini":
            assert headers["x-goog-api-key"] == KEY
            assert "authorization" not in headers
        else:
            assert headers["authorization"] == f"Bearer {KEY}"
        assert KEY not in server.seen[0].path
        told = []
        for status in (400, 401, 403, 404, 429, 500):
            echo = json.dumps({"error": {"message": f"bad {KEY} and secret-header-1"}}).encode()
            server.replies += [Reply(status, echo)] * 5
            with pytest.raises(ProviderError) as caught:
                remote.embed(["tea"])
            server.replies.clear()
            told += [str(caught.value), repr(caught.value)]
        said = " ".join([*told, caplog.text, *capfd.readouterr(), repr(remote.model)])
        assert KEY not in said and "secret-header-1" not in said


def test_embed_malformed_key_is_not_sent() -> None:
    with EmbedServer() as server, opened(server, key="kéy\n") as (remote, _, _):
        with pytest.raises(AuthError) as caught:
            remote.embed(["tea"])
        assert "kéy" not in str(caught.value)
        assert server.seen == []


def test_embed_refused_key_is_fetched_again() -> None:
    keys = iter(["old-key-000000", "new-key-111111"])

    async def fetch() -> str:
        return next(keys)

    with EmbedServer() as server:
        key = replace(config_key("a file", ""), fetch=fetch)
        hosted = HostedModel("openai", "m", ServiceAccess(f"{server.url}/v1", {}, key), DIMS)
        remote = RemoteEmbedder(hosted, OpenAIEmbeddingApi("m"), clock=FakeClock(patient=False))
        server.replies.append(Reply(401, b"{}"))
        with pytest.raises(AuthError, match="refused"):
            remote.embed(["tea"])
        remote.embed(["tea"])
        remote.embed(["tea"])
        sent = [seen.headers["authorization"] for seen in server.seen]
        assert sent == ["Bearer old-key-000000", *["Bearer new-key-111111"] * 2]
        remote.close()


def test_embed_reuses_connections_and_survives_closed_ones() -> None:
    with EmbedServer() as server, opened(server) as (remote, _, clock):
        for _ in range(3):
            remote.embed(["tea"])
        server.replies.append(
            Reply(raw=b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\n{}")
        )
        with pytest.raises(BadRequestError):
            remote.embed(["tea"])
        assert remote.embed(["tea"])
        assert len(clock.slept) <= 1


def test_model_identity_differs_by_service_not_by_key() -> None:
    one = ServiceAccess("https://a.test/v1", {"X-Org": "1"}, config_key("K", "first-key-12345"))
    assert identity(one) == identity(replace(one, key=None))
    assert identity(one) == identity(replace(one, base_url="https://me:pw@a.test/v1/?key=1"))
    assert identity(one) == identity(replace(one, headers={"x-org": "1", "X-Api-Key": "s"}))
    for other in (
        replace(one, base_url="https://b.test/v1"),
        replace(one, base_url="http://a.test/v1"),
        replace(one, base_url="https://a.test/v2"),
        replace(one, base_url="https://a.test:1/v1"),
        replace(one, headers={"X-Org": "2"}),
    ):
        assert identity(one) != identity(other)


# Going on without it


def test_circuit_breaker_failed_service_has_cooldown() -> None:
    with EmbedServer() as server, opened(server) as (remote, _, _):
        clock = FakeClock(patient=False)
        steady = CircuitBreakerEmbedder(remote, clock)
        assert steady.model == remote.model
        assert batch_size(steady) == batch_size(remote) == 256
        assert steady.embed_question("tea") == steady.embed(["tea"])[0]
        server.replies += [Reply(500, b"{}")] * 9
        with pytest.raises(OverloadedError) as caught:
            steady.embed(["tea"])
        asked = len(server.seen)
        for _ in range(3):
            with pytest.raises(OverloadedError):
                steady.embed_question("tea")
        assert steady.failure is caught.value
        assert len(server.seen) == asked
        server.replies.clear()
        asyncio.run(clock.sleep(REST_S))
        assert steady.embed(["tea"])
        assert steady.failure is None


def test_circuit_breaker_error_of_one_text_has_no_cooldown() -> None:
    with EmbedServer() as server, opened(server) as (remote, _, _):
        steady = CircuitBreakerEmbedder(remote, FakeClock())
        server.replies.append(Reply(400, b'{"error": {"message": "odd text"}}'))
        with pytest.raises(BadRequestError):
            steady.embed(["odd"])
        assert isinstance(steady.failure, BadRequestError)
        assert steady.embed(["tea"])
        model = steady.model
        server.replies.append(Reply(401, b"{}"))
        with pytest.raises(AuthError):
            steady.embed(["tea"])
        assert steady.model == model  # known without anybody being asked


def test_remote_embedder_used_by_two_threads_in_turn_works() -> None:
    made: list[list[list[float]]] = []
    with EmbedServer() as server, opened(server) as (remote, _, _):
        for _ in range(3):
            thread = threading.Thread(target=lambda: made.append(remote.embed(["tea"])))
            thread.start()
            thread.join()
            made.append([remote.embed_question("tea")])
        assert made == [[pytest.approx(unit("tea"))]] * 6
