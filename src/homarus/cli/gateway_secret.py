"""The gateway's secret for people: where it is, and how other programs get it."""

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from homarus.config.paths import Paths, shorten

if TYPE_CHECKING:
    from homarus.gateway.auth import SharedSecretAuth

_OPEN = (
    "Authentication is off: every user and every program of this machine can use this gateway",
    "as you do, and so can everyone who reaches it through a proxy on this machine. They can run",
    "what the agent may run, and read and change its files and settings.",
    "  → start it without --auth none, and without gateway.auth.mode none in the config",
)


def describe_auth(auth: "SharedSecretAuth", paths: Paths) -> list[str]:
    """Return lines that say how clients authenticate, and where they find the secret."""
    if auth.mode == "none":
        return list(_OPEN)
    kind = "password" if auth.mode == "password" else "token"
    variable = f"OPENCLAW_GATEWAY_{kind.upper()}"
    lines = [f"The {kind} is used by the commands of homarus automatically."]
    if auth.source == "config":
        file = shorten(paths.config, paths.home)
        lines.append(f"OpenClaw's clients find it in {file} (gateway.auth.{kind}).")
    elif auth.source == "environment":
        lines = [f"Clients need the {kind} of {variable} in their environment."]
    else:
        file = shorten(token_path(paths), paths.home)
        lines.append(f'OpenClaw\'s clients: export {variable}="$(cat {file})"')
    lines.append(f"homarus dashboard prints the address of the page with the {kind}.")
    if auth.mode == "trusted-proxy":
        lines.append("Users of the trusted proxy need no token.")
    return lines


def page_address(url: str, secret: str) -> str:
    """Return the address of the page of the gateway at this WebSocket URL, with its secret."""
    page = f"http{url.removeprefix('ws')}/"
    return f"{page}#token={quote(secret, safe='')}" if secret else page


def token_path(paths: Paths) -> Path:
    """Return the file of the owner's token."""
    from homarus.gateway.owner_token import FILE

    return paths.state / FILE
