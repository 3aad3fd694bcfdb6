"""`homarus policy`: what the rules say about a tool call, and which of them decides."""

import asyncio
import json
import os
from typing import TYPE_CHECKING

import click

from homarus.channels.registry import find_traits
from homarus.cli.bindings import known_agent, load_own_config
from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import as_json_option
from homarus.cli.options import agent_option, model_option, session_option
from homarus.config.agent_settings import agent_ids, default_agent_id
from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.config.session_store import find_session_store
from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.core.session_keys import canonical_key, channel_of
from homarus.core.text import escape_invisible

if TYPE_CHECKING:
    from homarus.agent.policy_explanation import PolicyExplanation

_ARGS_FORM = """--args '{"path": "notes.md"}'"""


@click.group("policy", cls=CommandGroup)
@examples("homarus policy explain exec", "homarus policy explain shell --sender telegram:1234")
def command() -> None:
    """Explain which tool calls are allowed, asked about or denied."""


@command.command("explain")
@examples(
    "homarus policy explain message",
    'homarus policy explain exec --args \'{"command": "git status"}\'',
    "homarus policy explain write --sender telegram:1234",
)
@click.argument("tool", metavar="TOOL")
@agent_option("The agent.", default="the default agent")
@session_option("The session whose settings hold.")
@click.option("--sender", metavar="CHANNEL:ID", help="Who writes; without it, the owner.")
@model_option("The model that makes the call.", default="the one of the session or agent")
@click.option("--args", "raw_args", metavar="JSON", help="The arguments of the call.")
@as_json_option
def explain_command(
    tool: str,
    agent: str | None,
    session_key: str | None,
    sender: str | None,
    model: str | None,
    raw_args: str | None,
    *,
    as_json: bool,
) -> None:
    """Show what every layer of the policy says about a tool call, and which one decides."""
    from homarus.agent.policy_explanation import (
        PolicyQuestion,
        encode_explanation,
        explain_tool_call,
    )

    paths, loaded = load_own_config()
    config = loaded.config
    key = resolve_session_key(config, session_key, agent)
    channel, name = _parse_sender(sender, key)
    question = PolicyQuestion(
        tool,
        key,
        asyncio.run(read_session_entry(paths, key)),
        channel,
        name,
        model or "",
        _parse_args(raw_args),
    )
    found = asyncio.run(explain_tool_call(config, paths, question, find_traits))
    shown = json.dumps(encode_explanation(found), ensure_ascii=False)
    click.echo(shown if as_json else _to_text(found))


def resolve_session_key(config: Config, session_key: str | None, agent: str | None) -> str:
    """Return the key of a session; without one, that of the main session of the agent."""
    owner = known_agent(config, agent) if agent else default_agent_id(config)
    return canonical_key(session_key, owner, agents=agent_ids(config))


def _parse_sender(sender: str | None, key: str) -> tuple[str, str]:
    """Return the channel and the id of a sender; without a channel, that of the session."""
    if not sender:
        return "", ""
    channel, colon, name = sender.strip().partition(":")
    if not colon:
        channel, name = channel_of(key), sender.strip()
    if not channel or not name:
        raise UserError(
            f"it is not clear who {sender!r} is", fix="write CHANNEL:ID, for example telegram:1234"
        )
    return channel.lower(), name


def _parse_args(raw: str | None) -> dict[str, Json] | None:
    if raw is None:
        return None
    try:
        args = json.loads(raw)
    except ValueError as exc:
        raise UserError(f"--args is not JSON: {exc}", fix=_ARGS_FORM) from exc
    if not isinstance(args, dict):
        raise UserError("--args is not a JSON object", fix=_ARGS_FORM)
    return args


async def read_session_entry(paths: Paths, key: str) -> dict[str, Json]:
    """Return what is stored about a session; nothing where there is no store yet."""
    from homarus.store.sqlite import open_store

    paths = find_session_store(paths, os.environ)
    async with open_store(paths.state, read_only=True, sessions=paths.session_store) as store:
        record = await store.session(key)
    return dict(record.data) if record else {}


def _to_text(found: "PolicyExplanation") -> str:
    from homarus.policy.taint import TAINT_RULES

    decision, caller = found.decision, found.caller
    width = max(len(each.layer) for each in decision.verdicts)
    rows = [
        f"  {each.layer:<{width}}  {each.action or '-':<5}  {each.reason}"
        for each in decision.verdicts
    ]
    who = f"{caller.channel}:{caller.sender}" if caller.sender else "the owner"
    if not caller.is_owner and not caller.sender:
        who = "a sender who is not the owner"
    owner = " (owner)" if caller.is_owner and caller.sender else ""
    lines = [
        f"{found.tool.name}: {decision.action}, by {decision.layer}: {decision.reason}",
        f"  for {who}{owner} in {caller.session_key}"
        + (f", model {caller.provider}/{caller.model}" if caller.provider else ""),
        *rows,
        *(f"  note: {note}" for note in found.notes),
        "A run that has read untrusted content also asks before a call that:",
        *(f"  {effect:<{width}}  {text}" for effect, text in TAINT_RULES.items()),
    ]
    return escape_invisible("\n".join(lines))
