"""Define gateway methods: a typed async function that clients may call.

    class ResetParams(Params):
        key: str
        reason: Literal["new", "reset"] = "reset"

    @method("sessions.reset", scope="admin", params=ResetParams)
    async def reset(call: MethodCall, params: ResetParams) -> Json:
        '''Start a session afresh.'''

A method is found by being in a module of `gateway/methods`; nothing is registered by hand, and the
module is imported when one of its methods is called.
"""

import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import field
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar

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
from homarus.policy.approvals import APPROVER_CAPABILITY

if TYPE_CHECKING:
    from homarus.gateway.server import Gateway
    from homarus.gateway.services import GatewayServices

_DECORATOR: Final = re.compile(
    r'^@method\(\s*"([^"]+)"(.*?)\)\nasync def', re.MULTILINE | re.DOTALL
)

_PROGRAM_MODES: Final = frozenset({"cli", "probe", "backend", "node"})

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
        is_trusted = self.scopes or self.role == "node"  # a paired device: it answers with pictures
        return MAX_FRAME_BYTES if is_trusted else MAX_UNSCOPED_FRAME_BYTES

    @property
    def is_approver(self) -> bool:
        """Whether a person can answer approvals at this client.

        A program that connects to do one thing is none, unless it declares the capability.
        """
        has_person = self.mode not in _PROGRAM_MODES or APPROVER_CAPABILITY in self.caps
        return has_person and self.role == "operator" and self.may("approvals")

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


class MethodTable(Mapping[str, Method]):
    """Methods by name, each loaded when it is first called; `advertised` are listed in hello-ok."""

    def __init__(
        self, loaders: Mapping[str, Callable[[], Method]], advertised: Collection[str]
    ) -> None:
        self._loaders, self.advertised = loaders, frozenset(advertised)

    def __getitem__(self, name: str) -> Method:
        return self._loaders[name]()

    def __contains__(self, name: object) -> bool:
        return name in self._loaders

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaders)

    def __len__(self) -> int:
        return len(self._loaders)


def find_methods(*modules: object) -> MethodTable:
    """Return every Method at the top level of these modules."""
    found = _methods_in(*modules)
    advertised = [each.name for each in found.values() if each.advertised]
    return MethodTable({name: partial(found.__getitem__, name) for name in found}, advertised)


def scan_methods(package: str, folder: Path) -> MethodTable:
    """Return the methods of a package's modules by their source, importing none of them.

    An idle gateway needs few of the modules, which would be a megabyte of its memory.
    """
    loaders, advertised = dict[str, Callable[[], Method]](), list[str]()
    for file in sorted(folder.glob("*.py")):
        for name, options in _DECORATOR.findall(file.read_text(encoding="utf-8")):
            loaders[name] = partial(_load_method, f"{package}.{file.stem}", name)
            if "advertised=False" not in options:
                advertised.append(name)
    return MethodTable(loaders, advertised)


@cache
def _load_method(module: str, name: str) -> Method:
    return _methods_in(import_module(module))[name]


def _methods_in(*modules: object) -> dict[str, Method]:
    found = (each for module in modules for each in vars(module).values())
    return {each.name: each for each in found if isinstance(each, Method)}
