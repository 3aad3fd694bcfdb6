"""Choosing the default model, and the reasons reported."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.config.schema import Config
from homarus.providers.catalog import VENDORS, Vendor
from homarus.providers.default_model import (
    PROBE_S,
    DefaultModel,
    chat_models,
    choose_default_model,
    list_models,
)


class Servers:
    """What the probe finds, and whom it was sent to."""

    def __init__(self, **found: tuple[str, ...]) -> None:
        self.found = found
        self.asked: list[str] = []

    async def __call__(self, server: Vendor) -> tuple[str, ...] | None:
        self.asked.append(server.id)
        return self.found.get(server.id)


async def chosen(
    config: Mapping[str, object] | None = None,
    env: dict[str, str] | None = None,
    servers: Servers | None = None,
) -> DefaultModel:
    told = Config.model_validate(config or {})
    return await choose_default_model(told, env or {}, servers or Servers())


PRIMARY = {"agents": {"defaults": {"model": {"primary": "groq/some-model"}}}}
KEYS = {name: "k" for vendor in VENDORS.values() for name in vendor.key_names}


async def test_configured_model_wins_over_everything() -> None:
    servers = Servers(ollama=("llama3.2",))
    choice = await chosen(PRIMARY, KEYS, servers)
    assert choice.ref == "groq/some-model"
    assert "configuration" in choice.why
    assert choice.tried == (("agents.defaults.model", "groq/some-model"),)
    assert servers.asked == []


async def test_configured_provider_wins_over_environment_key() -> None:
    mine = {"baseUrl": "http://10.0.0.1/v1", "models": [{"id": "big"}, {"id": "small"}]}
    choice = await chosen({"models": {"providers": {"Mine": mine}}}, KEYS)
    assert choice.ref == "mine/big"
    assert (
        await chosen({"models": {"providers": {"xai": {"apiKey": "k"}}}}, KEYS)
    ).ref == "xai/grok-4.3"


@pytest.mark.parametrize(
    "entry",
    [
        {"baseUrl": "http://10.0.0.1/v1"},
        {"apiKey": "k"},
        {"api": "github-copilot", "models": [{"id": "m"}]},
        {"models": [{"id": "m", "api": "github-copilot"}]},
    ],
)
async def test_unusable_configured_provider_is_skipped(entry: object) -> None:
    choice = await chosen({"models": {"providers": {"mine": entry}}}, {"OPENAI_API_KEY": "k"})
    assert choice.ref == "openai/gpt-5.2"


@pytest.mark.parametrize("vendor", [v for v in VENDORS.values() if v.key_names], ids=lambda v: v.id)
async def test_environment_key_selects_vendor_default(vendor: Vendor) -> None:
    for name in vendor.key_names:
        servers = Servers(ollama=("llama3.2",))
        choice = await chosen(env={name: "k"}, servers=servers)
        assert choice.ref == f"{vendor.id}/{vendor.default}"
        assert name in choice.why
        assert servers.asked == []


async def test_several_keys_select_first_vendor_of_table() -> None:
    assert (await chosen(env=KEYS)).ref == "anthropic/claude-opus-4-6"


async def test_choice_never_contains_a_key() -> None:
    choice = await chosen(env={"OPENAI_API_KEY": "sk-very-secret"})
    assert "sk-very-secret" not in repr(choice)


async def test_empty_key_counts_as_none() -> None:
    assert (await chosen(env={"OPENAI_API_KEY": "  "})).ref == "local/demo"


async def test_local_server_is_next() -> None:
    choice = await chosen(servers=Servers(lmstudio=("qwen3-8b", "gemma-3")))
    assert choice.ref == "lmstudio/qwen3-8b"
    assert "LM Studio at 127.0.0.1:1234" in choice.why
    assert ("Ollama at 127.0.0.1:11434", "no answer") in choice.tried
    both = await chosen(servers=Servers(lmstudio=("qwen3-8b",), ollama=("llama3.2", "mistral")))
    assert both.ref == "ollama/llama3.2"


async def test_local_server_without_chat_model_is_skipped() -> None:
    choice = await chosen(servers=Servers(ollama=(), lmstudio=("gemma-3",)))
    assert choice.ref == "lmstudio/gemma-3"
    assert ("Ollama at 127.0.0.1:11434", "no chat model") in choice.tried


async def test_embedded_model_is_last() -> None:
    choice = await chosen()
    assert choice.ref == "local/demo"
    assert [source for source, _ in choice.tried] == [
        "agents.defaults.model",
        "models.providers",
        "auth profiles",
        "environment",
        "Ollama at 127.0.0.1:11434",
        "LM Studio at 127.0.0.1:1234",
        "embedded model",
    ]


async def test_replace_mode_checks_only_configured_providers() -> None:
    servers = Servers(ollama=("llama3.2",))
    replaced = {"models": {"mode": "replace"}}
    assert (await chosen(replaced, KEYS, servers)).ref == "local/demo"
    assert servers.asked == []


def test_chat_models_omits_embedding_models() -> None:
    ids = ["nomic-embed-text:latest", "text-embedding-bge-m3", "llama3.2:3b", "all-minilm", "qwen3"]
    answer = {"object": "list", "data": [{"id": id_} for id_ in ids]}
    assert chat_models(answer) == ("llama3.2:3b", "qwen3")


@pytest.mark.parametrize(
    "answer",
    [None, [], "models", {}, {"data": None}, {"data": 5}, {"data": {"id": "a"}}, {"data": [None]},
     {"data": [{}]}, {"data": [{"id": 5}]}, {"data": [{"id": ""}]}, {"data": [{"id": "a\nb"}]},
     {"data": [{"id": "x" * 300}]}, {"data": [{"id": "\x1b[31m"}]}],
)  # fmt: skip
def test_chat_models_omits_invalid_ids(answer: object) -> None:
    assert chat_models(answer) == ()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["data", "id", "x"]), inner),
)


@given(json_values)
def test_chat_models_accepts_any_json(answer: object) -> None:
    assert all(isinstance(id_, str) for id_ in chat_models(answer))


# The real probe, against a server on a port of its own.

Reply = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


async def probed(reply: Reply) -> tuple[str, ...] | None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reply(await reader.readuntil(b"\r\n\r\n"), writer)
        except OSError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        return await list_models(Vendor("ollama", "Ollama", f"http://127.0.0.1:{port}/v1"))
    finally:
        server.close()


def says(body: bytes, head: bytes = b"HTTP/1.1 200 OK") -> Reply:
    async def reply(_request: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(head + b"\r\nContent-Type: application/json\r\n\r\n" + body)
        await writer.drain()

    return reply


async def test_probe_requests_model_list() -> None:
    requests: list[bytes] = []

    async def reply(request: bytes, writer: asyncio.StreamWriter) -> None:
        requests.append(request)
        await says(json.dumps({"data": [{"id": "llama3.2"}]}).encode())(request, writer)

    assert await probed(reply) == ("llama3.2",)
    assert requests[0].startswith(b"GET /v1/models HTTP/1.1\r\n")


@pytest.mark.parametrize(
    "reply",
    [
        says(b"{}", b"HTTP/1.1 404 Not Found"),
        says(b"<html>"),
        says(b""),
        says(b"\xff\xfe"),
        says(b"[" * 200_000),
        says(b'{"data": [' + b" " * (2 << 20)),
        says(b"", b""),
        says(b"", b"SSH-2.0-OpenSSH"),
    ],
)
async def test_probe_of_other_service_returns_none(reply: Reply) -> None:
    assert await probed(reply) is None


async def test_probe_of_silent_server_times_out() -> None:
    async def reply(_request: bytes, _writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    started = time.monotonic()
    assert await probed(reply) is None
    assert time.monotonic() - started < 10 * PROBE_S


async def test_probe_of_closed_port_returns_none() -> None:
    assert await list_models(Vendor("x", "X", "http://127.0.0.1:9/v1")) is None
