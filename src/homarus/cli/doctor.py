"""`homarus doctor`: check everything that a chat needs, and show how to fix what is wrong."""

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeAlias

import click

from homarus.agent.agent import reaches_machine
from homarus.agent.workspace import SEEDED, workspace_advice
from homarus.cli.command_group import examples
from homarus.cli.cron_check import check_jobs_file
from homarus.cli.diagnostics_check import check_diagnostics
from homarus.cli.gateway_options import as_json_option
from homarus.cli.heartbeat_check import check_heartbeats
from homarus.cli.hooks_check import check_internal_hooks
from homarus.cli.mcp_check import check_mcp_servers
from homarus.cli.memory_files import SUFFIX, index_files
from homarus.cli.options import RenamedOption
from homarus.cli.provider_check import check_models
from homarus.cli.sandbox_check import check_sandboxes
from homarus.cli.skills_check import check_skills
from homarus.cli.state_check import check_state
from homarus.cli.web_check import check_web_search
from homarus.config.agent_settings import agent_ids, resolve_agent_settings
from homarus.config.config_files import read_text
from homarus.config.load import ConfigExamination, examine_config
from homarus.config.own_keys import describe_openclaw_problems
from homarus.config.paths import Paths, openclaw_files_dir, shorten
from homarus.config.schema import Config
from homarus.config.session_store import find_session_store
from homarus.core.clock import SystemClock
from homarus.core.errors import ConfigError, HomarusError, StoreError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import escape_invisible
from homarus.policy.restrictions import start_refusals, tool_list_refusals
from homarus.store.sessions_file import count_sessions
from homarus.store.sqlite import check_database

# A "note" is a warning; "info" is advice, or the state of a new home.
FindingState: TypeAlias = Literal["ok", "info", "note", "bad"]
MARKS: dict[FindingState, str] = {"ok": "✓", "info": "·", "note": "!", "bad": "✗"}
LOW_DISK_BYTES = 200 << 20


@dataclass(frozen=True, slots=True)
class DoctorFinding:
    """The result of one check."""

    about: str
    state: FindingState
    text: str
    fix: str = ""


@click.command("doctor")
@examples(
    "homarus doctor", "homarus doctor --all", "homarus doctor --probe", "homarus doctor --fix"
)
@click.option(
    "--all",
    "everything",
    cls=RenamedOption,
    old_names=("--verbose",),
    is_flag=True,
    help="Show every check.",
)
@click.option(
    "--fix",
    cls=RenamedOption,
    old_names=("--repair",),
    is_flag=True,
    help="Repair a damaged database; a copy of it is kept.",
)
@click.option("--probe", is_flag=True, help="Send each model and credential one small request.")
@as_json_option
def command(*, everything: bool, fix: bool, probe: bool, as_json: bool) -> None:
    """Find problems and show how to fix them."""
    paths = Paths.find(os.environ)
    examined, findings = _config(paths, os.environ)
    if examined and examined.config:
        findings += _agents(paths, examined.config)
        findings += _workspaces(paths, examined.config)
        checked = check_models(paths, examined.config, examined.env, probe=probe)
        findings += [DoctorFinding(*finding) for finding in checked]
        findings += _restrictions(examined.config)
        sandboxes = check_sandboxes(paths, examined.config)
        findings += [DoctorFinding(*finding) for finding in sandboxes]
        findings += _commands(examined.config)
        searches = check_web_search(examined.config, examined.env)
        findings += [DoctorFinding(*finding) for finding in searches]
        findings += _channels(examined.config)
        findings += _tls(paths, examined.config)
        findings += _hooks(paths, examined)
        findings += [DoctorFinding(*found) for found in check_jobs_file(paths, examined.config)]
        findings += [DoctorFinding(*found) for found in check_heartbeats(examined.config)]
        servers = check_mcp_servers(examined.config, os.environ)
        findings += [DoctorFinding(*found) for found in servers]
        findings += [DoctorFinding(*found) for found in check_diagnostics(examined.config)]
        findings += [DoctorFinding(*found) for found in check_skills(paths, examined)]
        findings += [DoctorFinding(*found) for found in check_internal_hooks(paths, examined)]
    findings += [*_state(paths, fix=fix), *_memory(paths), _disk(paths), _git(), *_proxies(paths)]
    findings += [*_pending_devices(paths), *_audit(paths)]
    if as_json:
        rows = [_row(finding) for finding in findings]
        healthy = all(finding.state != "bad" for finding in findings)
        unbuilt = list(examined.unbuilt) if examined else []
        click.echo(json.dumps({"ok": healthy, "findings": rows, "notBuilt": unbuilt}))
    else:
        _print(findings, everything=everything, fix=fix)
    wrong = {finding.about for finding in findings if finding.state == "bad"}
    raise click.exceptions.Exit(2 if "config" in wrong else 1 if wrong else 0)


