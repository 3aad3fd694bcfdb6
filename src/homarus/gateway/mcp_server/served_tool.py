"""Define a tool for MCP clients: its arguments, the scope it needs, the methods it calls.

    @served_tool(SessionListArguments, methods=("sessions.list",))
    async def sessions_list(gateway: GatewayCalls, asked: SessionListArguments, key: str) -> Json:
        '''List the sessions of all agents, the newest first.'''

Nothing here imports the MCP library.
"""

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from inspect import cleandoc
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from homarus.core.errors import InvalidRequestError
from homarus.core.message import Json
from homarus.gateway.frames import first_error
from homarus.gateway.method import Scope
from homarus.gateway.scopes import implied


class GatewayCalls(Protocol):
    """The methods of a gateway, as one client may call them."""

    @property
    def scopes(self) -> frozenset[str]:
        """The client's scopes."""
        ...

    async def call(self, method: str, params: Mapping[str, Json], *, final: bool = True) -> Json:
        """Call a method; unless `final`, return when its request is accepted.

        A caller that is cancelled does not stop the method. Raises HomarusError.
        """
        ...


class ServedToolArguments(BaseModel):
    """Base of every tool's arguments: no unknown names. Numbers may be written as text."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)


A = TypeVar("A", bound=ServedToolArguments)
Run = Callable[[GatewayCalls, Any, str], Awaitable[Json]]


class ServedTool:
    """A tool that MCP clients may call.

    `run` gets the methods, the arguments and a key that no other request has. A caller needs the
    scope of every method in `methods`.
    """

    def __init__(
        self,
        arguments: type[ServedToolArguments],
        scope: Scope,
        methods: tuple[str, ...],
        run: Run,
        *,
        is_read_only: bool,
    ) -> None:
        self.name = run.__name__
        self.description = " ".join(cleandoc(run.__doc__ or "").split())
        self.arguments, self.scope, self.methods = arguments, scope, methods
        self.is_read_only = is_read_only
        self._run = run

    @cached_property
    def schema(self) -> dict[str, Json]:
        """The JSON schema of its arguments."""
        schema: dict[str, Json] = _without_titles(self.arguments.model_json_schema(by_alias=True))
        schema.pop("description", None)  # of the class, for readers of the code
        return schema

    def is_allowed(self, scopes: frozenset[str]) -> bool:
        """Return whether these scopes allow a call."""
        return f"operator.{self.scope}" in implied(scopes)

    async def call(self, gateway: GatewayCalls, arguments: Mapping[str, Json], key: str) -> Json:
        """Call it; raises InvalidRequestError for invalid arguments or a missing scope."""
        if not self.is_allowed(gateway.scopes):
            raise InvalidRequestError(
                f"{self.name} needs the scope operator.{self.scope}, which this client lacks"
            )
        try:
            asked = self.arguments.model_validate(arguments)
        except ValidationError as exc:
            raise InvalidRequestError(
                f"invalid {self.name} arguments: {first_error(exc)}"
            ) from None
        return await self._run(gateway, asked, key)


def served_tool(
    arguments: type[A],
    *,
    methods: tuple[str, ...],
    scope: Scope = "read",
    is_read_only: bool = True,
) -> Callable[[Callable[[GatewayCalls, A, str], Awaitable[Json]]], ServedTool]:
    """Turn a function into a tool; its docstring is the description that clients get."""

    def wrap(run: Callable[[GatewayCalls, A, str], Awaitable[Json]]) -> ServedTool:
        return ServedTool(arguments, scope, methods, run, is_read_only=is_read_only)

    return wrap


def _without_titles(schema: Json) -> Json:
    """Leave out the titles that pydantic derives from names: they cost a model tokens."""
    if isinstance(schema, dict):
        return {
            name: {key: _without_titles(each) for key, each in value.items()}
            if name == "properties"
            else _without_titles(value)
            for name, value in schema.items()
            if name != "title"
        }
    return [_without_titles(each) for each in schema] if isinstance(schema, list) else schema
