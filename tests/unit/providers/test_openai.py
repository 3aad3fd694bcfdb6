"""The chat-completions provider, against the scripted server."""

import json
from typing import Any

import pytest

from homarus.core.errors import (
    ContextOverflowError,
    OverloadedError,
    ProviderError,
    StreamError,
)
from homarus.providers.base import Provider, ToolSpec
from homarus.providers.catalog import ModelInfo
from homarus.providers.compat import resolve_compat
from homarus.providers.openai import _ChatRequestBuilder
from homarus.testing.model_server import (
    BodyFraming,
    ModelServer,
    Raw,
    Replay,
    Say,
    ScriptStep,
    StreamFault,
)
from tests.unit.providers.harness import OPENAI, answer, make_request

KEY = OPENAI.key
message_of, error_of = OPENAI.message_of, OPENAI.error_of
served, body_of = OPENAI.served, OPENAI.body_of


# What is sent


async def test_request_body_has_system_messages_tools_and_usage_option() -> None:
    spec = ToolSpec("read", "Read.", {"type": "object", "properties": {}})
    body = await body_of(make_request(system="Be brief.", tools=(spec,), max_tokens=50))
    assert body == {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 50,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hi"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "read",
                    "description": "Read.",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
        ],
    }


def test_changed_system_prompt_is_sent_by_the_same_builder() -> None:
    model = ModelInfo("mock", "m")
    builder = _ChatRequestBuilder(model, "mock", resolve_compat("", {}, {}))
    for system in ("First.", "First.", "Second.", "", "First."):
        turns = json.loads(builder.body(make_request(system=system)))["messages"]
        assert [one["content"] for one in turns] == [*filter(None, [system]), "hi"]


async def test_compat_flags_change_role_limit_and_options() -> None:
    model = ModelInfo(
        "mock", "m", reasoning=True, compat={"maxTokensField": "max_completion_tokens"}
    )
    flags = {
        "supportsDeveloperRole": True,
        "supportsStore": True,
        "supportsUsageInStreaming": False,
    }
    request = make_request(system="S", max_tokens=5, thinking="high")
    body = await body_of(request, model, compat=flags)
    assert body["messages"][0]["role"] == "developer"
    assert body["max_completion_tokens"] == 5
    assert body["store"] is False
    assert body["reasoning_effort"] == "high"
    assert "stream_options" not in body


@pytest.mark.parametrize(
    ("compat", "thinking", "sent"),
    [
        ({}, "off", {}),
        ({}, "minimal", {"reasoning_effort": "minimal"}),
        ({"supportsReasoningEffort": False}, "low", {}),
        ({"thinkingFormat": "zai"}, "low", {"thinking": {"type": "enabled"}}),
        ({"thinkingFormat": "zai"}, "off", {"thinking": {"type": "disabled"}}),
        ({"thinkingFormat": "qwen"}, "low", {"enable_thinking": True}),
        ({"thinkingFormat": "qwen"}, "off", {"enable_thinking": False}),
    ],
)
async def test_request_thinking_follows_compat_format(
    compat: dict[str, Any], thinking: Any, sent: dict[str, Any]
) -> None:
    model = ModelInfo("mock", "m", reasoning=True, compat=compat)
    body = await body_of(make_request(thinking=thinking), model)
    asked_for = {
        k: body[k] for k in ("reasoning_effort", "thinking", "enable_thinking") if k in body
    }
    assert asked_for == sent
    plain = await body_of(
        make_request(thinking=thinking), ModelInfo("mock", "m", reasoning=False, compat=compat)
    )
    assert not {"reasoning_effort", "thinking", "enable_thinking"} & set(plain)


async def test_request_params_override_fields_and_null_removes_them() -> None:
    params = {"temperature": 0.2, "max_tokens": 7, "stream_options": None, "messages": "no"}
    body = await body_of(make_request(max_tokens=50, params=params))
    assert (body["temperature"], body["max_tokens"]) == (0.2, 7)
    assert "stream_options" not in body
    assert body["messages"] == [{"role": "user", "content": "hi"}]


async def test_request_headers_have_key_and_configured_ones() -> None:
    async def scene(provider: Provider, server: ModelServer) -> Any:
        await answer(provider)
        return server.requests[0].headers

    model = ModelInfo("mock", "m", headers={"X-Model": "yes"})
    async with served(models=(model,), headers={"X-Team": "a", "user-agent": "mine"}) as (
        provider,
        server,
    ):
        headers = await scene(provider, server)
    assert headers["authorization"] == f"Bearer {KEY}"
    assert (headers["x-team"], headers["x-model"], headers["user-agent"]) == ("a", "yes", "mine")
    async with served(headers={"api-key": "k"}, auth_header=False) as (provider, server):
        without = await scene(provider, server)
    assert "authorization" not in without
    assert without["api-key"] == "k"


# What comes back


@pytest.mark.parametrize(
    "tail",
    [
        b"",
        b"data: [DONE]",
        b"data: [DONE]\n\n",
        b"data: [DONE]\n\ndata: {oops\n\n",
        b": bye\n\ndata: \n\n",
    ],
)
async def test_stream_end_is_finish_reason_or_done(tail: bytes) -> None:
    chunk = b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n'
    assert (await message_of(Replay(chunk + tail))).text == "hi"
    if b"DONE" in tail:
        unfinished = chunk.replace(b'"stop"', b"null")
        assert (await message_of(Replay(unfinished + tail))).text == "hi"


# What goes wrong


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        (
            [Say("a"), StreamFault("This model's maximum context length is 5", "x")],
            ContextOverflowError,
        ),
        ([Say("a"), Raw(b'error: {"code":500,"message":"x"}\n\n')], OverloadedError),
        ([Raw(b'data: {"choices":5}\n\n')], StreamError),
        ([Say("abc"), BodyFraming(cut_at_byte=300)], StreamError),
    ],
)
async def test_stream_fault_raises_its_class(
    steps: list[ScriptStep], kind: type[ProviderError]
) -> None:
    assert type(await error_of(*steps)) is kind


async def test_request_body_is_json_for_any_model_name() -> None:
    body = await body_of(make_request(model='we"ird\n模型'))
    assert json.loads(json.dumps(body))["model"] == 'we"ird\n模型'
