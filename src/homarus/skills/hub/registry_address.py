"""Which registry is used, and the token for it.

An address comes from the command line, from `CLAWHUB_REGISTRY` or its older name, from the setting
`skills.registry`, or from what the site (`CLAWHUB_SITE`, by default clawhub.ai) says in
`/.well-known/clawhub.json`. The token is
`CLAWHUB_TOKEN`, or the one that `clawhub login` stored for the same registry. A token is bound to
the origin of its registry, and never sent without encryption to another machine.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.skills.hub.lock_file import read_json_object

DEFAULT_SITE: Final = "https://clawhub.ai"
_PORTS: Final = {"http": 80, "https": 443}
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True)
class RegistryAddress:
    """The base URL of a registry, or with `is_site` that of a site which names it."""

    url: str
    is_site: bool = False

    @property
    def origin(self) -> tuple[str, str, int]:
        return url_origin(self.url)


def find_registry(option: str | None, env: Mapping[str, str], setting: str = "") -> RegistryAddress:
    """Return the registry that the owner named, or the site to ask. Raises UserError."""
    for named in (option, env.get("CLAWHUB_REGISTRY"), env.get("CLAWDHUB_REGISTRY"), setting):
        if named and named.strip():
            return RegistryAddress(check_url(named.strip()))
    site = env.get("CLAWHUB_SITE") or env.get("CLAWDHUB_SITE") or DEFAULT_SITE
    return RegistryAddress(check_url(site.strip()), is_site=True)


def check_url(url: str) -> str:
    """Return the base URL of a registry without a slash at its end. Raises UserError."""
    shown = one_line(url, 100)
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in _PORTS and bool(parts.hostname)
        has_more = bool(parts.query or parts.fragment or parts.username or parts.password)
        _ = parts.port
    except ValueError:
        is_valid, has_more = False, False
    if not is_valid or has_more:
        fix = "use an address like https://clawhub.ai"
        raise UserError(f"{shown!r} is not the address of a registry", fix=fix)
    return url.rstrip("/")


def url_origin(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port of a URL."""
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or _PORTS.get(parts.scheme, 0)


def is_safe_for_token(url: str) -> bool:
    """Return whether a token may be sent to a URL: encrypted, or on this machine."""
    scheme, host, _ = url_origin(url)
    return scheme == "https" or host in _LOOPBACK


def find_token(registry: RegistryAddress, env: Mapping[str, str], home: Path) -> str:
    """Return the token for a registry; "" without one."""
    if token := (env.get("CLAWHUB_TOKEN") or "").strip():
        return token
    content = read_json_object(_config_file(env, home)) or {}
    stored, found = content.get("registry"), content.get("token")
    if not isinstance(stored, str) or not isinstance(found, str):
        return ""
    return found if url_origin(stored) == registry.origin else ""


def _config_file(env: Mapping[str, str], home: Path) -> Path:
    """Return where the `clawhub` program stores its login."""
    for name in ("CLAWHUB_CONFIG_PATH", "CLAWDHUB_CONFIG_PATH"):
        if path := (env.get(name) or "").strip():
            return Path(os.path.abspath(path))  # noqa: PTH100 - relative to the current folder
    base = home / ".config"
    if sys.platform == "darwin":
        base = home / "Library" / "Application Support"
    elif xdg := env.get("XDG_CONFIG_HOME", ""):
        base = Path(xdg)
    found = [base / name / "config.json" for name in ("clawhub", "clawdhub")]
    return next((path for path in found if path.exists()), found[0])
