"""Our chat wire against llama.cpp's own HTTP server."""

import re
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from homarus.core.errors import AuthError, ContextOverflowError, ProviderError
from homarus.core.message import Message, user_message
from homarus.providers import openai
from homarus.providers.base import Delta, ModelRequest, TextDelta
from homarus.providers.catalog import Vendor
from homarus.providers.default_model import list_models
from tests.e2e.program import Home

pytestmark = pytest.mark.peers

KEY = "peer-key"
SERVER = """
import sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.n_ctx, params.n_parallel, params.verbosity = 1024, 1, -1
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.hostnames, params.port, params.api_keys = ["127.0.0.1"], 0, [sys.argv[2]] * bool(sys.argv[2])
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
time.sleep(3600)
"""


@pytest.fixture(scope="module")
def address(demo_weights: Path) -> Iterator[str]:
    yield from _serve(demo_weights, KEY)


@pytest.fixture(scope="module")
def open_address(demo_weights: Path) -> Iterator[str]:
    yield from _serve(demo_weights, "")


def _serve(weights: Path, key: str) -> Iterator[str]:
    command = [sys.executable, "-c", SERVER, str(weights), key]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        found = re.search(r"http://\S+", server.stdout.readline())
        assert found, "llama.cpp did not say where it listens"
        yield found[0].rstrip("/") + "/v1"
        server.kill()


async def hear(stream: AsyncIterator[Delta | Message]) -> tuple[str, Message]:
    said = ""
    async for piece in stream:
        if isinstance(piece, TextDelta):
            said += piece.text
        elif isinstance(piece, Message):
            return said, piece
    raise AssertionError("no Message came")


async def ask(address: str, text: str, key: str = KEY, max_tokens: int = 24) -> tuple[str, Message]:
    provider = openai.create(openai.ProviderConnection("llama", address, key))
    try:
        request = ModelRequest("demo", "Be brief.", (user_message(text),), max_tokens=max_tokens)
        return await hear(provider.stream(request))
    finally:
        await provider.close()


async def failure(address: str, text: str, key: str = KEY) -> ProviderError:
    with pytest.raises(ProviderError) as caught:
        await ask(address, text, key)
    return caught.value


async def test_llama_server_answers_streams_and_counts_tokens(address: str) -> None:
    said, message = await ask(address, "What is the capital of France?")
    assert said and said == message.text
    assert message.origin is not None
    assert message.origin.usage.prompt > 10 and message.origin.usage.output > 0


async def test_llama_server_answer_at_limit_reports_length(address: str) -> None:
    _, message = await ask(address, "Tell me a long story about a lobster.", max_tokens=5)
    assert message.origin is not None and message.origin.stop == "length"


async def test_llama_server_context_overflow_is_recognised(address: str) -> None:
    assert isinstance(await failure(address, "word " * 3000), ContextOverflowError)


async def test_llama_server_wrong_key_is_recognised(address: str) -> None:
    wrong = await failure(address, "hi", key="not-the-key")
    assert isinstance(wrong, AuthError) and "not-the-key" not in str(wrong)


async def test_llama_server_cancelled_request_frees_slot(address: str) -> None:
    async def main() -> None:
        provider = openai.create(openai.ProviderConnection("llama", address, KEY))
        request = ModelRequest(
            "demo", "", (user_message("Tell me a very long story."),), max_tokens=900
        )
        async for _ in provider.stream(request):
            break
        await provider.close()

    await main()
    said, _ = await ask(address, "Say yes.", max_tokens=3)
    assert said


async def test_llama_server_models_are_discovered(open_address: str) -> None:
    vendor = Vendor("ollama", "Ollama", open_address)
    assert await list_models(vendor)


def test_llama_server_answers_complete_program(open_address: str, tmp_path: Path) -> None:
    home = Home(tmp_path, {"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
    home.configure(
        {
            "models": {
                "providers": {
                    "llama": {
                        "baseUrl": open_address,
                        "api": "openai-completions",
                        "models": [
                            {"id": "demo", "name": "demo", "contextWindow": 1024, "maxTokens": 64}
                        ],
                    }
                }
            },
            "agents": {"defaults": {"model": {"primary": "llama/demo"}}},
        }
    )
    done = home.run("agent", "--message", "What is two plus two?", "--json")
    assert done.status == 0 and done.json["result"]["payloads"][0]["text"]
