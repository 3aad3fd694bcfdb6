"""The Gemini provider, against the scripted server."""

from dataclasses import replace
from typing import Any

import pytest

from homarus.config.schema import Config
from homarus.core.errors import (
    ContextOverflowError,
    ProviderError,
    ProviderTimeoutError,
    StreamError,
)
from homarus.core.message import Message, Text, ToolResult, user_message
from homarus.providers import google, openai
from homarus.providers.base import ModelRequest, Provider, ToolSpec
from homarus.providers.catalog import VENDORS, ModelInfo
from homarus.providers.google_request import wire_name
from homarus.testing.model_server import (
    CallTools,
    Fail,
    ModelServer,
    Raw,
    Say,
    ScriptedCall,
    ScriptStep,
    StreamFault,
    Think,
)
from homarus.testing.model_server.google import SIGNATURE
from tests.unit.providers.builders import first_of
from tests.unit.providers.harness import GOOGLE, HELLO, answer, make_request

KEY = GOOGLE.key
error_of, served = GOOGLE.error_of, GOOGLE.served
received, body_of = GOOGLE.received, GOOGLE.body_of
READ = ToolSpec("read", "Read.", {"properties": {"path": {"type": "string"}}})


# What is sent


async def test_request_body_has_system_contents_tools_and_limits() -> None:
    body = await body_of(make_request(system="Be brief.", tools=(READ,), max_tokens=50))
    assert body == {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "generationConfig": {"maxOutputTokens": 50},
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
        "tools": [
            {
                "functionDeclarations": [
                    {
                        "name": "read",
                        "description": "Read.",
                        "parameters": {
                            "type": "OBJECT",
                            "properties": {"path": {"type": "STRING"}},
                        },
                    }
                ]
            }
        ],
    }
    assert await body_of(make_request()) == {
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}]
    }


@pytest.mark.parametrize(
    ("model", "path"),
    [
        ("gemini-3-flash", "models/gemini-3-flash"),
        ("models/gemini-3-flash", "models/gemini-3-flash"),
        ("tunedModels/mine", "tunedModels/mine"),
        ("google/x?key=1#y", "models/google%2Fx%3Fkey%3D1%23y"),
        ("模型", "models/%E6%A8%A1%E5%9E%8B"),
    ],
)
async def test_request_model_in_path_and_key_in_header(model: str, path: str) -> None:
    request = await received(make_request(model=model))
    assert request.path == f"/v1/{path}:streamGenerateContent?alt=sse"
    assert request.headers["x-goog-api-key"] == KEY
    assert "authorization" not in request.headers


async def test_request_auth_header_setting_places_key() -> None:
    bearer = (await received(HELLO, auth_header=True)).headers
    assert bearer["authorization"] == f"Bearer {KEY}"
    assert "x-goog-api-key" not in bearer
    own = (
        await received(HELLO, ModelInfo("mock", "m", headers={"X-Model": "yes"}), auth_header=False)
    ).headers
    assert not {"authorization", "x-goog-api-key"} & set(own)
    assert own["x-model"] == "yes"


@pytest.mark.parametrize(
    ("model", "thinking", "sent"),
    [
        (ModelInfo("mock", "gemini-3-flash", reasoning=True), "off", {"thinkingLevel": "minimal"}),
        (
            ModelInfo("mock", "gemini-3-flash", reasoning=True),
            "high",
            {"thinkingLevel": "high", "includeThoughts": True},
        ),
        (
            ModelInfo("mock", "gemini-2.5-flash", known=False),
            "low",
            {"thinkingBudget": 2048, "includeThoughts": True},
        ),
        (ModelInfo("mock", "gemini-2.5-flash", reasoning=False), "low", None),
        (ModelInfo("mock", "gemini-2.0-flash", known=False), "high", None),
        (ModelInfo("mock", "mine", reasoning=True), "off", None),
    ],
)
async def test_request_thinking_for_reasoning_model(
    model: ModelInfo, thinking: Any, sent: dict[str, Any] | None
) -> None:
    body = await body_of(make_request(model=model.id, thinking=thinking), model)
    assert body.get("generationConfig", {}).get("thinkingConfig") == sent


