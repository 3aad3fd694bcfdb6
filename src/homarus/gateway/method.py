"""Define gateway methods: a typed async function that clients may call.

    class ResetParams(Params):
        key: str
        reason: Literal["new", "reset"] = "reset"

    @method("sessions.reset", scope="admin", params=ResetParams)
    async def reset(call: MethodCall, params: ResetParams) -> Json:
        '''Start a session afresh.'''

A method is found by being in a module of `gateway/methods`; nothing is registered by hand.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from homarus.core.errors import ForbiddenError, HomarusError, InvalidRequestError, ProtocolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.gateway.frames import (
    MAX_FRAME_BYTES,
    MAX_UNSCOPED_FRAME_BYTES,
    NEWEST_PROTOCOL,
    first_error,
)

if TYPE_CHECKING:
    from homarus.gateway.server import Gateway
    from homarus.gateway.services import GatewayServices

Scope: TypeAlias = Literal["read", "write", "admin", "approvals", "pairing", "none"]


class Params(BaseModel):
    """Base of every method's params: camelCase on the wire, strict, no unknown keys."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        alias_generator=to_camel,
        populate_by_name=False,
        defer_build=True,  # built at a method's first call, which keeps the start fast
    )


class NoParams(Params):
    """The params of a method without any."""


P = TypeVar("P", bound=Params)


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated client of a request; no field is an unverified claim."""

    conn_id: str
    client_id: str
    mode: str
    version: str = ""
    platform: str = ""
    display_name: str = ""
    instance_id: str = ""
    device_id: str = ""
    role: Literal["operator", "node"] = "operator"
    scopes: frozenset[str] = frozenset()
    caps: frozenset[str] = frozenset()
    protocol: int = 3
    ip: str = ""
    is_local: bool = False

    @property
    def max_frame_bytes(self) -> int:
        """The largest frame that the client may send."""
        return MAX_FRAME_BYTES if self.scopes else MAX_UNSCOPED_FRAME_BYTES

    def may(self, scope: Scope) -> bool:
        """Return whether the caller's scopes cover this one: admin covers all, write read."""
        if scope == "none" or "operator.admin" in self.scopes:
            return True
        covering = {f"operator.{scope}"} | ({"operator.write"} if scope == "read" else set())
        return bool(covering & self.scopes)


@dataclass(frozen=True, slots=True)
class MethodCall:
    """One request being answered.

    `services` are the services behind the gateway, `gateway` the other connections. `accept`
    sends a first response when the final one will take long.
    """

    services: "GatewayServices"
    gateway: "Gateway"
    caller: Caller
    request_id: str
    accept: Callable[[Json], None] = field(default=lambda _payload: None)


@dataclass(frozen=True, slots=True)
class Method:
    """A method that clients may call; hello-ok lists those that are `advertised`."""

    name: str
    scope: Scope
    params: type[Params]
    run: Callable[[MethodCall, Any], Awaitable[Json]]
    advertised: bool = True
    # Returns a result instead of an error, None for the error itself.
    answer_error: Callable[[MethodCall, Json, HomarusError], Json] | None = None

    async def __call__(self, call: MethodCall, raw: Json) -> Json:
        if self.answer_error is None:
            return await self._run(call, raw)
        try:
            return await self._run(call, raw)
        except HomarusError as exc:
            if (answer := self.answer_error(call, raw, exc)) is None:
                raise
            return answer

    async def _run(self, call: MethodCall, raw: Json) -> Json:
        if not call.caller.may(self.scope):
            raise missing_scope(call.caller, f"operator.{self.scope}")
        try:
            params = self.params.model_validate({} if raw is None else raw)
        except ValidationError as exc:
            raise InvalidRequestError(f"invalid {self.name} params: {first_error(exc)}") from None
        return await self.run(call, params)


def missing_scope(caller: Caller, scope: str) -> ProtocolError:
    """Return the error for a caller without the scope, in the protocol's words."""
    message = f"missing scope: {scope}"
    if caller.protocol < NEWEST_PROTOCOL:
        return InvalidRequestError(message)
    details = {"code": "MISSING_SCOPE", "missingScope": scope, "requiredScopes": [scope]}
    return ForbiddenError(message, details=details)


def method(
    name: str,
    *,
    scope: Scope,
    params: type[P],
    advertised: bool = True,
    answer_error: Callable[[MethodCall, Json, HomarusError], Json] | None = None,
) -> Callable[[Callable[[MethodCall, P], Awaitable[Json]]], Method]:
    """Turn `async def f(call, params) -> Json` into a Method; its docstring documents it."""

    def wrap(run: Callable[[MethodCall, P], Awaitable[Json]]) -> Method:
        return Method(name, scope, params, run, advertised, answer_error)

    return wrap


def find_methods(*modules: object) -> Mapping[str, Method]:
    """Return every Method at the top level of these modules, by name."""
    found = (each for module in modules for each in vars(module).values())
    return {each.name: each for each in found if isinstance(each, Method)}
