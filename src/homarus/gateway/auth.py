"""Check the shared secret of a client: a token, a password, a trusted proxy, or none at all.

Secrets are compared as digests of the same length, in constant time. Mode `none` exists only where
the owner asks for it, and is for clients on this machine, whatever address the gateway is bound to.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Literal, TypeAlias

from homarus.config.gateway_schema import GatewayAuthConfig, GatewayConfig
from homarus.core.errors import ConfigError, InvalidRequestError
from homarus.core.fast_dataclass import dataclass
from homarus.gateway.auth_rate_limiter import AuthRateLimiter, ClientSource
from homarus.gateway.origin_policy import OriginPolicy, RequestBlockedError, RequestInfo
from homarus.gateway.trusted_proxy import ProxyFailureReason, TrustedProxyAuth

AuthMode: TypeAlias = Literal["none", "token", "password", "trusted-proxy"]
SecretSource: TypeAlias = Literal["", "config", "environment", "file"]
AuthFailureReason: TypeAlias = (
    Literal[
        "token_missing",
        "token_mismatch",
        "password_missing",
        "password_mismatch",
        "device_token_mismatch",
        "local_only",
        "rate_limited",
    ]
    | ProxyFailureReason
)

POLICY_VIOLATION = 1008
TOKEN_VARIABLES = ("OPENCLAW_GATEWAY_TOKEN", "CLAWDBOT_GATEWAY_TOKEN")
PASSWORD_VARIABLES = ("OPENCLAW_GATEWAY_PASSWORD", "CLAWDBOT_GATEWAY_PASSWORD")
_MESSAGES: dict[AuthFailureReason, str] = {
    "token_missing": "gateway token missing (provide gateway auth token)",
    "token_mismatch": "gateway token mismatch (provide gateway auth token)",
    "password_missing": "gateway password missing (provide gateway password)",
    "password_mismatch": "gateway password mismatch (provide gateway password)",
    "device_token_mismatch": "device token mismatch (rotate/reissue device token)",
    "local_only": "gateway has no token or password, so only this machine may connect",
    "rate_limited": "too many failed authentication attempts (retry later)",
    "trusted_proxy_untrusted_source": "the request does not come from gateway.trustedProxies",
    "trusted_proxy_loopback_source": "a proxy on the gateway's own machine is not trusted",
    "trusted_proxy_header_missing": "the proxy did not send every header it must send",
    "trusted_proxy_user_missing": "the proxy did not name a user",
    "trusted_proxy_user_not_allowed": "the proxy's user is not in allowUsers",
}


@dataclass(frozen=True, slots=True)
class SharedSecretAuth:
    """The authentication mode, its secret, and where that comes from.

    With a trusted proxy, the secret is the token of programs on the gateway's own machine.
    """

    mode: AuthMode = "none"
    secret: str = field(default="", repr=False)
    proxy: TrustedProxyAuth | None = None
    source: SecretSource = field(default="", compare=False)

    def check_request(
        self, request: RequestInfo, policy: OriginPolicy, token: object, password: object
    ) -> AuthFailureReason | None:
        """Return why the client is refused; None when it is authenticated."""
        is_local = policy.is_local(request)
        if self.proxy is None:
            return self.check_secret(token, password, is_local=is_local)
        if is_local and isinstance(token, str) and same_secret(token, self.secret):
            return None
        return self.proxy.check(request, policy)

    def check_secret(
        self, token: object, password: object, *, is_local: bool
    ) -> AuthFailureReason | None:
        """Return why the client is refused; None when the secret is right."""
        if self.mode == "none":
            return None if is_local else "local_only"
        given = token if self.mode == "token" else password
        if not isinstance(given, str) or not given:
            return "token_missing" if self.mode == "token" else "password_missing"
        if same_secret(given, self.secret):
            return None
        return "token_mismatch" if self.mode == "token" else "password_mismatch"


def resolve_auth(
    gateway: GatewayConfig,
    env: Mapping[str, str],
    *,
    mode: AuthMode | None = None,
    get_token: Callable[[], str] = str,
) -> SharedSecretAuth:
    """Return how clients authenticate: by the mode of the command line, else of the config.

    Without a mode, the secret that is set decides, config before environment; without a secret,
    `get_token` returns the owner's token. Mode `none` is never a default. Raises ConfigError.
    """
    auth = gateway.auth
    token, password = find_secrets(auth, env)
    chosen = mode or auth.mode or ("password" if password else "token")
    if chosen == "none":
        return SharedSecretAuth()
    if chosen == "password":
        secret = _require(password, "password", PASSWORD_VARIABLES[0])
        return SharedSecretAuth("password", secret, source=_source(auth.password))
    source = _source(auth.token) if token else "file"
    secret = _require(token or get_token(), "token", TOKEN_VARIABLES[0])
    if chosen == "token":
        return SharedSecretAuth("token", secret, source=source)
    return SharedSecretAuth(
        "trusted-proxy", secret, TrustedProxyAuth.from_config(gateway), source=source
    )


def find_secrets(auth: GatewayAuthConfig, env: Mapping[str, str]) -> tuple[str, str]:
    """Return the token and the password of the config, else of the environment; empty if unset."""
    return (
        _first(auth.token, env, TOKEN_VARIABLES),
        _first(auth.password, env, PASSWORD_VARIABLES),
    )


def same_secret(given: str, known: str) -> bool:
    """Compare two secrets in constant time; an empty one equals nothing."""
    if not given or not known:
        return False
    return hmac.compare_digest(_digest(given), _digest(known))


def auth_error(reason: AuthFailureReason, retry_after_ms: int = 0) -> InvalidRequestError:
    """Return the error that is sent before the connection is closed."""
    return InvalidRequestError(
        f"unauthorized: {_MESSAGES[reason]}",
        details={"code": "AUTH_RATE_LIMITED"} if reason == "rate_limited" else None,
        close_code=POLICY_VIOLATION,
        retry_after_ms=retry_after_ms,
    )


def check_bearer(
    request: RequestInfo,
    origin_policy: OriginPolicy,
    auth: SharedSecretAuth,
    limiter: AuthRateLimiter,
) -> None:
    """Check the bearer token of an HTTP request; raises RequestBlockedError (401, 429).

    `Authorization: Bearer …` carries the token or the password.
    """
    source = ClientSource.from_request(request, origin_policy, "shared-secret")
    wait_ms = limiter.retry_after_ms(source)
    if wait_ms:
        raise RequestBlockedError(429, _MESSAGES["rate_limited"], after_s=-(-wait_ms // 1000))
    scheme, _, given = request.authorization.partition(" ")
    given = given.strip() if scheme.lower() == "bearer" else ""
    reason = auth.check_request(request, origin_policy, given, given)
    if reason is None:
        limiter.reset(source)
        return
    if given:
        limiter.record_failure(source)
    raise RequestBlockedError(401, _MESSAGES[reason])


def _first(configured: str | None, env: Mapping[str, str], names: tuple[str, ...]) -> str:
    found = (configured, *(env.get(name) for name in names))
    return next((text.strip() for text in found if text and text.strip()), "")


def _source(configured: str | None) -> SecretSource:
    return "config" if configured and configured.strip() else "environment"


def _require(secret: str, name: str, variable: str) -> str:
    if not secret:
        raise ConfigError(
            f"mode is {name}, and no {name} is set",
            key="gateway.auth.mode",
            fix=f"set gateway.auth.{name}, or the variable {variable}",
        )
    return secret


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