async def test_request_params_override_fields_and_null_removes_them() -> None:
    safety = [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}]
    params = {
        "temperature": 0.2,
        "top_p": 0.9,
        "max_tokens": 7,
        "generationConfig": {"seed": 5, "thinkingConfig": None},
        "safetySettings": safety,
        "contents": "no",
        "cacheRetention": "long",
        "systemInstruction": None,
    }
    model = ModelInfo("mock", "gemini-3-flash", reasoning=True)
    body = await body_of(
        make_request(model=model.id, system="S", max_tokens=50, params=params), model
    )
    assert body == {
        "generationConfig": {"maxOutputTokens": 7, "temperature": 0.2, "topP": 0.9, "seed": 5},
        "safetySettings": safety,
        "contents": [{"role": "user", "parts": [{"text": "hi"}]}],
    }


async def test_request_own_tools_param_replaces_tools() -> None:
    search: list[Any] = [{"googleSearch": {}}]
    assert (await body_of(make_request(tools=(READ,), params={"tools": search})))["tools"] == search
    assert "tools" not in await body_of(make_request(tools=(READ,), params={"tools": None}))
    assert "tools" not in await body_of(
        make_request(tools=(READ,)), ModelInfo("mock", "m", calls_tools=False)
    )


# What comes back


async def test_signed_call_and_result_are_replayed() -> None:
    spec = ToolSpec("my files:read", "Read.", {"properties": {"path": {"type": "string"}}})
    request = ModelRequest("gemini-3-flash", "", (user_message("go"),), (spec,))

    async def scene(provider: Provider, server: ModelServer) -> Any:
        name = wire_name(spec.name)
        calls = (ScriptedCall(name, {"path": "a"}, id="g1"), ScriptedCall(name, {"path": "b"}))
        server.script([Think("hm"), CallTools(*calls)], [Say("done")])
        asking = await answer(provider, request)
        assert [call.name for call in asking.calls] == ["my files:read"] * 2
        results = [
            Message("tool", (ToolResult(call.id, call.name, (Text(call.args["path"]),)),))
            for call in reversed(asking.calls)
        ]
        await answer(provider, replace(request, messages=(user_message("go"), asking, *results)))
        return [request.body for request in server.requests]

    async with served() as (provider, server):
        first, second = await scene(provider, server)
    name = first["tools"][0]["functionDeclarations"][0]["name"]
    assert second["contents"][1:] == [
        {
            "role": "model",
            "parts": [
                {
                    "functionCall": {"name": name, "args": {"path": "a"}, "id": "g1"},
                    "thoughtSignature": SIGNATURE,
                },
                {"functionCall": {"name": name, "args": {"path": "b"}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": name, "id": "g1", "response": {"output": "a"}}},
                {"functionResponse": {"name": name, "response": {"output": "b"}}},
            ],
        },
    ]


# What goes wrong


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        (
            [Say("a"), StreamFault("The input token count exceeds the maximum", "x")],
            ContextOverflowError,
        ),
        ([Fail(504)], ProviderTimeoutError),
        ([Raw(b'data: {"candidates":5}\n\n')], StreamError),
    ],
)
async def test_stream_fault_raises_its_class(
    steps: list[ScriptStep], kind: type[ProviderError]
) -> None:
    assert type(await error_of(*steps)) is kind


# Who is asked over this wire


def connected(config: dict[str, Any], model: str = "google/gemini-3-flash-preview") -> Provider:
    made = Config.model_validate({"models": {"providers": config}})
    return first_of(model, made, {"GEMINI_API_KEY": KEY})[0]


def test_google_vendor_uses_own_api_and_address() -> None:
    provider = connected({})
    assert isinstance(provider, google.GoogleProvider)
    assert provider._settings.base_url == "https://generativelanguage.googleapis.com/v1beta"
    assert provider._settings.api_key == KEY
    assert VENDORS["google"].api == google.API
    bare = connected({"google": {"baseUrl": "https://generativelanguage.googleapis.com/"}})
    assert isinstance(bare, google.GoogleProvider)
    assert bare._settings.base_url == "https://generativelanguage.googleapis.com/v1beta"


def test_google_openai_address_uses_chat_api() -> None:
    url = "https://generativelanguage.googleapis.com/v1beta/openai/"
    assert isinstance(connected({"google": {"baseUrl": url}}), openai.OpenAIProvider)
    told = {"google": {"baseUrl": url, "api": "google-generative-ai"}}
    assert isinstance(connected(told), google.GoogleProvider)


def test_any_provider_may_declare_gemini_api() -> None:
    entry = {"baseUrl": "http://10.0.0.1/v1beta", "api": "google-generative-ai"}
    provider = connected({"mine": {**entry, "models": [{"id": "x"}]}}, "mine/x")
    assert isinstance(provider, google.GoogleProvider)
    assert provider._settings.base_url == "http://10.0.0.1/v1beta"
