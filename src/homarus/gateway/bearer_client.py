"""Authenticate an HTTP request as a client with scopes, by the shared secret or a device's token.

The shared secret gives every scope to a program on the gateway's own machine, as a WebSocket does.
Elsewhere, and in a web page, it gives none: those use the token of a device that was approved,
which gives the scopes of that token.
"""

from homarus import __version__
from homarus.gateway.auth_rate_limiter import ClientSource
from homarus.gateway.frames import PROTOCOL
from homarus.gateway.handshake import ConnectionAuthenticator
from homarus.gateway.method import Caller
from homarus.gateway.origin_policy import RequestBlockedError, RequestInfo
from homarus.gateway.scopes import ADMIN, implied

_TOO_MANY = "too many failed authentication attempts (retry later)"


def authenticate_bearer(
    authenticator: ConnectionAuthenticator,
    request: RequestInfo,
    conn_id: str,
    *,
    client_id: str = "mcp",
) -> Caller:
    """Return the client of a request; raises RequestBlockedError (401, 403, 429)."""
    policy, limiter = authenticator.origin_policy, authenticator.limiter
    is_local = policy.is_local(request)
    source = ClientSource.from_request(request, policy, "device-token")
    if wait_ms := limiter.retry_after_ms(source):
        raise RequestBlockedError(429, _TOO_MANY, after_s=-(-wait_ms // 1000))
    scheme, _, secret = request.authorization.partition(" ")
    secret = secret.strip() if scheme.lower() == "bearer" else ""
    device_id, scopes = "", frozenset[str]()
    if found := authenticator.devices.find_by_token("operator", secret):
        limiter.reset(source)
        device, token = found
        device_id, scopes = device.id, implied(token.scopes) & implied(device.scopes)
    else:
        try:
            authenticator.check_bearer(request)
        except RequestBlockedError:
            if secret:
                limiter.record_failure(source)
            raise
        # Every request of a page that changes something has an Origin, also the gateway's own.
        if is_local and request.origin is None:
            scopes = implied((ADMIN,))
    if not scopes:
        raise RequestBlockedError(
            403,
            "from another machine or a web page, the gateway's secret gives no scopes",
            fix="use the token of a paired device: homarus devices rotate",
        )
    return Caller(
        conn_id=conn_id,
        client_id=client_id,
        mode="backend",
        version=__version__,
        device_id=device_id,
        scopes=scopes,
        protocol=PROTOCOL,
        ip=policy.client_ip(request),
        is_local=is_local and not device_id,
    )
