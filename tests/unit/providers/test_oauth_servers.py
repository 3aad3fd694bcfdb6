"""Logging in and renewing against OAuth servers that others wrote.

`oidc-provider-mock` is a whole one (PKCE it lets pass unchecked); `oauth_server.py` is made of
Authlib's grants, which check PKCE, single use and the device flow.
"""

import asyncio
import base64
import json
import multiprocessing
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from homarus.config.check import check_config
from homarus.config.paths import Paths
from homarus.core.clock import SystemClock
from homarus.core.errors import AuthError
from homarus.providers.credentials import open_credentials
from homarus.providers.oauth import (
    DeviceCode,
    OAuthClient,
    OAuthTokens,
    log_in_by_browser,
    log_in_by_device,
    refresh,
)
from homarus.providers.profile_file import FILE
from homarus.testing.clock import START_MS, FakeClock
from tests.unit.providers.oauth_peers import authlib_server, oidc_server


@pytest.fixture(scope="module")
def authlib() -> Iterator[str]:
    yield from authlib_server()


@pytest.fixture(scope="module")
def oidc() -> Iterator[str]:
    yield from oidc_server()


def authlib_client(url: str, **more: Any) -> OAuthClient:
    return OAuthClient(
        "acme",
        client_id="cli",
        token_url=f"{url}/token",
        authorize_url=f"{url}/authorize",
        device_url=f"{url}/device",
        scopes=("models",),
        **more,
    )


def oidc_client(url: str) -> OAuthClient:
    return OAuthClient(
        "acme",
        client_id="cli",
        token_url=f"{url}/oauth2/token",
        authorize_url=f"{url}/oauth2/authorize",
        scopes=("openid", "email"),
        client_secret="shh-shh",
    )


async def nobody_pastes() -> str:
    never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    return await never


def browse(client: OAuthClient, walk: Callable[[httpx2.Client, str], Any]) -> OAuthTokens:
    """Log in with a browser that `walk`s from the address shown to wherever it leads."""
    walks: list[threading.Thread] = []
    pages: list[str] = []

    def show(url: str) -> None:
        def go() -> None:
            with httpx2.Client(follow_redirects=True, trust_env=False) as browser:
                pages.append(walk(browser, url).text)

        walks.append(threading.Thread(target=go))
        walks[0].start()

    try:
        return asyncio.run(
            log_in_by_browser(client, FakeClock(), show, nobody_pastes, timeout_s=60)
        )
    finally:
        for each in walks:
            each.join(30)
        assert all("Homarus" in page for page in pages), "the browser got our page"


def grant_oidc(browser: httpx2.Client, url: str) -> Any:
    assert browser.get(url).status_code == 200
    return browser.post(url, data={"sub": "ann@example.com"})


def test_browser_login_returns_tokens_and_name(oidc: str) -> None:
    tokens = browse(oidc_client(oidc), grant_oidc)
    assert tokens.email == "ann@example.com"
    assert tokens.expires_ms == START_MS + 3_600_000
    headers = {"Authorization": f"Bearer {tokens.access}"}
    with httpx2.Client(trust_env=False) as web:
        assert web.get(f"{oidc}/userinfo", headers=headers).json()["sub"] == "ann@example.com"
    renewed = refresh(oidc_client(oidc), tokens.refresh, START_MS + 5)
    assert renewed.access != tokens.access
    assert renewed.expires_ms > START_MS
    assert tokens.access not in repr(tokens) and tokens.refresh not in repr(tokens)


def test_browser_login_satisfies_required_pkce(authlib: str) -> None:
    tokens = browse(authlib_client(authlib), lambda browser, url: browser.get(url))
    assert tokens.access and tokens.refresh
    assert tokens.email == ""


def test_browser_login_custom_redirect_is_used(authlib: str) -> None:
    client = authlib_client(authlib, redirect_url="http://127.0.0.1:0/auth/done?")
    seen: list[str] = []

    def walk(browser: httpx2.Client, url: str) -> Any:
        seen.append(parse_qs(urlsplit(url).query)["redirect_uri"][0])
        return browser.get(url)

    browse(client, walk)
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/auth/done", seen[0])


def test_browser_login_denied_is_reported(oidc: str) -> None:
    def deny(browser: httpx2.Client, url: str) -> Any:
        state = parse_qs(urlsplit(url).query)["state"][0]
        done = browser.post(url, data={"action": "deny"}, follow_redirects=False)
        # It leaves out the state, which the standard requires it to repeat.
        return browser.get(f"{done.headers['location']}&state={state}")

    with pytest.raises(AuthError, match="access_denied"):
        browse(oidc_client(oidc), deny)


async def test_browser_login_accepts_pasted_address(authlib: str) -> None:
    pasted: list[str] = []

    def show(url: str) -> None:
        with httpx2.Client(trust_env=False) as browser:
            pasted.append(browser.get(url).headers["location"])

    async def paste() -> str:
        return f"  {pasted[0]}\n"

    login = log_in_by_browser(authlib_client(authlib), FakeClock(), show, paste, listen=False)
    assert (await login).access


