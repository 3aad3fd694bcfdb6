"""Methods for unknown senders of chat services: list, approve and reject requests.

Codes have eight characters and expire after an hour. Guessing is limited: after ten wrong codes
none is accepted for ten minutes.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Final, TypeAlias
from weakref import WeakKeyDictionary

from pydantic import Field

from homarus.core.errors import InvalidRequestError, UnavailableError, UserError
from homarus.core.message import Json
from homarus.core.session_keys import normalize_account_id
from homarus.gateway.method import MethodCall, Params, method
from homarus.gateway.params import Name

if TYPE_CHECKING:
    from homarus.channels.pairing import PairingRequest, PairingStore
    from homarus.gateway.server import Gateway

MAX_WRONG: Final = 10
WINDOW_S: Final = 600.0
_wrong: WeakKeyDictionary["Gateway", deque[float]] = WeakKeyDictionary()

Code = Annotated[str, Field(min_length=1, max_length=40)]
Change: TypeAlias = "Callable[[str, str, str | None], PairingRequest]"


class PairingListParams(Params):
    """The channel; all channels when none is named."""

    channel: Name | None = None
    account_id: Name | None = None


class PairingCodeParams(Params):
    """A pairing request."""

    channel: Name
    code: Code
    account_id: Name | None = None


@method("channels.pairing.list", scope="pairing", params=PairingListParams, advertised=False)
async def list_(call: MethodCall, params: PairingListParams) -> Json:
    """People who wait for approval, with their codes; the oldest first."""
    pairings = _pairings(call)

    def read() -> list[Json]:
        channels = [params.channel.lower()] if params.channel else pairings.channels()
        found = (pairings.pending(each, _account(params)) for each in channels)
        return [show_request(one) for each in found for one in each]

    return {"ts": call.services.clock.now_ms(), "requests": await asyncio.to_thread(read)}


@method("channels.pairing.approve", scope="pairing", params=PairingCodeParams, advertised=False)
async def approve(call: MethodCall, params: PairingCodeParams) -> Json:
    """Let somebody in by their code: from their next message on they are heard."""
    found = await _find_by_code(call, params, _pairings(call).approve)
    return {"ok": True, "request": show_request(found)}


@method("channels.pairing.dismiss", scope="pairing", params=PairingCodeParams, advertised=False)
async def reject(call: MethodCall, params: PairingCodeParams) -> Json:
    """Send somebody away by their code; they may ask again."""
    found = await _find_by_code(call, params, _pairings(call).reject)
    return {"ok": True, "request": show_request(found)}


def show_request(request: "PairingRequest") -> dict[str, Json]:
    """Return a request as clients see it."""
    from homarus.channels.pairing import TTL_MS

    return {
        "channel": request.channel,
        "accountId": request.account,
        "id": request.id,
        "code": request.code,
        "name": request.name,
        "createdAtMs": request.created_ms,
        "lastSeenAtMs": request.seen_ms,
        "expiresAtMs": request.created_ms + TTL_MS,
        "chatId": request.chat,
    }


def _pairings(call: MethodCall) -> "PairingStore":
    from homarus.channels.pairing import PairingStore  # imported only where channels are configured

    return PairingStore(call.services.paths.state, call.services.clock)


def _account(params: PairingListParams | PairingCodeParams) -> str | None:
    return normalize_account_id(params.account_id) if params.account_id else None


async def _find_by_code(
    call: MethodCall, params: PairingCodeParams, change: Change
) -> "PairingRequest":
    now_s = call.services.clock.monotonic()
    wrong = _wrong.setdefault(call.gateway, deque(maxlen=MAX_WRONG))
    if len(wrong) == MAX_WRONG and wrong[0] > now_s - WINDOW_S:
        raise UnavailableError(
            "too many wrong codes were tried", fix="wait ten minutes, or use homarus pairing"
        )
    try:
        return await asyncio.to_thread(
            change, params.channel.lower(), params.code, _account(params)
        )
    except UserError as exc:
        wrong.append(now_s)
        raise InvalidRequestError(exc.message, fix=exc.fix) from exc
