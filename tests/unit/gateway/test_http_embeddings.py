"""`/v1/embeddings`: the embedder of an agent's memory, over a service that answers."""

import asyncio
import base64
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from homarus.core.message import Json
from homarus.gateway.http_api import embedding_pool
from homarus.gateway.http_api.embeddings import MAX_INPUTS, MAX_TEXT_CHARS
from homarus.testing.model_server import ModelServer
from homarus.testing.model_server.openai import EMBEDDING_SIZE, embedding
from tests.unit.gateway.api_harness import ApiClient, api, pair_device
from tests.unit.gateway.harness import Harness

PATH = "/v1/embeddings"
MODEL = "openclaw"


@asynccontextmanager
async def embedder(
    folder: Path, **search: Json
) -> AsyncIterator[tuple[ApiClient, Harness, ModelServer]]:
    """Run a gateway whose memory uses a service of this process."""
    async with ModelServer() as server:
        entry = {"baseUrl": f"{server.url}/v1", "apiKey": "config-key-123456", "models": []}
        defaults = {"memorySearch": {"provider": "openai", **search}}
        config: dict[str, Any] = {
            "models": {"providers": {"openai": entry}},
            "agents": {"defaults": defaults},
        }
        async with api(folder, "embeddings", **config) as (client, stage):
            yield client, stage, server


async def test_embeddings_of_a_text_are_returned(tmp_path: Path) -> None:
    async with embedder(tmp_path) as (client, stage, _server):
        got = await client.post(PATH, {"model": MODEL, "input": "hello world", "user": "u"})
        records = await stage.program.store.usage_records()
    body = got.json
    [row] = body["data"]
    assert (got.status, body["object"], row["object"], row["index"]) == (
        200,
        "list",
        "embedding",
        0,
    )
    assert row["embedding"] == pytest.approx(embedding("hello world"), abs=1e-6)
    assert body["model"].startswith("openai/")
    assert body["usage"] == {"prompt_tokens": 2, "total_tokens": 2}
    assert [(each.run, each.provider, each.usage.input) for each in records] == [
        ("embeddings", "openai", 2)
    ]


async def test_embeddings_of_a_list_keep_its_order(tmp_path: Path) -> None:
    texts = [f"text number {n}" for n in range(20)]
    async with embedder(tmp_path) as (client, _stage, _server):
        got = (await client.post(PATH, {"model": "openclaw:main", "input": texts})).json
    assert [row["index"] for row in got["data"]] == list(range(20))
    for row, text in zip(got["data"], texts, strict=True):
        assert row["embedding"] == pytest.approx(embedding(text), abs=1e-6)


async def test_embeddings_as_base64_are_little_endian_floats(tmp_path: Path) -> None:
    asked = {"model": MODEL, "input": ["a b"], "encoding_format": "base64"}
    async with embedder(tmp_path) as (client, _stage, _server):
        got = (await client.post(PATH, asked)).json
    packed = base64.b64decode(got["data"][0]["embedding"])
    assert list(struct.unpack(f"<{EMBEDDING_SIZE}f", packed)) == pytest.approx(
        embedding("a b"), abs=1e-6
    )


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"input": [1, 2, 3]}, "input"),
        ({"input": [[1, 2], [3]]}, "input"),
        ({"input": ""}, "input"),
        ({"input": "  \n"}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input"),
        ({"input": ["a"] * (MAX_INPUTS + 1)}, "input"),
        ({"input": "a" * (MAX_TEXT_CHARS + 1)}, "input"),
        ({"input": ["a" * MAX_TEXT_CHARS] * 51}, "input"),
        ({"input": None}, "input"),
        ({"encoding_format": "int8"}, "encoding_format"),
        ({"dimensions": 0}, "dimensions"),
        ({"dimensions": EMBEDDING_SIZE + 1}, "dimensions"),
        ({"model": ""}, "model"),
    ],
)
async def test_embeddings_of_invalid_requests_are_refused(
    change: dict[str, Json], param: str, tmp_path: Path
) -> None:
    async with embedder(tmp_path) as (client, _stage, _server):
        got = await client.post(PATH, {"model": MODEL, "input": "a", **change})
    assert got.status == 400 and str(got.error["param"]).startswith(param)


