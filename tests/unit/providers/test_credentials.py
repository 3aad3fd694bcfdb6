"""An agent's credentials: candidates, secrets, and the effect of failures."""

import asyncio
import itertools
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from homarus.config.check import check_config
from homarus.config.paths import Paths
from homarus.core.errors import (
    AuthError,
    BadRequestError,
    BillingError,
    ContentFilterError,
    ContextOverflowError,
    ImageTooLargeError,
    ProviderError,
    RateLimitError,
    UnknownNameError,
)
from homarus.providers.credentials import CredentialCandidate, Credentials, open_credentials
from homarus.providers.profile_file import FILE, ProfileFile
from homarus.providers.profiles import Profiles
from homarus.providers.rotation import HOUR_MS, MINUTE_MS
from homarus.testing.clock import FakeClock


class Home:
    """A state directory with agents, a configuration and an environment."""

    def __init__(self, path: Path) -> None:
        self.paths = Paths.find({}, path)
        self.clock = FakeClock()
        self.config: dict[str, Any] = {"agents": {"list": [{"id": "main"}, {"id": "ops"}]}}
        self.env: dict[str, str] = {}

    def file(self, agent: str = "main") -> Path:
        return self.paths.agent_dir(agent) / FILE

    def put(self, agent: str = "main", **content: Any) -> None:
        self.file(agent).parent.mkdir(parents=True, exist_ok=True)
        self.file(agent).write_text(json.dumps({"version": 1, **content}))
        self.file(agent).chmod(0o600)

    def keys(self, *ids: str, agent: str = "main", **more: Any) -> None:
        self.put(agent, profiles={id_: key(f"sk-{id_}") for id_ in ids}, **more)

    def stored(self, agent: str = "main") -> Any:
        return json.loads(self.file(agent).read_text())

    def open(self, agent: str = "main") -> Credentials:
        config = check_config(self.config).config
        assert config
        return open_credentials(config, self.env, self.paths, agent, self.clock)


def key(secret: str, provider: str = "openai") -> dict[str, Any]:
    return {"type": "api_key", "provider": provider, "key": secret}


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


def offered(credentials: Credentials, provider: str = "openai", **how: Any) -> list[str]:
    return [each.profile_id for each in credentials.candidates(provider, **how)]


def secret(candidate: CredentialCandidate) -> str:
    return asyncio.run(candidate.secret())


def pick(credentials: Credentials, id_: str, model: str = "") -> CredentialCandidate:
    found = credentials.candidates("openai", model=model)
    return next(each for each in found if each.profile_id == id_)


def test_no_credentials_offers_none_and_error_says_fix(home: Home) -> None:
    credentials = home.open()
    assert credentials.candidates("openai") == ()
    error = credentials.missing_credential_error("openai")
    assert "OPENAI_API_KEY" in error.fix and "homarus models auth add openai" in error.fix
    assert not home.paths.state.exists(), "looking makes no file"


def test_candidates_ordered_by_kind_then_config_then_env(
    home: Home,
) -> None:
    far = home.clock.now_ms() + HOUR_MS
    home.put(
        profiles={
            "k": key("sk-k"),
            "t": {"type": "token", "provider": "OpenAI", "token": "t", "expires": far},
            "o": {"type": "oauth", "provider": "openai", "access": "a", "expires": far},
            "other": key("x", "groq"),
        }
    )
    home.config["models"] = {"providers": {"openai": {"apiKey": "sk-config"}}}
    home.env["OPENAI_API_KEY"] = "sk-env"
    credentials = home.open()
    ids = ["o", "t", "k", "config:openai", "env:OPENAI_API_KEY"]
    assert offered(credentials) == ids
    found = credentials.candidates("openai")
    assert [secret(each) for each in found] == ["a", "t", "sk-k", "sk-config", "sk-env"]
    assert [each.kind for each in found] == ["oauth", "token", "api_key", "api_key", "api_key"]
    assert "sk-k" not in repr(found)


def test_candidate_same_key_in_two_places_offered_once(home: Home) -> None:
    home.put(profiles={"a": key("${OPENAI_API_KEY}")})
    home.env["OPENAI_API_KEY"] = "sk-same"
    home.config["models"] = {"providers": {"openai": {"apiKey": "sk-same"}}}
    assert offered(home.open()) == ["a"]


