"""`homarus onboard`: the wizard that makes a working assistant."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from homarus.cli.command_group import examples
from homarus.cli.gateway_options import as_json_option
from homarus.cli.options import workspace_option
from homarus.cli.wizard_terminal import TerminalPrompter, WizardStoppedError
from homarus.config.paths import Paths
from homarus.core.errors import HomarusError, UnknownNameError, UserError
from homarus.core.message import Json
from homarus.core.text import closest_names
from homarus.providers.catalog import VENDORS

if TYPE_CHECKING:
    from homarus.gateway.wizard.flow import WizardOptions
    from homarus.gateway.wizard.step import WizardStep

# OpenClaw's words for providers whose id is another one.
_KEY_WORDS: Final = {"gemini": "google", "ai-gateway": "vercel-ai-gateway"}
_KEY_PROVIDERS: Final[Mapping[str, str]] = {
    **{id_: id_ for id_, vendor in VENDORS.items() if vendor.key_names and not vendor.is_cloud},
    **{word: id_ for word, id_ in _KEY_WORDS.items() if id_ in VENDORS},
}
AUTH_CHOICES: Final[Mapping[str, str]] = {
    "apiKey": "anthropic",
    **{f"{word}-api-key": id_ for word, id_ in _KEY_PROVIDERS.items()},
    **{id_: id_ for id_ in VENDORS},
    "custom-api-key": "custom",
    "demo": "demo",
    "keep": "keep",
    "skip": "skip",
}


def _key_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for word, id_ in reversed([*_KEY_PROVIDERS.items()]):
        command = click.option(
            f"--{word}-api-key",
            metavar="KEY",
            hidden=True,  # one for every provider: the description names the form
            help=f"The key of {VENDORS[id_].name}; - reads it from standard input.",
        )(command)
    return command


@click.command("onboard")
@examples(
    "homarus onboard",
    "homarus onboard --non-interactive --auth-choice openai-api-key",
    "homarus onboard --non-interactive --auth-choice demo --skip-daemon",
)
@click.option("--non-interactive", is_flag=True, help="Ask nothing; the options are the answers.")
@click.option("--auth-choice", metavar="WORD", help="The provider: openai-api-key, ollama, demo …")
@_key_options
@click.option("--model", metavar="ID", help="The model, by its id at the provider.")
@click.option("--custom-base-url", metavar="URL", help="Another service: its base URL.")
@click.option("--custom-model-id", metavar="ID", help="Another service: its model.")
@click.option("--custom-api-key", metavar="KEY", help="Another service: its key; - reads it.")
@click.option("--custom-provider-id", metavar="NAME", help="Another service: a name for it.")
@click.option(
    "--custom-compatibility",
    type=click.Choice(["openai", "anthropic"]),
    show_default="openai",
    help="Another service: the API it speaks.",
)
@click.option("--name", metavar="TEXT", help="The agent's name.")
@workspace_option("The agent's workspace.", default="~/.openclaw/workspace")
@click.option(
    "--mode", type=click.Choice(["local", "remote"]), hidden=True, help="local; remote is refused."
)
@click.option("--remote-url", metavar="URL", hidden=True, help="Refused, as --mode remote is.")
@click.option("--remote-token", metavar="TOKEN", hidden=True, help="Refused, as --mode remote is.")
@click.option(
    "--flow",
    type=click.Choice(["quickstart", "advanced", "manual"]),
    default="quickstart",
    help="advanced and manual also ask for the gateway's port and address.",
)
@click.option(
    "--gateway-port",
    metavar="PORT",
    type=click.IntRange(1, 65_535),
    show_default="18789",
    help="The gateway's port.",
)
@click.option(
    "--gateway-bind",
    type=click.Choice(["loopback", "lan"]),
    show_default="loopback",
    help="The addresses that the gateway listens on.",
)
@click.option(
    "--install-daemon/--no-install-daemon",
    "daemon",
    default=None,
    show_default=False,
    help="Install the gateway as a service.",
)
@click.option("--skip-daemon", is_flag=True, help="The same as --no-install-daemon.")
@click.option("--skip-channels", is_flag=True, help="Ask for no chat service.")
@click.option("--skip-health", is_flag=True, help="Send no question to the model.")
@click.option("--reset", is_flag=True, help="Forget the answers of an interrupted run.")
@as_json_option
def command(*, as_json: bool, non_interactive: bool, **given: Any) -> None:
    """Set up an assistant step by step: model, name, chat service.

    A provider's key is found in the environment, or given by `--PROVIDER-api-key KEY` (for example
    --openai-api-key), where `-` reads one line of standard input. An interrupted run continues
    where it stopped.
    """
    if given["mode"] == "remote" or given["remote_url"] or given["remote_token"]:
        raise UserError(
            "a remote gateway is set up on its own machine",
            fix="here, every command takes --url and --token: homarus chat --url wss://HOST:PORT",
        )
    if as_json and not non_interactive:
        raise UserError("--json needs --non-interactive", fix="add --non-interactive")
    if non_interactive:
        onboard_by_options(given, as_json=as_json)
    else:
        onboard_at_terminal(given)


def onboard_at_terminal(given: Mapping[str, Any] | None = None) -> None:
    """Run the wizard with the person at this terminal."""
    from homarus.cli.wizard_services import make_services
    from homarus.gateway.wizard.answers import FILE, WizardAnswers
    from homarus.gateway.wizard.flow import WizardFlow

    given = given or {}
    answers = WizardAnswers.load(Paths.find(os.environ).state / FILE)
    if given.get("reset"):
        answers.remove()
    for step, answer in _answers(given).items():
        answers.preset(step, answer)
    flow = WizardFlow(TerminalPrompter(), make_services("onboard"), answers, _options(given))
    run_wizard(flow.onboard, "Your answers are kept: `homarus onboard` continues.")


def run_wizard(run: Callable[[], Awaitable[None]], stopped: str) -> None:
    """Run a wizard at the terminal; Ctrl-C ends it with the text `stopped`."""

    async def main() -> None:
        await run()

    try:
        asyncio.run(main())
    except (KeyboardInterrupt, WizardStoppedError):
        click.echo(f"\nStopped. {stopped}", err=True)
        if not sys.stdin.isatty():
            click.echo("In a script: homarus onboard --non-interactive --help", err=True)
        raise click.exceptions.Exit(130) from None


def onboard_by_options(given: Mapping[str, Any], *, as_json: bool) -> None:
    """Run the wizard with the options as its answers."""
    from homarus.cli.wizard_services import find_link, make_services
    from homarus.config.agent_settings import default_agent_id, resolve_agent_settings
    from homarus.config.load import load_config
    from homarus.gateway.wizard.answers import WizardAnswers
    from homarus.gateway.wizard.flow import WizardFlow

    paths = Paths.find(os.environ)
    given_answers, answers = _answers(given), WizardAnswers()
    if given_answers.get("model.provider") == "custom":
        given_answers.setdefault("model.key", "")  # not every service needs one
    prompter = OptionPrompter(given_answers, is_silent=as_json)
    answers.preset("daemon.install", given["daemon"])
    options = _options(given, is_silent=True)
    flow = WizardFlow(prompter, make_services("onboard"), answers, options)
    asyncio.run(flow.onboard())
    if as_json:
        config = load_config(paths, os.environ).config
        settings = resolve_agent_settings(config, paths, default_agent_id(config))
        report = {
            "ok": True,
            "mode": "local",
            "config": str(paths.config),
            "workspace": str(settings.workspace),
            "model": settings.model,
            "url": find_link(paths).split(" ")[0].partition("#")[0],
        }
        click.echo(json.dumps(report, ensure_ascii=False))


class OptionPrompter:
    """Answers from options, else the proposed answer; a question without both is an error."""

    is_interactive = False

    def __init__(self, answers: Mapping[str, Json], *, is_silent: bool) -> None:
        self._answers, self._is_silent = answers, is_silent

    async def ask(self, step: "WizardStep") -> Json:
        if step.type == "note":
            if not self._is_silent:
                click.echo("\n".join(filter(None, [step.title, step.message])))
            return None
        answer = self._answers.get(step.id, step.initial)
        if answer is None:
            raise UserError(
                f"--non-interactive lacks an answer: {step.title}",
                fix=f"give {step.flag}" if step.flag else "run homarus onboard at a terminal",
            )
        return answer

    def show_progress(self, step: "WizardStep") -> None:
        """Show nothing: the result is what counts."""

    def reject(self, step: "WizardStep", error: HomarusError) -> None:
        message = f"{step.flag}: {error.message}" if step.flag else error.message
        raise UserError(message, fix=error.fix)


def _options(given: Mapping[str, Any], *, is_silent: bool = False) -> "WizardOptions":
    from homarus.gateway.wizard.flow import WizardOptions

    skips = {"channels"} if given.get("skip_channels") or is_silent else set()
    if given.get("daemon") is False or given.get("skip_daemon"):
        skips.add("daemon")
    wants_gateway = given.get("gateway_port") or given.get("gateway_bind")
    if given.get("flow", "quickstart") == "quickstart" and not wants_gateway:
        skips.add("gateway")
    return WizardOptions(should_probe=not given.get("skip_health"), skips=frozenset(skips))


def _answers(given: Mapping[str, Any]) -> dict[str, Json]:
    """Return the answers that the options give, by the id of their step."""
    answers: dict[str, Json] = {}
    keys: dict[str, str] = {}
    for word, id_ in _KEY_PROVIDERS.items():
        if key := given.get(f"{word.replace('-', '_')}_api_key"):
            keys[id_] = key
    if len(keys) > 1:
        raise UserError("one key is enough", fix="homarus models auth add stores the others")
    provider = _provider(given, keys)
    key = given.get("custom_api_key") if provider == "custom" else keys.get(provider)
    if key:
        answers |= {"model.found": False, "model.key": _read_secret(key)}
    model = (provider == "custom" and given.get("custom_model_id")) or given.get("model")
    if model:
        answers |= {"model.id": "other", "model.other": model}
    port = given.get("gateway_port")
    answers |= {
        "model.provider": provider or None,
        "model.url": given.get("custom_base_url"),
        "model.api": given.get("custom_compatibility"),
        "model.name": given.get("custom_provider_id"),
        "workspace.name": given.get("name"),
        "workspace.path": given.get("workspace"),
        "gateway.port": str(port) if port else None,
        "gateway.bind": given.get("gateway_bind"),
        "daemon.install": given.get("daemon"),
    }
    found = {step: answer for step, answer in answers.items() if answer is not None}
    if any(not step.startswith("daemon") for step in found):
        found["wizard.existing"] = "change"
        if "model.provider" not in found and Paths.find(os.environ).config.exists():
            found.setdefault("model.provider", "keep")
    return found


def _provider(given: Mapping[str, Any], keys: Mapping[str, str]) -> str:
    choice = given.get("auth_choice")
    if choice is None:
        return next(iter(keys), "custom" if given.get("custom_base_url") else "")
    if choice not in AUTH_CHOICES:
        near = closest_names(choice, AUTH_CHOICES)
        fix = "" if near else f"one of {', '.join(AUTH_CHOICES)}"
        raise UnknownNameError("--auth-choice", choice, near, fix=fix)
    return AUTH_CHOICES[choice]


def _read_secret(text: str) -> str:
    """Return a key: as it is, or the next line of standard input for -."""
    if text != "-":
        return text
    if sys.stdin.isatty():
        entered: str = click.prompt("Key", hide_input=True, err=True)
        return entered
    if line := sys.stdin.readline(16_384).strip():
        return line
    raise UserError("no key came by standard input", fix="send one line")