def test_stolen_code_is_useless(authlib: str) -> None:
    """What PKCE is for: the code without the verifier buys nothing."""
    stolen: list[httpx2.Response] = []

    def walk(browser: httpx2.Client, url: str) -> Any:
        done = browser.get(url, follow_redirects=False).headers["location"]
        form = {
            "grant_type": "authorization_code",
            "client_id": "cli",
            "redirect_uri": done.partition("?")[0],
            "code": parse_qs(urlsplit(done).query)["code"][0],
            "code_verifier": "x" * 64,
        }
        stolen.append(browser.post(f"{authlib}/token", data=form))
        return browser.get(done)

    assert browse(authlib_client(authlib), walk).access
    assert stolen[0].status_code == 400


def test_pkce_challenge_is_verifier_hash_and_verifier_is_private(authlib: str) -> None:
    seen: list[str] = []

    def walk(browser: httpx2.Client, url: str) -> Any:
        seen.append(url)
        return browser.get(url)

    browse(authlib_client(authlib), walk)
    asked = parse_qs(urlsplit(seen[0]).query)
    assert asked["code_challenge_method"] == ["S256"]
    assert len(base64.urlsafe_b64decode(asked["code_challenge"][0] + "=")) == 32
    assert "code_verifier" not in asked


def test_used_refresh_token_is_refused_without_showing_it(authlib: str) -> None:
    client = authlib_client(authlib)
    tokens = browse(client, lambda browser, url: browser.get(url))
    renewed = refresh(client, tokens.refresh, START_MS)
    assert renewed.refresh != tokens.refresh
    with pytest.raises(AuthError) as caught:
        refresh(client, tokens.refresh, START_MS)
    assert "invalid_grant" in caught.value.message
    assert tokens.refresh not in str(caught.value)
    assert "homarus models auth login acme" in caught.value.fix


class Person(FakeClock):
    """Time passes by itself; at the third look the person types the code."""

    def __init__(self, url: str, answer: str) -> None:
        super().__init__(patient=False)
        self.url, self.answer, self.code = url, answer, ""

    def read(self, code: DeviceCode) -> None:
        self.code = code.code
        assert code.url == "https://example.com/device"
        assert code.code in code.whole_url

    async def sleep(self, seconds: float) -> None:
        await super().sleep(seconds)
        if len(self.slept) == 3 and self.answer:
            form = {"user_code": self.code, "allow": self.answer}
            async with httpx2.AsyncClient(trust_env=False) as web:
                await web.post(f"{self.url}/approve", data=form)


async def test_device_code_login_returns_tokens(authlib: str) -> None:
    person = Person(authlib, "yes")
    tokens = await log_in_by_device(authlib_client(authlib), person, person.read)
    assert tokens.access and tokens.refresh
    assert person.slept == [2.0, 7.0, 7.0], "the server's pace, and slower when it asks for that"


async def test_device_code_denied_ends_login(authlib: str) -> None:
    person = Person(authlib, "no")
    with pytest.raises(AuthError, match="access_denied"):
        await log_in_by_device(authlib_client(authlib), person, person.read)


async def test_device_code_unused_expires(authlib: str) -> None:
    person = Person(authlib, "")
    with pytest.raises(AuthError, match="ran out"):
        await log_in_by_device(authlib_client(authlib), person, person.read)
    assert sum(person.slept) <= 60


# Renewing


def put_login(path: Path, url: str, tokens: OAuthTokens, **more: Any) -> Paths:
    """A state directory whose login has run out."""
    paths = Paths.find({}, path)
    file = paths.agent_dir("main") / FILE
    file.parent.mkdir(parents=True)
    login = {"type": "oauth", "provider": "acme", "access": "old", "refresh": tokens.refresh}
    known = {"expires": 1, "clientId": "cli", "tokenUrl": f"{url}/token", "accountId": "a-1"}
    entry = {key: value for key, value in {**login, **known, **more}.items() if value}
    file.write_text(json.dumps({"version": 1, "profiles": {"acme:default": entry}}))
    file.chmod(0o600)
    return paths


def renew(path: Path, agent: str = "main", **auth: Any) -> list[str]:
    """Five at once ask for the secret of the one login there is."""
    checked = check_config({"auth": auth, "agents": {"list": [{"id": "main"}, {"id": "ops"}]}})
    assert checked.config
    config = checked.config

    async def main() -> list[str]:
        credentials = open_credentials(config, {}, Paths.find({}, path), agent, SystemClock())
        (candidate,) = credentials.candidates("acme")
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(candidate.secret()) for _ in range(5)]
        credentials.record_result(candidate)
        await credentials.close()
        return [task.result() for task in asked]

    return asyncio.run(main())


def stored(paths: Paths) -> Any:
    return json.loads((paths.agent_dir("main") / FILE).read_text())


def refreshes(url: str) -> int:
    with httpx2.Client(trust_env=False) as web:
        return int(web.get(f"{url}/log").json().count("refresh_token"))


