"""Logins that go wrong: what a token endpoint may answer, and what may be pasted.

The endpoint here is our own strict fake: no server anybody wrote misbehaves on demand.
"""

import asyncio
import base64
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from homarus.core.errors import (
    AuthError,
    HomarusError,
    OverloadedError,
    ProviderError,
    ProviderTimeoutError,
    RateLimitError,
    StreamError,
    UnreachableError,
    UserError,
)
from homarus.providers import oauth
from homarus.providers.oauth import DeviceCode, OAuthClient, OAuthTokens, log_in_by_device, refresh
from homarus.testing.clock import START_MS, FakeClock

SECRET = "refresh-token-0123456789"


class Endpoint:
    """Answers each request with the next of its answers; keeps what it was sent."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, dict[str, str], bytes]] = []
        self.forms: list[str] = []
        self.headers: list[dict[str, str]] = []
        endpoint = self

        class Fake(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers["Content-Length"])
                endpoint.forms.append(self.rfile.read(size).decode())
                endpoint.headers.append(dict(self.headers))
                status, headers, body = endpoint.answers.pop(0)
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_request(self, *args: object) -> None:
                """Keep quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Fake)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def will(self, content: Any, status: int = 200, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers.append((status, named, body))

    @property
    def client(self) -> OAuthClient:
        return OAuthClient("acme", "cli", f"{self.url}/token", device_url=f"{self.url}/device")

    def refused(self) -> ProviderError:
        with pytest.raises(ProviderError) as caught:
            refresh(self.client, SECRET, START_MS)
        assert SECRET not in str(caught.value)
        assert len(str(caught.value)) < 1000
        return caught.value


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    made = Endpoint()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,))
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


def test_tokens_parsed_as_services_send_them(endpoint: Endpoint) -> None:
    endpoint.will({"access_token": " a ", "expires_in": "60"})
    assert refresh(endpoint.client, SECRET, START_MS) == OAuthTokens("a", SECRET, START_MS + 60_000)
    endpoint.will({"access_token": "a", "refresh_token": "new"})
    assert refresh(endpoint.client, SECRET, START_MS) == OAuthTokens(
        "a", "new", START_MS + 3_600_000
    )
    strange: Any
    for strange in (-5, 0, "soon", None, [], True, 1e400):
        endpoint.will({"access_token": "a", "expires_in": strange})
        assert refresh(endpoint.client, SECRET, START_MS).expires_ms > START_MS
    assert "grant_type=refresh_token" in endpoint.forms[0]
    assert "Authorization" not in endpoint.headers[0]


def test_client_secret_is_sent_and_never_shown(endpoint: Endpoint) -> None:
    endpoint.will({"error": "invalid_client", "error_description": "no: s:e&cret!!"}, 401)
    client = OAuthClient("acme", "c l", f"{endpoint.url}/token", client_secret="s:e&cret!!")
    with pytest.raises(AuthError) as caught:
        refresh(client, SECRET, START_MS)
    assert "s:e&cret!!" not in str(caught.value) + repr(client) + endpoint.forms[0]
    pair = base64.b64encode(b"c+l:s%3Ae%26cret%21%21").decode()
    assert endpoint.headers[0]["Authorization"] == f"Basic {pair}"


@pytest.mark.parametrize(
    ("status", "content", "kind"),
    [
        (400, {"error": "invalid_grant", "error_description": f"{SECRET} is old"}, AuthError),
        (401, {"error": "invalid_client"}, AuthError),
        (400, {"error": {"message": "odd"}}, StreamError),
        (404, b"<html>no</html>", StreamError),
        (400, b"", StreamError),
        (200, b"not json", StreamError),
        (200, [], StreamError),
        (200, {"access_token": 5}, StreamError),
        (200, {"access_token": ""}, StreamError),
        (200, b"[" * 100_000, StreamError),
        (200, b"x" * 300_000, StreamError),
        (302, {"access_token": "a"}, StreamError),
        (429, {"error": "slow"}, RateLimitError),
        (500, b"oops", OverloadedError),
        (503, {"error": "server_error"}, OverloadedError),
        (400, {"error": "authorization_pending"}, AuthError),
        (400, {"error": "x\x1b[31m" * 500}, AuthError),
    ],
)
def test_token_error_response_raises_its_class(
    endpoint: Endpoint, status: int, content: Any, kind: type[ProviderError]
) -> None:
    endpoint.will(content, status, Retry_After="7", Location="http://127.0.0.1:9/elsewhere")
    error = endpoint.refused()
    assert type(error) is kind
    assert "\x1b" not in error.message
    if isinstance(error, RateLimitError):
        assert error.after_s == 7.0


def test_slow_token_endpoint_times_out(endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oauth, "REQUEST_S", -1.0)
    monkeypatch.setattr("httpx2.Client", _unhurried(__import__("httpx2").Client))
    endpoint.will({"access_token": "a"})
    assert type(endpoint.refused()) is ProviderTimeoutError


def _unhurried(kind: Any) -> Callable[..., Any]:
    return lambda **how: kind(**{**how, "timeout": 20.0})


def test_closed_port_raises_unreachable(endpoint: Endpoint) -> None:
    client = OAuthClient("acme", "cli", "http://127.0.0.1:1/token")
    with pytest.raises(UnreachableError):
        refresh(client, SECRET, START_MS)