async def test_embeddings_accept_the_dimensions_of_the_model(tmp_path: Path) -> None:
    asked = {"model": MODEL, "input": "a", "dimensions": EMBEDDING_SIZE}
    async with embedder(tmp_path) as (client, _stage, _server):
        assert (await client.post(PATH, asked)).status == 200


async def test_embeddings_of_an_unknown_model_are_refused(tmp_path: Path) -> None:
    async with embedder(tmp_path) as (client, _stage, server):
        other = await client.post(PATH, {"model": "text-embedding-3-small", "input": "a"})
        agent = await client.post(
            PATH, {"model": MODEL, "input": "a"}, headers=[("x-openclaw-agent-id", "nobody")]
        )
        assert not server.requests
    assert (other.status, other.error["param"]) == (404, "model")
    assert (agent.status, agent.error["param"]) == (404, "x-openclaw-agent-id")


async def test_embeddings_without_an_embedder_name_the_setting(tmp_path: Path) -> None:
    async with embedder(tmp_path, provider="none") as (client, _stage, _server):
        got = await client.post(PATH, {"model": MODEL, "input": "a"})
    assert (got.status, got.error["code"]) == (404, "no_embedder")
    assert "memorySearch.provider" in str(got.error["message"])


async def test_embeddings_header_selects_another_model_for_the_owner(tmp_path: Path) -> None:
    header = [("x-openclaw-model", "openai/text-embedding-3-large")]
    asked = {"model": MODEL, "input": "a"}
    async with embedder(tmp_path, provider="none") as (client, stage, server):
        got = await client.post(PATH, asked, headers=header)
        assert server.requests[0].body["model"] == "text-embedding-3-large"
        writer = client.with_token(pair_device(stage, "write"))
        refused = await writer.post(PATH, asked, headers=header)
        unknown = await client.post(PATH, asked, headers=[("x-openclaw-model", "../x/y")])
    assert got.json["model"] == "openai/text-embedding-3-large"
    assert (refused.status, unknown.status) == (403, 400)


async def test_embeddings_header_sends_no_key_of_another_service(tmp_path: Path) -> None:
    async with ModelServer() as secret:
        remote = {"baseUrl": f"{secret.url}/v1", "apiKey": "voyage-key-123456"}
        async with embedder(tmp_path, provider="voyage", remote=remote) as (client, _s, server):
            header = [("x-openclaw-model", "openai/text-embedding-3-small")]
            got = await client.post(PATH, {"model": MODEL, "input": "a"}, headers=header)
            assert got.status == 200 and not secret.requests
            sent = server.requests[0].headers
    assert "config-key-123456" in str(sent) and "voyage-key" not in str(sent)


@asynccontextmanager
async def failing(folder: Path, answer: bytes) -> AsyncIterator[ApiClient]:
    """Run a gateway whose service gives this answer; without one it never answers."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        if not answer:
            await reader.read()  # until the client is gone
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        async with embedder(folder, remote={"baseUrl": url}) as (client, _stage, _server):
            yield client


async def test_embeddings_failure_of_the_service_is_reported(tmp_path: Path) -> None:
    refusal = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\n{}"
    async with failing(tmp_path, refusal) as client:
        got = await client.post(PATH, {"model": MODEL, "input": "a"})
    assert got.status == 502 and got.error["type"] == "api_error"
    assert "config-key" not in str(got.error)


async def test_embeddings_that_take_too_long_are_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_pool, "TIMEOUT_S", 0.3)
    async with failing(tmp_path, b"") as client:
        for _ in range(2):
            got = await client.post(PATH, {"model": MODEL, "input": "a"})
            assert got.status == 504


async def test_embeddings_requests_at_once_are_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedding_pool, "MAX_WAITING", 2)
    async with embedder(tmp_path) as (client, _stage, _server):
        async with asyncio.TaskGroup() as group:
            asked = {"model": MODEL, "input": "a"}
            tasks = [group.create_task(client.post(PATH, asked)) for _ in range(5)]
        statuses = sorted(task.result().status for task in tasks)
    assert statuses == [200, 200, 503, 503, 503]
