"""The gateway's secret for people: where it is, and how other programs get it."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from homarus.config.paths import Paths, shorten

if TYPE_CHECKING:
    from homarus.gateway.auth import SharedSecretAuth
    from homarus.gateway.serve import Listening

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


TURN_TLS_ON = "homarus config set gateway.tls.enabled true"


def describe_listening(listening: "Listening", secret: str) -> list[str]:
    """Return a line for every link to the page, and what a browser elsewhere needs to use it."""
    links = listening.links
    fragment = f"#token={quote(secret, safe='')}" if secret else ""
    lines = [f"The page: {link}{fragment}" for link in links]
    if listening.tls is not None:
        from homarus.gateway.tls import describe_certificate

        is_self_made = listening.tls.is_self_made
        lines += describe_certificate(listening.tls.fingerprint, is_self_made=is_self_made)
    elif is_beyond_this_machine(links):
        lines.append("Browsers on other machines and phones need https to use the page:")
        lines.append(f"  → {TURN_TLS_ON}")
    if is_beyond_this_machine(links):
        lines.append("homarus qr shows a code for a phone.")
    return lines


def is_beyond_this_machine(links: Iterable[str]) -> bool:
    """Return whether one of these links can be opened on another machine."""
    return any(not is_local_link(link) for link in links)


def is_local_link(link: str) -> bool:
    """Return whether a link leads to the machine on which it is opened."""
    from homarus.gateway.origin_policy import is_local_name

    return is_local_name(urlsplit(link).hostname or "")


def page_address(url: str, secret: str) -> str:
    """Return the address of the page of the gateway at this WebSocket URL, with its secret."""
    page = f"http{url.removeprefix('ws')}/"
    return f"{page}#token={quote(secret, safe='')}" if secret else page


def token_path(paths: Paths) -> Path:
    """Return the file of the owner's token."""
    from homarus.gateway.owner_token import FILE

    return paths.state / FILE
