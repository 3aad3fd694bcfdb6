"""`homarus qr`: a code for the camera of a phone, with the link to the gateway's page."""

import json
import os
import sys
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from homarus.cli.command_group import examples
from homarus.cli.gateway_options import GatewayOptions, as_json_option, find_own_gateway, warn
from homarus.cli.gateway_secret import TURN_TLS_ON, is_local_link, page_address
from homarus.config.paths import Paths
from homarus.core.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_QUIET: Final = 2  # modules of margin around the code
_INK, _PLAIN = "\x1b[38;5;16;48;5;231m", "\x1b[0m"  # black on white, on every background
_SCHEMES: Final = {"ws": "ws", "wss": "wss", "http": "ws", "https": "wss"}


@click.command("qr")
@examples("homarus qr", "homarus qr --url https://192.168.1.20:18789 --png code.png")
@click.option("--url", metavar="URL", help="The address that the phone uses, https://HOST:PORT.")
@click.option("--png", metavar="FILE", help="Write the code to a picture, for you alone.")
@click.option("--no-ascii", is_flag=True, help="Print the link without the code.")
@as_json_option
def command(url: str | None, png: str | None, *, no_ascii: bool, as_json: bool) -> None:
    """Show the link to the page as a QR code for a phone.

    The code contains the token: show it to your own phone alone. The phone's browser is then
    one more device, which waits for `homarus devices approve`.
    """
    paths = Paths.find(os.environ)
    _, secret = find_own_gateway(paths, GatewayOptions())
    address = _parse_url(url) if url else _find_phone_address(paths)
    link = page_address(address, secret.token or secret.password)
    is_plain = address.startswith("ws:") and not is_local_link(link)
    if png:
        _write_png(link, Path(png).expanduser())
    if as_json:
        auth = "token" if secret.token else "password" if secret.password else "none"
        source = "option" if url else "gateway"
        report = {"url": link, "gatewayUrl": address, "auth": auth, "urlSource": source}
        report |= {"png": png} if png else {}
        click.echo(json.dumps(report))
    else:
        if not (no_ascii or png):
            click.echo("\n".join(draw(_matrix(link), ink=_has_colours())))
        click.echo(f"The code is in {png}." if png else link)
    if is_plain:
        warn("A browser cannot use the page without https, except on the gateway's own machine.")
        warn(f"  → {TURN_TLS_ON}")


def _find_phone_address(paths: Paths) -> str:
    """Return the address of our own gateway for a phone; raises UserError if there is none."""
    from homarus.cli.gateway import links_of
    from homarus.gateway.client import find_running_gateway

    running = find_running_gateway(paths)
    if running is None:
        raise UserError("no gateway runs", fix="homarus gateway run starts one")
    remote = [link for link in links_of(running) if not is_local_link(link)]
    if not remote:
        raise UserError(
            "the gateway listens on this machine alone, and a phone cannot reach it",
            fix="homarus config set gateway.bind lan, then "
            + TURN_TLS_ON
            + "; or give --url, if a tunnel or a proxy leads to it",
        )
    return "ws" + remote[0].removeprefix("http").removesuffix("/")


def _parse_url(text: str) -> str:
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(text.strip())
        scheme, host, port = _SCHEMES.get(parts.scheme, ""), parts.hostname, parts.port
    except ValueError:
        scheme, host, port = "", None, None
    if not scheme or not host or parts.username or parts.query or parts.path not in {"", "/"}:
        raise UserError(f"{text!r} is not a gateway's address", fix="use https://HOST:PORT")
    shown = f"[{host}]" if ":" in host else host
    return f"{scheme}://{shown}:{port}" if port else f"{scheme}://{shown}"


def _make(link: str) -> Any:
    import segno

    return segno.make(link, error="l", micro=False)


def _matrix(link: str) -> "Sequence[Sequence[int]]":
    return [list(row) for row in _make(link).matrix_iter(border=_QUIET)]


def draw(matrix: "Sequence[Sequence[int]]", *, ink: bool) -> "Iterator[str]":
    """Yield the lines of a code, two rows in each.

    With `ink` the dark modules are black on white, whatever colours the terminal has. Without it
    the light modules are drawn, as if on a dark background.
    """
    blocks = " ▄▀█"
    for top in range(0, len(matrix), 2):
        upper = matrix[top]
        below = matrix[top + 1] if top + 1 < len(matrix) else [0] * len(upper)
        drawn = 1 if ink else 0
        line = "".join(
            blocks[2 * (bool(a) == drawn) + (bool(b) == drawn)]
            for a, b in zip(upper, below, strict=True)
        )
        yield f"{_INK}{line}{_PLAIN}" if ink else line


def _has_colours() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def _write_png(link: str, path: Path) -> None:
    from homarus.core.atomic_file import write_atomic

    if path.exists() and not path.is_file():
        raise UserError(f"{path} is not a file", fix="name a file that may be replaced")
    picture = BytesIO()
    _make(link).save(picture, kind="png", scale=8, border=4)
    try:
        write_atomic(path, picture.getvalue())
    except OSError as exc:
        raise UserError(f"{path} cannot be written: {exc.strerror or exc}") from exc