def test_own_server_may_have_variable_of_its_name(home: Home) -> None:
    home.env |= {"MY_LLM_API_KEY": "k-123456", "GOOGLE_API_KEY": "g2", "GEMINI_API_KEY": "g1"}
    assert offered(home.open(), "my-llm") == ["env:MY_LLM_API_KEY"]
    assert offered(home.open(), "google") == ["env:GEMINI_API_KEY", "env:GOOGLE_API_KEY"]


def test_candidates_last_good_first_then_longest_unused(home: Home) -> None:
    usage = {"a": {"lastUsed": 3}, "b": {"lastUsed": 1}, "c": {"lastUsed": 2}}
    home.keys("a", "b", "c", usageStats=usage, lastGood={"openai": "c"})
    assert offered(home.open()) == ["c", "b", "a"]


def test_configured_order_is_exclusive(home: Home) -> None:
    home.config["auth"] = {"order": {"OpenAI": ["b", "gone", "env:OPENAI_API_KEY"]}}
    home.env["OPENAI_API_KEY"] = "sk-env"
    home.keys("a", "b", "c", lastGood={"openai": "a"})
    assert offered(home.open()) == ["b", "env:OPENAI_API_KEY"]
    home.keys("a", "b", "c", order={"openai": ["c", "a"]})
    assert offered(home.open()) == ["c", "a"], "the agent's own order wins"


def test_candidate_in_cooldown_comes_last_with_time(home: Home) -> None:
    now = home.clock.now_ms()
    usage = {"a": {"cooldownUntil": now + 9000}, "b": {"disabledUntil": now + 5000}}
    home.keys("a", "b", "c", usageStats=usage, order={"openai": ["a", "b", "c"]})
    found = home.open().candidates("openai")
    assert [each.profile_id for each in found] == ["c", "b", "a"]
    assert [each.cooldown_until_ms - now for each in found[1:]] == [5000, 9000]
    assert found[0].cooldown_until_ms == 0


def test_pinned_profile_is_the_only_candidate(home: Home) -> None:
    home.keys("a", "b", usageStats={"b": {"cooldownUntil": home.clock.now_ms() + 9000}})
    credentials = home.open()
    assert offered(credentials, locked="b") == ["b"]
    assert offered(credentials, preferred="a") == ["a", "b"]
    assert offered(credentials, preferred="b") == ["a", "b"], "a preference waits its turn"
    with pytest.raises(UnknownNameError, match="auth profile"):
        credentials.candidates("openai", locked="zzz")


def test_pin_of_other_provider_is_ignored(home: Home) -> None:
    home.put(profiles={"a": key("sk"), "g": key("gk", "groq")})
    assert offered(home.open(), locked="g") == ["a"]
    assert offered(home.open(), "groq", locked="g") == ["g"]


def test_pinned_unusable_profile_error_says_why(home: Home) -> None:
    home.put(profiles={"a": key("sk"), "t": {"type": "token", "provider": "openai"}})
    (only,) = home.open().candidates("openai", locked="t")
    with pytest.raises(AuthError, match="t cannot be used: it holds no key"):
        secret(only)


def test_unusable_profiles_are_explained_not_offered(home: Home) -> None:
    past = home.clock.now_ms() - 1
    home.config["auth"] = {
        "profiles": {
            "elsewhere": {"provider": "groq", "mode": "api_key"},
            "mode": {"provider": "openai", "mode": "oauth"},
            "fine": {"provider": "openai", "mode": "oauth"},
        }
    }
    home.put(
        profiles={
            "empty": {"type": "api_key", "provider": "openai"},
            "late": {"type": "token", "provider": "openai", "token": "t", "expires": past},
            "out": {"type": "oauth", "provider": "openai", "access": "a", "expires": past},
            "unset": key("${NOT_SET}"),
            "exec": {**key(""), "keyFrom": {"source": "exec", "command": ["touch", "pwned"]}},
            "elsewhere": key("sk-1"),
            "mode": key("sk-2"),
            "fine": {"type": "token", "provider": "openai", "token": "t"},
        }
    )
    credentials = home.open()
    assert offered(credentials) == ["fine"]
    problems = {e.profile.id: e.problem for e in credentials.entries("openai") if e.problem}
    assert set(problems) == {"empty", "late", "out", "unset", "exec", "elsewhere", "mode"}
    told = credentials.missing_credential_error("openai").message
    for id_, problem in problems.items():
        assert f"{id_}: {problem}" in told


