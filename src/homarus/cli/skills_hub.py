"""`homarus skills search|inspect|install|update|pin|unpin|remove|publish`: skills of registries.

The commands change the files of this machine, with or without a running gateway; the next session
finds what they change. Nothing of a skill is executed here.
"""

import asyncio
import json
import os
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from homarus.cli import completion_values
from homarus.cli.bindings import known_agent, load_own_config
from homarus.cli.command_group import examples
from homarus.cli.gateway_options import as_json_option
from homarus.cli.options import limit_option, yes_option
from homarus.config.agent_settings import default_agent_id, resolve_agent_settings
from homarus.config.change_log import log_change
from homarus.config.network_policy import resolve_network_policy
from homarus.config.paths import Paths, expand, shorten
from homarus.core.errors import UnknownNameError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import closest_names, escape_controls, escape_invisible

if TYPE_CHECKING:
    from homarus.config.load import LoadedConfig
    from homarus.skills.hub.installer import InstalledSkill, SkillInstaller
    from homarus.skills.hub.prepared_skill import PreparedSkill
    from homarus.skills.hub.registry_client import RegistryClient

T = TypeVar("T")
MAX_RESULTS: Final = 100


@dataclass(frozen=True, slots=True)
class HubTarget:
    """The options that say which registry is used, and whose skills are changed."""

    registry: str | None = None
    agent: str | None = None
    workspace: str | None = None
    managed: bool = False


registry_option = click.option(
    "--registry",
    metavar="URL",
    show_default="CLAWHUB_REGISTRY, skills.registry, or what clawhub.ai names",
    help="The registry to use.",
)
force_unsafe_option = click.option(
    "--force-unsafe", is_flag=True, help="Install although the check of the skill blocks it."
)


def target_options(command: Callable[..., T]) -> Callable[..., T]:
    """Add `--agent`, `--workspace` and `--managed`; the command gets them as `target`."""

    @wraps(command)
    def with_options(
        *args: Any,
        agent: str | None,
        workspace: str | None,
        managed: bool,
        registry: str | None = None,
        **named: Any,
    ) -> T:
        target = HubTarget(registry, agent, workspace, managed)
        return command(*args, target=target, **named)

    wrapped: Callable[..., T] = with_options
    wrapped = click.option("--managed", is_flag=True, help="The skills of all agents.")(wrapped)
    wrapped = click.option(
        "--workspace",
        metavar="DIR",
        shell_complete=completion_values.directories,
        show_default="the agent's workspace",
        help="The skills of this workspace.",
    )(wrapped)
    return click.option(
        "--agent",
        metavar="ID",
        shell_complete=completion_values.agents,
        show_default="the default agent",
        help="The skills of this agent.",
    )(wrapped)


class HubSession:
    """What one command works with: paths, config, the registry, and the skills of a root."""

    def __init__(self, target: HubTarget) -> None:
        self._target = target
        self.paths, self._loaded = load_own_config()

    def client(self) -> "RegistryClient":
        """Return the client of the registry."""
        from homarus.skills.hub.registry_address import find_registry, find_token
        from homarus.skills.hub.registry_client import RegistryClient

        config = self._loaded.config
        address = find_registry(self._target.registry, os.environ, config.skills.registry or "")
        return RegistryClient(
            address,
            token=find_token(address, os.environ, self.paths.home),
            policy=resolve_network_policy(config.tools.web.fetch),
        )

    def installer(self) -> "SkillInstaller":
        """Return the installer for the skills that the options mean."""
        from homarus.skills.hub.installer import SkillInstaller

        return SkillInstaller(_find_root(self._target, self.paths, self._loaded))

    def has_skill(self, name: str) -> bool:
        """Return whether the agent has a skill of this name."""
        from homarus.skills.catalog import SkillCatalog

        config = self._loaded.config
        named = self._target.agent
        agent = known_agent(config, named) if named else default_agent_id(config)
        return SkillCatalog(lambda: self._loaded, self.paths).load(agent).find(name) is not None

    def shorten(self, path: Path) -> str:
        return shorten(path, self.paths.home)

    def record(self, action: str, name: str, **data: Json) -> None:
        """Add a row to the audit log."""
        if self.paths.state.is_dir():
            log_change(self.paths.state, "skill", action=action, name=name, **data)


def _find_root(target: HubTarget, paths: Paths, loaded: "LoadedConfig") -> Path:
    given = [target.agent is not None, target.workspace is not None, target.managed]
    if sum(given) > 1:
        raise UserError("give one of --agent, --workspace and --managed")
    if target.managed:
        return paths.state
    if target.workspace:
        return expand(target.workspace, paths.home)
    config = loaded.config
    agent = known_agent(config, target.agent) if target.agent else default_agent_id(config)
    return resolve_agent_settings(config, paths, agent).workspace


