"""OAuth logins at providers, and refreshing their tokens.

Two flows: PKCE in a browser (RFC 7636, 8252), and a code entered on another device (RFC 8628). They
are independent of the provider: an `OAuthClient` has the addresses. Tokens are sent in bodies over
https (or to this machine), never in a URL, a log or an error. Redirects are not followed. Requests
to the token endpoint block and must run in a thread: they always complete, so that a refresh token
the service has just replaced is not lost to a cancelled caller.
"""

import asyncio
import base64
import binascii
import hashlib
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import quote_plus, urlencode, urlsplit, urlunsplit

from homarus.core.clock import Clock
from homarus.core.errors import (
    AuthError,
    OverloadedError,
    ProviderError,
    ProviderTimeoutError,
    RateLimitError,
    StreamError,
    UnreachableError,
    UserError,
)
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.tasks import task_group
from homarus.core.text import one_line
from homarus.providers.oauth_redirect import RedirectResult, open_redirect_server, parse_redirect
from homarus.providers.provider_errors import MIN_SECRET_CHARS, retry_after_s

if TYPE_CHECKING:
    import httpx2

REQUEST_S = 20.0
LOGIN_S = 300.0
MAX_ANSWER_BYTES = 256 * 1024
UNKNOWN_LIFE_S = 3600  # the lifetime of a token whose response gives none
MAX_LIFE_S = 10 * 365 * 24 * 3600
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
DEVICE_STEP_S = 5.0
MAX_DEVICE_STEP_S = 60.0
MAX_DEVICE_LIFE_S = 1800.0
# The redirect address when no server listens: loading it fails, and the user pastes the address.
PASTE_URL = "http://127.0.0.1:8765/callback"
_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})
_EMAIL = re.compile(r"[^\s@:/]{1,64}@[^\s@:/]{1,128}")


@dataclass(frozen=True, slots=True)
class OAuthClient:
    """Our client registration at a provider. An address may be missing until it is needed."""

    provider: str
    client_id: str
    token_url: str
    authorize_url: str = ""
    device_url: str = ""
    redirect_url: str = ""  # empty: a free port of 127.0.0.1
    scopes: tuple[str, ...] = ()
    # Some services also give native apps one; it protects nothing.
    client_secret: str = field(default="", repr=False)

    @property
    def credentials(self) -> tuple[str, str] | None:
        """Return the HTTP Basic value, the method that every server must support."""
        pair = quote_plus(self.client_id), quote_plus(self.client_secret)
        return pair if self.client_secret else None


@dataclass(frozen=True, slots=True)
class OAuthTokens:
    """The tokens of a login."""

    access: str = field(repr=False)
    refresh: str = field(repr=False)
    expires_ms: int
    email: str = ""


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """What the user is shown: open `url` and enter `code`, or open `whole_url`."""

    url: str
    code: str
    whole_url: str
    expires_s: float


Show: TypeAlias = Callable[[str], None]
Paste: TypeAlias = Callable[[], Awaitable[str]]  # never returns when pasting is impossible


async def log_in_by_browser(
    client: OAuthClient,
    clock: Clock,
    show: Show,
    paste: Paste,
    *,
    listen: bool = True,
    timeout_s: float = LOGIN_S,
) -> OAuthTokens:
    """Show an address, wait for its redirect (or a pasted one), and return the tokens."""
    _check_address(client.authorize_url, "authorizeUrl", client.provider)
    _check_address(client.token_url, "tokenUrl", client.provider)
    verifier, state = secrets.token_urlsafe(64), secrets.token_urlsafe(32)
    pasted = _pasted(client, paste, state)
    try:
        async with asyncio.timeout(timeout_s):
            if listen:
                async with open_redirect_server(client.redirect_url, state) as redirect:
                    redirect_url = redirect.url
                    show(authorize_address(client, redirect_url, state, verifier))
                    answer = await _first(redirect.wait, pasted)
            else:
                redirect_url = client.redirect_url or PASTE_URL
                show(authorize_address(client, redirect_url, state, verifier))
                answer = await pasted()
    except TimeoutError as exc:
        raise AuthError(
            f"{client.provider}: nobody logged in within {timeout_s:g} s", fix=_again(client)
        ) from exc
    if answer.error or not answer.code:
        raise AuthError(
            f"{client.provider}: the login was not granted: {one_line(answer.error)}",
            fix=_again(client),
        )
    form = {
        "grant_type": "authorization_code",
        "code": answer.code,
        "redirect_uri": redirect_url,
        "client_id": client.client_id,
        "code_verifier": verifier,
    }
    return await asyncio.to_thread(_tokens, client, form, clock.now_ms())


def authorize_address(client: OAuthClient, redirect_url: str, state: str, verifier: str) -> str:
    """Return the address to open; it contains the verifier's hash, not the verifier."""
    digest = hashlib.sha256(verifier.encode()).digest()
    asked = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect_url,
        "state": state,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    if client.scopes:
        asked["scope"] = " ".join(client.scopes)
    parts = urlsplit(client.authorize_url)
    query = "&".join(part for part in (parts.query, urlencode(asked)) if part)
    return urlunsplit(parts._replace(query=query, fragment=""))


