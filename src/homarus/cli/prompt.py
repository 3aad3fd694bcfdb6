"""`homarus prompt`: the system prompt of a conversation."""

import asyncio
import json
import os

import click

from homarus.agent.prompt.report import format_report, read_report
from homarus.cli.command_group import examples
from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    gateway_options,
    is_gateway_running,
    open_gateway,
    warn,
)
from homarus.cli.options import agent_option, session_option
from homarus.core.message import Json


@click.command("prompt")
@examples("homarus prompt", "homarus prompt --agent work --report")
@agent_option("The main session of this agent.", default="the default agent")
@session_option("The session.", "key")
@click.option("--report", is_flag=True, help="Show the parts and their sizes instead of the text.")
@as_json_option
@gateway_options
def command(
    agent: str | None, key: str | None, gateway: GatewayOptions, *, report: bool, as_json: bool
) -> None:
    """Show the system prompt of a session, or its parts."""
    params = {"agentId": agent, "sessionKey": key, "text": not report}
    params = {name: value for name, value in params.items() if value is not None}
    told = asyncio.run(_get(gateway, params))
    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False))
        return
    figures = read_report(told.get("report"))
    if report and figures:
        click.echo(format_report(figures, detail=True))
    else:
        click.echo(told.get("text", ""))


async def _get(gateway: GatewayOptions, asked: dict[str, Json]) -> dict[str, Json]:
    if is_gateway_running(gateway):
        async with open_gateway(gateway) as client:
            report = await client.call("prompt.get", asked)
        return report if isinstance(report, dict) else {}
    from homarus.gateway.methods.prompt import show_prompt
    from homarus.process import open_app

    key, agent = asked.get("sessionKey"), asked.get("agentId")
    async with open_app(os.environ, warn=warn) as app:
        found = app.control.resolve_key(key, agent)
        return await show_prompt(app.preview, found, text=asked["text"])