def find_security_problems(
    paths: Paths, examined: ConfigExamination | None, *, deep: bool
) -> Iterator[DoctorFinding]:
    """Yield the findings about who may do what; `deep` also reads the complete audit log."""
    config = examined.config if examined else None
    if examined and config:
        for agent in agent_ids(config):
            tools = resolve_agent_settings(config, paths, agent).tools
            yield _file_scope(agent, is_open=reaches_machine(tools, config.tools))
        yield from _restrictions(config)
        yield from (DoctorFinding(*found) for found in check_sandboxes(paths, config))
        yield from (*_commands(config), *_tls(paths, config), *_hooks(paths, examined))
    yield from (*_proxies(paths), *_pending_devices(paths))
    if deep:
        yield from _audit(paths)


def _row(finding: DoctorFinding) -> dict[str, str]:
    return {
        "about": finding.about,
        "state": finding.state,
        "text": finding.text,
        "fix": finding.fix,
    }


def _print(findings: list[DoctorFinding], *, everything: bool, fix: bool) -> None:
    """Print the problems and warnings, or all findings, and one line that counts them."""
    problems_first = sorted(findings, key=lambda finding: finding.state != "bad")
    for finding in findings if everything else problems_first:
        is_wrong = finding.state in {"note", "bad"}
        if is_wrong or everything or (fix and finding.about == "state"):
            _echo(f"{MARKS[finding.state]} {finding.about}: {finding.text}")
            if finding.fix:
                _echo(f"  → {finding.fix}")
    click.echo(_summary([finding.state for finding in findings]))


def _echo(text: str) -> None:
    """Print a line, wrapped at words in a terminal."""
    if sys.stdout.isatty():
        wrapper = textwrap.TextWrapper(
            shutil.get_terminal_size().columns - 1,
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        text = "\n".join("\n".join(wrapper.wrap(line)) for line in text.split("\n"))
    click.echo(text)


def _summary(states: list[FindingState]) -> str:
    problems, warnings = states.count("bad"), states.count("note")
    parts = [_count(problems, "problem") if problems else "No problems found"]
    parts += [_count(warnings, "warning")] if warnings else []
    return f"{', '.join(parts)}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _config(
    paths: Paths, env: Mapping[str, str]
) -> tuple[ConfigExamination | None, list[DoctorFinding]]:
    file = shorten(paths.config, paths.home)
    try:
        examined = examine_config(paths, env, read_text(paths.config))
    except ConfigError as exc:
        return None, [
            DoctorFinding("config", "bad", exc.message, exc.fix),
            *_alternatives(paths, env),
        ]
    if examined.errors:
        wrong = [DoctorFinding("config", "bad", e.message, e.fix) for e in examined.errors]
        return None, [*wrong, *_alternatives(paths, env)]
    if not examined.exists:
        return examined, [DoctorFinding("config", "info", f"no {file} yet: defaults apply")]
    warnings = (*examined.warnings, *describe_openclaw_problems(examined.shared))
    notes = [DoctorFinding("config", "note", text) for text in warnings]
    return examined, [DoctorFinding("config", "ok", file), *notes]


def _alternatives(paths: Paths, env: Mapping[str, str]) -> Iterator[DoctorFinding]:
    """Return what can be used while the config is invalid."""
    from homarus.gateway.last_good import FILE, load_last_good, restore_command

    if back := restore_command(paths, env):
        yield DoctorFinding("config", "note", "there is a valid backup", back)
    if load_last_good(paths, env):
        file = shorten(paths.state / FILE, paths.home)
        text = f"a gateway continues, and starts, with the last config that was in use ({file})"
        yield DoctorFinding("config", "note", text)


def _proxies(paths: Paths) -> Iterator[DoctorFinding]:
    """Warn of requests that reached a gateway's loopback address under another name."""
    from homarus.gateway.foreign_hosts import FILE, load_foreign_hosts
    from homarus.gateway.json_file import JsonFile

    try:
        hosts = load_foreign_hosts(JsonFile(paths.state / FILE))
    except HomarusError as exc:
        yield DoctorFinding("gateway", "note", exc.message, exc.fix)
        return
    if hosts:
        names = escape_invisible(", ".join(sorted(hosts)))
        file = shorten(paths.state / FILE, paths.home)
        yield DoctorFinding(
            "gateway",
            "note",
            f"requests to {names} reached the gateway on loopback: through a proxy on this machine,"
            " or from a web page that tries to; they count as remote",
            f'"Behind a reverse proxy" in docs/gateway.md; rm {file} forgets them',
        )


