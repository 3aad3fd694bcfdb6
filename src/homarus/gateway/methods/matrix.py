"""Methods for encrypted Matrix accounts: their devices, verification and room keys."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from homarus.core.errors import ChannelError, InvalidRequestError, SendError, UnavailableError
from homarus.core.message import Json
from homarus.core.session_keys import DEFAULT_ACCOUNT, normalize_account_id
from homarus.gateway.method import MethodCall, Params, method
from homarus.gateway.params import Name

_CHANNEL = "matrix"
_Word: TypeAlias = Annotated[str, Field(max_length=512)]
_Passphrase: TypeAlias = Annotated[str, Field(max_length=1_024)]
_KeyFile: TypeAlias = Annotated[str, Field(max_length=20_000_000)]


class MatrixDevicesParams(Params):
    """An account; with a user, the devices of that user as they are now."""

    account_id: _Word | None = None
    user_id: _Word | None = None


@method("matrix.devices", scope="admin", params=MatrixDevicesParams, advertised=False)
async def devices(call: MethodCall, params: MatrixDevicesParams) -> Json:
    """Our device, the known devices of others and how they are trusted, and unreadable messages."""
    return await _run(call, params.account_id, "devices", {"userId": params.user_id or ""})


class MatrixTrustParams(Params):
    """A device and what becomes of it; `verified` needs its fingerprint."""

    account_id: _Word | None = None
    user_id: Name
    device_id: Name
    trust: Literal["verified", "blocked", "unverified"]
    fingerprint: _Word | None = None


@method("matrix.trust", scope="admin", params=MatrixTrustParams, advertised=False)
async def trust(call: MethodCall, params: MatrixTrustParams) -> Json:
    """Verify a device by its fingerprint, block it, or take either back."""
    about: dict[str, Json] = {
        "userId": params.user_id,
        "deviceId": params.device_id,
        "trust": params.trust,
        "fingerprint": params.fingerprint or "",
    }
    return await _run(call, params.account_id, "trust", about)


class MatrixVerifyParams(Params):
    """A step of a verification: `begin` names a device, the others name the verification."""

    account_id: _Word | None = None
    step: Literal["begin", "pending", "show", "accept", "confirm", "cancel"]
    id: _Word | None = None
    user_id: _Word | None = None
    device_id: _Word | None = None
    match: bool = False


@method("matrix.verify", scope="admin", params=MatrixVerifyParams, advertised=False)
async def verify(call: MethodCall, params: MatrixVerifyParams) -> Json:
    """Verify a device by comparing short strings, step by step."""
    about: dict[str, Json] = {
        "id": params.id or "",
        "userId": params.user_id or "",
        "deviceId": params.device_id or "",
        "match": params.match,
    }
    return await _run(call, params.account_id, f"verify.{params.step}", about)


class MatrixExportParams(Params):
    """An account, and the passphrase that encrypts the file."""

    account_id: _Word | None = None
    passphrase: _Passphrase


@method("matrix.keys.export", scope="admin", params=MatrixExportParams, advertised=False)
async def export(call: MethodCall, params: MatrixExportParams) -> Json:
    """All room keys, as the text of an encrypted file that clients of Matrix can read."""
    return await _run(call, params.account_id, "export", {"passphrase": params.passphrase})


class MatrixImportParams(Params):
    """An account, the text of a key file, and its passphrase."""

    account_id: _Word | None = None
    passphrase: _Passphrase
    text: _KeyFile


@method("matrix.keys.import", scope="admin", params=MatrixImportParams, advertised=False)
async def import_(call: MethodCall, params: MatrixImportParams) -> Json:
    """Add the room keys of a file that a client of Matrix exported."""
    about: dict[str, Json] = {"passphrase": params.passphrase, "text": params.text}
    return await _run(call, params.account_id, "import", about)


async def _run(
    call: MethodCall, account: str | None, name: str, params: dict[str, Json]
) -> dict[str, Json]:
    account = normalize_account_id(account) if account else DEFAULT_ACCOUNT
    try:
        return await call.services.channels.run_key_action(_CHANNEL, account, name, params)
    except SendError as exc:
        if exc.retryable:
            raise UnavailableError(exc.message, fix=exc.fix) from exc
        raise InvalidRequestError(exc.message, fix=exc.fix) from exc
    except ChannelError as exc:
        raise UnavailableError(exc.message, fix=exc.fix) from exc
