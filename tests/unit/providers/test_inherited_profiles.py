"""Credentials in the databases of OpenClaw 2026.9: used in place, below our own, never written."""

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from homarus.config import openclaw_credentials
from homarus.config.check import check_config
from homarus.config.openclaw_snapshot import OpenClawSnapshot
from homarus.config.paths import Paths
from homarus.core.errors import RateLimitError, StateInUseError
from homarus.core.message import Json
from homarus.providers.credentials import Credentials, open_credentials, profile_file
from homarus.providers.profile_file import FILE, ProfileFile
from homarus.providers.profiles import Raw, put_order, put_profile, remove_profile
from homarus.testing.clock import FakeClock
from tests.openclaw_databases import file_contents, make_state_database, put_profiles


def key(secret: str, provider: str = "openai", **more: Json) -> dict[str, Json]:
    return {"type": "api_key", "provider": provider, "key": secret, **more}


class Home:
    """A home of OpenClaw 2026.9 with two agents."""

    def __init__(self, path: Path) -> None:
        self.paths, self.clock = Paths.find({}, path), FakeClock()
        self.state = self.paths.state
        config = check_config({"agents": {"list": [{"id": "main"}, {"id": "ops"}]}}).config
        assert config
        self.config = config

    def open(self, agent: str = "main", **env: str) -> Credentials:
        return open_credentials(self.config, env, self.paths, agent, self.clock)

    def file(self, agent: str = "main") -> ProfileFile:
        return profile_file(self.config, {}, self.paths, agent)

    def change(self, change: Callable[[Raw], None]) -> None:
        self.file().update(change)

    def stored(self) -> Any:
        return json.loads((self.state / "homarus/agents/main/agent" / FILE).read_text())


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path)
    put_profiles(home.state, {"openai:a": key("sk-a"), "openai:b": key("sk-b")})
    return home


def offered(credentials: Credentials, provider: str = "openai") -> dict[str, str]:
    found = credentials.candidates(provider)
    return {each.profile_id: asyncio.run(each.secret()) for each in found}


def test_profiles_of_the_state_database_are_used_by_all_agents(home: Home) -> None:
    put_profiles(home.state, {"openai:ops": key("sk-ops")}, agent="ops")
    before = file_contents(home.state)
    assert offered(home.open()) == {"openai:a": "sk-a", "openai:b": "sk-b"}
    assert offered(home.open("ops")) == {"openai:ops": "sk-ops"} | offered(home.open())
    assert file_contents(home.state) == before


def test_profile_of_an_agents_database_precedes_the_shared_one(home: Home) -> None:
    put_profiles(home.state, {"openai:a": key("sk-own")}, agent="main")
    assert offered(home.open())["openai:a"] == "sk-own"
    (entry,) = [each for each in home.open().entries() if each.profile.id == "openai:a"]
    assert entry.is_inherited and entry.place.endswith("agents/main/agent/openclaw-agent.sqlite")


def test_agents_database_in_another_folder_is_found(home: Home, tmp_path: Path) -> None:
    put_profiles(tmp_path / "other", {"openai:ops": key("sk-ops")}, agent="ops")
    path = tmp_path / "other/agents/ops/agent/openclaw-agent.sqlite"
    make_state_database(home.state, {"ops": str(path), "main": "/gone/with-the-old-home.sqlite"})
    assert offered(home.open("ops"))["openai:ops"] == "sk-ops"


def test_order_of_openclaw_is_obeyed_until_ours_replaces_it(home: Home) -> None:
    put_profiles(home.state, {"openai:a": key("a"), "openai:b": key("b")}, {"openai": ["openai:b"]})
    credentials = home.open()
    assert list(offered(credentials)) == ["openai:b"]
    home.change(lambda raw: put_order(raw, "openai", ["openai:a"]))
    assert list(offered(credentials)) == ["openai:a"]
    home.change(lambda raw: put_order(raw, "openai", None))
    assert credentials.order("openai") is None and home.stored()["order"] == {"openai": None}


def test_own_profile_precedes_openclaws_of_the_same_name(home: Home) -> None:
    home.change(lambda raw: put_profile(raw, "openai:a", key("sk-mine")))
    assert offered(home.open()) == {"openai:a": "sk-mine", "openai:b": "sk-b"}
    assert list(home.stored()["profiles"]) == ["openai:a"], "nothing of OpenClaw's is copied"
    assert not any(e.is_inherited for e in home.open().entries() if e.profile.id == "openai:a")