def _tls(paths: Paths, config: Config) -> Iterator[DoctorFinding]:
    """Check the certificate that the config names, with which the gateway would not start."""
    if config.gateway.tls.enabled:
        from homarus.gateway.tls import check_tls

        try:
            check_tls(config.gateway.tls, paths, SystemClock())
        except ConfigError as exc:
            yield DoctorFinding("gateway", "bad", exc.message, exc.fix)


def _hooks(paths: Paths, examined: ConfigExamination) -> Iterator[DoctorFinding]:
    """Check the webhooks: those a gateway does not start with, and mappings that cannot work."""
    config = examined.config
    if config is None or not config.hooks.enabled:
        return
    from homarus.gateway.auth import find_secrets
    from homarus.gateway.hooks.settings import hook_refusals, hook_warnings

    secrets = find_secrets(config.gateway.auth, examined.env)
    refusals = list(hook_refusals(config.hooks, paths, *secrets))
    for exc in refusals:
        yield DoctorFinding("hooks", "bad", exc.message, exc.fix)
    for text, fix in hook_warnings(config.hooks, paths):
        yield DoctorFinding("hooks", "note", text, fix)
    if not refusals:
        count = len(config.hooks.mappings) + len(config.hooks.presets)
        text = f"webhooks are served below {config.hooks.path}, with {_count(count, 'mapping')}"
        yield DoctorFinding("hooks", "ok", text)


def _pending_devices(paths: Paths) -> Iterator[DoctorFinding]:
    from homarus.gateway.device_records import describe_pending
    from homarus.gateway.devices import DeviceRegistry

    folder = openclaw_files_dir(paths.state) / "devices"
    with suppress(HomarusError):
        for entry in DeviceRegistry(folder, SystemClock()).listing()["pending"]:
            yield DoctorFinding("device", "note", describe_pending(entry))


def _audit(paths: Paths) -> Iterator[DoctorFinding]:
    """Check that no row of the audit log was changed."""
    if not paths.database.exists():
        return
    from homarus.cli.audit import check_log

    try:
        found = check_log(paths)
    except HomarusError as exc:
        yield DoctorFinding("audit", "note", exc.message, exc.fix)
        return
    if found.problem:
        yield DoctorFinding("audit", "bad", found.problem, "homarus audit verify")
    else:
        yield DoctorFinding("audit", "ok", f"{found.anchor.seq} rows, none was changed")


def _agents(paths: Paths, config: Config) -> Iterator[DoctorFinding]:
    for agent in agent_ids(config):
        settings = resolve_agent_settings(config, paths, agent)
        yield _workspace(agent, settings.workspace, shorten(settings.workspace, paths.home))
        yield _file_scope(agent, is_open=reaches_machine(settings.tools, config.tools))


def _workspaces(paths: Paths, config: Config) -> Iterator[DoctorFinding]:
    used = [resolve_agent_settings(config, paths, agent).workspace for agent in agent_ids(config)]
    for advice in workspace_advice(used, paths.home, paths.state):
        state: FindingState = "note" if advice.is_warning else "info"
        yield DoctorFinding("workspace", state, advice.text, advice.fix)


def _workspace(agent: str, workspace: Path, shown: str) -> DoctorFinding:
    about = f"agent {agent}"
    if not workspace.exists():
        return DoctorFinding(
            about, "note", f"no workspace at {shown} yet", "homarus setup makes it"
        )
    if not os.access(workspace, os.R_OK | os.W_OK | os.X_OK) or not workspace.is_dir():
        fix = "make it a folder you can write to, or change agents.defaults.workspace"
        return DoctorFinding(about, "bad", f"the workspace {shown} cannot be used", fix)
    missing = [name for name in SEEDED if not (workspace / name).exists()]
    if missing:
        return DoctorFinding(about, "note", f"{shown} has no {', '.join(missing)}", "homarus setup")
    return DoctorFinding(about, "ok", f"workspace {shown}")


