"""Install the programs that a skill requires, from the command line.

What would be done is printed whole. It is done after the person at the terminal, or another
approver, has allowed it, by a running gateway if there is one. Then it is checked again whether the
skill can be used.
"""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeAlias

import click

from homarus.cli.bindings import known_agent, load_own_config
from homarus.cli.command_group import examples
from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    is_gateway_running,
    open_gateway,
    warn,
)
from homarus.cli.options import agent_option, timeout_option
from homarus.config.agent_settings import default_agent_id
from homarus.core.errors import HomarusError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import escape_controls, escape_invisible

if TYPE_CHECKING:
    from homarus.cli.approval_prompt import ApprovalPrompt
    from homarus.skills.catalog import AgentSkills
    from homarus.skills.install_plan import InstallPlan
    from homarus.skills.skill import Skill

DEFAULT_TIMEOUT_S = 300.0
_MAX_LINES = 40

# Installs by a plan, and returns the payload of `skills.install`.
RunInstall: TypeAlias = "Callable[[InstallPlan], Awaitable[Mapping[str, Json]]]"


@dataclass(frozen=True, slots=True)
class DependencyOptions:
    """What the command line asks for; `install_id` is one way to install, else the best ones."""

    agent: str | None = None
    install_id: str = ""
    timeout_s: float = DEFAULT_TIMEOUT_S
    is_dry_run: bool = False
    as_json: bool = False


@click.command("deps")
@examples("homarus skills deps github", "homarus skills deps github --dry-run")
@click.argument("name", metavar="NAME")
@click.option("--id", "install_id", metavar="ID", default="", help="One way to install, by its id.")
@click.option("--dry-run", "is_dry_run", is_flag=True, help="Only show what would be done.")
@agent_option("The agent whose skill it is.", default="the default agent")
@timeout_option("Seconds that each install may take.", default_s=DEFAULT_TIMEOUT_S)
@as_json_option
def deps(
    name: str,
    install_id: str,
    agent: str | None,
    timeout_s: float,
    *,
    is_dry_run: bool,
    as_json: bool,
) -> None:
    """Install the programs that a skill requires, after your approval."""
    options = DependencyOptions(agent, install_id, timeout_s, is_dry_run, as_json)
    install_dependencies(name, options)


def install_dependencies(name: str, options: DependencyOptions) -> None:
    """Install what a skill lacks, and print whether it can be used then. Raises UserError."""
    found, skill = _load(name, options.agent)
    plans = _plan(found, skill, options.install_id)
    rows: list[dict[str, Json]] = []
    if not options.as_json and (options.is_dry_run or not plans or not _is_terminal()):
        _print_plans(skill, plans)  # else the question shows it
    failed = ""
    if plans and not options.is_dry_run:
        rows, failed = asyncio.run(_install_all(plans, options, found.agent_id))
    found, skill = _load(name, options.agent)
    checked = found.check(skill)
    if options.as_json:
        report = {
            "name": skill.name,
            "plans": [{"id": each.install_id, "does": each.describe()} for each in plans],
            "results": rows,
            "eligible": checked.is_eligible,
            "reasons": [{"message": each.message, "fix": each.fix} for each in checked.reasons],
        }
        click.echo(json.dumps(report, ensure_ascii=False))
    elif not options.is_dry_run:
        state = "can be used" if checked.is_eligible else "cannot be used yet"
        click.echo(escape_invisible(f"{skill.name} {state}"))
        for each in checked.reasons:
            click.echo(escape_invisible(f"  {each.message}: {each.fix}"))
    if failed:
        raise UserError(failed)


def _load(name: str, agent: str | None) -> "tuple[AgentSkills, Skill]":
    from homarus.core.errors import UnknownNameError
    from homarus.core.text import closest_names
    from homarus.skills.catalog import SkillCatalog

    paths, loaded = load_own_config()
    config = loaded.config
    agent_id = known_agent(config, agent) if agent else default_agent_id(config)
    found = SkillCatalog(lambda: loaded, paths).load(agent_id)
    skill = found.find(name)
    if skill is None:
        near = closest_names(name, [each.name for each in found.skills])
        raise UnknownNameError("skill", name, near, fix="homarus skills list shows them all")
    return found, skill


def _plan(found: "AgentSkills", skill: "Skill", install_id: str) -> "tuple[InstallPlan, ...]":
    from homarus.agent.skill_install import plan_installs

    paths, _ = load_own_config()
    return plan_installs(found, skill, paths, install_id)


