"""`homarus dashboard`: the address of the gateway's page, with the token that opens it."""

import json
import os

import click

from homarus.cli.command_group import examples
from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    find_own_gateway,
    is_gateway_running,
)
from homarus.cli.gateway_secret import page_address
from homarus.config.paths import Paths


@click.command("dashboard")
@examples("homarus dashboard", "homarus dashboard --json")
@click.option("--no-open", is_flag=True, hidden=True, help="Ignored: no browser is started.")
@as_json_option
def command(*, no_open: bool, as_json: bool) -> None:
    """Print the link to the gateway's web page, with the token.

    The token is behind a #, which browsers do not send. No browser is started, because other users
    of this machine can read the arguments of a program.
    """
    del no_open
    url, secret = find_own_gateway(Paths.find(os.environ), GatewayOptions())
    address = page_address(url, secret.token or secret.password)
    click.echo(json.dumps({"url": address}) if as_json else address)
    if not is_gateway_running(GatewayOptions()):
        click.echo("No gateway runs now; start it with: homarus gateway run", err=True)
