"""The handshake: from a connect request to a Caller, or an error that closes the connection.

The checks follow the protocol's order: protocol range, role, browser origin, shared secret, device
and signature, device token, pairing. A client's scopes are those approved for its device; a client
without a device has none, except a local program of protocol 4 with the shared secret.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Literal

from homarus.config.gateway_schema import GatewayConfig
from homarus.config.paths import openclaw_files_dir
from homarus.core.clock import Clock
from homarus.core.errors import InvalidRequestError, NotPairedError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.gateway.auth import (
    POLICY_VIOLATION,
    AuthFailureReason,
    AuthMode,
    SharedSecretAuth,
    auth_error,
    check_bearer,
)
from homarus.gateway.auth_rate_limiter import AuthRateLimiter, ClientSource
from homarus.gateway.connect_params import (
    ConnectParams,
    DeviceParams,
    connect_error,
    parse_connect_params,
)
from homarus.gateway.device_records import Device, DevicePairingRequest, DeviceRole, DeviceToken
from homarus.gateway.devices import DeviceRegistry
from homarus.gateway.foreign_hosts import ForeignHostLog
from homarus.gateway.frames import NEWEST_PROTOCOL
from homarus.gateway.identity import PublicKey, auth_payload
from homarus.gateway.method import Caller
from homarus.gateway.origin_policy import OriginPolicy, RequestBlockedError, RequestInfo
from homarus.gateway.scopes import ADMIN, granted, missing

MAX_SKEW_MS = 10 * 60_000
_PAGES = frozenset({"webchat-ui", "openclaw-control-ui", "webchat"})
_DEVICE_REASON: AuthFailureReason = "device_token_mismatch"


@dataclass(frozen=True, slots=True)
class AuthenticatedClient:
    """A client that is authenticated. `auth` is what its hello says about its device token."""

    caller: Caller
    method: Literal["none", "token", "password", "trusted-proxy", "device-token"]
    params: ConnectParams = field(repr=False)
    auth: Mapping[str, Json] | None = field(default=None, repr=False)
    token_issued_ms: int = 0


@dataclass(frozen=True, slots=True)
class ConnectionAuthenticator:
    """Authenticates connections: origin policy, shared secret, rate limit and devices."""

    origin_policy: OriginPolicy
    auth: SharedSecretAuth
    limiter: AuthRateLimiter
    devices: DeviceRegistry
    clock: Clock
    foreign_hosts: ForeignHostLog

    @classmethod
    def from_config(
        cls, gateway: GatewayConfig, auth: SharedSecretAuth, port: int, state: Path, clock: Clock
    ) -> "ConnectionAuthenticator":
        """Build it from the config; raises ConfigError for an invalid one."""
        proxy = gateway.auth.trusted_proxy
        named = (proxy.user_header, *proxy.required_headers) if proxy else ()
        return cls(
            OriginPolicy.from_config(
                port,
                gateway.control_ui.allowed_origins,
                gateway.trusted_proxies,
                named,
                is_tls=gateway.tls.enabled,
            ),
            auth,
            AuthRateLimiter(clock, gateway.auth.rate_limit),
            DeviceRegistry(openclaw_files_dir(state) / "devices", clock),
            clock,
            ForeignHostLog(state, clock),
        )

    def check_request(self, request: RequestInfo) -> None:
        """Check the origin of every request or upgrade; raises RequestBlockedError."""
        self.foreign_hosts.record(request, self.origin_policy)
        self.origin_policy.check(request)

    def check_bearer(self, request: RequestInfo) -> None:
        """Check the bearer token of a protected HTTP request; raises RequestBlockedError."""
        check_bearer(request, self.origin_policy, self.auth, self.limiter)

    def authenticate(
        self, raw: Json, request: RequestInfo, nonce: str, conn_id: str
    ) -> AuthenticatedClient:
        """Run the handshake; raises InvalidRequestError or NotPairedError with a close code."""
        params = parse_connect_params(raw)
        return _Handshake(self, params, parse_role(params), request, nonce, conn_id).run()


def parse_role(params: ConnectParams) -> DeviceRole:
    """Return the role that the client requests."""
    match params.role:
        case "operator" | "node":
            return params.role
    raise connect_error("invalid role")


@dataclass(frozen=True, slots=True)
class _Handshake:
    """The handshake of one client, once its role is known."""

    authenticator: ConnectionAuthenticator
    params: ConnectParams
    role: DeviceRole
    request: RequestInfo
    nonce: str
    conn_id: str

    def run(self) -> AuthenticatedClient:
        self._check_origin()
        reason, wait_ms = self._check_secret()
        device = self.params.device
        if reason is None and self._is_proxied_page:
            return self._accept_proxied_page(device)
        if device is None:
            return self._without_device(reason, wait_ms)
        key = self._check_device(device)
        token = self._check_device_token(key, reason, wait_ms) if reason else None
        paired = self._pair(key, token)
        # A node receives requests and sends none: it has no scopes.
        scopes = tuple(self.params.scopes) if self.role == "operator" else ()
        issued = self.authenticator.devices.ensure_token(paired, self.role, scopes)
        allowed = granted(scopes, paired.scopes)
        return AuthenticatedClient(
            caller=self._caller(key.device_id, allowed, has_secret=token is None),
            method="device-token" if token else self._mode,
            params=self.params,
            auth={
                "deviceToken": issued.secret,
                "role": self.role,
                "scopes": list(issued.scopes),
                "issuedAtMs": issued.issued_ms,
            },
            token_issued_ms=issued.issued_ms,
        )

    @property
    def _mode(self) -> AuthMode:
        return self.authenticator.auth.mode

    @property
    def _is_local(self) -> bool:
        return self.authenticator.origin_policy.is_local(self.request)

    @property
    def _is_page(self) -> bool:
        return self.params.client.id in _PAGES or self.params.client.mode == "webchat"

    @property
    def _is_proxied_page(self) -> bool:
        is_proxied = self._mode == "trusted-proxy" and not self._is_local
        return is_proxied and self._is_page and self.role == "operator"

    def _accept_proxied_page(self, device: DeviceParams | None) -> AuthenticatedClient:
        """Accept a page whose user the trusted proxy has authenticated, without pairing."""
        if device is not None:
            self._check_device(device)
        scopes = granted(self.params.scopes, (ADMIN,))
        return AuthenticatedClient(self._caller("", scopes), self._mode, self.params)

    def _check_origin(self) -> None:
        if self._is_page and self.request.origin is None:
            raise connect_error("origin missing: this client is a page, and pages have one")
        try:
            self.authenticator.origin_policy.check(self.request)
        except RequestBlockedError as exc:
            raise connect_error(f"origin not allowed: {exc.message}") from None
        if self.authenticator.origin_policy.is_local_page(self.request):
            raise connect_error(
                f"origin not allowed: add {self.request.origin} to gateway.controlUi.allowedOrigins"
            )

    def _check_secret(self) -> tuple[AuthFailureReason | None, int]:
        """Return why the shared secret is refused, and how long the client must wait."""
        source = ClientSource.from_request(
            self.request, self.authenticator.origin_policy, "shared-secret"
        )
        wait_ms = self.authenticator.limiter.retry_after_ms(source)
        if wait_ms and self._mode != "none":
            return "rate_limited", wait_ms
        auth = self.params.auth
        reason = self.authenticator.auth.check_request(
            self.request, self.authenticator.origin_policy, auth.token, auth.password
        )
        if reason is None and self._mode != "none":
            self.authenticator.limiter.reset(source)
        return reason, 0

    def _record_failure(self, reason: AuthFailureReason, wait_ms: int) -> InvalidRequestError:
        """Count a wrong secret and return the error; a missing secret does not count."""
        if reason in {"token_mismatch", "password_mismatch"}:
            self.authenticator.limiter.record_failure(
                ClientSource.from_request(
                    self.request, self.authenticator.origin_policy, "shared-secret"
                )
            )
        return auth_error(reason, wait_ms)

    def _without_device(
        self, reason: AuthFailureReason | None, wait_ms: int
    ) -> AuthenticatedClient:
        if reason is not None:
            raise self._record_failure(reason, wait_ms)
        if self._mode == "none" or self.role == "node":
            raise NotPairedError("device identity required", close_code=POLICY_VIOLATION)
        return AuthenticatedClient(self._caller("", self._owner_scopes), self._mode, self.params)

    @property
    def _owner_scopes(self) -> frozenset[str]:
        """Return the scopes of a client without a device, which has sent the shared secret.

        A program on this machine that requests protocol 4 gets the scopes it requests: with the
        shared secret it could pair a device for them. Any other client gets none.
        """
        is_newest = self.params.max_protocol >= NEWEST_PROTOCOL
        has_secret = self._mode in {"token", "password"}
        if not (is_newest and has_secret and self._is_local) or self.request.is_browser:
            return frozenset()
        return granted(self.params.scopes, (ADMIN,))

    def _check_device(self, device: DeviceParams) -> PublicKey:
        key = PublicKey.read(device.public_key)
        if key is None:
            raise connect_error("device public key invalid")
        if key.device_id != device.id:
            raise connect_error("device identity mismatch")
        if abs(self.authenticator.clock.now_ms() - device.signed_at) > MAX_SKEW_MS:
            raise connect_error("device signature expired")
        if device.nonce is None:  # without one, a recorded request could be sent again
            raise connect_error("device nonce required")
        if device.nonce != self.nonce:
            raise connect_error("device nonce mismatch")
        if not any(key.verify(device.signature, text) for text in self._signed_texts(device)):
            raise connect_error("device signature invalid")
        return key

    def _signed_texts(self, device: DeviceParams) -> Iterator[str]:
        """Yield the texts that the device may have signed, one per version of the format."""
        client = self.params.client
        sign = partial(
            auth_payload,
            device_id=device.id,
            client_id=client.id,
            client_mode=client.mode,
            role=self.role,
            scopes=self.params.scopes,
            signed_at_ms=device.signed_at,
            token=self.params.auth.token or self.params.auth.device_token,
            nonce=device.nonce,
        )
        yield sign()
        yield sign(platform=client.platform, device_family=client.device_family or "")

    def _check_device_token(
        self, key: PublicKey, reason: AuthFailureReason, wait_ms: int
    ) -> DeviceToken:
        """Check the device token that replaces the shared secret."""
        secret = self.params.auth.device_token or self.params.auth.token
        if not secret:
            raise self._record_failure(reason, wait_ms)
        source = ClientSource.from_request(
            self.request, self.authenticator.origin_policy, "device-token"
        )
        locked_ms = self.authenticator.limiter.retry_after_ms(source)
        if locked_ms:
            raise auth_error("rate_limited", max(wait_ms, locked_ms))
        token = self.authenticator.devices.find_token(key.device_id, self.role, secret)
        if token is None:
            self.authenticator.limiter.record_failure(source)
            is_known = self.authenticator.devices.get(key.device_id) is not None
            failure: AuthFailureReason = (
                reason if reason == "rate_limited" or not is_known else _DEVICE_REASON
            )
            self._record_failure(reason, wait_ms)
            raise auth_error(failure, wait_ms)
        self.authenticator.limiter.reset(source)
        return token

    def _pair(self, key: PublicKey, token: DeviceToken | None) -> Device:
        client = self.params.client
        request = DevicePairingRequest(
            device_id=key.device_id,
            public_key=key.text,
            role=self.role,
            scopes=tuple(self.params.scopes) if self.role == "operator" else (),
            client_id=client.id,
            client_mode=client.mode,
            platform=client.platform,
            display_name=client.display_name or "",
            remote_ip=""
            if self._is_local
            else self.authenticator.origin_policy.client_ip(self.request),
        )
        known_device = self.authenticator.devices.get(key.device_id)
        if known_device is None and self._is_local:
            return self.authenticator.devices.pair(request)
        if known_device is not None and self._is_new_local_role(known_device, token):
            return self.authenticator.devices.approve(
                self.authenticator.devices.request(request), by=(ADMIN,)
            )
        beyond_token = token is not None and missing(request.scopes, token.scopes)
        if known_device is None or known_device.lacks(self.role, request.scopes) or beyond_token:
            request_id = self.authenticator.devices.request(request)
            raise NotPairedError(
                "pairing required", details={"requestId": request_id}, close_code=POLICY_VIOLATION
            )
        return known_device

    def _is_new_local_role(self, device: Device, token: DeviceToken | None) -> bool:
        """Return whether a program of this machine uses a paired device in its other role.

        OpenClaw's node host has the device key of its command line. The shared secret is enough
        for a role that the device never had, as it is for a new device.
        """
        has_secret = token is None and self._mode != "none"
        return has_secret and self.role not in device.roles and self._is_local

    def _caller(self, device_id: str, scopes: frozenset[str], *, has_secret: bool = True) -> Caller:
        client = self.params.client
        return Caller(
            conn_id=self.conn_id,
            client_id=client.id,
            mode=client.mode,
            version=client.version,
            platform=client.platform,
            display_name=client.display_name or "",
            instance_id=client.instance_id or "",
            device_id=device_id,
            role=self.role,
            scopes=scopes,
            caps=frozenset(self.params.caps),
            protocol=min(self.params.max_protocol, NEWEST_PROTOCOL),
            ip=self.authenticator.origin_policy.client_ip(self.request),
            is_local=self._is_local and has_secret,
        )
