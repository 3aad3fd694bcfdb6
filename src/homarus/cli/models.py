"""`homarus models`: show, list, choose and fetch models."""

import asyncio
import importlib.util
import json
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from homarus.cli import completion_values
from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    gateway_options,
    is_gateway_running,
    open_gateway,
)
from homarus.cli.options import provider_argument
from homarus.config.load import load_config
from homarus.config.paths import Paths, shorten
from homarus.core.errors import HomarusError, MissingExtraError, UnknownNameError

if TYPE_CHECKING:
    from homarus.cli.config_client import ConfigChangeResult

_LIST_S = 120.0  # every model is checked


_CHOICES = ("aliases", "fallbacks", "image-fallbacks", "set-image")


class _LazyModelsGroup(CommandGroup):
    """Imports its larger parts when they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), "auth", *_CHOICES])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "auth":
            from homarus.cli.models_auth import auth

            return auth
        if cmd_name in _CHOICES:
            from homarus.cli.models_choice import CHOICE_COMMANDS

            return CHOICE_COMMANDS[cmd_name]
        return super().get_command(ctx, cmd_name)


local_option = click.option(
    "--local", is_flag=True, help="Use this machine's files, without a gateway."
)


@click.group(cls=_LazyModelsGroup, invoke_without_command=True)
@examples("homarus models", "homarus models set openai/gpt-5.2", "homarus models auth add openai")
@as_json_option
@click.pass_context
def command(ctx: click.Context, *, as_json: bool) -> None:
    """Manage models; without a subcommand, show the current one."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(status, as_json=as_json)


@command.command()
@examples("homarus models status")
@as_json_option
@local_option
@gateway_options
def status(*, as_json: bool, gateway: GatewayOptions, local: bool = False) -> None:
    """Show the current model, why it was chosen, and what was tried."""
    paths = Paths.find(os.environ)
    report = asyncio.run(_status(gateway, local=local))
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False))
        return
    guess = "" if report["known"] else ", a guess"
    weights = report["demo"]["path"]
    rows = [
        ("Model", report["model"]),
        ("Why", report["why"]),
        ("Window", f"{report['contextWindow']:,} tokens{guess}"),
        ("Key", _describe_key(report["key"])),
        ("Demo model", shorten(Path(weights), paths.home) if weights else "not fetched"),
        ("Note", report["note"]),
    ]
    if report["problem"]:
        rows += [("Problem", report["problem"]["message"]), ("", f"→ {report['problem']['fix']}")]
    _print_rows(rows)
    click.echo("\nLooked at")
    _print_rows([(f"  {look['source']}", look["outcome"]) for look in report["tried"]])


@command.command("list")
@examples("homarus models list", "homarus models list --all --json")
@click.option("--all", "everything", is_flag=True, help="Also models without a key.")
@as_json_option
@local_option
@gateway_options
def list_(gateway: GatewayOptions, *, everything: bool, as_json: bool, local: bool) -> None:
    """List the models that can be used."""
    rows = asyncio.run(_rows(gateway, local=local))
    rows = [row for row in rows if everything or row["available"]]
    if as_json:
        click.echo(json.dumps({"count": len(rows), "models": rows}, ensure_ascii=False))
        return
    if not rows:
        click.echo("No model can answer yet.")
    width = max((len(row["key"]) for row in rows), default=0)
    for row in rows:
        window = f"{row['contextWindow'] // 1000:,}k" if row["known"] else "?"
        marks = ", ".join([*row["tags"], *filter(None, [row["missing"]])])
        click.echo(f"{row['key']:<{width}}  {window:>6}  {row['input']:<10}  {marks}".rstrip())
    if not everything:
        click.echo("homarus models list --all shows those that lack a key, too.", err=True)


