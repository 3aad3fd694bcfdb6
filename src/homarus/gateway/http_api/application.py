"""The ASGI application of the HTTP API: authenticate, check, read the body, call the endpoint.

The order is the one that tells an unauthenticated client nothing: who calls comes first, then
whether the endpoint is on, then its method and scope, then the body.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pydantic import BaseModel, ValidationError
from starlette.responses import Response

from homarus.config.change_log import set_change_author
from homarus.core.errors import HomarusError, UnavailableError
from homarus.core.tasks import run_contained
from homarus.gateway.bearer_client import authenticate_bearer
from homarus.gateway.frames import first_error
from homarus.gateway.http_api.api_error import (
    API_HEADERS,
    JSON_KIND,
    ApiError,
    as_api_error,
    encode_json,
)
from homarus.gateway.http_api.api_routes import ApiRoute
from homarus.gateway.http_api.endpoint import ApiCall, ApiEndpoint
from homarus.gateway.http_api.json_body import decode_json
from homarus.gateway.method import Caller
from homarus.gateway.origin_policy import RequestBlockedError, RequestInfo
from homarus.gateway.request_body import check_body_headers, joined_headers, read_body
from homarus.gateway.server import Gateway

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send

MAX_LIVE: Final = 4_000  # requests that are being answered
MAX_BUFFERED_BYTES: Final = 256 << 20  # of bodies that are being read, by their limits
_THREAD_BYTES: Final = 256 << 10  # a larger body is decoded in a thread
_SECTION: Final = "gateway.http.endpoints"


class HttpApi:
    """Answers the requests of the HTTP API."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._live = self._buffered_bytes = 0
        self._parts: dict[Any, Any] = {}  # what requests share, by its class

    async def handle(
        self,
        route: ApiRoute,
        path_params: Mapping[str, str],
        scope: "Scope",
        receive: "Receive",
        send: "Send",
    ) -> None:
        """Answer one request; a refusal is an answer too."""
        found: ApiEndpoint | None = None
        try:
            request = RequestInfo.from_scope(scope)
            caller = authenticate_bearer(
                self._gateway.authenticator, request, str(uuid4()), client_id="http"
            )
            _release_slot(scope)
            found = self._find(route, str(scope["method"]))
            self._check_allowed(found, caller)
            response = await self._answer(found, caller, path_params, scope, receive)
        except HomarusError as exc:
            self._gateway.counts.refused += isinstance(exc, RequestBlockedError)
            response = _error_response(as_api_error(exc), found)
        if response is not None:  # else the client is gone
            await response(scope, receive, send)

    def _find(self, route: ApiRoute, method: str) -> ApiEndpoint:
        """Return the endpoint of a method; raises ApiError (404, 405, 503)."""
        endpoints = self._gateway.services.loaded.config.gateway.http.endpoints
        if not route.is_enabled(endpoints):
            keys = " or ".join(f"{_SECTION}.{name}.enabled" for name in route.settings)
            raise ApiError(
                404,
                f"{route.path} is turned off",
                reason="endpoint_disabled",
                fix=f"set {keys} to true, on the machine of the gateway",
            )
        found = find_endpoints(route)
        if method not in found:
            raise ApiError(405, f"{route.path} is not called with {method}", allow=", ".join(found))
        return found[method]

    def _check_allowed(self, endpoint: ApiEndpoint, caller: Caller) -> None:
        if not caller.may(endpoint.scope):
            message = f"missing scope: operator.{endpoint.scope}"
            raise ApiError(403, message, reason="missing_scope")
        if self._gateway.stopping:
            raise UnavailableError("the gateway is shutting down", retry_after_ms=2_000)
        if self._live >= MAX_LIVE:
            raise ApiError(503, "too many requests at once", after_s=1)

    async def _answer(
        self,
        endpoint: ApiEndpoint,
        caller: Caller,
        path_params: Mapping[str, str],
        scope: "Scope",
        receive: "Receive",
    ) -> "ASGIApp | None":
        """Return the response of an endpoint; None if the client is gone."""
        body = await self._read(endpoint, scope, receive)
        if body is None:
            return None
        value = await _parse(endpoint, body)
        headers = dict[str, tuple[str, ...]]()
        for raw, text in scope["headers"]:
            name = raw.decode("latin-1").lower()
            headers[name] = (*headers.get(name, ()), text.decode("latin-1"))
        call = ApiCall(
            self._gateway, caller, endpoint=endpoint, headers=headers, path_params=path_params,
            body=body, receive=receive, parts=self._parts,
        )  # fmt: skip
        set_change_author(f"client http {caller.device_id[:12]}".strip())
        self._gateway.counts.requests += 1
        return await self._contain(endpoint, lambda: endpoint.run(call, value))

    async def _read(
        self, endpoint: ApiEndpoint, scope: "Scope", receive: "Receive"
    ) -> bytes | None:
        """Return the body; None if the client is gone. Raises RequestBlockedError, ApiError."""
        if endpoint.request is None:
            return b""
        config = self._gateway.services.loaded.config.gateway.http.endpoints
        max_bytes = min(endpoint.limits.get_max_bytes(config), MAX_BUFFERED_BYTES)
        headers = joined_headers(scope)
        check_body_headers(headers, {JSON_KIND}, max_bytes)
        reserved = int(headers.get("content-length", max_bytes))
        if self._buffered_bytes + reserved > MAX_BUFFERED_BYTES:
            raise ApiError(503, "too many large requests at once", after_s=1)
        self._buffered_bytes += reserved
        try:
            return await read_body(receive, max_bytes, endpoint.limits.body_timeout_s)
        finally:
            self._buffered_bytes -= reserved

    async def _contain(self, endpoint: ApiEndpoint, run: Callable[[], Awaitable[Any]]) -> "ASGIApp":
        """Return the response of an endpoint; a bug of ours is logged, and answered with 500."""
        found: Any = ApiError(500, "a bug, written to the log of the gateway", reason="internal")

        async def contained() -> None:
            nonlocal found
            try:
                found = await run()
            except HomarusError as exc:
                found = exc

        self._live += 1
        try:
            name = f"{endpoint.method} {endpoint.path}"
            await run_contained(name, contained, lambda _exc: None)
        finally:
            self._live -= 1
        if isinstance(found, HomarusError):
            raise found
        if isinstance(found, BaseModel):
            found = found.model_dump(mode="json", by_alias=True)
        return json_response(found) if isinstance(found, dict) else found


