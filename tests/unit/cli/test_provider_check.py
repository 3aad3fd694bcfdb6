"""What `homarus doctor` says of models, with and without asking them."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from homarus.cli import provider_check
from homarus.cli.provider_check import Finding, check_models
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.testing.model_server import Fail, ModelServer, Say, ScriptedAnswer

KEY = "sk-0123456789abcdef"


@contextmanager
def model_server(*answers: ScriptedAnswer) -> Iterator[ModelServer]:
    """Serve these answers from a thread: the check runs a loop of its own."""
    server, started, loop = ModelServer(), threading.Event(), asyncio.new_event_loop()
    server.script(*answers)
    stopped = asyncio.Event()

    async def serve() -> None:
        async with server:
            started.set()
            await stopped.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert started.wait(60)
        yield server
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join(60)
        loop.close()


def check(tmp_path: Path, config: Any, *, probe: bool = True, **env: str) -> list[Finding]:
    paths = Paths.find({"HOME": str(tmp_path)})
    findings = check_models(paths, Config.model_validate(config), env, probe=probe)
    assert KEY not in repr(findings)
    return findings


def configured(server: ModelServer, primary: str = "openai/gpt-5.2", **more: Any) -> Any:
    entry = {"baseUrl": server.url, "api": "openai-completions"}
    providers = {"openai": entry, **more}
    return {
        "models": {"providers": providers},
        "agents": {"defaults": {"model": {"primary": primary}}},
    }


def store(tmp_path: Path, **profiles: str) -> None:
    file = tmp_path / ".openclaw" / "agents" / "main" / "agent" / "auth-profiles.json"
    file.parent.mkdir(parents=True)
    entries = {
        id_.replace("_", ":"): {"type": "api_key", "provider": id_.partition("_")[0], "key": key}
        for id_, key in profiles.items()
    }
    file.write_text(json.dumps({"version": 1, "profiles": entries}))


def test_probe_of_a_model_that_answers_shows_its_text(tmp_path: Path) -> None:
    with model_server([Say("Hello\u202e\nthere")]) as server:
        ((about, state, text, fix),) = check(tmp_path, configured(server), OPENAI_API_KEY=KEY)
    assert (about, state, fix) == ("model", "ok", "")
    assert "openai/gpt-5.2 answers with env:OPENAI_API_KEY" in text and "Hello" in text
    assert "\u202e" not in text


@pytest.mark.parametrize("is_stored", [True, False])
def test_probe_of_a_refused_key_is_a_problem_with_fix(tmp_path: Path, *, is_stored: bool) -> None:
    if is_stored:
        store(tmp_path, openai_work=KEY)
    with model_server([Fail(401)]) as server:
        ((_, state, text, fix),) = check(
            tmp_path, configured(server), OPENAI_API_KEY="" if is_stored else KEY
        )
    assert state == "bad" and "the key was refused (HTTP 401)" in text
    if is_stored:
        assert "homarus models auth add openai --profile-id openai:work" in fix
        assert "homarus models auth remove openai:work" in fix
    else:
        assert fix == "set OPENAI_API_KEY to a key that is valid"


def test_probe_asks_every_credential_and_configured_server(tmp_path: Path) -> None:
    store(tmp_path, openai_a=KEY, openai_b=KEY + "b")
    with model_server() as server:
        mine = {"baseUrl": server.url, "models": [{"id": "m"}]}
        findings = check(tmp_path, configured(server, mine=mine), MINE_API_KEY="other")
        sent = [request.headers.get("authorization", "") for request in server.requests]
    assert set(sent) == {f"Bearer {KEY}", f"Bearer {KEY}b", "Bearer other"} and len(sent) == 3
    assert [(about, state) for about, state, _, _ in findings] == [
        ("model", "ok"),
        ("credential openai:b", "ok"),
        ("credential env:MINE_API_KEY", "ok"),
    ]


def test_probe_server_without_key_is_asked(tmp_path: Path) -> None:
    with model_server() as server:
        mine = {"baseUrl": server.url, "models": [{"id": "m"}]}
        config = configured(server, "openai/gpt-5.2", mine=mine)
        findings = check(tmp_path, config, OPENAI_API_KEY=KEY)
    assert [text.partition(" answers")[0] for _, _, text, _ in findings] == [
        "openai/gpt-5.2",
        "mine/m",
    ]


def test_probe_missing_key_and_closed_port_are_problems(tmp_path: Path) -> None:
    config = {
        "models": {"providers": {"mine": {"baseUrl": "http://127.0.0.1:9/v1"}}},
        "agents": {"defaults": {"model": {"primary": "groq/x", "fallbacks": ["mine/m"]}}},
    }
    missing, closed = check(tmp_path, config)
    assert missing[1] == closed[1] == "bad"
    assert "GROQ_API_KEY" in missing[3] and "127.0.0.1:9" in closed[2]


def test_probe_rate_limit_is_no_problem_and_unusable_credential_is(tmp_path: Path) -> None:
    store(tmp_path, openai_work="${NOT_SET}")
    with model_server([Fail(429)]) as server:
        unusable, limited = check(tmp_path, configured(server), OPENAI_API_KEY=KEY)
    assert limited[1] == "note" and "too many requests" in limited[2]
    assert unusable[:2] == ("credential openai:work", "bad") and "NOT_SET" in unusable[2]


def test_check_without_probe_sends_nothing_and_claims_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_check, "probe_model", None)
    with model_server() as server:
        ((about, state, text, _),) = check(
            tmp_path, configured(server), probe=False, OPENAI_API_KEY=KEY
        )
        assert not server.requests
    assert (about, state) == ("model", "info")
    assert "not asked: homarus doctor --probe" in text


@pytest.mark.parametrize("probe", [True, False])
def test_check_unknown_provider_in_config_names_the_nearest(tmp_path: Path, *, probe: bool) -> None:
    defaults = {"model": {"primary": "opnai/gpt-5.2", "fallbacks": ["grok/x"]}}
    findings = check(tmp_path, {"agents": {"defaults": defaults}}, probe=probe)
    assert [state for _, state, _, _ in findings] == ["bad", "bad"]
    assert "agents.defaults.model names opnai/gpt-5.2" in findings[0][2]
    assert findings[0][3].startswith("did you mean openai")
    assert "groq" in findings[1][3]
