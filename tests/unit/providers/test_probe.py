import asyncio
from pathlib import Path
from typing import Any

import pytest

from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.providers.probe import ProbeResult, probe_model
from homarus.testing.model_server import Fail, HangUntilDisconnect, ModelServer, Say, ScriptStep

KEY = "sk-probe-0123456789"


async def probe(
    tmp_path: Path, config: dict[str, Any], ref: str, key: str = KEY, **options: Any
) -> ProbeResult:
    paths = Paths.find({"HOME": str(tmp_path)})
    async with asyncio.timeout(60):
        return await probe_model(
            Config.model_validate(config), ref, key, env={}, paths=paths, **options
        )


def config_of(server: ModelServer, provider: str = "openai", **entry: Any) -> dict[str, Any]:
    entry = {"api": "openai-completions", **entry}
    return {"models": {"providers": {provider: {"baseUrl": server.url, **entry}}}}


async def served(
    tmp_path: Path, *steps: ScriptStep, ref: str = "openai/gpt-5.2", **options: Any
) -> tuple[ProbeResult, ModelServer]:
    async with ModelServer() as server:
        server.script(list(steps))
        return await probe(tmp_path, config_of(server), ref, **options), server


async def test_probe_model_that_answers_gives_its_text(tmp_path: Path) -> None:
    result, server = await served(tmp_path, Say(" Hello there. \n"))
    assert result.ok
    assert result.model == "openai/gpt-5.2"
    assert result.text == "Hello there."
    assert result.latency_ms >= 0
    [request] = server.requests
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert request.body["model"] == "gpt-5.2"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (Fail(401), "auth"),
        (Fail(403, "no access"), "auth"),
        (Fail(402), "billing"),
        (Fail(429, retry_after="1"), "rate_limit"),
        (Fail(404, "The model does not exist", "model_not_found"), "unknown_model"),
        (Fail(400, "Model gpt-x not found"), "unknown_model"),
        (Fail(400, "temperature is wrong"), "other"),
        (Fail(503), "other"),
    ],
)
async def test_probe_model_that_refuses_names_kind_and_fix(
    tmp_path: Path, answer: Fail, kind: str
) -> None:
    result, server = await served(tmp_path, answer)
    assert not result.ok
    assert result.error == kind
    assert result.message.startswith("openai/gpt-5.2: ")
    assert result.fix
    assert KEY not in result.message + result.fix
    assert len(server.requests) == 1, "a probe is not retried"


async def test_probe_unknown_model_names_the_nearest(tmp_path: Path) -> None:
    result, _ = await served(tmp_path, Fail(404), ref="openai/gpt-5.22")
    assert result.error == "unknown_model"
    assert "did you mean openai/gpt-5.2" in result.fix


async def test_probe_silent_server_is_unreachable(tmp_path: Path) -> None:
    result, _ = await served(tmp_path, HangUntilDisconnect(), timeout_s=0.05)
    assert result.error == "unreachable"
    assert "within" in result.message


async def test_probe_answer_that_does_not_end_is_unreachable(tmp_path: Path) -> None:
    result, _ = await served(tmp_path, Say("He"), HangUntilDisconnect(), timeout_s=0.3)
    assert result.error == "unreachable"
    assert "within" in result.message


async def test_probe_closed_port_is_unreachable(tmp_path: Path) -> None:
    entry = {"baseUrl": "http://127.0.0.1:9/v1", "models": [{"id": "m"}]}
    result = await probe(tmp_path, {"models": {"providers": {"mine": entry}}}, "mine/m", "")
    assert result.error == "unreachable"
    assert "127.0.0.1:9" in result.message + result.fix


async def test_probe_without_key_sends_nothing(tmp_path: Path) -> None:
    result = await probe(tmp_path, {}, "anthropic/claude-sonnet-4-5", "")
    assert result.error == "auth"
    assert "ANTHROPIC_API_KEY" in result.fix


async def test_probe_unknown_provider_names_the_nearest(tmp_path: Path) -> None:
    result = await probe(tmp_path, {}, "opnai/gpt-5.2")
    assert result.error == "unknown_model"
    assert result.message == "unknown provider 'opnai'"
    assert "openai" in result.fix


async def test_probe_missing_demo_weights_name_the_fix(tmp_path: Path) -> None:
    result = await probe(tmp_path, {}, "local/demo", "")
    assert result.error == "other" and result.fix.endswith("homarus models pull demo")


@pytest.mark.parametrize("key", ["sk-\nevil: 1", "ключ"])
async def test_probe_key_that_no_header_holds_is_an_auth_error(tmp_path: Path, key: str) -> None:
    async with ModelServer() as server:
        result = await probe(tmp_path, config_of(server), "openai/gpt-5.2", key)
    assert result.error == "auth"
    assert key not in result.message