def _file_scope(agent: str, *, is_open: bool) -> DoctorFinding:
    """Return where the file tools of an agent reach."""
    if not is_open:
        return DoctorFinding(f"agent {agent}", "ok", "file tools stay in the workspace")
    text = (
        "in your conversations file tools read and write the whole machine, except the state of "
        "the gateway and other workspaces: tools.fs.workspaceOnly is false"
    )
    fix = "remove tools.fs.workspaceOnly to keep them in the workspace"
    return DoctorFinding(f"agent {agent}", "note", text, fix)


def _restrictions(config: Config) -> Iterator[DoctorFinding]:
    """Return the settings that keep the gateway from starting, or agents from running."""
    from homarus.tools.catalog import builtin_tools, describe_list_problems

    for refusal in start_refusals(config):
        yield DoctorFinding("gateway", "bad", refusal.message, refusal.fix)
    groups = builtin_tools().known_groups
    for agent in agent_ids(config):
        for error in tool_list_refusals(config, agent, groups):
            yield DoctorFinding(f"agent {agent}", "bad", error.message, error.fix)
    for text in describe_list_problems(config):
        yield DoctorFinding("tools", "note", text, "homarus policy explain TOOL shows what holds")


def _commands(config: Config) -> Iterator[DoctorFinding]:
    """Return a warning when the commands of agents have all rights on this machine."""
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    if is_root and config.tools.exec.security != "deny":
        text = "the exec tool runs commands as root"
        fix = "run the program as a user of its own, or set tools.exec.security to deny"
        yield DoctorFinding("exec", "note" if config.channels else "info", text, fix)


def _channels(config: Config) -> Iterator[DoctorFinding]:
    """Return the enabled accounts that do not start, because their channel refuses a setting."""
    if not config.channels:
        return
    from homarus.channels.registry import available_channels, load_channel
    from homarus.config.channels import account_names, account_settings, merged_section

    for channel in sorted(config.channels.keys() & {*available_channels()}):
        for account in account_names(config, channel):
            if merged_section(config.channels, channel, account).get("enabled") is False:
                continue
            try:
                account_settings(config, channel, account, load_channel(channel).Settings)
            except HomarusError as exc:
                yield DoctorFinding(f"channel {channel}:{account}", "bad", exc.message, exc.fix)


def _state(paths: Paths, *, fix: bool) -> Iterator[DoctorFinding]:
    try:
        count = count_sessions(paths.state, find_session_store(paths, os.environ).session_store)
    except StoreError as exc:  # a database of OpenClaw
        yield DoctorFinding("state", "bad", exc.message, exc.fix)
        count = 0
    shown = shorten(paths.state, paths.home)
    nearest = next(path for path in (paths.state, *paths.state.parents) if path.exists())
    if not os.access(nearest, os.W_OK):
        yield DoctorFinding("state", "bad", f"{nearest} cannot be written", "check who owns it")
    elif not paths.database.exists():
        if count:
            text = f"{shown} has {_conversations(count)} of OpenClaw, imported at the first start"
            yield DoctorFinding("state", "ok", text)
        else:
            yield DoctorFinding("state", "info", f"{shown} has no conversations yet")
    else:
        for is_sound, text, how in check_state(paths, fix=fix):
            state: FindingState = "bad" if not is_sound else "note" if how else "ok"
            yield DoctorFinding("state", state, f"{shown}, {_conversations(count)}: {text}", how)


def _conversations(count: int) -> str:
    return "1 conversation" if count == 1 else f"{count:,} conversations"


def _memory(paths: Paths) -> Iterator[DoctorFinding]:
    """Check the memory indexes; a damaged one is rebuilt automatically, so it is only reported."""
    now_ms = SystemClock().now_ms()
    for one in index_files(paths):
        about = f"memory {one.agent}"
        try:
            check_database(paths.state / "memory" / f"{one.agent}{SUFFIX}")
        except HomarusError as exc:
            yield DoctorFinding(
                about, "note", exc.message, f"homarus memory index --agent {one.agent}"
            )
            continue
        yield DoctorFinding(about, "ok", f"index of {one.describe(now_ms)}, sound")


def _disk(paths: Paths) -> DoctorFinding:
    nearest = next(path for path in (paths.state, *paths.state.parents) if path.exists())
    free = shutil.disk_usage(nearest).free
    text = f"{free >> 20:,} MB free"
    if free < LOW_DISK_BYTES:
        return DoctorFinding("disk", "bad", text, "make room: conversations could not be saved")
    return DoctorFinding("disk", "ok", text)


def _git() -> DoctorFinding:
    if shutil.which("git"):
        return DoctorFinding("git", "ok", "workspaces keep a history")
    return DoctorFinding("git", "note", "not installed: workspaces keep no history", "install git")
