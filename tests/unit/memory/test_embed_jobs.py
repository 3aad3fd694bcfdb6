"""Vendors' batch services, and their own clients as judges of the server that plays them."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from homarus.config.memory import EmbeddingBatchConfig
from homarus.memory.embed.access import config_key
from homarus.memory.embed.base import EmbeddingCost, batch_size
from homarus.memory.embed.batch_jobs import MAX_JOB_TEXTS, BatchPendingError
from homarus.memory.embed.client import ServiceAccess
from homarus.memory.embed.gemini import GeminiEmbeddingApi
from homarus.memory.embed.openai import OpenAIEmbeddingApi
from homarus.memory.embed.remote import (
    EmbeddingApi,
    EmbedRequestLimits,
    HostedModel,
    RemoteEmbedder,
    to_unit,
)
from homarus.memory.embed.voyage import VoyageEmbeddingApi
from homarus.testing.clock import FakeClock
from tests.unit.memory.embed_server import DIMS, EmbedServer, Reply, numbers

KEY = "sk-test-0123456789abcdef"
WIRES: dict[str, tuple[str, EmbeddingApi]] = {
    "openai": ("/v1", OpenAIEmbeddingApi("m")),
    "voyage": ("/v1", VoyageEmbeddingApi("m")),
    "gemini": ("/v1beta", GeminiEmbeddingApi("m")),
}
TEXTS = [f"note {at}" for at in range(250)]
FOR_JOBS = ("/files", "/batches", ":asyncBatchEmbedContent")


class Scene:
    def __init__(self, server: EmbedServer, vendor: str, batch: dict[str, Any]) -> None:
        base, wire = WIRES[vendor]
        access = ServiceAccess(server.url + base, {}, config_key("K", KEY))
        asked = EmbeddingBatchConfig.model_validate({"enabled": True, **batch})
        limits = EmbedRequestLimits(max_texts=50)
        hosted = HostedModel(vendor, "m", access, DIMS, 1.0, limits, asked)
        self.paid: list[EmbeddingCost] = []
        self.told: list[str] = []
        self.clock = FakeClock(patient=False)
        self.remote = RemoteEmbedder(
            hosted, wire, paid=self.paid.append, tell=self.told.append, clock=self.clock
        )


@contextmanager
def scene(vendor: str = "openai", **batch: Any) -> Iterator[tuple[EmbedServer, Scene]]:
    with EmbedServer() as server:
        made = Scene(server, vendor, batch)
        try:
            yield server, made
        finally:
            made.remote.close()


def right(texts: list[str]) -> list[Any]:
    return [pytest.approx(to_unit(numbers(text))) for text in texts]


def plain(server: EmbedServer) -> int:
    """Requests that were not about jobs."""
    return sum(not any(word in path for word in FOR_JOBS) for path in server.paths)


@pytest.mark.parametrize("vendor", WIRES)
def test_batch_many_notes_are_sent_as_job_at_lower_price(vendor: str) -> None:
    with scene(vendor) as (server, made):
        assert batch_size(made.remote) == 2 * MAX_JOB_TEXTS
        assert made.remote.embed(TEXTS) == right(TEXTS)
        assert plain(server) == 0
        assert made.told == []
        assert made.clock.slept == [2.0]
        assert server.files == {}  # what the notes say is left nowhere
        tokens = sum(one.tokens for one in made.paid)
        share = {"openai": 0.5, "voyage": 0.67, "gemini": 0.5}[vendor]
        assert sum(one.cost_usd for one in made.paid) == pytest.approx(tokens * share / 1e6)


@pytest.mark.parametrize("vendor", WIRES)
def test_batch_few_notes_or_query_are_sent_directly(vendor: str) -> None:
    with scene(vendor) as (server, made):
        made.remote.embed(TEXTS[:20])
        made.remote.embed_question("where?")
        assert plain(server) == len(server.seen) == 2


def test_batch_above_limits_is_split_into_several_jobs() -> None:
    with scene(concurrency=3) as (server, made):
        texts = [f"note {at}" for at in range(2 * MAX_JOB_TEXTS + 10)]
        assert made.remote.embed(texts) == right(texts)
        assert len(server.jobs) == 3
        assert plain(server) == 0


@pytest.mark.parametrize("vendor", WIRES)
def test_batch_missing_parts_are_embedded_directly_and_logged(vendor: str) -> None:
    with scene(vendor) as (server, made):
        server.bad_lines = {"1", "note 60"}  # by the part's number, or by the text
        assert made.remote.embed(TEXTS) == right(TEXTS)
        assert plain(server) == 1
        assert "1 of 5 parts" in made.told[0]


@pytest.mark.parametrize("vendor", WIRES)
def test_batch_after_two_failed_jobs_sends_no_more_jobs(vendor: str) -> None:
    with scene(vendor) as (server, made):
        server.job_status = "failed"
        for _ in range(3):
            assert made.remote.embed(TEXTS) == right(TEXTS)
        assert len(server.jobs) == 2
        assert len(made.told) == 2
        assert batch_size(made.remote) < MAX_JOB_TEXTS


def test_batch_expired_job_returns_finished_parts() -> None:
    with scene() as (server, made):
        server.job_status, server.bad_lines = "expired", {"0"}
        assert made.remote.embed(TEXTS) == right(TEXTS)
        assert plain(server) == 1


@pytest.mark.parametrize("vendor", WIRES)
def test_batch_timed_out_job_is_cancelled(vendor: str) -> None:
    with scene(vendor, timeoutMinutes=1, pollIntervalMs=20_000) as (server, made):
        server.looks_needed = 1_000
        assert made.remote.embed(TEXTS) == right(TEXTS)
        assert made.clock.slept == [20.0] * 3
        assert [job.called_off for job in server.jobs.values()] == [True]
        assert "within 1 minutes" in made.told[0]


def test_batch_wait_disabled_polls_job_at_next_sync() -> None:
    with scene(wait=False) as (server, made):
        server.looks_needed = 3
        for _ in range(2):
            with pytest.raises(BatchPendingError, match="not done yet"):
                made.remote.embed(TEXTS)
        assert made.remote.embed(TEXTS) == right(TEXTS)
        assert len(server.jobs) == 1
        assert plain(server) == 0
        assert made.clock.slept == []


@pytest.mark.parametrize(
    "reply",
    [
        Reply(404, b"{}"),
        Reply(403, b"{}"),
        Reply(body=b"{}"),
        Reply(body=b"<html>"),
        Reply(body=b'{"id": "../../secrets"}'),
        Reply(body=b'{"name": "batches/../x"}'),
        Reply(500, b"{}"),
    ],
)
@pytest.mark.parametrize("vendor", WIRES)
def test_batch_api_missing_embeds_directly(vendor: str, reply: Reply) -> None:
    def refuse(seen: Any) -> Reply | None:
        return reply if any(word in seen.path for word in FOR_JOBS) else None

    with scene(vendor) as (server, made):
        server.refuse = refuse
        assert made.remote.embed(TEXTS) == right(TEXTS)
        assert len(made.told) == 1
        assert KEY not in made.told[0]


@pytest.mark.parametrize(
    "junk",
    [
        b"",
        b"not json\n{}\n[]\n",
        b'{"custom_id": "0", "response": {"status_code": 200, "body": {"data": []}}}',
        b'{"custom_id": "999", "response": {"status_code": 200, "body": {"data": []}}}',
        b'{"custom_id": "x", "response": null, "error": {"message": "no"}}',
        b'{"custom_id": "0", "response": {"status_code": 500, "message": "no"}}',
        b"\xff\xfe",
    ],
)
def test_batch_invalid_result_lines_are_embedded_directly(junk: bytes) -> None:
    with scene() as (server, made):
        server.refuse = lambda seen: Reply(body=junk) if seen.path.endswith("/content") else None
        assert made.remote.embed(TEXTS) == right(TEXTS)
        assert plain(server) == 5


def test_batch_openai_compatible_server_gets_no_jobs() -> None:
    assert OpenAIEmbeddingApi("m", has_jobs=False).jobs is None


# The vendors' own clients, against the same server


def test_batch_fake_server_accepts_openai_client() -> None:
    import openai

    with EmbedServer() as server:
        client = openai.OpenAI(api_key=KEY, base_url=f"{server.url}/v1", max_retries=0)
        with client:
            told = client.embeddings.create(model="m", input=["a", "b"], encoding_format="float")
            by_index = {item.index: item.embedding for item in told.data}
            assert by_index == {0: numbers("a"), 1: numbers("b")}
            line = '{"custom_id":"0","method":"POST","url":"/v1/embeddings",'
            line += '"body":{"model":"m","input":["a"]}}'
            file = client.files.create(file=("x.jsonl", line.encode()), purpose="batch")
            job = client.batches.create(
                input_file_id=file.id, endpoint="/v1/embeddings", completion_window="24h"
            )
            client.batches.retrieve(job.id)
            done = client.batches.retrieve(job.id)
            assert done.status == "completed" and done.output_file_id
            assert b"custom_id" in client.files.content(done.output_file_id).read()
        theirs = next(seen for seen in server.seen if seen.path == "/v1/embeddings")
        ours = OpenAIEmbeddingApi("m").body(["a", "b"], "note")
        assert replace(theirs, body=ours).json == theirs.json


def test_batch_fake_server_accepts_google_client() -> None:
    from google import genai
    from google.genai import types

    with EmbedServer() as server:
        options = types.HttpOptions(base_url=server.url)
        client = genai.Client(api_key=KEY, http_options=options)
        config = types.EmbedContentConfig(task_type="RETRIEVAL_QUERY", output_dimensionality=768)
        name = "gemini-embedding-001"
        contents: list[Any] = ["a", "b"]
        told = client.models.embed_content(model=name, contents=contents, config=config)
        assert told.embeddings and told.embeddings[1].values == numbers("b")
        source = types.EmbeddingsBatchJobSource(
            inlined_requests=types.EmbedContentBatch(contents=contents, config=config)
        )
        with pytest.warns(Warning, match="experimental"):
            job = client.batches.create_embeddings(model=name, src=source)
        assert job.name
        client.batches.get(name=job.name)
        done = client.batches.get(name=job.name)
        assert done.state and done.state.name == "JOB_STATE_SUCCEEDED"
        assert done.dest and done.dest.inlined_embed_content_responses
        client.close()
        theirs = server.seen[0]
        assert theirs.path.endswith(GeminiEmbeddingApi(name).path)
        ours = replace(theirs, body=GeminiEmbeddingApi(name).body(["a", "b"], "question")).json
        asked = theirs.json
        for one in asked["requests"]:
            assert one["content"].pop("role") == "user"
        assert ours == asked
        begun = next(seen for seen in server.seen if "asyncBatch" in seen.path).json["batch"]
        first = begun["inputConfig"]["requests"]["requests"][0]["request"]
        assert first["content"]["parts"] == [{"text": "a"}]
        assert first["taskType"] == "RETRIEVAL_QUERY"
