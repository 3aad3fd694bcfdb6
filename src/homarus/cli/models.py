"""`homarus models`: which model answers and why, what else there is, choosing and fetching."""

import asyncio
import importlib.util
import json
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from homarus.config.load import Loaded, load
from homarus.config.paths import Paths, shorten
from homarus.core.errors import HomarusError, UnknownName

if TYPE_CHECKING:
    from homarus.providers.catalog import Model
    from homarus.providers.choose import Choice
    from homarus.providers.models import Models


class _Models(click.Group):
    """Its `auth` part is imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted([*super().list_commands(ctx), "auth"])

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name == "auth":
            from homarus.cli.models_auth import auth

            return auth
        return super().get_command(ctx, cmd_name)


as_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")


@click.group(cls=_Models, invoke_without_command=True)
@as_json
@click.pass_context
def command(ctx: click.Context, *, as_json: bool) -> None:
    """List, choose and fetch models; alone, say which one answers."""
    if ctx.invoked_subcommand is None:
        ctx.invoke(status, as_json=as_json)


@command.command()
@as_json
def status(*, as_json: bool) -> None:
    """Say which model answers, why, and what was looked at."""
    paths = Paths.find(os.environ)
    report = asyncio.run(_report(load(paths, os.environ), paths))
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False))
        return
    guess = "" if report["known"] else ", a guess"
    weights = report["demo"]["path"]
    rows = [
        ("Model", report["model"]),
        ("Why", report["why"]),
        ("Window", f"{report['contextWindow']:,} tokens{guess}"),
        ("Key", _told_key(report["key"])),
        ("Demo model", shorten(Path(weights), paths.home) if weights else "not fetched"),
        ("Note", report["note"]),
    ]
    if report["problem"]:
        rows += [("Problem", report["problem"]["message"]), ("", f"→ {report['problem']['fix']}")]
    _print_rows(rows)
    click.echo("\nLooked at")
    _print_rows([(f"  {look['source']}", look["outcome"]) for look in report["tried"]])


@command.command("list")
@click.option("--all", "everything", is_flag=True, help="Also models that lack a key here.")
@as_json
def list_(*, everything: bool, as_json: bool) -> None:
    """List the models that can be used here."""
    paths = Paths.find(os.environ)
    rows = asyncio.run(_models(load(paths, os.environ), paths))
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
@click.argument("model")
@as_json
def set_(model: str, *, as_json: bool) -> None:
    """Answer with MODEL (provider/model, or an alias) from now on."""
    from homarus.config.write import write
    from homarus.providers.connect import check, resolve

    paths = Paths.find(os.environ)
    config = load(paths, os.environ).config
    ref = resolve(config, model, default_provider="")
    check(config, ref)
    written = write(paths, os.environ, lambda tree: _with_primary(tree, str(ref)))
    problem = asyncio.run(_problem(load(paths, os.environ), paths, str(ref)))
    if as_json:
        said = {"ok": True, "model": str(ref), "changed": bool(written.changed)}
        click.echo(json.dumps({**said, "problem": problem}, ensure_ascii=False))
        return
    done = "answers from now on" if written.changed else "was chosen already"
    click.echo(f"{ref} {done} ({shorten(written.file, paths.home)}).")
    if problem:
        click.echo(f"Before it can: {problem['message']}\n  → {problem['fix']}", err=True)


@command.command()
@click.argument("provider")
@as_json
def refresh(provider: str, *, as_json: bool) -> None:
    """Ask a provider which models it has, how much they hold and cost."""
    count = asyncio.run(_refresh(provider))
    told = {"ok": True, "provider": provider, "models": count}
    click.echo(json.dumps(told) if as_json else f"{provider} told of {count} models.")


@command.command()
@click.argument("name")
@click.option("--if-needed", is_flag=True, help="Only if it is to answer and is not there.")
def pull(name: str, *, if_needed: bool) -> None:
    """Fetch the weights of NAME; there is one, `demo`."""
    from homarus.providers import demo

    if name != demo.DEMO.name:
        raise UnknownName("model to fetch", name, (demo.DEMO.name,))
    paths = Paths.find(os.environ)
    if if_needed:
        if demo.find(paths.models_cache):
            return
        choice = asyncio.run(_choose(load(paths, os.environ), paths))
        if choice.ref != "local/demo":
            click.echo(f"{choice.ref} answers ({choice.why}); the demo model is not needed.")
            return
    shown = shorten(paths.models_cache / demo.DEMO.file, paths.home)
    if demo.pull(paths.models_cache, _progress("Fetching the demo model")):
        click.echo(f"The demo model is in {shown}\nLicence: {demo.DEMO.licence}.")
    else:
        click.echo(f"The demo model is there already: {shown}")
    if importlib.util.find_spec("xllamacpp") is None:
        click.echo("It runs once xllamacpp is there: pip install 'homarus[local]'", err=True)


@asynccontextmanager
async def _opened(loaded: Loaded, paths: Paths) -> AsyncIterator["Models"]:
    from homarus.core.clock import SystemClock
    from homarus.providers.models import Models

    models = Models(loaded.config, loaded.env, paths, SystemClock())
    try:
        yield models
    finally:
        await models.close()


async def _refresh(provider: str) -> int:
    paths = Paths.find(os.environ)
    async with _opened(load(paths, os.environ), paths) as models:
        return await models.refresh(provider)


async def _choose(loaded: Loaded, paths: Paths) -> "Choice":
    """The default agent's own model, else what holds for all."""
    from homarus.config.resolve import agent_settings, default_agent
    from homarus.providers.choose import Choice

    agent = default_agent(loaded.config)
    own = agent_settings(loaded.config, paths, agent).model
    if own and own != loaded.config.agents.defaults.model.primary:
        why = f"the configuration names it for the agent {agent} (agents.list)"
        return Choice(own, why, ((f"agents.list, {agent}", own),))
    async with _opened(loaded, paths) as models:
        return await models.choice()


