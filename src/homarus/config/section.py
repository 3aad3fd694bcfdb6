"""The base class of the config's sections, and the types of their values."""

from collections.abc import Callable
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    Strict,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from homarus.config.backend_names import PROVIDER_APIS
from homarus.core.errors import BlockedUrlError, UserError
from homarus.core.units import parse_byte_size, parse_duration_ms

_V = TypeVar("_V")

Thinking: TypeAlias = Literal["off", "minimal", "low", "medium", "high", "xhigh"]
QueueModeName: TypeAlias = Literal[
    "steer", "followup", "collect", "steer-backlog", "steer+backlog", "queue", "interrupt"
]
LogLevelName: TypeAlias = Literal["silent", "fatal", "error", "warn", "info", "debug", "trace"]
TypingModeName: TypeAlias = Literal["never", "instant", "thinking", "message"]

NonEmptyStr: TypeAlias = Annotated[str, Field(min_length=1)]
ProviderApi: TypeAlias = Annotated[
    str, AfterValidator(PROVIDER_APIS.check), Field(json_schema_extra=PROVIDER_APIS.add_to)
]
PositiveInt: TypeAlias = Annotated[int, Field(gt=0)]
# Numbers that OpenClaw does not require to be whole; a fraction is cut off.
WholeNumber: TypeAlias = Annotated[
    int,
    BeforeValidator(lambda value: int(value) if isinstance(value, float) else value),
    Field(gt=0),
]
NonNegativeInt: TypeAlias = Annotated[int, Field(ge=0)]
Hours: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]
# JSON has no tuples: Strict(False) converts a list, and its entries stay strict.
StrTuple: TypeAlias = Annotated[tuple[str, ...], Strict(strict=False)]
# Ids of people and chats may be numbers in the file; they are converted to text.
Ids: TypeAlias = Annotated[
    tuple[str, ...],
    BeforeValidator(lambda ids: [_id_text(each) for each in ids] if isinstance(ids, list) else ids),
    Strict(strict=False),
]
HostNames: TypeAlias = Annotated[
    StrTuple, AfterValidator(lambda hosts: _host_names(hosts) if hosts else ())
]
# Like HostNames, and each may have a port: "example.org:8443".
HostPorts: TypeAlias = Annotated[
    StrTuple, AfterValidator(lambda hosts: _host_ports(hosts) if hosts else ())
]
Fraction: TypeAlias = Annotated[float, Field(ge=0, le=1)]
Usd: TypeAlias = Annotated[float, Field(gt=0, allow_inf_nan=False)]


def _host_names(hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Return hosts as URLs have them; a pattern, a port or a URL is refused."""
    from homarus.net.guard import normalize_host  # only for configs that have such a list

    try:
        return tuple(map(normalize_host, hosts))
    except BlockedUrlError as exc:
        message = f"{exc.message.partition(' is not fetched')[0]} is not a host name or an address"
        raise PydanticCustomError("host", "{message}", {"message": message}) from None


def _host_ports(hosts: tuple[str, ...]) -> tuple[str, ...]:
    """Return hosts as URLs have them, with the port where there is one; a URL is refused."""
    from homarus.net.host_allowlist import parse_allowed_host  # only for configs that have such

    for host in hosts:
        try:
            parse_allowed_host(host)
        except BlockedUrlError:
            message = f"{host} is not a host name or an address, with or without a port"
            raise PydanticCustomError("host", "{message}", {"message": message}) from None
    return tuple(str(parse_allowed_host(host)) for host in hosts)


def _id_text(value: Any) -> Any:
    return str(value) if type(value) is int else value


def parsed_by(parse: Callable[[str], object]) -> AfterValidator:
    """Return a validator that rejects a value with the UserError of `parse`."""

    def check(value: _V) -> _V:
        try:
            parse(str(value))
        except UserError as exc:
            raise PydanticCustomError("unit", "{message}", {"message": str(exc)}) from None
        return value

    return AfterValidator(check)


Duration: TypeAlias = Annotated[str, parsed_by(lambda text: parse_duration_ms(text, "m"))]
# A bare number is in days.
Age: TypeAlias = Annotated[str | int | float, parsed_by(lambda text: parse_duration_ms(text, "d"))]
Size: TypeAlias = Annotated[str | int | float, parsed_by(parse_byte_size)]


class ConfigSection(BaseModel):
    """An object of the file: camelCase there, snake_case here; unknown keys are refused."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        defer_build=True,  # built once, as part of Config, at the first validation
        alias_generator=to_camel,
        protected_namespaces=(),
    )