@command.command("set")
@examples("homarus models set openai/gpt-5.2")
@click.argument("model", shell_complete=completion_values.models)
@as_json_option
@local_option
@gateway_options
def set_(model: str, gateway: GatewayOptions, *, as_json: bool, local: bool) -> None:
    """Set the default model: provider/model, or an alias."""
    ref, found, problem, doubt = asyncio.run(_choose(gateway, model, local=local))
    if as_json:
        report = {"ok": True, "model": ref, "changed": bool(found.changed), "problem": problem}
        report |= {"warning": doubt} if doubt else {}
        report |= {"gateway": found.effect} if found.effect else {}
        click.echo(json.dumps(report, ensure_ascii=False))
        return
    done = "answers from now on" if found.changed else "was chosen already"
    effect = f"; {found.effect}" if found.effect else ""
    file = shorten(Path(found.file), Paths.find(os.environ).home)
    click.echo(f"{ref} {done} ({file}{effect}).")
    if doubt:
        click.echo(f"Warning: {doubt}", err=True)
    if problem:
        click.echo(f"It cannot answer yet: {problem['message']}\n  → {problem['fix']}", err=True)


@command.command()
@examples("homarus models refresh openrouter")
@provider_argument
@as_json_option
def refresh(provider: str, *, as_json: bool) -> None:
    """Fetch a provider's list of models, with context windows and prices."""
    from homarus.providers.model_report import report_refresh

    paths = Paths.find(os.environ)
    report = asyncio.run(report_refresh(load_config(paths, os.environ), paths, provider))
    if as_json:
        click.echo(json.dumps(report))
        return
    name, count, listed = report["provider"], report["models"], report["listed"]
    models = "model" if count == 1 else "models"
    click.echo(f"{name} has {count} {models} for chat; homarus models list shows them.")
    if count != listed:
        click.echo(f"It lists {listed}; the configuration decides which are used.", err=True)


@command.command()
@examples("homarus models pull demo")
@click.argument("name")
@click.option("--if-needed", is_flag=True, help="Only if it is in use and missing.")
def pull(name: str, *, if_needed: bool) -> None:
    """Download a local model: `demo` answers, `minilm` is for memory search."""
    from homarus.providers import weights

    pulls = {weights.DEMO.name: _pull_demo, "minilm": _pull_minilm}
    if name not in pulls:
        raise UnknownNameError("model to fetch", name, tuple(pulls))
    pulls[name](Paths.find(os.environ), if_needed)


def _pull_demo(paths: Paths, if_needed: bool) -> None:
    from homarus.providers import weights

    if if_needed:
        if weights.find_weights(paths.models_cache):
            return
        from homarus.providers.model_report import choose_default

        choice = asyncio.run(choose_default(load_config(paths, os.environ), paths))
        if choice.ref != "local/demo":
            click.echo(f"{choice.ref} answers ({choice.why}); the demo model is not needed.")
            return
    shown = shorten(paths.models_cache / weights.DEMO.file, paths.home)
    with _DownloadProgress("Fetching the demo model") as progress:
        is_new = weights.pull_weights(paths.models_cache, progress)
    if is_new:
        click.echo(f"The demo model is in {shown}\nLicence: {weights.DEMO.licence}.")
    else:
        click.echo(f"The demo model is there already: {shown}")
    if importlib.util.find_spec("xllamacpp") is None:
        from homarus.core.installation import extra_command

        click.echo(f"It runs once xllamacpp is there: {extra_command('local')}", err=True)


def _pull_minilm(paths: Paths, if_needed: bool) -> None:
    from homarus.memory.embed import minilm
    from homarus.memory.embed.onnx import check_extra

    if if_needed and minilm.find(paths.models_cache):
        return
    shown = shorten(minilm.folder_in(paths.models_cache), paths.home)
    with _DownloadProgress("Fetching the sentence model") as progress:
        is_new = minilm.pull(paths.models_cache, progress)
    if is_new:
        click.echo(f"The sentence model is in {shown}\nLicence: {minilm.LICENCE}.")
    else:
        click.echo(f"The sentence model is there already: {shown}")
    try:
        check_extra()
    except MissingExtraError as exc:
        click.echo(f"Memory uses it once its packages are there: {exc.fix}", err=True)


