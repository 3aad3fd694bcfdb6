"""The command group: a static table, so that `--help` and start-up import no command."""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import click

from homarus import __version__
from homarus.cli.command_group import CommandGroup, examples
from homarus.core.errors import HomarusError
from homarus.core.unused_imports import leave_out_unused

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Group of the help → name → (module under homarus.cli, one line of help); a test compares the lines
# with the commands.
GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Start": {
        "onboard": ("onboard", "Set up an assistant step by step: model, name, chat service."),
        "configure": ("configure", "Repeat one section of the onboarding."),
        "setup": ("setup", "Create the configuration and the workspace."),
    },
    "Talk": {
        "chat": ("chat", "Chat with an agent in this terminal."),
        "tui": ("tui.command", "Talk with agents in a full-screen interface."),
        "agent": ("agent", "Send one message to an agent and print its answer."),
        "sessions": ("sessions", "List the sessions of all agents."),
        "subagents": ("subagents", "List, inspect, message and stop sub-agents."),
        "cron": ("cron", "List, add, change, run and remove scheduled jobs."),
    },
    "Agents and models": {
        "agents": ("agents", "Manage agents; without a subcommand, list them."),
        "models": ("models", "Manage models; without a subcommand, show the current one."),
        "memory": ("memory", "Search, read and write an agent's memory; manage its index."),
        "prompt": ("prompt", "Show the system prompt of a session, or its parts."),
        "policy": ("policy", "Explain which tool calls are allowed, asked about or denied."),
        "sandbox": ("sandbox", "Measure, explain, list and recreate the sandboxes of commands."),
        "browser": ("browser", "Use the browser of an agent through a running gateway."),
        "skills": ("skills", "Manage skills; without a subcommand, list them."),
        "hooks": ("hooks", "Manage internal hooks; without a subcommand, list them."),
        "plugins": ("plugins", "Manage packages that add channels, providers and others."),
        "mcp": ("mcp", "Manage MCP servers, or be one; without a subcommand, list them."),
        "approvals": (
            "approvals",
            "Answer questions about tool calls; edit the rules for commands.",
        ),
    },
    "Channels": {
        "channels": ("channels", "Manage chat channels; without a subcommand, show their status."),
        "message": ("message", "Send, read and change messages in the chats of a gateway."),
        "matrix": ("matrix", "Manage the devices and keys of encrypted Matrix accounts."),
        "pairing": ("pairing", "Approve or reject people who wrote for the first time."),
        "route": ("route", "Show which agent answers a chat, and why."),
        "directory": ("directory", "Show our names on chat services, and known people and groups."),
        "inbox": ("inbox", "List unanswered messages and unconfirmed replies."),
    },
    "Gateway": {
        "gateway": ("gateway", "Run the gateway in the foreground; manage it and its service."),
        "dashboard": ("dashboard", "Print the link to the gateway's web page, with the token."),
        "qr": ("qr", "Show the link to the page as a QR code for a phone."),
        "nodes": ("nodes", "List nodes, let them in, and have them do commands."),
        "devices": ("devices", "Manage paired devices: approve, reject, rotate, revoke, remove."),
        "status": ("status", "Show what is running, and recent sessions."),
        "health": ("health", "Show the health of a running gateway."),
        "logs": ("logs", "Show the log."),
        "trace": ("trace", "Show what happened to a message, hop by hop."),
        "usage": ("usage", "Show tokens, cost and cache hits of model calls."),
        "system": ("system", "Leave notices for an agent, and control its heartbeats."),
        "hub": ("hub", "Serve a registry of skills for yourself or a team."),
    },
    "Maintenance": {
        "config": ("config", "Read, change and validate the configuration."),
        "audit": ("audit", "Show the audit log, or verify that no row was changed."),
        "security": ("security", "Find settings and files that let others in."),
        "doctor": ("doctor", "Find problems and show how to fix them."),
        "import": ("import_home", "Copy sessions, memory, jobs and credentials of another home."),
        "backup": ("backup", "Create, verify and restore backups."),
        "update": ("update", "Install the newest version, after asking."),
        "reset": ("reset", "Move the configuration, or more, aside and start again."),
        "uninstall": ("uninstall", "Remove what Homarus created on this machine, after asking."),
        "completion": ("completion", "Print a completion script for bash, zsh or fish."),
        "docs": ("docs", "Find pages of the documentation."),
        "help": ("help", "Show the help of a command."),
    },
}
COMMANDS = {name: row for rows in GROUPS.values() for name, row in rows.items()}
COMPLETE_VARIABLE = "_HOMARUS_COMPLETE"  # set by the scripts of `homarus completion`
CONTEXT_SETTINGS: dict[str, Any] = {"help_option_names": ["-h", "--help"], "show_default": True}


