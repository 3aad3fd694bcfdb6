"""The params of `connect`, strictly parsed. They are claims of the client, not verified here."""

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

from pydantic import Field, Strict, ValidationError

from homarus.core.errors import InvalidRequestError
from homarus.core.message import Json
from homarus.gateway.auth import POLICY_VIOLATION
from homarus.gateway.frames import NEWEST_PROTOCOL, PROTOCOL, first_error
from homarus.gateway.method import Params

PROTOCOL_ERROR = 1002
ClientId: TypeAlias = Literal[
    "webchat-ui", "openclaw-control-ui", "webchat", "cli", "gateway-client", "openclaw-macos",
    "openclaw-ios", "openclaw-android", "node-host", "test", "fingerprint", "openclaw-probe",
    "openclaw-tui", "openclaw-linux", "openclaw-watchos",
]  # fmt: skip
ClientMode: TypeAlias = Literal["webchat", "cli", "ui", "backend", "node", "probe", "test"]

ShortText: TypeAlias = Annotated[str, Field(min_length=1, max_length=256)]
# A device signs these joined by `,` and `|`, so they must contain neither.
ScopeName: TypeAlias = Annotated[str, Field(max_length=64, pattern=r"^[A-Za-z0-9_.:-]+\z")]
# JSON has only lists; Strict(False) lets one become a tuple while its items stay strict.
ShortTexts: TypeAlias = Annotated[
    tuple[ShortText, ...], Strict(strict=False), Field(max_length=256)
]
ScopeNames: TypeAlias = Annotated[tuple[ScopeName, ...], Strict(strict=False), Field(max_length=64)]
Version: TypeAlias = Annotated[int, Field(ge=1, le=1_000_000)]


class ClientParams(Params):
    """The client program, as it describes itself."""

    id: ClientId
    display_name: ShortText | None = None
    version: ShortText
    build_id: ShortText | None = None
    platform: ShortText
    device_family: ShortText | None = None
    model_identifier: ShortText | None = None
    time_zone: ShortText | None = None
    mode: ClientMode
    instance_id: ShortText | None = None


class DeviceParams(Params):
    """A device's public key and its signature over this connection."""

    id: Annotated[str, Field(min_length=1, max_length=128)]
    public_key: Annotated[str, Field(min_length=1, max_length=1_000)]
    signature: Annotated[str, Field(min_length=1, max_length=256)]
    signed_at: Annotated[int, Field(ge=0, le=2**53)]
    nonce: ShortText | None = None


class AuthParams(Params):
    """The client's secrets. `device_token` is the name newer clients use for a device token."""

    token: str | None = Field(None, repr=False)
    device_token: str | None = Field(None, repr=False)
    password: str | None = Field(None, repr=False)


class ConnectParams(Params):
    """The params of `connect`."""

    min_protocol: Version
    max_protocol: Version
    client: ClientParams
    caps: ShortTexts = ()
    commands: ShortTexts = ()
    permissions: Mapping[str, bool] = {}
    path_env: str | None = None
    role: ShortText = "operator"
    scopes: ScopeNames = ()
    # Newer clients send these; the gateway ignores them.
    model_catalog: Mapping[str, Json] = {}
    computer_use: Json = None
    device: DeviceParams | None = None
    auth: AuthParams = AuthParams()
    locale: str | None = None
    user_agent: str | None = None


def parse_connect_params(raw: Json) -> ConnectParams:
    """Return the params of a connect request; raises when the protocol range does not fit."""
    try:
        params = ConnectParams.model_validate({} if raw is None else raw)
    except ValidationError as exc:
        raise connect_error(f"invalid connect params: {first_error(exc)}") from None
    low, high = params.min_protocol, params.max_protocol
    if not (low <= high and low <= NEWEST_PROTOCOL and high >= PROTOCOL):
        raise InvalidRequestError(
            "protocol mismatch", details={"expectedProtocol": PROTOCOL}, close_code=PROTOCOL_ERROR
        )
    return params


def connect_error(message: str) -> InvalidRequestError:
    """Return the error that is sent before the connection is closed."""
    return InvalidRequestError(message, close_code=POLICY_VIOLATION)