async def _first(*ways: Callable[[], Awaitable[RedirectResult]]) -> RedirectResult:
    """Return the first result; cancel the others."""
    found: list[RedirectResult] = []

    async def take(way: Callable[[], Awaitable[RedirectResult]]) -> None:
        found.append(await way())
        for task in tasks:
            if task is not asyncio.current_task():
                task.cancel()

    async with task_group() as group:
        tasks = [group.create_task(take(way)) for way in ways]
    return found[0]


def _pasted(
    client: OAuthClient, paste: Paste, state: str
) -> Callable[[], Awaitable[RedirectResult]]:
    async def arrived() -> RedirectResult:
        answer = parse_redirect(await paste(), state)
        if answer is None:
            raise UserError(
                f"what was pasted is not the end of this login to {client.provider}",
                fix="paste the whole address that the browser ends at, from this very login",
            )
        return answer

    return arrived


async def log_in_by_device(
    client: OAuthClient, clock: Clock, show: Callable[[DeviceCode], None]
) -> OAuthTokens:
    """Show a code to enter on another device, and poll until the user has done so."""
    _check_address(client.device_url, "deviceUrl", client.provider)
    _check_address(client.token_url, "tokenUrl", client.provider)
    asked = {"client_id": client.client_id}
    if client.scopes:
        asked["scope"] = " ".join(client.scopes)
    begun = await asyncio.to_thread(_post, client, client.device_url, asked)
    device_code, code = _device_code(client, begun)
    show(code)
    form = {"grant_type": DEVICE_GRANT, "device_code": device_code, "client_id": client.client_id}
    step_s = min(max(_seconds(begun.get("interval"), DEVICE_STEP_S), 1.0), MAX_DEVICE_STEP_S)
    until = clock.monotonic() + code.expires_s
    while clock.monotonic() + step_s <= until:
        await clock.sleep(step_s)
        try:
            return await asyncio.to_thread(_tokens, client, form, clock.now_ms())
        except _AuthorizationPendingError as exc:
            step_s = min(step_s + (DEVICE_STEP_S if exc.slower else 0.0), MAX_DEVICE_STEP_S)
        except (ProviderTimeoutError, UnreachableError, OverloadedError, RateLimitError):
            step_s = min(step_s * 2, MAX_DEVICE_STEP_S)
    raise AuthError(f"{client.provider}: the code ran out unused", fix=_again(client))


def _device_code(client: OAuthClient, answer: Mapping[str, Json]) -> tuple[str, DeviceCode]:
    names = ("device_code", "user_code", "verification_uri", "verification_uri_complete")
    device, code, url, whole = (answer.get(name) for name in names)
    if not (isinstance(device, str) and device and isinstance(code, str) and code):
        raise _strange(client, client.device_url)
    url = url or answer.get("verification_url")  # the name in a draft of the standard
    if not isinstance(url, str) or urlsplit(url).scheme not in {"http", "https"}:
        raise _strange(client, client.device_url)
    whole = whole if isinstance(whole, str) and urlsplit(whole).scheme in {"http", "https"} else ""
    life_s = min(_seconds(answer.get("expires_in"), MAX_DEVICE_LIFE_S), MAX_DEVICE_LIFE_S)
    return device, DeviceCode(one_line(url, 400), one_line(code), one_line(whole, 400), life_s)


def refresh(client: OAuthClient, refresh_token: str, now_ms: int) -> OAuthTokens:
    """Return new tokens for a login. Blocks."""
    form = {
        "grant_type": "refresh_token",
        "refresh_token": refresh_token,
        "client_id": client.client_id,
    }
    return _tokens(client, form, now_ms)


class _AuthorizationPendingError(Exception):
    def __init__(self, *, slower: bool) -> None:
        super().__init__()
        self.slower = slower


def _tokens(client: OAuthClient, form: Mapping[str, str], now_ms: int) -> OAuthTokens:
    answer = _post(client, client.token_url, form)
    access, renewed = answer.get("access_token"), answer.get("refresh_token")
    if not isinstance(access, str) or not access.strip():
        raise _strange(client, client.token_url)
    life_s = min(_seconds(answer.get("expires_in"), UNKNOWN_LIFE_S), MAX_LIFE_S)
    return OAuthTokens(
        access=access.strip(),
        refresh=renewed if isinstance(renewed, str) else form.get("refresh_token", ""),
        expires_ms=now_ms + round(life_s * 1000),
        email=_email(answer.get("id_token")),
    )