def _run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def _print_json(payload: dict[str, Any]) -> None:
    click.echo(json.dumps(payload, ensure_ascii=False))


@click.command("search")
@examples("homarus skills search calendar", 'homarus skills search "postgres backup" --json')
@click.argument("query", nargs=-1, required=True)
@limit_option("How many skills, the best.", MAX_RESULTS, default=20)
@registry_option
@as_json_option
def search(query: Sequence[str], limit: int, registry: str | None, *, as_json: bool) -> None:
    """Search a registry for skills."""
    client = HubSession(HubTarget(registry)).client()
    found = _run(client.search(" ".join(query), limit))
    if as_json:
        rows = [
            {
                "slug": each.slug,
                "name": each.name,
                "summary": each.summary,
                "version": each.version,
                "owner": each.owner,
                "score": each.score,
            }
            for each in found
        ]
        _print_json({"results": rows})
        return
    for each in found:
        owner = f"@{each.owner}" if each.owner else ""
        click.echo(f"{each.slug:<28} {each.version:<10} {owner:<16} {each.summary or each.name}")
    if not found:
        click.echo("No skill matches.")


@click.command("inspect")
@examples("homarus skills inspect calendar", "homarus skills inspect calendar --file SKILL.md")
@click.argument("name", metavar="NAME")
@click.option("--version", metavar="VERSION", show_default="the newest", help="This version.")
@click.option("--versions", is_flag=True, help="Also list the versions.")
@click.option("--file", "file", metavar="PATH", help="Print one file of it instead.")
@registry_option
@as_json_option
def inspect(
    name: str,
    version: str | None,
    file: str | None,
    registry: str | None,
    *,
    versions: bool,
    as_json: bool,
) -> None:
    """Show what a skill of a registry, or in a folder or archive, asks for and contains.

    It is downloaded and checked, and not installed.
    """
    from homarus.cli.skill_report import print_report
    from homarus.skills.lint import encode_report

    session = HubSession(HubTarget(registry))
    client = session.client()
    prepared = _prepare(client, name, version)
    if file:
        _print_file(prepared, file)
        return
    listed = _run(client.versions(prepared.slug, prepared.owner)) if versions else []
    if as_json:
        payload: dict[str, Any] = {
            "slug": prepared.slug,
            "version": prepared.version,
            "owner": prepared.owner,
            "registry": prepared.registry,
            "fingerprint": prepared.fingerprint,
            "files": [
                {"path": each.path, "size": len(each.data), "sha256": each.sha256}
                for each in prepared.files
            ],
            **encode_report(prepared.report),
        }
        payload |= {"versions": [each.version for each in listed]} if versions else {}
        _print_json(payload)
        return
    print_report(prepared)
    for each in prepared.files:
        click.echo(f"  {len(each.data):>9} {escape_invisible(each.path)}")
    for row in listed:
        click.echo(f"version {row.version:<10} {row.changelog}")


def _prepare(client: "RegistryClient", name: str, version: str | None) -> "PreparedSkill":
    from homarus.skills.hub.prepared_skill import (
        is_local_path,
        parse_reference,
        prepare_from_registry,
        prepare_local,
    )

    if is_local_path(name):
        if version:
            raise UserError("a file or folder has no --version")
        return prepare_local(Path(name).expanduser())
    return _run(prepare_from_registry(client, parse_reference(name), version or ""))


def _print_file(prepared: "PreparedSkill", path: str) -> None:
    found = {each.path: each for each in prepared.files}
    if path not in found:
        raise UnknownNameError("file", path, closest_names(path, found) or tuple(found)[:3])
    click.echo(escape_controls(found[path].data.decode("utf-8", "replace")))