def test_expired_login_refreshed_once_for_concurrent_callers(authlib: str, tmp_path: Path) -> None:
    tokens = browse(authlib_client(authlib), lambda browser, url: browser.get(url))
    paths = put_login(tmp_path, authlib, tokens)
    before = refreshes(authlib)
    (access,) = set(renew(tmp_path, "ops"))
    assert refreshes(authlib) == before + 1
    entry = stored(paths)["profiles"]["acme:default"]
    assert entry["access"] == access != "old"
    assert entry["refresh"] not in {"", tokens.refresh}
    assert entry["accountId"] == "a-1", "fields nobody here knows are kept"
    assert stored(paths)["lastGood"] == {"acme": "acme:default"}
    assert not (paths.agent_dir("ops") / FILE).exists(), "written back where it came from"
    assert set(renew(tmp_path)) == {access}, "the next one finds it in the file"
    assert refreshes(authlib) == before + 1


def _renew_in_a_process(path: Path, results: "multiprocessing.Queue[list[str]]") -> None:
    results.put(renew(path))


def test_two_processes_refresh_login_once(authlib: str, tmp_path: Path) -> None:
    tokens = browse(authlib_client(authlib), lambda browser, url: browser.get(url))
    put_login(tmp_path, authlib, tokens)
    before = refreshes(authlib)
    spawn = multiprocessing.get_context("spawn")
    results = spawn.Queue()
    processes = [
        spawn.Process(target=_renew_in_a_process, args=(tmp_path, results)) for _ in range(3)
    ]
    for each in processes:
        each.start()
    got = [access for _ in processes for access in results.get(timeout=60)]
    for each in processes:
        each.join(60)
    assert len(set(got)) == 1
    assert refreshes(authlib) == before + 1


def test_oauth_client_may_come_from_config(authlib: str, tmp_path: Path) -> None:
    tokens = browse(authlib_client(authlib), lambda browser, url: browser.get(url))
    put_login(tmp_path, authlib, tokens, clientId="", tokenUrl="")
    with pytest.raises(ExceptionGroup) as caught:
        renew(tmp_path)
    (first, *_) = caught.value.exceptions
    assert isinstance(first, AuthError)
    assert "no client is known" in first.message and "auth.clients.acme" in first.fix
    client = {"clientId": "cli", "tokenUrl": f"{authlib}/token"}
    assert "old" not in renew(tmp_path, clients={"Acme": client})


def test_cancelled_caller_does_not_lose_new_refresh_token(authlib: str, tmp_path: Path) -> None:
    tokens = browse(authlib_client(authlib), lambda browser, url: browser.get(url))
    paths = put_login(tmp_path, authlib, tokens)
    config = check_config({}).config
    assert config

    async def main() -> None:
        credentials = open_credentials(config, {}, paths, "main", SystemClock())
        (candidate,) = credentials.candidates("acme")
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.02):  # the server takes longer
                await candidate.secret()

    asyncio.run(main())
    entry = stored(paths)["profiles"]["acme:default"]
    assert entry["access"] != "old"
    assert refresh(authlib_client(authlib), entry["refresh"], 0).access


def test_unsaved_tokens_are_used_and_saved_later(authlib: str, tmp_path: Path) -> None:
    tokens = browse(authlib_client(authlib), lambda browser, url: browser.get(url))
    paths = put_login(tmp_path, authlib, tokens)
    file = paths.agent_dir("main") / FILE
    entry = stored(paths)["profiles"]["acme:default"]
    file.write_text(json.dumps({"version": 9, "profiles": {"acme:default": entry}}))
    config = check_config({}).config
    assert config
    clock = FakeClock()

    async def main() -> None:
        credentials = open_credentials(config, {}, paths, "main", clock)
        (candidate,) = credentials.candidates("acme")
        access = await candidate.secret()
        assert access != "old"
        assert await candidate.secret() == access
        assert stored(paths)["profiles"]["acme:default"] == entry
        file.write_text(json.dumps({"version": 1, "profiles": {"acme:default": entry}}))
        await clock.advance(7200)
        newer = await candidate.secret()
        assert newer != access, "the token in memory was renewed, not the used one of the file"
        assert stored(paths)["profiles"]["acme:default"]["access"] == newer

    asyncio.run(main())


def test_refused_token_is_refreshed_before_expiry(authlib: str, tmp_path: Path) -> None:
    tokens = browse(authlib_client(authlib), lambda browser, url: browser.get(url))
    far = SystemClock().now_ms() + 3_600_000
    paths = put_login(tmp_path, authlib, tokens, expires=far)
    config = check_config({}).config
    assert config

    async def main() -> None:
        credentials = open_credentials(config, {}, paths, "main", SystemClock())
        (candidate,) = credentials.candidates("acme")
        assert await candidate.secret() == "old"
        credentials.record_result(candidate, AuthError("x"))
        newer = await candidate.secret()
        assert newer != "old"
        assert await candidate.secret() == newer
        await credentials.close()

    asyncio.run(main())