def test_second_agent_has_own_and_main_credentials(home: Home) -> None:
    home.keys("shared", "mine", order={"openai": ["mine"]})
    home.put("ops", profiles={"mine": key("sk-ops"), "own": key("sk-own")})
    credentials = home.open("ops")
    assert offered(credentials) == ["mine"]
    home.keys("shared", "mine")
    assert sorted(offered(credentials)) == ["mine", "own", "shared"]
    assert secret(pick(credentials, "mine")) == "sk-ops"
    assert sorted(offered(home.open("main"))) == ["mine", "shared"]


def test_usage_is_saved_where_profile_came_from(home: Home) -> None:
    home.keys("shared")
    home.keys("own", agent="ops")
    credentials = home.open("ops")
    credentials.record_success(pick(credentials, "shared"))
    credentials.record_failure(pick(credentials, "own"), "timeout")
    assert home.stored()["usageStats"]["shared"]["lastUsed"] == home.clock.now_ms()
    assert home.stored()["lastGood"] == {"openai": "shared"}
    assert (
        "usageStats" not in home.stored("ops") or "shared" not in home.stored("ops")["usageStats"]
    )
    assert home.stored("ops")["usageStats"]["own"]["errorCount"] == 1
    assert list(home.stored("ops")["profiles"]) == ["own"], "nothing is copied"


def test_agent_without_file_gets_none_from_main_usage(home: Home) -> None:
    home.keys("shared")
    credentials = home.open("ops")
    credentials.record_result(pick(credentials, "shared"))
    asyncio.run(credentials.close())
    assert not home.file("ops").exists()