class LazyGroup(CommandGroup):
    """Imports a command's module when that command is used, not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        leave_out_unused()
        module = import_module(f"homarus.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> "list[CompletionItem[str]]":
        from click.shell_completion import CompletionItem

        names = [name for name in COMMANDS if name.startswith(incomplete)]
        return [
            *(CompletionItem(name, help=COMMANDS[name][1]) for name in names),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for title, rows in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:<{width}}", line) for name, (_, line) in rows.items()])


@click.group(cls=LazyGroup, invoke_without_command=True, context_settings=CONTEXT_SETTINGS)
@examples(
    "homarus onboard",
    "homarus chat",
    'homarus agent -m "What is on my list today?"',
    "homarus help models auth",
)
@click.version_option(__version__, "-V", "-v", "--version", message="homarus %(version)s")
@click.option("--profile", metavar="NAME", help="Use ~/.openclaw-NAME instead of ~/.openclaw.")
@click.option("--dev", is_flag=True, help="The same as --profile dev.")
@click.pass_context
def group(ctx: click.Context, profile: str | None, dev: bool) -> None:
    """Homarus: a personal AI-agent gateway."""
    if profile or dev:
        os.environ["OPENCLAW_PROFILE"] = profile or "dev"
    if ctx.invoked_subcommand is None:
        _start_without_command(ctx)


def _start_without_command(ctx: click.Context) -> None:
    """Start or continue the onboarding of a person; print the help in all other cases."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        from homarus.config.paths import Paths
        from homarus.gateway.wizard.answers import FILE

        paths = Paths.find(os.environ)
        if not paths.config.exists() or (paths.state / FILE).exists():
            from homarus.cli.onboard import onboard_at_terminal

            onboard_at_terminal()
            return
    click.echo(ctx.get_help(), err=True)
    ctx.exit(2)


def run() -> NoReturn:
    """Run a command; expected errors become one message and an exit status."""
    try:
        if COMPLETE_VARIABLE in os.environ:
            from homarus.cli.completion import answer_shell

            sys.exit(answer_shell())
        status = group.main(prog_name="homarus", standalone_mode=False)
    except HomarusError as exc:
        fail(exc.message, fix=exc.fix, code=exc.code, status=exc.exit_status, payload=exc.payload)
    except click.UsageError as exc:
        message, fix = describe_usage_error(exc)
        fail(message, fix=fix, code="user.usage", status=2)
    except click.ClickException as exc:
        fail(exc.format_message(), fix="", code="user", status=exc.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except BrokenPipeError:  # `homarus … | head`
        sys.stderr.close()
        sys.exit(0)
    except OSError as exc:
        where = f": {exc.filename}" if exc.filename else ""
        fail(f"{exc.strerror or exc}{where}", fix="", code="system", status=1)
    sys.exit(status if isinstance(status, int) else 0)


def describe_usage_error(error: click.UsageError) -> tuple[str, str]:
    """Return what is wrong with a command line, and how to fix it."""
    see = f"see {error.ctx.command_path if error.ctx else _typed_command()} --help"
    if not (isinstance(error, click.NoSuchOption) and error.ctx):
        return error.format_message(), see
    from homarus.core.text import closest_names

    params = error.ctx.command.get_params(error.ctx)
    options = [one for one in params if isinstance(one, click.Option) and not one.hidden]
    nearest = closest_names(error.option_name, [name for one in options for name in one.opts])
    fix = f"did you mean {' or '.join(nearest)}?" if nearest else see
    return f"{error.ctx.command_path} has no option {error.option_name!r}", fix


def _typed_command() -> str:
    """Return the command that was typed, for errors that click raises without a context."""
    typed = next((word for word in sys.argv[1:] if word in COMMANDS), "")
    return f"homarus {typed}".rstrip()


def fail(message: str, *, fix: str, code: str, status: int, payload: object = None) -> NoReturn:
    """Print one message: on stderr for people, or one JSON object on stdout with `--json`.

    The object has the run's id and result of `payload`, the payload of a failed run.
    """
    if "--json" in sys.argv:
        import json

        error = {"type": "cli_error", "code": code, "message": message, "fix": fix}
        run = payload if isinstance(payload, dict) else {}
        shown = {name: run[name] for name in ("runId", "result") if name in run}
        click.echo(json.dumps({"ok": False, "error": error, **shown}, ensure_ascii=False))
    else:
        click.echo(f"homarus: {message}", err=True)
        if fix:
            click.echo(f"  → {fix}", err=True)
    sys.exit(status)
