"""Call the adapters that stream server-sent events against the scripted server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from homarus.core.errors import ProviderError
from homarus.core.message import Message, user_message
from homarus.providers import anthropic, google, openai, responses
from homarus.providers.base import ModelRequest, Provider
from homarus.providers.catalog import ModelInfo
from homarus.testing.clock import FakeClock
from homarus.testing.model_server import ModelServer, ScriptStep

HELLO = ModelRequest("m", "Be brief.", (user_message("hi"),))


def make_request(**fields: Any) -> ModelRequest:
    return ModelRequest(**{"model": "m", "system": "", "messages": (user_message("hi"),), **fields})


async def answer(provider: Provider, request: ModelRequest = HELLO) -> Message:
    """Return the message that a provider streams."""
    async for piece in provider.stream(request):
        if isinstance(piece, Message):
            return piece
    raise AssertionError("no Message came")


@dataclass(frozen=True)
class WireClient:
    """One adapter; `answer` is the stream of the complete answer "hi"."""

    module: ModuleType
    key: str
    answer: bytes

    def __str__(self) -> str:
        return self.module.__name__.rpartition(".")[2]

    def create(self, base_url: str, **settings: Any) -> Provider:
        made: Provider = self.module.create(
            self.module.ProviderConnection("mock", base_url, **settings)
        )
        return made

    @asynccontextmanager
    async def served(
        self,
        *answers: list[ScriptStep],
        models: tuple[ModelInfo, ...] = (),
        key: str | None = None,
        **settings: Any,
    ) -> AsyncIterator[tuple[Provider, ModelServer]]:
        """Yield a provider and the server that sends it these answers."""
        async with asyncio.timeout(60), ModelServer() as server:
            server.script(*answers)
            api_key = self.key if key is None else key
            made = self.module.ProviderConnection("mock", server.url, api_key, **settings)
            provider: Provider = self.module.create(made, models=models, clock=FakeClock())
            try:
                yield provider, server
            finally:
                await provider.close()

    async def message_of(
        self, *steps: ScriptStep, request: ModelRequest = HELLO, **settings: Any
    ) -> Message:
        async with self.served(list(steps), **settings) as (provider, _server):
            return await answer(provider, request)

    async def error_of(self, *steps: ScriptStep, **settings: Any) -> ProviderError:
        with pytest.raises(ProviderError) as caught:
            await self.message_of(*steps, **settings)
        error = caught.value
        assert error.message.startswith("mock/m: "), "an error names provider and model"
        assert error.fix, "an error says what to do"
        assert self.key not in str(error)
        return error

    async def received(self, request: ModelRequest, *models: ModelInfo, **settings: Any) -> Any:
        """Return the request as the server received it."""
        async with self.served(models=models, **settings) as (provider, server):
            await answer(provider, request)
            return server.requests[0]

    async def body_of(
        self, request: ModelRequest, *models: ModelInfo, **settings: Any
    ) -> dict[str, Any]:
        body: dict[str, Any] = (await self.received(request, *models, **settings)).body
        return body


OPENAI = WireClient(
    openai,
    "sk-test-0123456789",
    b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\n',
)
RESPONSES = WireClient(
    responses,
    "sk-test-0123456789",
    b'data: {"type":"response.output_text.delta","output_index":0,"delta":"hi"}\n\n'
    b'data: {"type":"response.completed","response":{"output":[]}}\n\n',
)
ANTHROPIC = WireClient(
    anthropic,
    "sk-ant-api03-0123456789",
    b'data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"hi"}}\n\n'
    b'data: {"type":"message_delta","delta":{"stop_reason":"end_turn"}}\n\n',
)
GOOGLE = WireClient(
    google,
    "AIza-test-0123456789",
    b'data: {"candidates":[{"content":{"parts":[{"text":"hi"}]},"finishReason":"STOP"}]}\n\n',
)
SSE_WIRES = (OPENAI, RESPONSES, ANTHROPIC, GOOGLE)