def test_four_failures_cool_down_1_5_25_60_minutes(home: Home) -> None:
    home.keys("a")
    credentials = home.open()
    rests = []
    for _ in range(5):
        candidate = pick(credentials, "a")
        credentials.record_result(candidate, RateLimitError("x"))
        until_ms = pick(credentials, "a").cooldown_until_ms
        rests.append((until_ms - home.clock.now_ms()) // MINUTE_MS)
        asyncio.run(home.clock.advance(rests[-1] * 60))
    assert rests == [1, 5, 25, 60, 60]
    assert home.stored()["usageStats"]["a"]["failureCounts"] == {"rate_limit": 5}


@pytest.mark.parametrize(
    "error", [BadRequestError, ContextOverflowError, ContentFilterError, ImageTooLargeError]
)
def test_bad_request_never_cools_down_credential(home: Home, error: type[ProviderError]) -> None:
    home.keys("a")
    home.env["OPENAI_API_KEY"] = "sk-env"
    credentials = home.open()
    before = home.file().read_bytes()
    for candidate in credentials.candidates("openai", model="gpt"):
        for _ in range(50):
            credentials.record_result(candidate, error("bad", status=400))
            credentials.record_failure(candidate, "format")
    asyncio.run(credentials.close())
    assert all(not each.cooldown_until_ms for each in credentials.candidates("openai", model="gpt"))
    assert home.file().read_bytes() == before


def test_billing_cooldown_hours_come_from_config(home: Home) -> None:
    home.config["auth"] = {
        "cooldowns": {
            "billingBackoffHours": 2,
            "billingBackoffHoursByProvider": {"Groq": 0.5},
            "billingMaxHours": 3,
        }
    }
    home.put(profiles={"a": key("x"), "g": key("y", "groq")})
    credentials = home.open()
    rests = []
    for provider in ("openai", "groq", "openai"):
        (candidate,) = credentials.candidates(provider)
        credentials.record_result(candidate, BillingError("empty"))
        (resting,) = credentials.candidates(provider)
        rests.append((resting.cooldown_until_ms - home.clock.now_ms()) / HOUR_MS)
    assert rests == [2, 0.5, 3]
    assert home.stored()["usageStats"]["a"]["disabledReason"] == "billing"


def test_model_rate_limit_leaves_credential_to_other_models(home: Home) -> None:
    home.keys("a")
    credentials = home.open()
    credentials.record_result(pick(credentials, "a", "big"), RateLimitError("x", after_s=90))
    assert pick(credentials, "a", "big").cooldown_until_ms == home.clock.now_ms() + 90_000
    assert pick(credentials, "a", "small").cooldown_until_ms == 0
    assert pick(home.open(), "a", "big").cooldown_until_ms, "another process knows it too"
    credentials.record_result(pick(credentials, "a", "small"), AuthError("x"))
    assert pick(credentials, "a", "third").cooldown_until_ms


def test_request_with_key_of_the_config_reads_the_file_once(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.config["models"] = {"providers": {"openai": {"apiKey": "sk-config"}}}
    reads, read = list[Path](), ProfileFile.read

    def count_and_read(file: ProfileFile) -> Profiles:
        reads.append(file.path)
        return read(file)

    monkeypatch.setattr(ProfileFile, "read", count_and_read)
    credentials = home.open()
    [candidate] = credentials.candidates("openai")
    assert secret(candidate) == "sk-config"
    credentials.record_result(candidate)
    assert len(reads) == 1, "neither its secret nor its result is in a file"
    home.keys("stored")
    stored, _ = credentials.candidates("openai")
    assert stored.profile_id == "stored" and len(reads) == 2, "a new file is seen"
    home.file().write_text(home.file().read_text().replace("sk-stored", "sk-changed"))
    assert secret(stored) == "sk-changed", "and a changed one, when the secret is used"


def test_environment_key_cooldown_stays_in_process(home: Home) -> None:
    home.env["OPENAI_API_KEY"] = "sk-env"
    credentials = home.open()
    (candidate,) = credentials.candidates("openai")
    credentials.record_result(candidate, AuthError("x"))
    assert credentials.candidates("openai")[0].cooldown_until_ms
    credentials.record_result(candidate)
    assert not credentials.candidates("openai")[0].cooldown_until_ms
    asyncio.run(credentials.close())
    assert not home.paths.state.exists()


def test_thousand_concurrent_failures_are_one_failure_and_write(home: Home) -> None:
    home.keys("a")
    credentials = home.open()
    asked = [pick(credentials, "a") for _ in range(1000)]
    asyncio.run(home.clock.advance(2))
    writes = set()
    for candidate in asked:
        credentials.record_result(candidate, RateLimitError("x"))
        writes.add(home.file().stat().st_ino)
    assert home.stored()["usageStats"]["a"]["errorCount"] == 1
    assert len(writes) == 1


def test_success_writes_at_most_once_a_minute(home: Home) -> None:
    home.keys("a", "b")
    credentials = home.open()
    inodes = []
    for _ in range(180):
        credentials.record_result(pick(credentials, "a"))
        inodes.append(home.file().stat().st_ino)
        asyncio.run(home.clock.advance(1))
    changes = sum(one != other for one, other in itertools.pairwise(inodes))
    assert changes == 2
    last = credentials.entries("openai")[0].usage.last_used_ms
    assert last == home.clock.now_ms() - 1000, "this process knows the exact time"
    asyncio.run(credentials.close())
    assert home.stored()["usageStats"]["a"]["lastUsed"] == last


def test_recovery_is_written_at_once(home: Home) -> None:
    home.keys("a", lastGood={"openai": "a"})
    credentials = home.open()
    credentials.record_result(pick(credentials, "a"))
    credentials.record_result(pick(credentials, "a"), RateLimitError("x"))
    assert home.stored()["usageStats"]["a"]["errorCount"] == 1
    credentials.record_result(pick(credentials, "a"))
    assert home.stored()["usageStats"]["a"] == {"lastUsed": home.clock.now_ms(), "errorCount": 0}


async def test_results_inside_loop_are_written_behind(home: Home) -> None:
    home.keys("a", "b")

    async def main() -> None:
        credentials = home.open()
        for id_ in ("a", "b"):
            credentials.record_result(pick(credentials, id_), AuthError("x"))
            assert pick(credentials, id_).cooldown_until_ms
        await credentials.close()

    await main()
    assert {id_: s["errorCount"] for id_, s in home.stored()["usageStats"].items()} == {
        "a": 1,
        "b": 1,
    }


def test_results_that_cannot_be_written_apply_and_are_retried(
    home: Home, caplog: pytest.LogCaptureFixture
) -> None:
    home.keys("a")
    credentials = home.open()
    candidate = pick(credentials, "a")
    content = home.file().read_text()
    home.put(profiles={"a": key("sk-a")}, version=2)
    with caplog.at_level(logging.WARNING):
        credentials.record_result(candidate, RateLimitError("x"))
    assert "not saved" in caplog.text
    assert pick(credentials, "a").cooldown_until_ms
    home.file().write_text(content)
    asyncio.run(credentials.flush())
    assert home.stored()["usageStats"]["a"]["errorCount"] == 1


def test_profile_removed_meanwhile_stays_removed(home: Home) -> None:
    home.keys("a", "b")
    credentials = home.open()
    candidate = pick(credentials, "a")
    home.keys("b")
    credentials.record_result(candidate, RateLimitError("x"))
    asyncio.run(credentials.close())
    assert home.stored() == {"version": 1, "profiles": {"b": key("sk-b")}}
    with pytest.raises(AuthError, match="gone"):
        secret(candidate)


def test_file_change_is_seen_at_once(home: Home) -> None:
    home.keys("a")
    credentials = home.open()
    assert offered(credentials) == ["a"]
    home.keys("a", "b")
    assert offered(credentials) == ["a", "b"]
    assert secret(pick(credentials, "b")) == "sk-b"


def test_key_in_file_is_read_each_time(home: Home) -> None:
    (home.paths.home / "k").write_text("sk-file\n")
    home.put(profiles={"a": {**key(""), "keyFrom": {"source": "file", "path": "~/k"}}})
    credentials = home.open()
    assert secret(pick(credentials, "a")) == "sk-file"
    (home.paths.home / "k").unlink()
    with pytest.raises(AuthError, match=r"a cannot be used: .* cannot be read"):
        secret(pick(credentials, "a"))


async def test_configured_command_result_is_cached(home: Home) -> None:
    log = home.paths.home / "runs"
    code = f"open({str(log)!r}, 'a').write('x'); print('sk-printed')"
    words = [sys.executable, "-I", "-S", "-c", code]
    home.config["models"] = {
        "providers": {"openai": {"apiKeyFrom": {"source": "exec", "command": words}}}
    }
    credentials = home.open()
    (candidate,) = credentials.candidates("openai")
    async with asyncio.TaskGroup() as group:
        asked = [group.create_task(candidate.secret()) for _ in range(5)]
    assert {task.result() for task in asked} == {"sk-printed"}
    assert log.read_text() == "x"
    await home.clock.advance(301)
    await candidate.secret()
    assert log.read_text() == "xx"
    credentials.record_result(candidate, AuthError("x"))
    await candidate.secret()
    assert log.read_text() == "xxx", "a key that was refused is asked for again"


def test_legacy_openclaw_files_are_used(home: Home) -> None:
    folder = home.paths.state / "credentials"
    folder.mkdir(parents=True)
    far = home.clock.now_ms() + HOUR_MS
    login = {"access": "acc", "refresh": "ref", "expires": far}
    (folder / "oauth.json").write_text(json.dumps({"openai": login}))
    (folder / "oauth.json").chmod(0o600)
    assert offered(home.open("ops")) == ["openai:default"]
    assert secret(pick(home.open(), "openai:default")) == "acc"
    home.env["OPENCLAW_OAUTH_DIR"] = "~/elsewhere"
    assert offered(home.open()) == []


def test_file_problems_are_reported(home: Home) -> None:
    home.keys("a")
    home.file().chmod(0o640)
    home.file("ops").parent.mkdir(parents=True)
    home.file("ops").write_text("{")
    home.file("ops").chmod(0o600)
    told = home.open("ops").warnings
    assert len(told) == 2
    assert "not a JSON object" in told[0] and "chmod 600" in told[1]


def test_candidate_built_directly_has_no_secret() -> None:
    with pytest.raises(AuthError, match="nobody's"):
        secret(CredentialCandidate("x", "openai", "api_key"))
