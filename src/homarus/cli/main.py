"""The command group: a static table, so that `--help` and start-up import no command."""

import sys
from importlib import import_module
from typing import NoReturn

import click

from homarus import __version__
from homarus.core.errors import HomarusError

# name → (module under homarus.cli, one line of help); a test compares it with the commands.
COMMANDS: dict[str, tuple[str, str]] = {
    "agent": ("agent", "Ask an agent one thing and print its answer."),
    "agents": ("agents", "List agents; add, remove or introduce one, say what it answers."),
    "backup": ("backup", "Save everything to one file, check such a file, and bring it back."),
    "channels": (
        "channels",
        "See to the chat services you are reached by; alone, say how they are.",
    ),
    "chat": ("chat", "Talk with an agent in this terminal."),
    "configure": ("configure", "Ask the questions of one part of the onboarding again."),
    "config": ("config", "Read, change and check the configuration."),
    "dashboard": ("dashboard", "Print the address of the gateway's page, with the token."),
    "doctor": ("doctor", "Look for what is wrong and say how to mend it."),
    "gateway": ("gateway", "Run the gateway in the foreground, or look at one that runs."),
    "health": ("health", "Ask a running gateway how it is."),
    "inbox": (
        "inbox",
        "List messages that have no answer yet, and replies that may not have arrived.",
    ),
    "logs": ("logs", "Show the log of the program."),
    "memory": ("memory", "Search, read and write what an agent remembers; say how its index is."),
    "models": ("models", "List, choose and fetch models; alone, say which one answers."),
    "onboard": ("onboard", "Set up an assistant: a model, a name, a chat service, the gateway."),
    "pairing": ("pairing", "Let people in who wrote to a chat channel for the first time."),
    "prompt": ("prompt", "Show the system prompt of a conversation, or what it is made of."),
    "route": ("route", "Say which agent answers a chat, and why."),
    "sessions": ("sessions", "List conversations."),
    "status": ("status", "Say what runs and which conversations there are."),
    "setup": ("setup", "Make the configuration and the workspace."),
}


class LazyGroup(click.Group):
    """Imports a command's module when that command is used, not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"homarus.cli.{COMMANDS[cmd_name][0]}")
        command: click.Command = module.command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in self.list_commands(ctx)])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from homarus.core.errors import UnknownNameError
            from homarus.core.text import closest_names

            raise UnknownNameError(
                "command",
                args[0],
                closest_names(args[0], COMMANDS),
                fix="homarus --help lists them",
            )
        return super().resolve_command(ctx, args)


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "-V", "-v", "--version", message="homarus %(version)s")
@click.option("--profile", metavar="NAME", help="Use ~/.openclaw-NAME instead of ~/.openclaw.")
@click.option("--dev", is_flag=True, help="The same as --profile dev.")
@click.pass_context
def group(ctx: click.Context, profile: str | None, dev: bool) -> None:
    """Homarus: a personal AI-agent gateway."""
    if profile or dev:
        import os

        os.environ["OPENCLAW_PROFILE"] = profile or "dev"
    if ctx.invoked_subcommand is None:
        _start_without_command(ctx)


def _start_without_command(ctx: click.Context) -> None:
    """Start the onboarding for a person without a config; print the help in all other cases."""
    if sys.stdin.isatty() and sys.stdout.isatty():
        import os

        from homarus.config.paths import Paths

        if not Paths.find(os.environ).config.exists():
            from homarus.cli.onboard import onboard_at_terminal

            onboard_at_terminal()
            return
    click.echo(ctx.get_help(), err=True)
    ctx.exit(2)


def run() -> NoReturn:
    """Run a command; expected errors become one message and an exit status."""
    try:
        status = group.main(standalone_mode=False)
    except HomarusError as exc:
        fail(exc.message, fix=exc.fix, code=exc.code, status=exc.exit_status)
    except click.UsageError as exc:
        hint = f"{exc.ctx.command_path} --help" if exc.ctx else "homarus --help"
        fail(exc.format_message(), fix=f"see {hint}", code="user.usage", status=2)
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


def fail(message: str, *, fix: str, code: str, status: int) -> NoReturn:
    """Print one message: on stderr for people, or one JSON object on stdout with `--json`."""
    if "--json" in sys.argv:
        import json

        error = {"type": "cli_error", "code": code, "message": message, "fix": fix}
        click.echo(json.dumps({"ok": False, "error": error}, ensure_ascii=False))
    else:
        click.echo(f"homarus: {message}", err=True)
        if fix:
            click.echo(f"  → {fix}", err=True)
    sys.exit(status)
