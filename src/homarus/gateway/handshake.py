"""The handshake: from a connect request to a Caller, or an error that closes the connection.

The checks follow the protocol's order: protocol range, role, browser origin, shared secret, device
and signature, device token, pairing. A client's scopes are those approved for its device; a client
without a device has none.
"""

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Literal

from homarus.config.schema import Gateway
from homarus.core.clock import Clock
from homarus.core.errors import InvalidRequest, NotPaired
from homarus.core.message import Json
from homarus.core.value import dataclass
from homarus.gateway.auth import POLICY_VIOLATION, Auth, Mode, Reason, check_bearer, refused
from homarus.gateway.connect import ConnectParams, DeviceParams, read_params, refuse
from homarus.gateway.devices import Devices
from homarus.gateway.door import Barred, Door, Entrance
from homarus.gateway.frames import NEWEST_PROTOCOL
from homarus.gateway.identity import PublicKey, auth_payload
from homarus.gateway.limiter import Limiter, Source
from homarus.gateway.method import Caller
from homarus.gateway.pairing import Ask, Device, Role, Token
from homarus.gateway.scopes import granted, missing

MAX_SKEW_MS = 10 * 60_000
_PAGES = frozenset({"webchat-ui", "openclaw-control-ui", "webchat"})
_DEVICE_REASON: Reason = "device_token_mismatch"


@dataclass(frozen=True, slots=True)
class Accepted:
    """A client that is authenticated. `auth` is what its hello says about its device token."""

    caller: Caller
    method: Literal["none", "token", "password", "device-token"]
    params: ConnectParams = field(repr=False)
    auth: Mapping[str, Json] | None = field(default=None, repr=False)
    token_issued_ms: int = 0


@dataclass(frozen=True, slots=True)
class Gate:
    """Authenticates connections: origin policy, shared secret, rate limit and devices."""

    entrance: Entrance
    auth: Auth
    limiter: Limiter
    devices: Devices
    clock: Clock

    @classmethod
    def make(cls, gateway: Gateway, auth: Auth, port: int, state: Path, clock: Clock) -> "Gate":
        """Build it from the config; raises ConfigError for an invalid one."""
        return cls(
            Entrance.make(port, gateway.control_ui.allowed_origins, gateway.trusted_proxies),
            auth,
            Limiter(clock, gateway.auth.rate_limit),
            Devices(state / "devices", clock),
            clock,
        )

    def admit(self, door: Door) -> None:
        """Check the origin of every request or upgrade; raises RequestBlockedError."""
        self.entrance.admit(door)

    def check_bearer(self, door: Door) -> None:
        """Check the bearer token of a protected HTTP request; raises RequestBlockedError."""
        check_bearer(door, self.entrance, self.auth, self.limiter)

    def accept(self, raw: Json, door: Door, nonce: str, conn_id: str) -> Accepted:
        """Run the handshake; raises InvalidRequest or NotPaired with a close code."""
        params = read_params(raw)
        return _Handshake(self, params, read_role(params), door, nonce, conn_id).run()


def read_role(params: ConnectParams) -> Role:
    """Return the role that the client requests."""
    match params.role:
        case "operator" | "node":
            return params.role
    raise refuse("invalid role")


