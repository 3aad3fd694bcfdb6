"""`homarus hooks`: the internal hooks of this machine, and switching them on and off.

The commands read the files of this machine, with or without a running gateway.
"""

import json
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from homarus.cli.bindings import load_own_config
from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.config_client import run_with_config
from homarus.cli.gateway_options import GatewayOptions, as_json_option
from homarus.cli.text_layout import clip, width
from homarus.config.paths import shorten
from homarus.core.errors import UnknownNameError, UserError
from homarus.core.message import Json
from homarus.core.text import closest_names, escape_invisible, one_line

if TYPE_CHECKING:
    from homarus.agent.internal_hooks.catalog import FoundHooks, HookCatalog
    from homarus.agent.internal_hooks.hook import InternalHook
    from homarus.agent.internal_hooks.hook_status import HookState, HookStatus
    from homarus.config.paths import Paths

_MARKS: Final[Mapping["HookState", str]] = {
    "ready": "✓",
    "disabled": "-",
    "not enabled": "-",
    "missing": "✗",
    "not runnable": "✗",
    "suspended": "✗",
}
_MAX_COLUMNS: Final = 100


@click.group("hooks", cls=CommandGroup, invoke_without_command=True)
@examples("homarus hooks", "homarus hooks info session-memory", "homarus hooks enable NAME")
@click.pass_context
def command(ctx: click.Context) -> None:
    """Manage internal hooks; without a subcommand, list them.

    A hook is a folder with a HOOK.md and a handler.py. There is no `install` and no `update`: the
    packages of OpenClaw are for Node.js, which is not started. Copy a folder into the folder hooks
    of the state directory instead.
    """
    if not ctx.invoked_subcommand:
        ctx.invoke(list_)


@command.command("list")
@examples("homarus hooks list --eligible", "homarus hooks list -v", "homarus hooks list --json")
@click.option("--eligible", is_flag=True, help="Only the hooks that run.")
@click.option("-v", "--verbose", is_flag=True, help="Also why each of the others does not run.")
@as_json_option
def list_(*, eligible: bool, verbose: bool, as_json: bool) -> None:
    """List the hooks."""
    paths, _, found = _load()
    if as_json:
        from homarus.agent.internal_hooks.hook_report import encode_hooks

        _print_json(encode_hooks(found, only_ready=eligible))
        return
    rows = [each for each in found.hooks if each.is_ready or not eligible]
    ready = sum(each.is_ready for each in rows)
    click.echo(f"Hooks ({ready}/{len(rows)} ready)")
    columns = max((width(each.hook.name) for each in rows), default=0)
    for each in rows:
        _print_row(each, columns, verbose=verbose)
    _print_problems(paths, found)


def _print_row(row: "HookStatus", columns: int, *, verbose: bool) -> None:
    hook = row.hook
    name = hook.name + " " * (columns - width(hook.name))
    head = f"{_MARKS[row.state]} {row.state:<12} {name}  {hook.tier.value:<9} "
    click.echo(head + clip(escape_invisible(hook.description), _MAX_COLUMNS - width(head)))
    if verbose:
        for line in _explain(row):
            click.echo(f"    {line}")


def _explain(row: "HookStatus") -> list[str]:
    reasons = (f"{each.message}: {each.fix}" for each in row.reasons)
    return [escape_invisible(line) for line in (*reasons, *row.notes)]


@command.command("info")
@examples("homarus hooks info session-memory", "homarus hooks info session-memory --json")
@click.argument("name", metavar="NAME")
@as_json_option
def info(name: str, *, as_json: bool) -> None:
    """Show all that is known of one hook: its events, its files, and why it does not run."""
    paths, _, found = _load()
    status = _find(found, name)
    if as_json:
        from homarus.agent.internal_hooks.hook_report import encode_hook

        _print_json(encode_hook(status))
        return
    hook = status.hook
    title = " ".join(filter(None, (hook.metadata.emoji, hook.name)))
    click.echo(escape_invisible(f"{title}: {status.state}\n\n{hook.description}\n"))
    rows = {
        "Events": ", ".join(hook.events),
        "Source": hook.tier.value,
        "Overrides": ", ".join(tier.value for tier in status.overrides),
        "File": shorten(hook.file, paths.home),
        "Handler": f"{shorten(hook.handler, paths.home)}, function {hook.export}",
        "Settings": f"hooks.internal.entries.{hook.key}",
        "Programs": ", ".join(hook.requires.bins),
        "One of": ", ".join(hook.requires.any_bins),
        "Variables": ", ".join(hook.requires.env),
        "Config": ", ".join(hook.requires.config),
        "Systems": ", ".join(hook.metadata.os),
        "Homepage": hook.metadata.homepage,
        "SHA-256": status.files.digest if status.files else "",
    }
    for label, value in rows.items():
        if value:
            click.echo(escape_invisible(f"{label + ':':<11}{value}"))
    for note in status.notes:
        click.echo(escape_invisible(f"Note: {note}"))
    if status.reasons:
        click.echo("\nIt does not run, because:")
        for each in status.reasons:
            click.echo(escape_invisible(f"  {each.message}: {each.fix}"))


