"""Authentication by a reverse proxy that names the user in a header (`auth.mode: trusted-proxy`).

The header counts only from an address in `gateway.trustedProxies` that is not on this machine: any
user of this machine can send a header from it.
"""

from typing import Literal, TypeAlias

from homarus.config.gateway_schema import GatewayConfig
from homarus.core.errors import ConfigError
from homarus.core.fast_dataclass import dataclass
from homarus.gateway.origin_policy import OriginPolicy, RequestInfo

ProxyFailureReason: TypeAlias = Literal[
    "trusted_proxy_untrusted_source",
    "trusted_proxy_loopback_source",
    "trusted_proxy_header_missing",
    "trusted_proxy_user_missing",
    "trusted_proxy_user_not_allowed",
]


@dataclass(frozen=True, slots=True)
class TrustedProxyAuth:
    """The header with the user, the headers that must also be there, and the users let in."""

    user_header: str
    required_headers: tuple[str, ...] = ()
    allow_users: frozenset[str] = frozenset()  # empty: every user whom the proxy lets in

    @classmethod
    def from_config(cls, gateway: GatewayConfig) -> "TrustedProxyAuth":
        """Return what the config sets; raises ConfigError when it cannot work."""
        settings = gateway.auth.trusted_proxy
        if settings is None or not settings.user_header.strip():
            raise ConfigError(
                "mode is trusted-proxy, and no header names the user",
                key="gateway.auth.trustedProxy.userHeader",
                fix="name the header in which the proxy sends the user, e.g. x-forwarded-user",
            )
        if not gateway.trusted_proxies:
            raise ConfigError(
                "mode is trusted-proxy, and no proxy is trusted",
                key="gateway.trustedProxies",
                fix="list the addresses from which the proxy connects",
            )
        return cls(
            settings.user_header.strip().lower(),
            tuple(name.strip().lower() for name in settings.required_headers if name.strip()),
            frozenset(user.strip() for user in settings.allow_users if user.strip()),
        )

    def check(self, request: RequestInfo, policy: OriginPolicy) -> ProxyFailureReason | None:
        """Return why the proxy's request is refused; None when its user is let in."""
        if not policy.is_trusted_proxy(request.peer):
            return "trusted_proxy_untrusted_source"
        if request.is_from_own_machine:
            return "trusted_proxy_loopback_source"
        if not all(request.header(name) for name in self.required_headers):
            return "trusted_proxy_header_missing"
        user = request.header(self.user_header)
        if not user:
            return "trusted_proxy_user_missing"
        if self.allow_users and user not in self.allow_users:
            return "trusted_proxy_user_not_allowed"
        return None
