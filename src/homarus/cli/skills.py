"""`homarus skills`: the skills of an agent, and what those lack that cannot be used.

The commands read the files of this machine, with or without a running gateway.
"""

import json
from typing import TYPE_CHECKING, Final

import click

from homarus.cli.bindings import known_agent, load_own_config
from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import as_json_option
from homarus.cli.options import agent_option
from homarus.cli.skill_dependencies import deps
from homarus.cli.skills_hub import COMMANDS as REGISTRY_COMMANDS
from homarus.cli.text_layout import clip, width
from homarus.config.agent_settings import default_agent_id
from homarus.config.paths import shorten
from homarus.core.errors import UnknownNameError
from homarus.core.message import Json
from homarus.core.text import closest_names, escape_invisible

if TYPE_CHECKING:
    from homarus.skills.catalog import AgentSkills, SkillCatalog
    from homarus.skills.find import SkillProblem
    from homarus.skills.skill import Skill
    from homarus.skills.status import SkillStatus

_agent_option = agent_option("The agent whose skills are shown.", default="the default agent")
_MARKS: Final = {"ready": "✓", "disabled": "-", "blocked": "-", "missing": "✗"}
_MAX_COLUMNS: Final = 100


@click.group("skills", cls=CommandGroup, invoke_without_command=True)
@examples("homarus skills", "homarus skills info github", "homarus skills check")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Manage skills; without a subcommand, list them."""
    if not ctx.invoked_subcommand:
        ctx.invoke(list_)


for _each in (*REGISTRY_COMMANDS, deps):
    command.add_command(_each)


@command.command("list")
@examples("homarus skills list --eligible", "homarus skills list -v", "homarus skills list --json")
@click.option("--eligible", is_flag=True, help="Only the skills that can be used.")
@click.option("-v", "--verbose", is_flag=True, help="Also what each skill lacks.")
@_agent_option
@as_json_option
def list_(*, eligible: bool, verbose: bool, agent: str | None, as_json: bool) -> None:
    """List the skills of an agent."""
    from homarus.skills.status import encode_problems, encode_summary, list_statuses

    catalog, found = _load(agent)
    rows = [each for each in list_statuses(found) if each.is_usable or not eligible]
    if as_json:
        _print_json(
            {
                "workspaceDir": str(found.workspace),
                "managedSkillsDir": str(catalog.managed),
                "skills": [encode_summary(row) for row in rows],
                "problems": encode_problems(found),
            }
        )
        return
    ready = sum(row.is_usable for row in rows)
    click.echo(f"Skills ({ready}/{len(rows)} ready)")
    columns = max((width(row.skill.name) for row in rows), default=0)
    for row in rows:
        _print_row(row, columns, verbose=verbose)
    _print_problems(found)


def _print_row(row: "SkillStatus", columns: int, *, verbose: bool) -> None:
    skill = row.skill
    name = skill.name + " " * (columns - width(skill.name))
    head = f"{_MARKS[row.state]} {row.state:<8} {name}  {skill.tier.value:<9} "
    click.echo(head + clip(escape_invisible(skill.description), _MAX_COLUMNS - width(head)))
    if verbose:
        for line in _explain(row):
            click.echo(f"    {line}")


def _explain(row: "SkillStatus") -> list[str]:
    lines = [] if row.is_allowed else ["the list of the agent's skills leaves it out"]
    reasons = row.eligibility.reasons
    return [*lines, *(escape_invisible(f"{each.message}: {each.fix}") for each in reasons)]


@command.command("info")
@examples("homarus skills info github", "homarus skills info github --json")
@click.argument("name", metavar="NAME")
@_agent_option
@as_json_option
def info(name: str, agent: str | None, *, as_json: bool) -> None:
    """Show all that is known of one skill: where it is, what it needs, and what is missing."""
    from homarus.skills.status import SkillStatus, encode_skill

    _, found = _load(agent)
    skill = found.find(name)
    if skill is None:
        names = [each.name for each in found.skills]
        near = closest_names(name, names)
        fix = "" if near else "homarus skills list shows them all"
        raise UnknownNameError("skill", name, near, fix=fix)
    status = SkillStatus(skill, found.check(skill), found.is_allowed(skill))
    if as_json:
        _print_json(encode_skill(found, status))
        return
    title = " ".join(filter(None, (skill.metadata.emoji, skill.name)))
    click.echo(escape_invisible(f"{title}: {status.state}\n\n{skill.description}\n"))
    for label, value in _details(found, status):
        click.echo(escape_invisible(f"{label + ':':<13}{value}"))
    _print_actions(skill)
    if lines := _explain(status):
        click.echo("\nNot used, because:")
        for line in lines:
            click.echo(f"  {line}")


def _print_actions(skill: "Skill") -> None:
    """Print the actions of a skill: the tools that they become, and what each does."""
    from homarus.skills.actions.action_files import load_actions
    from homarus.skills.actions.definition import describe_action, make_action_name

    loaded = load_actions(skill)
    if loaded.actions or loaded.problems:
        click.echo("\nActions:")
    for action in loaded.actions:
        tool = make_action_name(skill.name, action.name)
        click.echo(escape_invisible(f"  {tool}: {action.description}"))
        keys = f", with {', '.join(action.key_names)}" if action.key_names else ""
        click.echo(escape_invisible(f"    {describe_action(action)}{keys}"))
    for problem in loaded.problems:
        click.echo(escape_invisible(f"  ✗ {problem}"))


def _details(found: "AgentSkills", status: "SkillStatus") -> list[tuple[str, str]]:
    """Return what is known of a skill, as lines with a label."""
    from homarus.skills.status import label_install, list_installs

    skill, needs = status.skill, status.eligibility.requirements
    by = {"the model": skill.invocation.by_model, "users": skill.invocation.by_user}
    options = list_installs(skill, found.facts.platform)
    rows = {
        "File": shorten(skill.file, found.home),
        "Source": skill.tier.value,
        "Overrides": ", ".join(
            each.tier.value for each in found.found.overridden if each.name == skill.name
        ),
        "Settings": f"skills.entries.{skill.key}",
        "Invoked by": " and ".join(who for who, may in by.items() if may) or "no one",
        "Command": f"calls the tool {skill.dispatch.tool}" if skill.dispatch else "",
        "Programs": ", ".join(needs.bins),
        "One of": ", ".join(needs.any_bins),
        "Variables": ", ".join(needs.env),
        "Config": ", ".join(needs.config),
        "Systems": ", ".join(needs.os),
        "Install": "; ".join(f"{label_install(option)} [{key}]" for key, option in options),
        "Homepage": skill.homepage,
        "License": skill.license,
        "Needs": skill.compatibility,
        "Tools": f"{', '.join(skill.allowed_tools)} (its author's list; it restricts nothing)"
        if skill.allowed_tools
        else "",
    }
    return [(label, value) for label, value in rows.items() if value]


@command.command("check")
@examples("homarus skills check", "homarus skills check --json")
@_agent_option
@as_json_option
def check(*, agent: str | None, as_json: bool) -> None:
    """Show which skills can be used, what each of the others lacks, and files with mistakes."""
    from homarus.skills.status import (
        encode_installs,
        encode_problems,
        encode_requirements,
        list_problems,
        list_statuses,
    )

    _, found = _load(agent)
    rows: dict[str, list[SkillStatus]] = {state: [] for state in _MARKS}
    for row in list_statuses(found):
        rows[row.state].append(row)
    if as_json:
        names: dict[str, list[Json]] = {
            state: [row.skill.name for row in rows[state]] for state in rows
        }
        _print_json(
            {
                "summary": {
                    "total": len(found.skills),
                    "eligible": len(rows["ready"]),
                    "disabled": len(rows["disabled"]),
                    "blocked": len(rows["blocked"]),
                    "missingRequirements": len(rows["missing"]),
                    "problems": len(list_problems(found)),
                },
                "eligible": names["ready"],
                "disabled": names["disabled"],
                "blocked": names["blocked"],
                "missingRequirements": [
                    {
                        "name": row.skill.name,
                        "missing": encode_requirements(row.eligibility.missing),
                        "install": encode_installs(row.skill, found.facts.platform),
                    }
                    for row in rows["missing"]
                ],
                "problems": encode_problems(found),
            }
        )
        return
    ready = [row.skill.name for row in rows.pop("ready")]
    click.echo(f"Ready: {len(ready)} of {len(found.skills)}")
    if ready:
        click.echo(f"  {', '.join(ready)}")
    for state, unused in rows.items():
        for row in unused:
            click.echo(f"\n{_MARKS[state]} {row.skill.name}: {state}")
            for line in _explain(row):
                click.echo(f"    {line}")
    _print_problems(found)


def _print_problems(found: "AgentSkills") -> None:
    from homarus.skills.actions.action_files import find_action_problems

    sections = {
        "Not read as skills": found.problems,
        "Actions that are not offered": find_action_problems(found.skills),
    }
    for title, problems in sections.items():
        if problems:
            click.echo(f"\n{title}:")
        for problem in problems:
            click.echo(f"  {_format_problem(found, problem)}")


def _format_problem(found: "AgentSkills", problem: "SkillProblem") -> str:
    fix = f"; {problem.fix}" if problem.fix else ""
    return escape_invisible(f"{shorten(problem.path, found.home)}: {problem.message}{fix}")


def _load(agent: str | None) -> "tuple[SkillCatalog, AgentSkills]":
    from homarus.skills.catalog import SkillCatalog

    paths, loaded = load_own_config()
    catalog = SkillCatalog(lambda: loaded, paths)
    config = loaded.config
    return catalog, catalog.load(known_agent(config, agent) if agent else default_agent_id(config))


def _print_json(payload: dict[str, Json]) -> None:
    click.echo(json.dumps(payload, ensure_ascii=False))