def _post(client: OAuthClient, url: str, form: Mapping[str, str]) -> Mapping[str, Json]:
    """Post a form and return a JSON object. Raises ProviderError for all failures."""
    import ssl

    import httpx2

    _check_address(url, "tokenUrl", client.provider)
    # At INFO it logs each request's URL.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
    headers = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "homarus"}
    place, parts = _shown(url), urlsplit(url)
    deadline = time.monotonic() + REQUEST_S
    # Loading the certificates takes 30 ms; without TLS they are not needed.
    verify = True if parts.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    env = parts.hostname not in _LOCAL
    try:
        with (
            httpx2.Client(timeout=REQUEST_S, trust_env=env, verify=verify) as web,
            web.stream(
                "POST", url, data=dict(form), headers=headers, auth=client.credentials
            ) as response,
        ):
            body = bytearray()
            for piece in response.iter_bytes():
                body += piece
                if time.monotonic() > deadline:
                    raise httpx2.ReadTimeout("slow")
                if len(body) > MAX_ANSWER_BYTES:
                    raise _strange(client, url)
    except httpx2.TimeoutException as exc:
        raise ProviderTimeoutError(
            f"{client.provider}: {place} did not answer within {REQUEST_S:g} s", fix="try again"
        ) from exc
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, UnicodeError) as exc:
        told = one_line(str(exc) or type(exc).__name__, 200)
        raise UnreachableError(
            f"{client.provider}: no connection to {place}: {told}", fix="check the network"
        ) from exc
    answer = _object_in(bytes(body))
    if response.is_success and answer is not None:
        return answer
    raise _refused(client, url, form, response, answer)


def _refused(
    client: OAuthClient,
    url: str,
    form: Mapping[str, str],
    response: "httpx2.Response",
    answer: Mapping[str, Json] | None,
) -> Exception:
    status = response.status_code
    code = answer.get("error") if answer else None
    code = code if isinstance(code, str) else ""
    if code in {"authorization_pending", "slow_down"} and form.get("grant_type") == DEVICE_GRANT:
        return _AuthorizationPendingError(slower=code == "slow_down")
    told = _told(client, answer or {}, code, form)
    where = f"{client.provider}: {_shown(url)}"
    if status == 429:
        after_s = retry_after_s(response.headers, time.time_ns() // 1_000_000)
        return RateLimitError(f"{where} asks us to wait{told}", after_s=after_s, status=status)
    if status >= 500:
        fix = "try again in a moment"
        return OverloadedError(
            f"{where} cannot answer now (HTTP {status}){told}", fix=fix, status=status
        )
    if answer is None or not code:
        return _strange(client, url, status)
    kind = "renew the login" if "refresh_token" in form else "log in"
    message = f"{where} refused to {kind}{told}"
    return AuthError(message, fix=_again(client), status=status)


def _told(
    client: OAuthClient, answer: Mapping[str, Json], code: str, form: Mapping[str, str]
) -> str:
    """Return the service's message without the secrets we sent."""
    words = answer.get("error_description")
    text = ": ".join(part for part in (code, words if isinstance(words, str) else "") if part)
    for secret in (*form.values(), client.client_secret):
        if len(secret) >= MIN_SECRET_CHARS and secret != form.get("grant_type"):
            text = text.replace(secret, "***")
    return f": {one_line(text, 300)}" if text else ""


def _strange(client: OAuthClient, url: str, status: int = 0) -> ProviderError:
    how = f" (HTTP {status})" if status else ""
    return StreamError(
        f"{client.provider}: {_shown(url)} did not answer as a login service does{how}",
        fix=f"check the addresses of the login to {client.provider}",
    )


def _again(client: OAuthClient) -> str:
    return f"homarus models auth login {client.provider}"


def _check_address(url: str, name: str, provider: str) -> None:
    """Raise an error unless the address is https or loopback."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname or "", parts.port
    except ValueError:
        host = ""
    fix = f"set auth.clients.{provider}.{name}, or give it to homarus models auth login"
    if not url:
        raise UserError(f"the {name} of {provider}'s login is not known", fix=fix)
    if not host or parts.scheme not in {"http", "https"}:
        raise UserError(f"the {name} of {provider}'s login is not an address", fix=fix)
    if parts.scheme == "http" and host not in _LOCAL:
        raise UserError(f"the {name} of {provider}'s login is not https: {_shown(url)}", fix=fix)


def _shown(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _object_in(body: bytes) -> dict[str, Json] | None:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _seconds(value: Json, default: float) -> float:
    """Parse a positive number of seconds; some services send it as text."""
    try:
        seconds = float(value) if isinstance(value, int | float | str) else default
    except (ValueError, OverflowError):
        return default
    return seconds if 0 < seconds < float("inf") else default


def _email(id_token: Json) -> str:
    """Return the login's email from the service's response: a profile name, no proof."""
    parts = id_token.split(".") if isinstance(id_token, str) else []
    if len(parts) != 3:
        return ""
    try:
        claims = _object_in(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (ValueError, binascii.Error):
        return ""
    email = (claims or {}).get("email")
    plain = isinstance(email, str) and email.isprintable() and _EMAIL.fullmatch(email)
    return str(email) if plain else ""
