"""Refreshing a login while other processes change the file, with a fake service."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from homarus.config.schema import LoginClient
from homarus.core.errors import AuthFailed, ProviderTimeout, Unreachable
from homarus.providers import logins, oauth
from homarus.providers.logins import Logins
from homarus.providers.oauth import OAuthClient, Tokens
from homarus.providers.profile_file import FILE, ProfileFile
from homarus.testing.clock import START_MS, FakeClock

ENTRY = {
    "type": "oauth",
    "provider": "acme",
    "access": "old",
    "refresh": "r-1",
    "expires": 1,
    "clientId": "cli",
    "tokenUrl": "https://example.com/token",
}


class Stage:
    """A file with one login, and a service that renews it as the test says."""

    def __init__(self, path: Path) -> None:
        self.file = ProfileFile(path / FILE)
        self.put(**ENTRY)
        self.logins = Logins({}, FakeClock())
        self.asked: list[str] = []
        self.renew: Callable[[], Tokens] = lambda: Tokens("new", "r-2", START_MS + 3_600_000)

    def put(self, **entry: Any) -> None:
        profiles = {"a": entry} if entry else {}
        self.file.path.write_text(json.dumps({"version": 1, "profiles": profiles}))
        self.file.path.chmod(0o600)

    def refresh(self, client: OAuthClient, token: str, now_ms: int) -> Tokens:
        self.asked.append(token)
        return self.renew()

    def access(self) -> str:
        profile = self.logins.current(self.file.read().profiles["a"])
        return asyncio.run(self.logins.access(self.file, profile))

    @property
    def stored(self) -> Any:
        return json.loads(self.file.path.read_text())["profiles"]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    made = Stage(tmp_path)
    monkeypatch.setattr(oauth, "refresh", made.refresh)
    return made


def test_refresh_does_not_overwrite_newer_login(stage: Stage) -> None:
    def renew() -> Tokens:
        stage.put(**{**ENTRY, "access": "theirs", "refresh": "r-9"})
        return Tokens("new", "r-2", START_MS + 3_600_000)

    stage.renew = renew
    assert stage.access() == "new"
    assert (stage.stored["a"]["access"], stage.stored["a"]["refresh"]) == ("theirs", "r-9")


def test_refresh_does_not_restore_removed_login(stage: Stage) -> None:
    def renew() -> Tokens:
        stage.put()
        return Tokens("new", "r-2", START_MS + 3_600_000)

    stage.renew = renew
    assert stage.access() == "new"
    assert stage.stored == {}


def test_token_is_refreshed_a_minute_early(stage: Stage) -> None:
    stage.put(**{**ENTRY, "expires": START_MS + 61_000})
    assert stage.access() == "old"
    stage.put(**{**ENTRY, "expires": START_MS + 59_000})
    assert stage.access() == "new"
    stage.put(**{**ENTRY, "expires": None})
    assert stage.access() == "old", "nobody knows that it ran out"


def test_refresh_returning_same_token_is_not_repeated(
    stage: Stage,
) -> None:
    stage.put(**{**ENTRY, "expires": START_MS + 3_600_000})
    stage.renew = lambda: Tokens("old", "r-2", START_MS + 3_600_000)
    stage.logins.refuse("a", "old")
    assert stage.access() == "old"
    assert stage.access() == "old"
    assert stage.asked == ["r-1"]


def test_failed_refresh_leaves_file_unchanged(stage: Stage) -> None:
    def renew() -> Tokens:
        raise Unreachable("no network")

    stage.renew = renew
    with pytest.raises(Unreachable):
        stage.access()
    assert stage.stored == {"a": ENTRY}


def test_refresh_lock_held_too_long_is_not_waited_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "RENEW_WAIT_S", 0.01)
    with stage.file.locked("renew a"), pytest.raises(ProviderTimeout):
        stage.access()


def test_read_only_state_is_not_refreshed(stage: Stage) -> None:
    """The lock comes first: a refresh token that cannot be kept is not used up."""
    profile = stage.file.read().profiles["a"]
    stage.file.path.unlink()
    stage.file.path.parent.rmdir()
    stage.file.path.parent.write_text("a file where the folder was")
    with pytest.raises(AuthFailed, match="cannot be renewed"):
        asyncio.run(stage.logins.access(stage.file, profile))
    assert stage.asked == []


@pytest.mark.parametrize("missing", ["refresh", "clientId", "tokenUrl"])
def test_refresh_missing_fields_are_reported(stage: Stage, missing: str) -> None:
    stage.put(**{**ENTRY, missing: None})
    with pytest.raises(AuthFailed, match="cannot be renewed") as caught:
        stage.access()
    assert "homarus models auth login acme" in caught.value.fix
    assert stage.asked == []


def test_config_completes_missing_profile_fields(stage: Stage) -> None:
    stage.put(**{**ENTRY, "clientId": None, "tokenUrl": None})
    client = LoginClient.model_validate({"clientId": "c", "tokenUrl": "https://example.com/t"})
    stage.logins = Logins({"Acme": client}, FakeClock())
    assert stage.access() == "new"