async def _status(gateway: GatewayOptions, *, local: bool) -> Any:
    """Return the status of the model, from the gateway with its own keys or from this process."""
    if not local and is_gateway_running(gateway):
        async with open_gateway(gateway) as client:
            return await client.call("models.status")
    from homarus.providers.model_report import report_status

    paths = Paths.find(os.environ)
    return await report_status(load_config(paths, os.environ), paths)


async def _rows(gateway: GatewayOptions, *, local: bool) -> list[Any]:
    if not local and is_gateway_running(gateway):
        async with open_gateway(gateway) as client:
            answer = await client.call("models.list", {"details": True}, timeout_s=_LIST_S)
        return list(answer["models"]) if isinstance(answer, dict) else []
    from homarus.providers.model_report import report_models

    paths = Paths.find(os.environ)
    return await report_models(load_config(paths, os.environ), paths)


async def _choose(
    gateway: GatewayOptions, model: str, *, local: bool
) -> tuple[str, "ConfigChangeResult", Any, str]:
    """Set the default model; returns its name, the change, what it lacks, and a doubt about it."""
    from homarus.cli.config_client import open_config_client
    from homarus.config.agent_edits import with_listed_model, with_primary_model
    from homarus.providers.model_report import find_doubt
    from homarus.providers.resolution import check_reachable, is_unlisted, resolve_model

    async with open_config_client(gateway, local=local) as settings:
        config = await settings.config()
        ref = resolve_model(config, model, default_provider="")
        check_reachable(config, ref, must_be_listed=False)

        def edit(tree: Any) -> Any:
            listed = with_listed_model(tree, ref) if is_unlisted(config, ref) else tree
            return with_primary_model(listed, str(ref))

        changed = await settings.change(edit)
    doubt = await find_doubt(config, os.environ, Paths.find(os.environ), ref)
    return str(ref), changed, await _problem(gateway, str(ref), local=local), doubt


async def _problem(gateway: GatewayOptions, ref: str, *, local: bool) -> Any:
    """Return what prevents a model from answering; a gateway's report is preferred."""
    if not local and is_gateway_running(gateway):
        with suppress(HomarusError):  # it may be restarting: unknown yet
            async with open_gateway(gateway) as client:
                answer = await client.call("models.status")
            return (
                answer["problem"] if isinstance(answer, dict) and answer["model"] == ref else None
            )
        return None
    from homarus.providers.model_report import find_problem

    paths = Paths.find(os.environ)
    return await find_problem(load_config(paths, os.environ), paths, ref)


class _DownloadProgress:
    """Shows the bytes of a download: one line that changes on a terminal, elsewhere one line."""

    def __init__(self, what: str) -> None:
        self._what, self._is_live, self._last = what, sys.stderr.isatty(), ""

    def __enter__(self) -> "_DownloadProgress":
        return self

    def __exit__(self, *_failure: object) -> None:
        if self._is_live and self._last:
            click.echo(err=True)  # what follows is on a line of its own

    def __call__(self, done: int, total: int) -> None:
        size = f"{round(total / 1_000_000)} MB"
        if not self._is_live:
            text = f"{self._what} ({size}) …\n"
        else:
            text = f"\r{self._what}: {round(min(done, total) / 1_000_000)} of {size}"
        if text != self._last and (self._is_live or not self._last):
            click.echo(text, err=True, nl=False)
            self._last = text


def _describe_key(key: dict[str, str] | None) -> str:
    if key is None:
        return "not needed"
    return f"{key['shown']} from {key['source']}" if key["source"] else "missing"


def _print_rows(rows: list[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        if text:
            click.echo(f"{name:<{width}}  {text}")
