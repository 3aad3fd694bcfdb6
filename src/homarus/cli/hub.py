"""`homarus hub`: serve a registry of skills, and manage who may publish to it."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from homarus.cli import completion_values
from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import as_json_option

if TYPE_CHECKING:
    from homarus.gateway.hub_server.hub_folder import HubFolder

_folder_argument = click.argument(
    "folder", metavar="FOLDER", shell_complete=completion_values.directories
)


@click.group("hub", cls=CommandGroup)
@examples("homarus hub token add ~/registry ann", "homarus hub serve ~/registry")
def command() -> None:
    """Serve a registry of skills for yourself or a team."""


@command.command()
@examples(
    "homarus hub serve ~/registry",
    "homarus hub serve ~/registry --public-url https://skills.example.com",
)
@_folder_argument
@click.option("--host", metavar="HOST", default="127.0.0.1", help="The address to listen on.")
@click.option(
    "--port",
    metavar="PORT",
    type=click.IntRange(0, 65_535),
    default=18790,
    help="The port to listen on; 0 is a free one.",
)
@click.option(
    "--public-url",
    metavar="URL",
    default="",
    show_default="the address of each request",
    help="The address of a proxy with TLS in front of it.",
)
def serve(folder: str, host: str, port: int, public_url: str) -> None:
    """Serve the skills in a folder with the HTTP API of ClawHub.

    Reading is open to all who reach the port. Publishing needs a token: homarus hub token add.
    """
    from homarus.gateway.hub_server.hub_process import serve_hub
    from homarus.skills.hub.registry_address import check_url

    shown = check_url(public_url) if public_url else ""
    serve_hub(Path(folder).expanduser().absolute(), host, port, shown, _print_ready)


def _print_ready(url: str, skills: "HubFolder") -> None:
    for problem in skills.problems:
        click.echo(f"not served: {problem}", err=True)
    click.echo(f"The registry is at {url}, with {len(skills.all())} skills.")
    click.echo(f"Clients: CLAWHUB_REGISTRY={url}")


@command.group("token")
@examples("homarus hub token add ~/registry ann", "homarus hub token list ~/registry")
def token() -> None:
    """Manage the tokens of those who may publish."""


@token.command()
@examples("homarus hub token add ~/registry ann")
@_folder_argument
@click.argument("handle", metavar="HANDLE")
@as_json_option
def add(folder: str, handle: str, *, as_json: bool) -> None:
    """Create a token for a publisher and print it once; only its hash is stored."""
    from homarus.gateway.hub_server.hub_tokens import HubTokens

    made, text = HubTokens(Path(folder).expanduser().absolute()).add(handle)
    if as_json:
        click.echo(json.dumps({"ok": True, "id": made.id, "handle": made.handle, "token": text}))
        return
    click.echo(text)
    click.echo(f"The token {made.id} publishes as @{made.handle}. It is not shown again.", err=True)


@token.command("list")
@examples("homarus hub token list ~/registry")
@_folder_argument
@as_json_option
def list_(folder: str, *, as_json: bool) -> None:
    """List the tokens by their ids."""
    from homarus.gateway.hub_server.hub_tokens import HubTokens

    found = HubTokens(Path(folder).expanduser().absolute()).all()
    if as_json:
        rows = [
            {
                "id": each.id,
                "handle": each.handle,
                "createdAt": each.created_at_ms,
                "revokedAt": each.revoked_at_ms or None,
            }
            for each in found
        ]
        click.echo(json.dumps({"tokens": rows}))
        return
    for each in found:
        created = datetime.fromtimestamp(each.created_at_ms / 1000, UTC).date().isoformat()
        state = "revoked" if each.revoked_at_ms else f"since {created}"
        click.echo(f"{each.id}  @{each.handle:<20} {state}")
    if not found:
        click.echo("No publisher has a token yet: homarus hub token add FOLDER HANDLE")


@token.command()
@examples("homarus hub token revoke ~/registry 3f9a01c2")
@_folder_argument
@click.argument("token_id", metavar="TOKEN_ID")
@as_json_option
def revoke(folder: str, token_id: str, *, as_json: bool) -> None:
    """Revoke a token; a running registry refuses it at once."""
    from homarus.gateway.hub_server.hub_tokens import HubTokens

    revoked = HubTokens(Path(folder).expanduser().absolute()).revoke(token_id)
    if as_json:
        click.echo(json.dumps({"ok": True, "id": revoked.id, "handle": revoked.handle}))
        return
    click.echo(f"The token {revoked.id} of @{revoked.handle} is revoked.")
