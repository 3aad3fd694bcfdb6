"""`homarus approvals`: answer questions about tool calls, and edit the rules for commands."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import click

from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    gateway_options,
    is_gateway_running,
    open_gateway,
)
from homarus.cli.options import agent_option
from homarus.cli.text_layout import printable
from homarus.config.approvals_snapshot import (
    ApprovalsSnapshot,
    change_approvals,
    check_approvals,
    edit_allowlist,
    read_approvals_snapshot,
)
from homarus.config.paths import Paths
from homarus.core.clock import SystemClock
from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.core.text import escape_invisible

_MAX_FILE_BYTES: Final = 5_000_000
_ALL_AGENTS: Final = "*"


@click.group("approvals", cls=CommandGroup)
@examples("homarus approvals list", "homarus approvals allow 4f2a91c0", "homarus approvals get")
def command() -> None:
    """Answer questions about tool calls; edit the rules for commands."""


@command.command("list")
@examples("homarus approvals list", "homarus approvals list --json")
@as_json_option
@gateway_options
def list_(gateway: GatewayOptions, *, as_json: bool) -> None:
    """List the tool calls that wait for an approval."""
    found = asyncio.run(_list_pending(gateway))
    if as_json:
        click.echo(json.dumps({"approvals": found}, ensure_ascii=False))
        return
    if not found:
        click.echo("Nothing waits for an approval.")
    now_ms = SystemClock().now_ms()
    for each in found:
        _show_pending(each, now_ms)


@command.command()
@examples("homarus approvals allow 4f2a91c0", "homarus approvals allow 4f2a91c0 --always")
@click.argument("id")
@click.option("--always", is_flag=True, help="Also allow it for good, where that is offered.")
@as_json_option
@gateway_options
def allow(id: str, gateway: GatewayOptions, *, always: bool, as_json: bool) -> None:  # noqa: A002 - the word for it
    """Allow the call with this ID, once; the start of the id is enough."""
    _answer(gateway, id, "allow-always" if always else "allow-once", as_json=as_json)


@command.command()
@examples("homarus approvals deny 4f2a91c0")
@click.argument("id")
@as_json_option
@gateway_options
def deny(id: str, gateway: GatewayOptions, *, as_json: bool) -> None:  # noqa: A002 - the word for it
    """Deny the call with this ID; the start of the id is enough."""
    _answer(gateway, id, "deny", as_json=as_json)


@command.command()
@examples("homarus approvals answer 4f2a91c0 2", "homarus approvals answer 4f2a91c0 'next week'")
@click.argument("id")
@click.argument("text")
@as_json_option
@gateway_options
def answer(id: str, text: str, gateway: GatewayOptions, *, as_json: bool) -> None:  # noqa: A002 - the word for it
    """Answer the agent's question with this ID by TEXT: a choice, its number, or a text."""
    is_live = asyncio.run(_answer_question(gateway, id, text))
    if as_json:
        click.echo(json.dumps({"ok": True, "now": is_live}))
        return
    when = "" if is_live else " The next start of the gateway goes on with it."
    click.echo(f"{escape_invisible(id)} is answered.{when}")


def _answer(gateway: GatewayOptions, named: str, decision: str, *, as_json: bool) -> None:
    is_live = asyncio.run(_resolve(gateway, named, decision))
    if as_json:
        click.echo(json.dumps({"ok": True, "decision": decision, "now": is_live}))
        return
    outcome = "denied" if decision == "deny" else "allowed"
    when = "" if is_live else " The next start of the gateway goes on with the answer."
    click.echo(f"{escape_invisible(named)} is {outcome}.{when}")


@command.command()
@examples("homarus approvals get", "homarus approvals get --json > rules.json")
@as_json_option
@gateway_options
def get(gateway: GatewayOptions, *, as_json: bool) -> None:
    """Show the rules for commands (exec-approvals.json)."""
    found = asyncio.run(_read_rules(gateway))
    if as_json:
        click.echo(json.dumps(found.to_json(), ensure_ascii=False))
        return
    state = "" if found.exists else " (there is none yet: the defaults hold)"
    click.echo(f"{found.path}{state}")
    _show_rules("defaults", found.file.get("defaults"))
    agents = found.file.get("agents")
    for name, section in (agents if isinstance(agents, Mapping) else {}).items():
        _show_rules("all agents" if name == _ALL_AGENTS else f"agent {name}", section)


@command.command("set")
@examples("homarus approvals set --file rules.json", "homarus approvals set --stdin < rules.json")
@click.option("--file", "file", type=click.Path(dir_okay=False, path_type=Path), metavar="PATH",
              help="Read the rules from a file.")  # fmt: skip
