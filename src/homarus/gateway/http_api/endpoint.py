"""Define an endpoint of the HTTP API: its models, its scope, its limits.

    @api_endpoint("POST", "/v1/embeddings", scope="write", request=..., response=...)
    async def create_embeddings(call: ApiCall, body: EmbeddingRequest) -> EmbeddingResponse:
        '''Turn texts into vectors.'''

The docstring and the models are also the description at `/openapi.json`.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from functools import cached_property
from inspect import cleandoc
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar
from uuid import uuid4

from pydantic import BaseModel, ConfigDict

from homarus.config.gateway_schema import EndpointsConfig
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.gateway.http_api.api_error import ApiError
from homarus.gateway.http_api.request_key import HEADER, RequestKey, make_request_key
from homarus.gateway.method import Caller, MethodCall, Scope

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive

    from homarus.gateway.server import Gateway
    from homarus.gateway.services import GatewayServices

MIB: Final = 1 << 20
MAX_HEADER_CHARS: Final = 512
HttpMethod: TypeAlias = Literal["GET", "POST", "DELETE"]


class ApiRequest(BaseModel):
    """Base of every request's body. Fields that we do not know are ignored, as OpenAI's grow."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, defer_build=True)


class ApiResponse(BaseModel):
    """Base of every response's body."""

    model_config = ConfigDict(frozen=True, defer_build=True)


@dataclass(frozen=True, slots=True)
class ApiHeader:
    """A header that an endpoint reads, for the description of the API."""

    name: str
    text: str


T = TypeVar("T")
KEY_HEADER: Final = ApiHeader(
    "Idempotency-Key", "The same key with the same request is answered once"
)


@dataclass(frozen=True, slots=True)
class EndpointLimits:
    """The limits of one endpoint; `get_max_bytes` returns that of a body from the config."""

    get_max_bytes: Callable[[EndpointsConfig], int] = lambda _endpoints: MIB
    body_timeout_s: float = 30.0


class ApiCall:
    """One authenticated request: its client, its headers, and the program that answers it."""

    def __init__(
        self,
        gateway: "Gateway",
        caller: Caller,
        *,
        endpoint: "ApiEndpoint",
        headers: Mapping[str, tuple[str, ...]],
        path_params: Mapping[str, str],
        body: bytes,
        receive: "Receive",
        parts: dict[Any, Any],
    ) -> None:
        self.gateway, self.caller, self.endpoint = gateway, caller, endpoint
        self.path_params, self.body = path_params, body
        self.receive = receive  # returns `http.disconnect` when the client is gone
        self.id = str(uuid4())
        self._headers, self._parts = headers, parts

    def part(self, kind: "Callable[[Gateway], T]") -> T:
        """Return what the requests of a gateway share, of this class; made at the first call."""
        if kind not in self._parts:
            self._parts[kind] = kind(self.gateway)
        found: T = self._parts[kind]
        return found

    @property
    def services(self) -> "GatewayServices":
        """The program behind the gateway."""
        return self.gateway.services

    @property
    def caller_id(self) -> str:
        """What identifies the client across requests and restarts."""
        return self.caller.device_id or "owner"

    @cached_property
    def method_call(self) -> MethodCall:
        """The call as the gateway's methods and `start_run` take it."""
        return MethodCall(self.services, self.gateway, self.caller, self.id)

    def header(self, name: str) -> str:
        """Return a header's value, "" without one; raises ApiError (400) for an ambiguous one."""
        values = {value.strip() for value in self._headers.get(name.lower(), ())}
        if len(values) > 1:
            raise ApiError(400, "a header stands twice with different values", param=name)
        value = values.pop() if values else ""
        if len(value) > MAX_HEADER_CHARS or not value.isprintable():
            message = f"a header may have {MAX_HEADER_CHARS} printable characters"
            raise ApiError(400, message, param=name)
        return value

    @cached_property
    def request_key(self) -> RequestKey | None:
        """The key of the header Idempotency-Key; None without one. Raises ApiError (400)."""
        named = (each.name for each in self.endpoint.headers if each is not KEY_HEADER)
        parts = [self.body, *(self.header(name).encode("utf-8") for name in named)]
        return make_request_key(
            self.header(HEADER), caller=self.caller_id, endpoint=self.endpoint.path, parts=parts
        )


Q = TypeVar("Q", bound=ApiRequest)
# What an endpoint returns: a model or a JSON value, or a response that sends itself.
ApiResult: TypeAlias = "ApiResponse | dict[str, Json] | ASGIApp"


@dataclass(frozen=True, slots=True)
class ApiEndpoint:
    """An HTTP method at a path. Without `request` it reads no body and gets None as one.

    `streams` says that it may answer with server-sent events; `errors` are the statuses, besides
    those of every endpoint, that it answers with.
    """

    method: HttpMethod
    path: str
    scope: Scope
    run: Callable[[ApiCall, Any], Awaitable[ApiResult]]
    request: type[ApiRequest] | None = None
    response: type[ApiResponse] | None = None
    limits: EndpointLimits = field(default_factory=EndpointLimits)
    headers: tuple[ApiHeader, ...] = ()
    streams: bool = False
    errors: tuple[int, ...] = ()
    # Returns the body of an error in another shape than OpenAI's.
    shape_error: Callable[[ApiError], dict[str, Json]] | None = None

    @property
    def description(self) -> str:
        return cleandoc(self.run.__doc__ or "")


def api_endpoint(
    method: HttpMethod,
    path: str,
    *,
    scope: Scope,
    request: type[Q] | None = None,
    response: type[ApiResponse] | None = None,
    limits: EndpointLimits | None = None,
    headers: tuple[ApiHeader, ...] = (),
    streams: bool = False,
    errors: tuple[int, ...] = (),
    shape_error: Callable[[ApiError], dict[str, Json]] | None = None,
) -> Callable[[Callable[[ApiCall, Any], Awaitable[ApiResult]]], ApiEndpoint]:
    """Turn `async def f(call, body)` into an endpoint; its docstring describes it."""

    def wrap(run: Callable[[ApiCall, Any], Awaitable[ApiResult]]) -> ApiEndpoint:
        return ApiEndpoint(
            method, path, scope, run, request, response, limits or EndpointLimits(), headers,
            streams, errors, shape_error,
        )  # fmt: skip

    return wrap