def _print_plans(skill: "Skill", plans: "tuple[InstallPlan, ...]") -> None:
    if not plans:
        click.echo(escape_invisible(f"There is nothing to install for {skill.name}."))
    for plan in plans:
        for line in plan.describe():
            click.echo(escape_invisible(line))
        click.echo()


async def _install_all(
    plans: "tuple[InstallPlan, ...]", options: DependencyOptions, agent_id: str
) -> tuple[list[dict[str, Json]], str]:
    """Install by each plan until one fails; return the results and why one failed."""
    rows: list[dict[str, Json]] = []
    is_remote = is_gateway_running(GatewayOptions())
    opened = _by_gateway if is_remote else _in_this_process
    async with opened(options, agent_id) as install:
        for plan in plans:
            try:
                result = dict(await install(plan))
            except HomarusError as exc:
                payload = getattr(exc, "payload", None)
                result = dict(payload) if isinstance(payload, dict) else {"ok": False}
                result |= {"message": str(exc)}
            rows.append({"id": plan.install_id, **result})
            if not options.as_json:
                _print_result(result)
            if not result.get("ok"):
                return rows, f"{plan.label} was not done: {result.get('message')}"
    return rows, ""


def _print_result(result: Mapping[str, Json]) -> None:
    lines = str(result.get("stdout") or "").rstrip("\n").split("\n")
    if len(lines) > _MAX_LINES:
        lines = [f"[{len(lines) - _MAX_LINES} lines left out]", *lines[-_MAX_LINES:]]
    for line in lines if any(lines) else ():
        click.echo(escape_controls(f"  {line}"))
    if result.get("ok"):
        click.echo(escape_controls(str(result.get("message"))))


@asynccontextmanager
async def _in_this_process(options: DependencyOptions, agent_id: str) -> AsyncIterator[RunInstall]:
    """Yield what installs without a gateway; the person at the terminal is the approver."""
    from homarus.agent.skill_install import DependencyInstaller
    from homarus.process import open_app

    async with open_app(os.environ, warn=warn) as app:
        if prompt := _make_prompt(as_json=options.as_json):
            from homarus.cli.approval_prompt import TerminalApprover

            app.approval_ports.register_approver(TerminalApprover(prompt))
        installer = DependencyInstaller(app.gateway_services(), app.skills(), agent_id, "cli")

        async def install(plan: "InstallPlan") -> Mapping[str, Json]:
            outcome = await installer.install(plan, options.timeout_s)
            return outcome.encode()

        yield install


@asynccontextmanager
async def _by_gateway(options: DependencyOptions, agent_id: str) -> AsyncIterator[RunInstall]:
    """Yield what has the running gateway install; its question is asked at this terminal, too."""
    from homarus.core.session_keys import main_key
    from homarus.core.tasks import task_group
    from homarus.policy.approvals import APPROVER_CAPABILITY

    prompt = _make_prompt(as_json=options.as_json)
    caps = (APPROVER_CAPABILITY,) if prompt else ()
    async with open_gateway(GatewayOptions(), caps=caps) as client, task_group() as group:

        async def call(method: str, params: Mapping[str, Json]) -> Json:
            return await client.call(method, params)

        async def show_questions() -> None:
            async for name, payload in client.events():
                if approver:
                    approver.on_event(name, payload)

        async def install(plan: "InstallPlan") -> Mapping[str, Json]:
            params: dict[str, Json] = {
                "name": plan.skill.name,
                "installId": plan.install_id,
                "timeoutMs": max(1_000, round(options.timeout_s * 1000)),
                "agentId": agent_id,
            }
            # It waits for a person: the approval expires by itself.
            answer = await client.call("skills.install", params, timeout_s=None)
            return answer if isinstance(answer, dict) else {}

        approver = None
        if prompt:
            from homarus.cli.gateway_approver import GatewayApprover

            approver = GatewayApprover(prompt, main_key(agent_id), group, call, warn)
        questions = group.create_task(show_questions())
        yield install
        if approver:
            approver.close()
        questions.cancel()


def _is_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _make_prompt(*, as_json: bool) -> "ApprovalPrompt | None":
    """Return what asks the person at the terminal; None where there is no person."""
    if as_json or not _is_terminal():
        return None
    from homarus.cli.approval_prompt import ApprovalPrompt
    from homarus.cli.terminal import LineReader, TerminalView, colour_wanted

    view = TerminalView(sys.stdout, colour=colour_wanted(sys.stdout))
    return ApprovalPrompt(view, LineReader())