@command.command("check")
@examples("homarus hooks check", "homarus hooks check --json")
@as_json_option
def check(*, as_json: bool) -> None:
    """Show which hooks run, why each of the others does not, and files with mistakes."""
    paths, _, found = _load()
    ready = [each.hook.name for each in found.hooks if each.is_ready]
    others = [each for each in found.hooks if not each.is_ready]
    if as_json:
        from homarus.agent.internal_hooks.hook_report import encode_hook, encode_problems

        summary: dict[str, Json] = {
            "total": len(found.hooks),
            "eligible": len(ready),
            "notEligible": len(others),
            "problems": len(found.problems),
        }
        payload: dict[str, Json] = {"summary": summary, "eligible": [*ready]}
        payload["notEligible"] = [encode_hook(each) for each in others]
        payload["problems"] = encode_problems(found)
        _print_json(payload)
        return
    click.echo(f"Ready: {len(ready)} of {len(found.hooks)}")
    if ready:
        click.echo(escape_invisible(f"  {', '.join(ready)}"))
    for each in others:
        click.echo(escape_invisible(f"\n{_MARKS[each.state]} {each.hook.name}: {each.state}"))
        for line in _explain(each):
            click.echo(f"    {line}")
    _print_problems(paths, found)


@command.command("enable")
@examples("homarus hooks enable session-memory")
@click.argument("name", metavar="NAME")
@as_json_option
def enable(name: str, *, as_json: bool) -> None:
    """Switch a hook on. For one that the agent may write, its files are recorded as they are."""
    _, catalog, found = _load()
    was_on = bool(catalog.get_loaded().config.hooks.internal.enabled)
    status = _find(found, name, is_enabling=True)
    blocking = [each for each in status.reasons if each.state == "not runnable"]
    if blocking:
        raise UserError(
            f"the hook {status.hook.name} cannot run: {blocking[0].message}", fix=blocking[0].fix
        )
    if status.files:
        now_ms = time.time_ns() // 1_000_000
        catalog.enabled.enable(status.hook.identity, status.files.digest, now_ms)
    effect = _change(status.hook, is_enabled=True)
    now = _load()[2]
    after = _find(now, status.hook.name)
    if as_json:
        _print_json({"name": status.hook.name, "enabled": True, "state": after.state})
        return
    click.echo(f"{status.hook.name} is enabled{effect}.")
    if status.files and status.hook.tier.value in {"workspace", "extra"}:
        click.echo(
            f"It runs with these files: {', '.join(status.files.names)} "
            f"(SHA-256 {status.files.digest[:16]}…). When one of them changes, enable it again."
        )
    for line in _explain(after):
        click.echo(f"  {line}")
    if not was_on:
        names = ", ".join(each.hook.name for each in now.hooks if each.is_ready)
        click.echo(f"Internal hooks were off. Hooks that run now: {names}")


@command.command("disable")
@examples("homarus hooks disable session-memory")
@click.argument("name", metavar="NAME")
@as_json_option
def disable(name: str, *, as_json: bool) -> None:
    """Switch a hook off."""
    _, catalog, found = _load()
    hook = _find(found, name).hook
    effect = _change(hook, is_enabled=False)
    if catalog.enabled.find_digest(hook.identity):
        catalog.enabled.disable(hook.identity)
    if as_json:
        _print_json({"name": hook.name, "enabled": False})
        return
    click.echo(f"{hook.name} is disabled{effect}.")


def _change(hook: "InternalHook", *, is_enabled: bool) -> str:
    """Write the settings of a hook; return what the gateway does about it."""
    from homarus.config.tree_edit import set_path

    if hook.tier.value == "config":
        raise UserError(
            f"{hook.name} is an entry of the config",
            fix="add it to hooks.internal.handlers, or remove it there",
        )

    def edit(tree: Any) -> Any:
        path = ("hooks", "internal")
        if is_enabled:
            tree = set_path(tree, (*path, "enabled"), True)  # noqa: FBT003 - the key says it
        return set_path(tree, (*path, "entries", hook.key, "enabled"), is_enabled)

    found = run_with_config(GatewayOptions(), lambda settings: settings.change(edit))
    return f"; {found.effect}" if found.effect else ""


def _find(found: "FoundHooks", name: str, *, is_enabling: bool = False) -> "HookStatus":
    status = found.find(name)
    if status is None:
        names = [each.hook.name for each in found.hooks]
        near = closest_names(name, names)
        fix = "" if near else "homarus hooks list shows them all"
        raise UnknownNameError("hook", name, near, fix=fix)
    # A hook that is not enabled yet replaces another one of its name only after that.
    replacing = [each for each in found.waiting if each.hook.name == status.hook.name]
    return replacing[-1] if is_enabling and replacing else status


def _print_problems(paths: "Paths", found: "FoundHooks") -> None:
    if found.problems:
        click.echo("\nNot used:")
    for problem in found.problems:
        fix = f"; {problem.fix}" if problem.fix else ""
        text = f"{shorten(problem.path, paths.home)}: {problem.message}{fix}"
        click.echo(f"  {escape_invisible(one_line(text, 300))}")


def _load() -> "tuple[Paths, HookCatalog, FoundHooks]":
    from homarus.agent.internal_hooks.catalog import HookCatalog

    paths, loaded = load_own_config()
    catalog = HookCatalog(lambda: loaded, paths)
    return paths, catalog, catalog.load()


def _print_json(payload: Mapping[str, Json]) -> None:
    click.echo(json.dumps(payload, ensure_ascii=False))