@pytest.mark.parametrize(
    "url",
    ["", "x", "ftp://a/b", "http://example.com/token", "http://127.0.0.1.evil.com/", "https://:x/"],
)
def test_tokens_sent_only_over_https_or_loopback(url: str) -> None:
    with pytest.raises(UserError):
        refresh(OAuthClient("acme", "cli", url), SECRET, START_MS)


def token_with(claims: Any) -> str:
    body = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"x.{body}.y"


@pytest.mark.parametrize(
    ("id_token", "email"),
    [
        (token_with({"email": "ann@example.com"}), "ann@example.com"),
        (token_with({"email": "a b@c"}), ""),
        (token_with({"email": "a:b@c"}), ""),
        (token_with({"email": "a\u202e@c"}), ""),
        (token_with({"email": ["x@y"]}), ""),
        (token_with([]), ""),
        ("x.é.y", ""),
        ("x.A.y", ""),
        ("", ""),
        (5, ""),
    ],
)
def test_login_name_is_an_address_or_empty(endpoint: Endpoint, id_token: Any, email: str) -> None:
    endpoint.will({"access_token": "a", "id_token": id_token})
    assert refresh(endpoint.client, SECRET, START_MS).email == email


# A code typed on another device

BEGUN = {
    "device_code": "dev-code-0123456789",
    "user_code": "AB-CD",
    "verification_uri": "https://example.com/d",
    "expires_in": 100,
    "interval": 5,
}


async def by_device(endpoint: Endpoint, clock: FakeClock) -> tuple[OAuthTokens, DeviceCode]:
    shown: list[DeviceCode] = []
    tokens = await log_in_by_device(endpoint.client, clock, shown.append)
    return tokens, shown[0]


async def test_device_poll_interval_follows_service(endpoint: Endpoint) -> None:
    clock = FakeClock(patient=False)
    endpoint.will(BEGUN)
    endpoint.will({"error": "authorization_pending"}, 400)
    endpoint.will({"error": "slow_down"}, 400)
    endpoint.will(b"", 503)
    endpoint.will({"access_token": "a", "refresh_token": "r"})
    tokens, shown = await by_device(endpoint, clock)
    assert (tokens.access, tokens.refresh) == ("a", "r")
    assert clock.slept == [5.0, 5.0, 10.0, 20.0]
    assert shown == DeviceCode("https://example.com/d", "AB-CD", "", 100.0)


@pytest.mark.parametrize(
    ("changes", "slept"),
    [
        ({"interval": 0}, 5.0),
        ({"interval": "2"}, 2.0),
        ({"interval": 1e9, "expires_in": 1e9}, 60.0),
        ({"interval": None}, 5.0),
        ({"verification_uri": None, "verification_url": "https://e.com"}, 5.0),
    ],
)
async def test_device_start_response_is_read_leniently(
    endpoint: Endpoint, changes: Any, slept: float
) -> None:
    clock = FakeClock(patient=False)
    endpoint.will({**BEGUN, **changes})
    endpoint.will({"access_token": "a"})
    await by_device(endpoint, clock)
    assert clock.slept == [slept]


@pytest.mark.parametrize(
    "changes",
    [
        {"device_code": ""},
        {"user_code": 5},
        {"verification_uri": "javascript:alert(1)"},
        {"verification_uri": None},
    ],
)
async def test_device_start_response_invalid_is_refused(endpoint: Endpoint, changes: Any) -> None:
    endpoint.will({**BEGUN, **changes})
    with pytest.raises(StreamError):
        await by_device(endpoint, FakeClock(patient=False))


async def test_device_text_cannot_control_terminal(endpoint: Endpoint) -> None:
    endpoint.will({**BEGUN, "user_code": "A\x1b[2J", "verification_uri_complete": "https://e\r/x"})
    endpoint.will({"access_token": "a"})
    _, shown = await by_device(endpoint, FakeClock(patient=False))
    assert "\x1b" not in shown.code
    assert "\r" not in shown.whole_url


async def test_device_code_expiry_ends_login_without_showing_code(endpoint: Endpoint) -> None:
    endpoint.will(BEGUN)
    told = {"error": "expired_token", "error_description": "dev-code-0123456789"}
    endpoint.will(told, 400)
    with pytest.raises(AuthError, match="expired_token") as caught:
        await by_device(endpoint, FakeClock(patient=False))
    assert "dev-code" not in str(caught.value)


# A browser's way back, pasted


@pytest.mark.parametrize(
    "pasted",
    [
        "",
        "code-without-state",
        "http://127.0.0.1:1/callback?code=c&state=wrong",
        "http://127.0.0.1:1/callback?code=c",
        "http://[",
        "\0",
    ],
)
async def test_foreign_redirect_is_refused(endpoint: Endpoint, pasted: str) -> None:
    async def paste() -> str:
        return pasted

    client = OAuthClient("acme", "cli", f"{endpoint.url}/token", f"{endpoint.url}/authorize")
    login = oauth.log_in_by_browser(client, FakeClock(), lambda url: None, paste)
    with pytest.raises(HomarusError, match="not the end of this login"):
        await login
    assert endpoint.forms == []


async def test_login_without_redirect_times_out(endpoint: Endpoint) -> None:
    async def paste() -> str:
        never: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        return await never

    client = OAuthClient("acme", "cli", f"{endpoint.url}/token", f"{endpoint.url}/authorize")
    login = oauth.log_in_by_browser(client, FakeClock(), lambda url: None, paste, timeout_s=0.01)
    with pytest.raises(AuthError, match="nobody logged in"):
        await login