@click.option("--stdin", "from_stdin", is_flag=True, help="Read the rules from standard input.")
@as_json_option
@gateway_options
def set_(gateway: GatewayOptions, file: Path | None, *, from_stdin: bool, as_json: bool) -> None:
    """Replace the rules for commands by those of a JSON file."""
    if (file is None) != from_stdin:
        raise click.UsageError("give either --file or --stdin")
    rules = _parse_rules(sys.stdin.buffer.read(_MAX_FILE_BYTES) if file is None else _read(file))
    checked = check_approvals(rules)
    written = asyncio.run(_change_rules(gateway, lambda _old: checked))
    if as_json:
        click.echo(json.dumps(written.to_json(), ensure_ascii=False))
    else:
        click.echo(f"{written.path} is replaced; the next command follows it.")


@command.group("allowlist", cls=CommandGroup)
@examples("homarus approvals allowlist add ~/bin/deploy --agent main")
def allowlist() -> None:
    """Programs that run without a question."""


@allowlist.command()
@examples("homarus approvals allowlist add '/usr/bin/rg'")
@click.argument("pattern")
@agent_option("Only for this agent.", default="all agents")
@as_json_option
@gateway_options
def add(pattern: str, agent: str | None, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Add PATTERN, the path of a program."""
    now_ms = SystemClock().now_ms()

    def edit(old: ApprovalsSnapshot) -> Mapping[str, Json] | None:
        return edit_allowlist(old.file, agent or _ALL_AGENTS, add=pattern, now_ms=now_ms)

    _edit_list(gateway, edit, "is added", "was there already", pattern, as_json=as_json)


@allowlist.command()
@examples("homarus approvals allowlist remove '/usr/bin/rg'")
@click.argument("pattern")
@agent_option("Only for this agent.", default="all agents")
@as_json_option
@gateway_options
def remove(pattern: str, agent: str | None, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Remove PATTERN, as `approvals get` shows it."""

    def edit(old: ApprovalsSnapshot) -> Mapping[str, Json] | None:
        return edit_allowlist(old.file, agent or _ALL_AGENTS, remove=pattern)

    _edit_list(gateway, edit, "is removed", "was not there", pattern, as_json=as_json)


def _edit_list(
    gateway: GatewayOptions,
    edit: Callable[[ApprovalsSnapshot], Mapping[str, Json] | None],
    done: str,
    unchanged: str,
    pattern: str,
    *,
    as_json: bool,
) -> None:
    is_changed = False

    def track(old: ApprovalsSnapshot) -> Mapping[str, Json] | None:
        nonlocal is_changed
        new = edit(old)
        is_changed = new is not None
        return new

    written = asyncio.run(_change_rules(gateway, track))
    if as_json:
        click.echo(json.dumps({"changed": is_changed, **written.to_json()}, ensure_ascii=False))
    else:
        click.echo(f"{escape_invisible(pattern)} {done if is_changed else unchanged}.")


async def _list_pending(gateway: GatewayOptions) -> list[dict[str, Json]]:
    if is_gateway_running(gateway):
        async with open_gateway(gateway) as client:
            found = await client.call("exec.approval.list", {})
            questions = await client.call("question.list", {})
        listed = [*(found or ()), *_questions_as_approvals(questions)]
        return [each for each in listed if isinstance(each, dict)]
    from homarus.config.session_store import find_session_store
    from homarus.gateway.approval_payloads import show_pending, show_question
    from homarus.store.sqlite import open_store

    paths, now_ms = find_session_store(Paths.find(os.environ), os.environ), SystemClock().now_ms()
    async with open_store(paths.state, read_only=True, sessions=paths.session_store) as store:
        pending = await store.journal.approvals("pending")
    alive = [record for record in pending if record.expires_ms > now_ms]
    questions = [show_question(record) for record in alive if record.is_question]
    shown = [show_pending(record) for record in alive if not record.is_question]
    return [*shown, *_questions_as_approvals({"questions": questions})]


async def _answer_question(gateway: GatewayOptions, named: str, text: str) -> bool:
    """Answer a question; return whether a gateway did, which goes on at once."""
    from homarus.gateway.question_payloads import make_resolve_params

    if is_gateway_running(gateway):
        async with open_gateway(gateway) as client:
            await client.call("question.resolve", make_resolve_params(named, text))
        return True
    await _resolve_in_store(named, text, is_answer=True)
    return False


def _questions_as_approvals(result: Json) -> list[dict[str, Json]]:
    """Return the questions of a list in the form of approvals."""
    from homarus.gateway.question_payloads import parse_question

    listed = result.get("questions") if isinstance(result, dict) else None
    found = list[dict[str, Json]]()
    for each in listed or ():
        if question := parse_question(each):
            choices = [f"{number}. {text}" for number, text in enumerate(question.choices, 1)]
            detail = "\n".join([question.text, *choices])
            request = {"kind": "question", "detail": detail, "sessionKey": question.session_key}
            found.append(
                {"id": question.id, "request": request, "expiresAtMs": each["expiresAtMs"]}
            )
    return found


async def _resolve(gateway: GatewayOptions, named: str, decision: str) -> bool:
    """Answer an approval; return whether a gateway did, which goes on at once."""
    if is_gateway_running(gateway):
        async with open_gateway(gateway) as client:
            params = {"id": named, "decision": decision}
            await client.call("exec.approval.resolve", params)
        return True
    await _resolve_in_store(named, decision)
    return False


async def _resolve_in_store(named: str, decision: str, *, is_answer: bool = False) -> None:
    """Record the answer in the store; the run that waits for it is resumed by the next start."""
    from homarus.agent.approval_ports import ApprovalPorts, ApproverIdentity
    from homarus.agent.approval_service import ApprovalService, ApprovalServices
    from homarus.config.session_store import find_session_store
    from homarus.core.bus import Bus
    from homarus.store.audit import AuditLog
    from homarus.store.sqlite import open_store

    paths = find_session_store(Paths.find(os.environ), os.environ)
    async with open_store(paths.state, sessions=paths.session_store) as store:
        services = ApprovalServices(
            journal=store.journal,
            bus=Bus(),
            clock=SystemClock(),
            spawn=lambda work, _name: work.close(),
            ports=ApprovalPorts(),
            build_notice=lambda _message, _run, _text: (),
            on_enqueued=lambda: None,
            resume_run=lambda _session, _run: None,
            get_expiry_s=lambda: 0,
            audit=(audit := AuditLog(store)),
        )
        by = ApproverIdentity("the command line")
        service = ApprovalService(services)
        await (service.answer if is_answer else service.resolve)(named, decision, by)
        await audit.write()


def _show_pending(approval: Mapping[str, Json], now_ms: int) -> None:
    request = approval.get("request")
    asked = request if isinstance(request, dict) else {}
    minutes = max(0, int(approval.get("expiresAtMs") or 0) - now_ms) // 60_000
    session = escape_invisible(str(asked.get("sessionKey") or "another program"))
    click.echo(f"{str(approval.get('id'))[:8]}  {session}  good for {minutes} min more")
    detail = str(asked.get("detail") or asked.get("command") or "")
    for line in printable(detail).split("\n"):
        click.echo(f"          {line}")
    if reason := asked.get("reason"):
        click.echo(f"          asked because {escape_invisible(str(reason))}")


async def _read_rules(gateway: GatewayOptions) -> ApprovalsSnapshot:
    if not is_gateway_running(gateway):
        return read_approvals_snapshot(Paths.find(os.environ).state)
    async with open_gateway(gateway) as client:
        return _snapshot(await client.call("exec.approvals.get", {}))


async def _change_rules(
    gateway: GatewayOptions, change: Callable[[ApprovalsSnapshot], Mapping[str, Json] | None]
) -> ApprovalsSnapshot:
    """Change the rules through a running gateway, else in the file."""
    if not is_gateway_running(gateway):
        return change_approvals(Paths.find(os.environ).state, change)
    async with open_gateway(gateway) as client:
        old = _snapshot(await client.call("exec.approvals.get", {}))
        new = change(old)
        if new is None:
            return old
        params = {"file": dict(new), "baseHash": old.hash}
        return _snapshot(await client.call("exec.approvals.set", params))


def _snapshot(found: Json) -> ApprovalsSnapshot:
    told = found if isinstance(found, dict) else {}
    path, file = Path(str(told.get("path", ""))), told.get("file")
    rules = file if isinstance(file, dict) else {}
    return ApprovalsSnapshot(path, told.get("exists") is True, str(told.get("hash", "")), rules)


def _show_rules(title: str, section: Json) -> None:
    if not isinstance(section, Mapping):
        return
    rules = (f"{name} {value}" for name, value in section.items() if name != "allowlist")
    click.echo(f"{escape_invisible(title)}: {escape_invisible(', '.join(rules)) or 'no rules'}")
    entries = section.get("allowlist")
    for entry in entries if isinstance(entries, list) else ():
        pattern = entry.get("pattern") if isinstance(entry, Mapping) else entry
        click.echo(f"  {escape_invisible(str(pattern))}")


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(_MAX_FILE_BYTES)


def _parse_rules(data: bytes) -> Mapping[str, Json]:
    try:
        found = json.loads(data.decode())
    except (ValueError, RecursionError) as exc:
        raise UserError(
            f"the rules are not JSON: {exc}", fix="homarus approvals get --json"
        ) from exc
    rules = found.get("file", found) if isinstance(found, dict) else None
    if not isinstance(rules, dict):
        raise UserError("the rules are not a JSON object", fix="homarus approvals get --json")
    return rules
