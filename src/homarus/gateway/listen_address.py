"""The address that the gateway listens on.

`resolve_listen_address` runs before a socket is opened: beyond this machine the gateway listens
only with authentication.
"""

from collections.abc import Collection, Mapping
from ipaddress import ip_address

from homarus.config.gateway_schema import GatewayConfig
from homarus.core.errors import ConfigError
from homarus.core.fast_dataclass import dataclass
from homarus.gateway.auth import SharedSecretAuth
from homarus.gateway.origin_policy import is_loopback, plain_ip

DEFAULT_PORT = 18789
LOOPBACK = "127.0.0.1"
_PORT_VARIABLES = ("OPENCLAW_GATEWAY_PORT", "CLAWDBOT_GATEWAY_PORT")
_FIX = "set gateway.auth.token (homarus config set gateway.auth.token …), or bind to loopback"


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """An address to listen on; `others` are also tried and may be missing on this machine."""

    host: str
    port: int
    others: tuple[str, ...] = ()

    @property
    def is_loopback(self) -> bool:
        return is_loopback(self.host)


def resolve_port(gateway: GatewayConfig, env: Mapping[str, str], port: int | None = None) -> int:
    """Return the port: from the flag, the environment, the config, or the default."""
    if port is not None:
        return port
    for name in _PORT_VARIABLES:
        text = env.get(name, "").strip()
        if not text:
            continue
        if not (text.isascii() and text.isdigit() and 0 < int(text[:6]) < 65_536):
            raise ConfigError(f"{text[:20]!r} is not a port", key=name, fix="use 1 to 65535")
        return int(text)
    return gateway.port or DEFAULT_PORT


def resolve_listen_address(
    gateway: GatewayConfig,
    env: Mapping[str, str],
    auth: SharedSecretAuth,
    *,
    port: int | None = None,
    bind: str | None = None,
) -> ListenAddress:
    """Return the listen address; raises ConfigError when it is invalid or would be unprotected."""
    listen = _address(gateway, bind or gateway.bind, resolve_port(gateway, env, port))
    # The token that was created for this machine alone is not the owner's wish to be reached.
    is_unset = auth.mode == "token" and auth.source == "file"
    if not listen.is_loopback and (auth.mode == "none" or is_unset):
        raise ConfigError(
            f"refusing to listen on {listen.host} without a token or a password",
            key="gateway.bind",
            fix=_FIX,
        )
    if listen.is_loopback and auth.mode == "trusted-proxy":
        raise ConfigError(
            "any user of this machine could send the headers of a proxy on it",
            key="gateway.auth.mode",
            fix="use a token behind a proxy on this machine, or bind to the proxy's network",
        )
    return listen


def _address(gateway: GatewayConfig, bind: str, port: int) -> ListenAddress:
    match bind:
        case "loopback" | "auto":
            return ListenAddress(LOOPBACK, port, ("::1",))
        case "lan":
            return ListenAddress("0.0.0.0", port, ("::",))  # noqa: S104 - what `lan` asks for; never without auth
        case "custom":
            return ListenAddress(_custom(gateway.custom_bind_host), port)
    raise ConfigError(
        f"bind {bind!r} is not built",
        key="gateway.bind",
        fix="use loopback, lan, or custom with gateway.customBindHost",
    )


def _custom(text: str | None) -> str:
    host = (text or "").strip()
    found = LOOPBACK if host.lower() == "localhost" else plain_ip(host)
    if not found:
        raise ConfigError(
            f"{host!r} is not an address" if host else "bind is custom, and no address is given",
            key="gateway.customBindHost",
            fix="give an IP address of this machine",
        )
    return found


def reachable_hosts(bound: Collection[str]) -> tuple[str, ...]:
    """Return the addresses under which sockets bound to these are reached, loopback first."""
    every = {"0.0.0.0": ("127.0.0.1", 4), "::": ("::1", 6)}  # noqa: S104 - compared, not bound
    found: list[str] = []
    own: tuple[str, ...] = ()
    if every.keys() & set(bound):
        from homarus.gateway.machine_addresses import machine_addresses  # only where it is needed

        own = machine_addresses()
    for host in bound:
        loopback, version = every.get(host, (host, 0))
        found += [loopback, *(each for each in own if ip_address(each).version == version)]
    # One link to this machine is enough: the other form of loopback leads to the same page.
    loopbacks = [each for each in found if is_loopback(each)]
    return (*loopbacks[:1], *dict.fromkeys(each for each in found if each not in loopbacks))


def page_links(bound: Collection[str], port: int, *, is_tls: bool) -> tuple[str, ...]:
    """Return the addresses of the page, without the token, that browsers can reach."""
    return tuple(
        f"http{'s' * is_tls}://{f'[{host}]' if ':' in host else host}:{port}/"
        for host in reachable_hosts(bound)
    )