def find_endpoints(route: ApiRoute) -> dict[str, ApiEndpoint]:
    """Return the endpoints of a path by HTTP method, importing its module."""
    module = import_module(f"homarus.gateway.http_api.{route.module}")
    found = (each for each in vars(module).values() if isinstance(each, ApiEndpoint))
    return {each.method: each for each in found if each.path == route.path}


def json_response(
    body: dict[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response with a JSON body."""
    given = {**API_HEADERS, **(headers or {})}
    return Response(encode_json(body), status, given, media_type=JSON_KIND)


def _error_response(error: ApiError, endpoint: ApiEndpoint | None) -> Response:
    shape = endpoint.shape_error if endpoint and endpoint.shape_error else None
    body = shape(error) if shape else error.body
    return json_response(body, error.status, error.headers)


async def _parse(endpoint: ApiEndpoint, body: bytes) -> BaseModel | None:
    """Return the body as the endpoint's model; raises ApiError (400)."""
    if endpoint.request is None:
        return None
    is_large = len(body) > _THREAD_BYTES
    value = await asyncio.to_thread(decode_json, body) if is_large else decode_json(body)
    if not isinstance(value, dict):
        raise ApiError(400, "the body must be a JSON object")
    try:
        return endpoint.request.model_validate(value)
    except ValidationError as exc:
        location = exc.errors(include_url=False, include_input=False, include_context=False)[0]
        param = ".".join(str(part) for part in location["loc"])[:80]
        raise ApiError(400, f"invalid body: {first_error(exc)}", param=param) from None


def _release_slot(scope: "Scope") -> None:
    """Stop counting the connection as one without an authenticated client."""
    wire = (scope.get("extensions") or {}).get("homarus.wire", {}).get("wire")
    if wire is not None:
        wire.accept_client(scope)
