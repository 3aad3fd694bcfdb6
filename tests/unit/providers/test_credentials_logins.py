"""Refreshing a login while other processes change the file, with a fake service."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from homarus.config.schema import OAuthClientConfig
from homarus.core.errors import AuthError, ProviderTimeoutError, UnreachableError
from homarus.providers import oauth, token_refresh
from homarus.providers.oauth import OAuthClient, OAuthTokens
from homarus.providers.profile_file import FILE, ProfileFile
from homarus.providers.token_refresh import TokenRefresher
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


class Harness:
    """A file with one login, and a service that renews it as the test says."""

    def __init__(self, path: Path) -> None:
        self.file = ProfileFile(path / FILE)
        self.put(**ENTRY)
        self.logins = TokenRefresher({}, FakeClock())
        self.asked: list[str] = []
        self.renew: Callable[[], OAuthTokens] = lambda: OAuthTokens(
            "new", "r-2", START_MS + 3_600_000
        )

    def put(self, **entry: Any) -> None:
        profiles = {"a": entry} if entry else {}
        self.file.path.write_text(json.dumps({"version": 1, "profiles": profiles}))
        self.file.path.chmod(0o600)

    def refresh(self, client: OAuthClient, token: str, now_ms: int) -> OAuthTokens:
        self.asked.append(token)
        return self.renew()

    def access(self) -> str:
        profile = self.logins.current(self.file.read().profiles["a"])
        return asyncio.run(self.logins.access_token(self.file, profile))

    @property
    def stored(self) -> Any:
        return json.loads(self.file.path.read_text())["profiles"]


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Harness:
    made = Harness(tmp_path)
    monkeypatch.setattr(oauth, "refresh", made.refresh)
    return made


def test_refresh_does_not_overwrite_newer_login(stage: Harness) -> None:
    def renew() -> OAuthTokens:
        stage.put(**{**ENTRY, "access": "theirs", "refresh": "r-9"})
        return OAuthTokens("new", "r-2", START_MS + 3_600_000)

    stage.renew = renew
    assert stage.access() == "new"
    assert (stage.stored["a"]["access"], stage.stored["a"]["refresh"]) == ("theirs", "r-9")


def test_refresh_does_not_restore_removed_login(stage: Harness) -> None:
    def renew() -> OAuthTokens:
        stage.put()
        return OAuthTokens("new", "r-2", START_MS + 3_600_000)

    stage.renew = renew
    assert stage.access() == "new"
    assert stage.stored == {}


def test_token_is_refreshed_a_minute_early(stage: Harness) -> None:
    stage.put(**{**ENTRY, "expires": START_MS + 61_000})
    assert stage.access() == "old"
    stage.put(**{**ENTRY, "expires": START_MS + 59_000})
    assert stage.access() == "new"
    stage.put(**{**ENTRY, "expires": None})
    assert stage.access() == "old", "nobody knows that it ran out"


def test_refresh_returning_same_token_is_not_repeated(
    stage: Harness,
) -> None:
    stage.put(**{**ENTRY, "expires": START_MS + 3_600_000})
    stage.renew = lambda: OAuthTokens("old", "r-2", START_MS + 3_600_000)
    stage.logins.invalidate("a", "old")
    assert stage.access() == "old"
    assert stage.access() == "old"
    assert stage.asked == ["r-1"]


def test_failed_refresh_leaves_file_unchanged(stage: Harness) -> None:
    def renew() -> OAuthTokens:
        raise UnreachableError("no network")

    stage.renew = renew
    with pytest.raises(UnreachableError):
        stage.access()
    assert stage.stored == {"a": ENTRY}


def test_refresh_lock_held_too_long_is_not_waited_for(
    stage: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_refresh, "RENEW_WAIT_S", 0.01)
    with stage.file.locked("renew a"), pytest.raises(ProviderTimeoutError):
        stage.access()


async def test_read_only_state_is_not_refreshed(stage: Harness) -> None:
    """The lock comes first: a refresh token that cannot be kept is not used up."""
    profile = stage.file.read().profiles["a"]
    stage.file.path.unlink()
    stage.file.path.parent.rmdir()
    stage.file.path.parent.write_text("a file where the folder was")
    with pytest.raises(AuthError, match="cannot be renewed"):
        await stage.logins.access_token(stage.file, profile)
    assert stage.asked == []


@pytest.mark.parametrize("missing", ["refresh", "clientId", "tokenUrl"])
def test_refresh_missing_fields_are_reported(stage: Harness, missing: str) -> None:
    stage.put(**{**ENTRY, missing: None})
    with pytest.raises(AuthError, match="cannot be renewed") as caught:
        stage.access()
    assert "homarus models auth login acme" in caught.value.fix
    assert stage.asked == []


def test_config_completes_missing_profile_fields(stage: Harness) -> None:
    stage.put(**{**ENTRY, "clientId": None, "tokenUrl": None})
    client = OAuthClientConfig.model_validate(
        {"clientId": "c", "tokenUrl": "https://example.com/t"}
    )
    stage.logins = TokenRefresher({"Acme": client}, FakeClock())
    assert stage.access() == "new"