def test_removed_profile_of_openclaw_stays_removed(home: Home) -> None:
    database = (home.state / "state/openclaw.sqlite").read_bytes()
    home.change(lambda raw: remove_profile(raw, "openai:a"))
    assert offered(home.open()) == {"openai:b": "sk-b"}
    assert home.stored()["profiles"] == {"openai:a": None} and not home.open().warnings
    assert (home.state / "state/openclaw.sqlite").read_bytes() == database
    put_profiles(home.state, {"openai:a": key("sk-new"), "openai:b": key("sk-b2")})
    home.change(lambda raw: put_profile(raw, "openai:c", key("sk-c")))
    assert offered(home.open()) == {"openai:b": "sk-b2", "openai:c": "sk-c"}
    home.change(lambda raw: put_profile(raw, "openai:a", key("sk-mine")))
    assert offered(home.open())["openai:a"] == "sk-mine"


def test_results_of_openclaws_profile_are_in_our_file(home: Home) -> None:
    database = (home.state / "state/openclaw.sqlite").read_bytes()
    credentials = home.open()
    first, second = credentials.candidates("openai")
    credentials.record_result(first, RateLimitError("slow down", after_s=60))
    credentials.record_result(second)
    asyncio.run(credentials.close())
    stored = home.stored()
    assert stored["profiles"] == {} and stored["lastGood"] == {"openai": "openai:b"}
    assert stored["usageStats"]["openai:a"]["cooldownUntil"] > home.clock.now_ms()
    again = home.open().candidates("openai")
    assert [each.profile_id for each in again] == ["openai:b", "openai:a"]
    assert (home.state / "state/openclaw.sqlite").read_bytes() == database


def test_databases_are_read_again_only_after_a_change(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    loads = list[OpenClawSnapshot]()
    load = openclaw_credentials.load_shared_profiles

    def count(database: OpenClawSnapshot) -> dict[str, Json]:
        loads.append(database)
        return load(database)

    monkeypatch.setattr(openclaw_credentials, "load_shared_profiles", count)
    credentials = home.open()
    for _ in range(3):
        offered(credentials)
    assert len(loads) == 1
    put_profiles(home.state, {"openai:a": key("sk-a2")})
    assert offered(credentials) == {"openai:a": "sk-a2"} and len(loads) == 2


def test_unreadable_database_is_named_with_the_fix(home: Home) -> None:
    (home.state / "state/openclaw.sqlite").write_bytes(b"no database" * 200)
    credentials = home.open()
    assert credentials.candidates("openai") == ()
    error = credentials.missing_credential_error("openai")
    assert "state/openclaw.sqlite is damaged" in error.message
    assert "homarus doctor" in error.fix and "OPENAI_API_KEY" in error.fix
    assert any("OpenClaw's credentials are not used" in text for text in credentials.warnings)
    home.change(lambda raw: put_profile(raw, "openai:mine", key("sk-mine")))
    assert offered(credentials) == {"openai:mine": "sk-mine"}, "what is ours works"


def test_busy_database_leaves_the_profiles_as_they_were(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    credentials = home.open()
    known = offered(credentials)

    def busy(_self: object) -> None:
        raise StateInUseError("written all the time")

    put_profiles(home.state, {"openai:a": key("sk-a2")})
    with monkeypatch.context() as patched:
        patched.setattr(openclaw_credentials.OpenClawProfiles, "load", busy)
        assert offered(credentials) == known and not credentials.warnings
    assert offered(credentials) == {"openai:a": "sk-a2"}


def test_reference_to_a_variable_is_followed_and_another_refused(home: Home) -> None:
    reference = {"source": "env", "provider": "default", "id": "MY_KEY"}
    stored = {"source": "exec", "provider": "vault", "id": "MY_KEY"}
    put_profiles(
        home.state,
        {
            "openai:env": {"type": "api_key", "provider": "openai", "keyRef": reference},
            "groq:exec": {"type": "token", "provider": "groq", "tokenRef": stored},
        },
    )
    assert offered(home.open(MY_KEY="sk-env")) == {"openai:env": "sk-env"}
    error = home.open().missing_credential_error("groq")
    assert "groq:exec" in error.message


def test_damaged_rows_have_no_profiles(home: Home) -> None:
    put_profiles(home.state, {"openai:a": "text", "openai:b": key("sk-b")})
    assert offered(home.open()) == {"openai:b": "sk-b"}
    assert any("openai:a" in text for text in home.open().warnings)


def test_normal_home_imports_no_reader_of_databases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "homarus.config.openclaw_credentials", None)
    home = Home(tmp_path / "normal")
    assert home.open().candidates("openai") == ()


def test_renewed_login_of_openclaw_is_complete_in_our_file(home: Home) -> None:
    login = {"type": "oauth", "provider": "acme", "access": "a1", "refresh": "r1", "email": "a@b"}
    put_profiles(home.state, {"acme:a": login})
    home.change(lambda raw: put_profile(raw, "acme:a", {"access": "a2", "refresh": "r2"}))
    assert home.stored()["profiles"] == {"acme:a": {**login, "access": "a2", "refresh": "r2"}}
    assert home.file().read().profiles["acme:a"].refresh == "r2"