@dataclass(frozen=True, slots=True)
class _Handshake:
    """The handshake of one client, once its role is known."""

    gate: Gate
    params: ConnectParams
    role: Role
    door: Door
    nonce: str
    conn_id: str

    def run(self) -> Accepted:
        self._check_origin()
        reason, wait_ms = self._judge_secret()
        device = self.params.device
        if device is None:
            return self._without_device(reason, wait_ms)
        key = self._check_device(device)
        token = self._judge_token(key, reason, wait_ms) if reason else None
        paired = self._pair(key, token)
        # A node receives requests and sends none: it has no scopes.
        scopes = tuple(self.params.scopes) if self.role == "operator" else ()
        own = self.gate.devices.ensure_token(paired, self.role, scopes)
        allowed = granted(scopes, paired.scopes)
        return Accepted(
            caller=self._caller(key.device_id, allowed),
            method="device-token" if token else self._mode,
            params=self.params,
            auth={
                "deviceToken": own.secret,
                "role": self.role,
                "scopes": list(own.scopes),
                "issuedAtMs": own.issued_ms,
            },
            token_issued_ms=own.issued_ms,
        )

    @property
    def _mode(self) -> Mode:
        return self.gate.auth.mode

    @property
    def _is_local(self) -> bool:
        return self.gate.entrance.is_local(self.door)

    def _check_origin(self) -> None:
        is_page = self.params.client.id in _PAGES or self.params.client.mode == "webchat"
        if is_page and self.door.origin is None:
            raise refuse("origin missing: this client is a page, and pages have one")
        try:
            self.gate.entrance.admit(self.door)
        except Barred as exc:
            raise refuse(f"origin not allowed: {exc.message}") from None

    def _judge_secret(self) -> tuple[Reason | None, int]:
        """Return why the shared secret is refused, and how long the client must wait."""
        source = Source.of(self.door, self.gate.entrance, "shared-secret")
        wait_ms = self.gate.limiter.wait_ms(source)
        if wait_ms and self._mode != "none":
            return "rate_limited", wait_ms
        auth = self.params.auth
        reason = self.gate.auth.judge(auth.token, auth.password, is_local=self._is_local)
        if reason is None and self._mode != "none":
            self.gate.limiter.forget(source)
        return reason, 0

    def _fail(self, reason: Reason, wait_ms: int) -> InvalidRequest:
        """Count a wrong secret and return the error; a missing secret does not count."""
        if reason in {"token_mismatch", "password_mismatch"}:
            self.gate.limiter.fail(Source.of(self.door, self.gate.entrance, "shared-secret"))
        return refused(reason, wait_ms)

    def _without_device(self, reason: Reason | None, wait_ms: int) -> Accepted:
        if reason is not None:
            raise self._fail(reason, wait_ms)
        if self._mode == "none" or self.role == "node":
            raise NotPaired("device identity required", close_code=POLICY_VIOLATION)
        return Accepted(self._caller("", frozenset()), self._mode, self.params)

    def _check_device(self, device: DeviceParams) -> PublicKey:
        key = PublicKey.read(device.public_key)
        if key is None:
            raise refuse("device public key invalid")
        if key.device_id != device.id:
            raise refuse("device identity mismatch")
        if abs(self.gate.clock.now_ms() - device.signed_at) > MAX_SKEW_MS:
            raise refuse("device signature expired")
        if device.nonce is None and not self._is_local:
            raise refuse("device nonce required")
        if device.nonce is not None and device.nonce != self.nonce:
            raise refuse("device nonce mismatch")
        payload = auth_payload(
            device_id=device.id,
            client_id=self.params.client.id,
            client_mode=self.params.client.mode,
            role=self.role,
            scopes=self.params.scopes,
            signed_at_ms=device.signed_at,
            token=self.params.auth.token or self.params.auth.device_token,
            nonce=device.nonce,
        )
        if not key.verify(device.signature, payload):
            raise refuse("device signature invalid")
        return key

    def _judge_token(self, key: PublicKey, reason: Reason, wait_ms: int) -> Token:
        """Check the device token that replaces the shared secret."""
        given = self.params.auth.device_token or self.params.auth.token
        if not given:
            raise self._fail(reason, wait_ms)
        source = Source.of(self.door, self.gate.entrance, "device-token")
        locked_ms = self.gate.limiter.wait_ms(source)
        if locked_ms:
            raise refused("rate_limited", max(wait_ms, locked_ms))
        token = self.gate.devices.find_token(key.device_id, self.role, given)
        if token is None:
            self.gate.limiter.fail(source)
            known = self.gate.devices.get(key.device_id) is not None
            shown: Reason = reason if reason == "rate_limited" or not known else _DEVICE_REASON
            self._fail(reason, wait_ms)
            raise refused(shown, wait_ms)
        self.gate.limiter.forget(source)
        return token

    def _pair(self, key: PublicKey, token: Token | None) -> Device:
        client = self.params.client
        ask = Ask(
            device_id=key.device_id,
            public_key=key.text,
            role=self.role,
            scopes=tuple(self.params.scopes) if self.role == "operator" else (),
            client_id=client.id,
            client_mode=client.mode,
            platform=client.platform,
            display_name=client.display_name or "",
            remote_ip="" if self._is_local else self.gate.entrance.client_ip(self.door),
        )
        found = self.gate.devices.get(key.device_id)
        if found is None and self._is_local:
            return self.gate.devices.pair(ask)
        beyond_token = token is not None and missing(ask.scopes, token.scopes)
        if found is None or found.lacks(self.role, ask.scopes) or beyond_token:
            request_id = self.gate.devices.request(ask)
            raise NotPaired(
                "pairing required",
                details={"requestId": request_id},
                close_code=POLICY_VIOLATION,
            )
        return found

    def _caller(self, device_id: str, scopes: frozenset[str]) -> Caller:
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
            ip=self.gate.entrance.client_ip(self.door),
            is_local=self._is_local,
        )