async def _report(loaded: Loaded, paths: Paths) -> dict[str, Any]:
    from homarus.providers import demo
    from homarus.providers.catalog import lookup
    from homarus.providers.choose import survey
    from homarus.providers.connect import key_of, needs_key, resolve
    from homarus.providers.secret import mask

    config = loaded.config
    choice = await _choose(loaded, paths)
    ref = resolve(config, choice.ref)
    model = lookup(config, ref)
    source, key = key_of(config, loaded.env, ref.provider)
    needed = needs_key(config, ref.provider)
    weights = demo.find(paths.models_cache)
    return {
        "model": str(ref),
        "why": choice.why,
        "name": model.name,
        "contextWindow": model.window,
        "known": model.known,
        "note": model.note,
        "key": {"source": source, "shown": mask(key)} if key or needed else None,
        "servers": {vendor.id: models for vendor, models in await survey(config)},
        "demo": {"present": weights is not None, "path": str(weights) if weights else None},
        "problem": await _problem(loaded, paths, choice.ref),
        "tried": [{"source": source, "outcome": outcome} for source, outcome in choice.tried],
    }


async def _models(loaded: Loaded, paths: Paths) -> list[dict[str, Any]]:
    """Every model there is to name, the default one first."""
    from homarus.config.refs import ModelRef, aliases
    from homarus.providers.catalog import known_models, lookup
    from homarus.providers.choose import survey
    from homarus.providers.connect import provider_names, resolve

    config = loaded.config
    default = lookup(config, resolve(config, (await _choose(loaded, paths)).ref))
    names = {lookup(config, ref).ref: name for name, ref in aliases(config).items()}
    models = [default, *(lookup(config, ref) for ref in aliases(config).values())]
    for provider in provider_names(config):
        models += known_models(config, provider)
    for vendor, found in await survey(config):
        models += [lookup(config, ModelRef(vendor.id, model)) for model in found or ()]
    rows = []
    for ref, model in {model.ref: model for model in models}.items():
        tags = ["default"] if ref == default.ref else []
        tags += [f"alias {names[ref]}"] if ref in names else []
        missing = await _missing(loaded, paths, model)
        row = {
            "key": ref,
            "name": model.name,
            "input": "text+image" if model.sees_images else "text",
            "contextWindow": model.window,
            "known": model.known,
            "available": not missing,
            "missing": missing,
            "tags": tags,
        }
        rows.append(row)
    return rows


async def _missing(loaded: Loaded, paths: Paths, model: "Model") -> str:
    """In two words, why a model cannot be used yet."""
    from homarus.providers.catalog import VENDORS
    from homarus.providers.connect import key_of, lacks_account, needs_key

    keyless = not key_of(loaded.config, loaded.env, model.provider)[1]
    if keyless and needs_key(loaded.config, model.provider):
        return f"needs {VENDORS[model.provider].key_names[0]}"
    if keyless and lacks_account(loaded.config, loaded.env, model.provider):
        return f"needs {VENDORS[model.provider].account_names[0]}"
    return "not ready" if await _problem(loaded, paths, model.ref) else ""


async def _problem(loaded: Loaded, paths: Paths, ref: str) -> dict[str, str] | None:
    """What stands between a model and its first answer, short of asking it."""
    from homarus.config.resolve import default_agent
    from homarus.providers.models import Wish

    try:
        async with _opened(loaded, paths) as models:
            await models.road(Wish(default_agent(loaded.config), ref))
    except HomarusError as exc:
        return {"message": exc.message, "fix": exc.fix}
    return None


def _with_primary(tree: Any, ref: str) -> Any:
    """The settings with another model; a list of allowed models that lacks it gets it."""
    from homarus.config.edit import get_path, set_path

    def said(*path: str) -> Any:
        try:
            return get_path(tree, path)
        except LookupError:
            return None

    place = ("agents", "defaults", "model")
    if isinstance(said(*place), str):
        tree = set_path(tree, place, {"primary": ref})
    else:
        tree = set_path(tree, (*place, "primary"), ref)
    allowed = said("agents", "defaults", "models")
    if isinstance(allowed, dict) and allowed and ref not in allowed:
        tree = set_path(tree, ("agents", "defaults", "models", ref), {})
    return tree


def _progress(what: str) -> Callable[[int, int], None]:
    """Tells how far a download is: on a terminal all along, elsewhere once."""
    live = sys.stderr.isatty()
    begun = False

    def tell(done: int, total: int) -> None:
        nonlocal begun
        size = f"{round(total / 1_000_000)} MB"
        if live:
            end = "\n" if done >= total else ""
            click.echo(f"\r{what}: {done // 1_000_000} of {size}{end}", err=True, nl=False)
        elif not begun:
            click.echo(f"{what} ({size}) …", err=True)
        begun = True

    return tell


def _told_key(key: dict[str, str] | None) -> str:
    if key is None:
        return "not needed"
    return f"{key['shown']} from {key['source']}" if key["source"] else "missing"


def _print_rows(rows: list[tuple[str, str]]) -> None:
    width = max(len(name) for name, _ in rows)
    for name, text in rows:
        if text:
            click.echo(f"{name:<{width}}  {text}")
