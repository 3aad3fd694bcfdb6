"""Requests for runs, up to the run itself: whose they are, and what is refused before it."""

from pathlib import Path
from typing import Any

import pytest

from homarus.core.errors import (
    AllAttemptsFailedError,
    AuthError,
    BadRequestError,
    ContextOverflowError,
    HomarusError,
    OverloadedError,
    ProviderTimeoutError,
    RateLimitError,
    RunCrashedError,
    SpendLimitError,
)
from homarus.gateway.http_api.run_errors import run_error
from tests.unit.gateway.api_harness import api, pair_device

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
HELLO = {"model": "openclaw", "messages": [{"role": "user", "content": "Hello"}]}
HI = {"model": "openclaw", "input": "Hello"}


async def test_run_endpoints_are_off_until_they_are_enabled(tmp_path: Path) -> None:
    async with api(tmp_path, "embeddings") as (client, _):
        for path, body in ((CHAT, HELLO), (RESPONSES, HI)):
            assert (await client.post(path, body)).status == 404


async def test_run_needs_the_scope_to_write(tmp_path: Path) -> None:
    async with api(tmp_path, "chatCompletions", "responses") as (client, stage):
        reader = client.with_token(pair_device(stage, "read"))
        for path, body in ((CHAT, HELLO), (RESPONSES, HI)):
            found = await reader.post(path, body)
            assert (found.status, found.error["code"]) == (403, "missing_scope")
        assert stage.program.runs == {}


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({}, {"model": "gpt-4o"}, 404),
        ({"x-openclaw-agent-id": "nobody"}, {}, 404),
        ({"x-openclaw-session-key": "agent:other:main", "x-openclaw-agent-id": "main"}, {}, 400),
        ({"x-openclaw-session-key": "agent:::"}, {}, 400),
        ({"Idempotency-Key": "k" * 300}, {}, 400),
        ({"x-openclaw-session-key": "agent:ops:main"}, {"model": "openclaw:main"}, 400),
        ({}, {"user": "u" * 300}, 400),
        ({}, {"messages": []}, 400),
        ({}, {"messages": [{"role": "robot", "content": "x"}]}, 400),
        ({}, {"tools": [{"type": "web_search"}]}, 400),
        ({"x-openclaw-model": "unknown-model"}, {}, 400),
    ],
)
async def test_run_request_that_is_wrong_starts_nothing(
    tmp_path: Path, headers: dict[str, str], body: dict[str, Any], status: int
) -> None:
    async with api(tmp_path, "chatCompletions") as (client, stage):
        found = await client.post(CHAT, HELLO | body, headers=tuple(headers.items()))
        assert found.status == status, found.body
        assert found.error["type"] in {"invalid_request_error", "not_found"}
        assert stage.program.runs == {}


async def test_model_header_needs_the_admin_scope(tmp_path: Path) -> None:
    async with api(tmp_path, "chatCompletions") as (client, stage):
        writer = client.with_token(pair_device(stage, "write"))
        found = await writer.post(CHAT, HELLO, headers=(("x-openclaw-model", "a/b"),))
        assert found.status == 403


LIMITED = RateLimitError("slow", after_s=7)
BUSY = OverloadedError("busy")
ERRORS: list[tuple[HomarusError, int, str]] = [
    (LIMITED, 429, "rate_limit_exceeded"),
    (AllAttemptsFailedError((LIMITED, BUSY)), 429, "rate_limit_exceeded"),
    (AllAttemptsFailedError((AuthError("no"), BUSY)), 502, "provider.overloaded"),
    (ContextOverflowError("long"), 400, "context_length_exceeded"),
    (BadRequestError("bad"), 400, "provider.bad_request"),
    (AuthError("key"), 502, "provider.auth"),
    (ProviderTimeoutError("late"), 504, "provider.timeout"),
    (SpendLimitError("spent"), 429, "insufficient_quota"),
    (RunCrashedError("bug"), 500, "run.broke"),
]


@pytest.mark.parametrize(("error", "status", "code"), ERRORS, ids=lambda value: str(value)[:30])
def test_failure_of_run_has_the_status_of_its_cause(
    error: HomarusError, status: int, code: str
) -> None:
    found = run_error(error)
    assert (found.status, found.reason) == (status, code)
    if status == 429 and code.startswith("rate"):
        assert int(found.headers["Retry-After"]) >= 1
