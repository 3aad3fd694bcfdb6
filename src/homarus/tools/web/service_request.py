"""Requests to a service that the owner chose: a vendor's API, or a server of the config.

What a model aims goes through `net.guarded_fetch`, never through here. Redirects are not followed.
Failures are FetchErrors, which name the service and never contain its key.
"""

import asyncio
import json
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import field
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from homarus.config.redaction import add_known_secret, mask_known_secrets
from homarus.core.errors import FetchError, ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.net.connection import ExchangeError
from homarus.net.http_client import HttpClient, proxy_for, request_target

CONNECT_S: Final = 10.0
MAX_BYTES: Final = 4_000_000
_MAX_REASON_CHARS: Final = 300


@dataclass(frozen=True, slots=True)
class WebServiceRequest:
    """A request; `service` is the service's name in messages, `fix` what to check on a refusal."""

    service: str
    url: str
    api_key: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    body: Mapping[str, Any] | None = None
    timeout_s: float = 30.0
    fix: str = ""


@dataclass(frozen=True, slots=True)
class WebServiceResponse:
    """The response to a request, of any status."""

    status: int
    body: bytes


def add_query(url: str, params: Mapping[str, str | int]) -> str:
    """Return a URL with parameters; those that are empty are left out."""
    return f"{url}?{urlencode({name: value for name, value in params.items() if value != ''})}"


async def request_service(request: WebServiceRequest) -> WebServiceResponse:
    """Send a request, a POST if it has a body. Raises FetchError, or ToolError for a wrong URL."""
    add_known_secret(request.api_key)
    try:
        url = urlsplit(request.url)
        is_valid = url.scheme in {"http", "https"} and bool(url.hostname) and url.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise ToolError(
            f"the address of {request.service} is not a URL",
            fix=request.fix or "it starts with http:// or https://",
        )
    if url.password:
        add_known_secret(url.password)
    idle_s = request.timeout_s
    client = HttpClient(url, connect_s=CONNECT_S, idle_s=idle_s, proxy=proxy_for(url))
    try:
        async with asyncio.timeout(request.timeout_s):
            return await _exchange(client, request)
    except TimeoutError as exc:
        raise FetchError(
            f"{request.service} did not answer within {request.timeout_s:g} s",
            fix="try again later",
        ) from exc
    except ExchangeError as exc:
        raise FetchError(
            f"{request.service} could not be reached at {url.hostname}: {exc}", fix=request.fix
        ) from exc
    finally:
        await client.close()


async def _exchange(client: HttpClient, request: WebServiceRequest) -> WebServiceResponse:
    body = b"" if request.body is None else json.dumps(request.body).encode()
    headers = {"User-Agent": "homarus", "Accept": "application/json", **request.headers}
    if request.api_key and "Authorization" not in headers and not _sends_key(request):
        headers["Authorization"] = f"Bearer {request.api_key}"
    if body:
        headers |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
    target = request_target(urlsplit(request.url))
    method = "POST" if body else "GET"
    async with client.request(method, target, headers, body) as response:
        pieces, size = list[bytes](), 0
        async with aclosing(response.iter_body()) as parts:
            async for piece in parts:
                size += len(piece)
                if size > MAX_BYTES:
                    raise FetchError(f"the response of {request.service} is too large")
                pieces.append(piece)
        return WebServiceResponse(response.status, b"".join(pieces))


def _sends_key(request: WebServiceRequest) -> bool:
    """Return whether a header of the service's own carries the key."""
    return request.api_key in request.headers.values()


async def request_json(request: WebServiceRequest) -> dict[str, Any]:
    """Return the JSON object of a successful response. Raises FetchError for any other."""
    response = await request_service(request)
    check_status(request, response)
    try:
        parsed = json.loads(response.body)
    except (ValueError, RecursionError) as exc:
        raise FetchError(f"{request.service} did not answer with JSON", fix=request.fix) from exc
    if not isinstance(parsed, dict):
        raise FetchError(f"{request.service} answered with JSON of another shape", fix=request.fix)
    return parsed


def check_status(request: WebServiceRequest, response: WebServiceResponse) -> None:
    """Raise FetchError for a response that is not successful."""
    status, service = response.status, request.service
    if 200 <= status < 300:
        return
    said = _reason(response.body)
    shown = f": {said}" if said else ""
    if status in {401, 403}:
        raise FetchError(f"{service} refused the request ({status}){shown}", fix=request.fix)
    if status in {402, 429}:
        message = f"{service} accepts no more requests now ({status}){shown}"
        raise FetchError(message, fix="wait, or check the plan of the account")
    raise FetchError(f"{service} answered with the status {status}{shown}", fix=request.fix)


def _reason(body: bytes) -> str:
    """Return what a service says about a failure, in one line."""
    text = body[:10_000].decode("utf-8", "replace")
    try:
        parsed: Any = json.loads(text)
    except (ValueError, RecursionError):
        parsed = None
    if isinstance(parsed, dict):
        said = parsed.get("error") or parsed.get("message") or parsed.get("detail") or ""
        if isinstance(said, dict):
            said = said.get("detail") or said.get("message") or said.get("code") or ""
        text = said if isinstance(said, str) else ""
    elif "<" in text:
        text = ""  # a page for people
    return one_line(mask_known_secrets(text), _MAX_REASON_CHARS).strip()


def list_of_objects(value: object) -> list[dict[str, Any]]:
    """Return the objects of a list in a response; none where it is no list."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
