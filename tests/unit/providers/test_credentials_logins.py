"""Renewing a login while others change the file; the service is a function of the test's."""

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


def test_a_login_made_anew_meanwhile_is_not_overwritten(stage: Stage) -> None:
    def renew() -> Tokens:
        stage.put(**{**ENTRY, "access": "theirs", "refresh": "r-9"})
        return Tokens("new", "r-2", START_MS + 3_600_000)

    stage.renew = renew
    assert stage.access() == "new"
    assert (stage.stored["a"]["access"], stage.stored["a"]["refresh"]) == ("theirs", "r-9")


def test_a_login_taken_away_meanwhile_stays_away(stage: Stage) -> None:
    def renew() -> Tokens:
        stage.put()
        return Tokens("new", "r-2", START_MS + 3_600_000)

    stage.renew = renew
    assert stage.access() == "new"
    assert stage.stored == {}


def test_a_token_is_renewed_a_minute_early_and_not_before(stage: Stage) -> None:
    stage.put(**{**ENTRY, "expires": START_MS + 61_000})
    assert stage.access() == "old"
    stage.put(**{**ENTRY, "expires": START_MS + 59_000})
    assert stage.access() == "new"
    stage.put(**{**ENTRY, "expires": None})
    assert stage.access() == "old", "nobody knows that it ran out"


def test_a_service_that_renews_to_the_same_token_is_not_asked_again_and_again(
    stage: Stage,
) -> None:
    stage.put(**{**ENTRY, "expires": START_MS + 3_600_000})
    stage.renew = lambda: Tokens("old", "r-2", START_MS + 3_600_000)
    stage.logins.refuse("a", "old")
    assert stage.access() == "old"
    assert stage.access() == "old"
    assert stage.asked == ["r-1"]


def test_a_failure_to_renew_leaves_the_file_as_it_is(stage: Stage) -> None:
    def renew() -> Tokens:
        raise Unreachable("no network")

    stage.renew = renew
    with pytest.raises(Unreachable):
        stage.access()
    assert stage.stored == {"a": ENTRY}


def test_a_process_that_renews_for_too_long_is_not_waited_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logins, "RENEW_WAIT_S", 0.01)
    with stage.file.locked("renew a"), pytest.raises(ProviderTimeout):
        stage.access()


def test_where_nothing_can_be_written_nothing_is_renewed(stage: Stage) -> None:
    """The lock comes first: a refresh token that cannot be kept is not used up."""
    profile = stage.file.read().profiles["a"]
    stage.file.path.unlink()
    stage.file.path.parent.rmdir()
    stage.file.path.parent.write_text("a file where the folder was")
    with pytest.raises(AuthFailed, match="cannot be renewed"):
        asyncio.run(stage.logins.access(stage.file, profile))
    assert stage.asked == []


@pytest.mark.parametrize("missing", ["refresh", "clientId", "tokenUrl"])
def test_what_is_missing_for_a_renewal_is_told(stage: Stage, missing: str) -> None:
    stage.put(**{**ENTRY, missing: None})
    with pytest.raises(AuthFailed, match="cannot be renewed") as caught:
        stage.access()
    assert "homarus models auth login acme" in caught.value.fix
    assert stage.asked == []


def test_the_configuration_completes_what_a_profile_lacks(stage: Stage) -> None:
    stage.put(**{**ENTRY, "clientId": None, "tokenUrl": None})
    client = LoginClient.model_validate({"clientId": "c", "tokenUrl": "https://example.com/t"})
    stage.logins = Logins({"Acme": client}, FakeClock())
    assert stage.access() == "new"
