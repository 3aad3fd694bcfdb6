"""`homarus prompt`: what a conversation's model is told before anything is said."""

import asyncio
import json
import os

import click

from homarus.agent.prompt.report import describe, read_report
from homarus.cli.reach import Reach, is_running, open_gateway, reach_options, warn
from homarus.core.message import Json


@click.command("prompt")
@click.option("--agent", metavar="ID", help="An agent's main conversation.")
@click.option("--session", "key", metavar="KEY", help="This conversation.")
@click.option("--report", is_flag=True, help="Say what it is made of instead of showing it.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@reach_options
def command(
    agent: str | None,
    key: str | None,
    url: str | None,
    token: str | None,
    password: str | None,
    *,
    report: bool,
    as_json: bool,
) -> None:
    """Show the system prompt of a conversation, or what it is made of."""
    asked = {"agentId": agent, "sessionKey": key, "text": not report}
    asked = {name: value for name, value in asked.items() if value is not None}
    told = asyncio.run(_get(Reach(url, token, password), asked))
    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False))
        return
    figures = read_report(told.get("report"))
    if report and figures:
        click.echo(describe(figures, detail=True))
    else:
        click.echo(told.get("text", ""))


async def _get(reach: Reach, asked: dict[str, Json]) -> dict[str, Json]:
    if is_running(reach):
        async with open_gateway(reach) as link:
            told = await link.call("prompt.get", asked)
        return told if isinstance(told, dict) else {}
    from homarus.agent.prompt.preview import preview
    from homarus.agent.run import agent_of
    from homarus.app import open_app

    async with open_app(os.environ, warn=warn) as app:
        key = app.key(asked.get("sessionKey"), asked.get("agentId"))
        agent = app.agent(agent_of(key))
        tools = app.tools(agent.id).specs()
        session = await app.session(key)
        found = await preview(session, agent, app.models, tools, app.clock.now_ms())
    told = {"sessionKey": key, "agentId": agent.id, "report": found.report.to_json()}
    return {**told, "text": found.prompt.text} if asked["text"] else told