@click.command("install")
@examples(
    "homarus skills install calendar",
    "homarus skills install @ann/calendar --version 1.2.0",
    "homarus skills install ./my-skill.zip --managed",
    "homarus skills install calendar --deps",
)
@click.argument("name", metavar="NAME|PATH")
@click.option("--version", metavar="VERSION", show_default="the newest", help="This version.")
@click.option("--force", is_flag=True, help="Replace what is installed, also if it was edited.")
@click.option("--deps", is_flag=True, help="Then install the programs that it requires.")
@force_unsafe_option
@registry_option
@target_options
@yes_option()
@as_json_option
def install(
    name: str,
    version: str | None,
    target: HubTarget,
    *,
    force: bool,
    deps: bool,
    force_unsafe: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Install a skill of a registry, or of a folder or archive, after showing what it asks for.

    A skill with the shape of malware is refused. Nothing of a skill is executed. With --deps, the
    programs that a skill requires are installed, each after your approval; a skill that is there
    already is not installed again.
    """
    from homarus.cli.skill_report import check_report, print_report
    from homarus.skills.hub.installer import check_replacement
    from homarus.skills.lint import encode_report

    session = HubSession(target)
    if deps and target.workspace:
        raise UserError("--deps needs the skills of an agent", fix="--agent instead of --workspace")
    if deps and session.has_skill(name):
        _install_programs(name, target, as_json=as_json)
        return
    prepared = _prepare(session.client(), name, version)
    print_report(prepared, err=as_json)
    check_report(prepared.report, "installed", force_unsafe=force_unsafe)
    installer = session.installer()
    check_replacement(installer, prepared, is_forced=force)
    if not yes:
        shown = session.shorten(installer.skills / prepared.slug)
        click.confirm(f"Install it in {shown}?", abort=True, err=True)
    with installer.changing():
        check_replacement(installer, prepared, is_forced=force)
        install_prepared(session, installer, prepared, "install")
    folder = installer.skills / prepared.slug
    if as_json and not deps:
        payload = {"ok": True, "slug": prepared.slug, "version": prepared.version}
        _print_json({**payload, "path": str(folder), **encode_report(prepared.report)})
        return
    click.echo(f"{prepared.slug} is installed in {session.shorten(folder)}.", err=as_json)
    if deps:
        _install_programs(prepared.report.needs.name, target, as_json=as_json)


def _install_programs(name: str, target: HubTarget, *, as_json: bool) -> None:
    from homarus.cli.skill_dependencies import DependencyOptions, install_dependencies

    install_dependencies(name, DependencyOptions(target.agent, as_json=as_json))


def install_prepared(
    session: HubSession, installer: "SkillInstaller", prepared: "PreparedSkill", action: str
) -> None:
    """Install a skill, and record that. Call it within `installer.changing`."""
    now_ms = time.time_ns() // 1_000_000
    installer.install(prepared.slug, prepared.files, prepared.origin(now_ms))
    session.record(
        action,
        prepared.slug,
        version=prepared.version,
        registry=prepared.registry,
        fingerprint=prepared.fingerprint,
        path=str(installer.skills / prepared.slug),
        unsafe=bool(prepared.report.blocks),
    )


@click.command("update")
@examples("homarus skills update calendar", "homarus skills update --all --yes")
@click.argument("name", metavar="[NAME]", required=False)
@click.option("--all", "every", is_flag=True, help="All skills that came from this registry.")
@click.option("--version", metavar="VERSION", show_default="the newest", help="To this version.")
@click.option("--force", is_flag=True, help="Replace files that were edited here.")
@force_unsafe_option
@registry_option
@target_options
@yes_option()
@as_json_option
def update(
    name: str | None,
    version: str | None,
    target: HubTarget,
    *,
    every: bool,
    force: bool,
    force_unsafe: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Update installed skills; pinned and edited ones stay as they are."""
    from homarus.cli.skills_update import SkillUpdater, UpdateOptions

    if bool(name) == every or (every and version):
        raise UserError("give the name of a skill, or --all without a version")
    session = HubSession(target)
    installer = session.installer()
    options = UpdateOptions(version or "", force, force_unsafe, yes)
    updater = SkillUpdater(session, installer, session.client(), options)
    with installer.changing():
        names = (
            [_installed(installer, name).slug]
            if name
            else sorted({entry.slug for entry in installer.lock.entries().values()})
        )
        rows = [_run(updater.update(each)) for each in names]
    if as_json:
        _print_json({"skills": [row.encode() for row in rows]})
    else:
        for row in rows:
            click.echo(row.describe())
        if not rows:
            click.echo("No skill of a registry is installed.")
    raise click.exceptions.Exit(1 if any(row.is_failure for row in rows) else 0)


def _installed(installer: "SkillInstaller", name: str) -> "InstalledSkill":
    """Return an installed skill. Raises UnknownNameError."""
    from homarus.skills.hub.prepared_skill import parse_reference

    found = installer.find(parse_reference(name).slug)
    if found is None:
        names = [entry.slug for entry in installer.lock.entries().values()]
        fix = f"homarus skills list shows what is in {installer.skills}"
        raise UnknownNameError("installed skill", name, closest_names(name, names), fix=fix)
    return found


@click.command("pin")
@examples("homarus skills pin calendar --reason 'the next version needs a key'")
@click.argument("name", metavar="NAME")
@click.option("--reason", metavar="TEXT", help="Why; the list of skills shows it.")
@target_options
@as_json_option
def pin(name: str, reason: str | None, target: HubTarget, *, as_json: bool) -> None:
    """Keep a skill at its version: updates leave it out."""
    values: dict[str, Any] = {"pinned": True}
    values |= {"pinReason": reason} if reason else {}
    _set_pin(name, target, values, as_json=as_json)


@click.command("unpin")
@examples("homarus skills unpin calendar")
@click.argument("name", metavar="NAME")
@target_options
@as_json_option
def unpin(name: str, target: HubTarget, *, as_json: bool) -> None:
    """Let a skill be updated again."""
    _set_pin(name, target, {}, as_json=as_json)


def _set_pin(name: str, target: HubTarget, values: dict[str, Any], *, as_json: bool) -> None:
    session = HubSession(target)
    installer = session.installer()
    with installer.changing():
        slug = _installed(installer, name).slug
        found = installer.lock.find(slug)
        if found is None:
            raise UserError(f"{slug} did not come from a registry: it is not updated anyway")
        key, entry = found
        kept = {k: v for k, v in entry.values.items() if k not in ("pinned", "pinReason")}
        installer.lock.put(key, kept | values)
    session.record("pin" if values else "unpin", slug, version=entry.version)
    if as_json:
        _print_json({"ok": True, "slug": slug, "version": entry.version, "pinned": bool(values)})
        return
    state = f"is pinned at {entry.version}" if values else "is not pinned"
    click.echo(f"{slug} {state}.")


@click.command("remove")
@examples("homarus skills remove calendar", "homarus skills remove calendar --managed --yes")
@click.argument("name", metavar="NAME")
@target_options
@yes_option()
@as_json_option
def remove(name: str, target: HubTarget, *, yes: bool, as_json: bool) -> None:
    """Remove an installed skill with its folder."""
    session = HubSession(target)
    installer = session.installer()
    found = _installed(installer, name)
    if not yes:
        edited = " It was edited here." if found.is_edited else ""
        shown = session.shorten(found.folder)
        click.confirm(f"Remove {shown}?{edited}", abort=True, err=True)
    with installer.changing():
        installer.remove(found.slug)
    session.record("remove", found.slug, version=found.version, path=str(found.folder))
    if as_json:
        _print_json({"ok": True, "slug": found.slug, "version": found.version})
        return
    click.echo(f"{found.slug} is removed.")


@click.command("publish")
@examples(
    "homarus skills publish ./calendar --changelog 'More time zones'",
    "homarus skills publish ./calendar --slug calendar --version 2.0.0 --dry-run",
)
@click.argument("folder", metavar="FOLDER", shell_complete=completion_values.directories)
@click.option("--slug", metavar="NAME", show_default="the folder's", help="Its registry name.")
@click.option("--name", metavar="TEXT", show_default="the skill's", help="The name that is shown.")
@click.option("--version", metavar="VERSION", show_default="the next patch", help="The version.")
@click.option("--changelog", metavar="TEXT", default="", help="What has changed.")
@click.option("--dry-run", is_flag=True, help="Show what would be published, and do not.")
@force_unsafe_option
@registry_option
@as_json_option
def publish(
    folder: str,
    slug: str | None,
    name: str | None,
    version: str | None,
    changelog: str,
    registry: str | None,
    *,
    dry_run: bool,
    force_unsafe: bool,
    as_json: bool,
) -> None:
    """Publish a skill from a folder to a registry; it needs a token (CLAWHUB_TOKEN)."""
    from homarus.cli.skill_report import check_report, print_report
    from homarus.skills.hub.entry_names import check_slug
    from homarus.skills.hub.prepared_skill import prepare_local, suggest_slug
    from homarus.skills.hub.registry_client import Publication

    session = HubSession(HubTarget(registry))
    client = session.client()
    path = Path(folder).expanduser().absolute()
    wanted = check_slug(slug) if slug else suggest_slug(path.name)
    prepared = prepare_local(path, wanted)
    check_report(prepared.report, "published", force_unsafe=force_unsafe)
    if prepared.report.needs.problem:
        raise UserError(f"the skill cannot be used: {prepared.report.needs.problem}")
    chosen = _run(_choose_version(client, wanted, version))
    shown = name or prepared.report.needs.name or wanted
    if not as_json:
        print_report(prepared)
    if not dry_run:
        publication = Publication(wanted, shown, chosen, changelog, prepared.files)
        _run(client.publish(publication))
        session.record("publish", wanted, version=chosen, fingerprint=prepared.fingerprint)
    if as_json:
        payload = {"ok": True, "slug": wanted, "version": chosen, "published": not dry_run}
        _print_json({**payload, "fingerprint": prepared.fingerprint, "files": len(prepared.files)})
        return
    click.echo(f"{wanted} {chosen} {'would be' if dry_run else 'is'} published.")


async def _choose_version(client: "RegistryClient", slug: str, version: str | None) -> str:
    from homarus.skills.hub.registry_client import RegistryError
    from homarus.skills.hub.versions import parse_version

    if version:
        return parse_version(version).text
    try:
        latest = (await client.skill(slug)).latest
    except RegistryError as exc:
        if exc.status != 404:
            raise
        latest = ""
    return parse_version(latest).next_patch() if latest else "1.0.0"


COMMANDS: Final = (search, inspect, install, update, pin, unpin, remove, publish)
