"""`homarus models set-image|aliases|fallbacks|image-fallbacks`: which models answer for which."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from homarus.cli import completion_values
from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import GatewayOptions, as_json_option, gateway_options
from homarus.core.errors import UnknownNameError, UserError
from homarus.core.message import Json
from homarus.core.text import closest_names, one_line

if TYPE_CHECKING:
    from homarus.cli.config_client import ConfigClient
    from homarus.config.schema import Config, ModelChoiceConfig

_MAX_ALIAS_CHARS: Final = 64
_ListChange: TypeAlias = Callable[["Config", Sequence[str]], list[str]]
_model = click.argument("model", shell_complete=completion_values.models)
_local = click.option("--local", is_flag=True, help="Use this machine's files, without a gateway.")


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    return as_json_option(_local(gateway_options(function)))


@click.command("set-image")
@examples("homarus models set-image openai/gpt-5-mini")
@_model
@_options
def set_image(model: str, gateway: GatewayOptions, *, as_json: bool, local: bool) -> None:
    """Set the model that describes images for models that see none."""

    async def do(settings: "ConfigClient") -> tuple[str, str]:
        ref = _resolve(await settings.config(), model)

        def edit(tree: Any) -> Any:
            kept = _choice(tree, "imageModel")
            return _with_choice(tree, "imageModel", {**kept, "primary": ref})

        return ref, (await settings.change(edit)).effect

    ref, effect = _run(gateway, do, local=local)
    _print({"model": ref, "gateway": effect}, f"{ref} describes images from now on.", as_json)


@click.group(cls=CommandGroup)
@examples("homarus models aliases list", "homarus models aliases add fast openai/gpt-5-mini")
def aliases() -> None:
    """List, add and remove short names of models."""


@aliases.command("list")
@examples("homarus models aliases list --json")
@_options
def aliases_list(gateway: GatewayOptions, *, as_json: bool, local: bool) -> None:
    """List the short names of models."""

    async def do(settings: "ConfigClient") -> dict[str, str]:
        models = (await settings.config()).agents.defaults.models
        return {entry.alias: ref for ref, entry in models.items() if entry.alias}

    found = _run(gateway, do, local=local)
    if as_json:
        click.echo(json.dumps({"aliases": found}, ensure_ascii=False))
        return
    for alias, ref in sorted(found.items()):
        click.echo(f"{one_line(alias, 64):<16}  {ref}")
    if not found:
        click.echo("No alias. homarus models aliases add NAME MODEL adds one.")


@aliases.command("add")
@examples("homarus models aliases add fast openai/gpt-5-mini")
@click.argument("alias")
@_model
@_options
def aliases_add(
    alias: str, model: str, gateway: GatewayOptions, *, as_json: bool, local: bool
) -> None:
    """Give a model a short name; the same name of another model moves to it."""
    name = alias.strip()
    if not name or "/" in name or not name.isprintable() or len(name) > _MAX_ALIAS_CHARS:
        raise UserError(
            f"{one_line(alias, 40)!r} is no alias", fix="use a short name without a slash"
        )

    async def do(settings: "ConfigClient") -> tuple[str, str, bool]:
        config = await settings.config()
        ref, is_first = _resolve(config, model), not config.agents.defaults.models
        in_use = _models_in_use(config) if is_first else []

        def edit(tree: Any) -> Any:
            # The list also says which models may be used: those in use stay allowed.
            models = {one: {} for one in in_use} | {**_models(tree)}
            for other, entry in list(models.items()):
                if entry.get("alias") == name and other != ref:
                    models[other] = {n: v for n, v in entry.items() if n != "alias"}
            models[ref] = {**models.get(ref, {}), "alias": name}
            return _with_models(tree, models)

        return ref, (await settings.change(edit)).effect, is_first

    ref, effect, is_first = _run(gateway, do, local=local)
    _print({"alias": name, "model": ref, "gateway": effect}, f"{name} is {ref}.", as_json)
    if is_first:
        click.echo("Only the models of agents.defaults.models may be used from now on.", err=True)


@aliases.command("remove")
@examples("homarus models aliases remove fast")
@click.argument("alias")
@_options
def aliases_remove(alias: str, gateway: GatewayOptions, *, as_json: bool, local: bool) -> None:
    """Remove a short name; the model stays in the list."""

    async def do(settings: "ConfigClient") -> str:
        models = (await settings.config()).agents.defaults.models
        known = [entry.alias for entry in models.values() if entry.alias]
        if alias not in known:
            raise UnknownNameError("alias", alias, closest_names(alias, known) or tuple(known))

        def edit(tree: Any) -> Any:
            changed = {
                ref: {n: v for n, v in entry.items() if n != "alias" or v != alias}
                for ref, entry in _models(tree).items()
            }
            return _with_models(tree, changed)

        return (await settings.change(edit)).effect

    effect = _run(gateway, do, local=local)
    _print({"alias": alias, "removed": True, "gateway": effect}, "Removed.", as_json)


def _fallback_group(name: str, key: str, what: str) -> click.Group:
    """Return the group of commands for one list of fallbacks."""

    @click.group(name, cls=CommandGroup)
    @examples(f"homarus models {name} list")
    def group() -> None:
        pass

    @group.command("list")
    @examples(f"homarus models {name} list --json")
    @_options
    def list_(gateway: GatewayOptions, *, as_json: bool, local: bool) -> None:
        async def do(settings: "ConfigClient") -> tuple[str, ...]:
            return tuple(_configured(await settings.config(), key).fallbacks)

        found = _run(gateway, do, local=local)
        text = "\n".join(found) or "None."
        click.echo(json.dumps({"fallbacks": found}) if as_json else text)

    @group.command("add")
    @examples(f"homarus models {name} add openai/gpt-5-mini")
    @_model
    @_options
    def add(model: str, gateway: GatewayOptions, *, as_json: bool, local: bool) -> None:
        _change_fallbacks(gateway, key, _appending(model), as_json=as_json, local=local)

    @group.command("remove")
    @examples(f"homarus models {name} remove openai/gpt-5-mini")
    @_model
    @_options
    def remove(model: str, gateway: GatewayOptions, *, as_json: bool, local: bool) -> None:
        _change_fallbacks(gateway, key, _dropping(model), as_json=as_json, local=local)

    @group.command("clear")
    @examples(f"homarus models {name} clear")
    @_options
    def clear(gateway: GatewayOptions, *, as_json: bool, local: bool) -> None:
        _change_fallbacks(gateway, key, lambda _config, _before: [], as_json=as_json, local=local)

    for one, text in (
        (group, f"List, add and remove {what}."),
        (list_, f"List {what}, in their order."),
        (add, f"Add a model at the end of {what}."),
        (remove, f"Remove a model from {what}."),
        (clear, f"Remove all {what}."),
    ):
        one.help = f"{text}{one.help or ''}"
    return group


def _appending(model: str) -> _ListChange:
    def change(config: "Config", before: Sequence[str]) -> list[str]:
        ref = _resolve(config, model)
        return [*before, *([ref] if ref not in before else [])]

    return change


def _dropping(model: str) -> _ListChange:
    def change(config: "Config", before: Sequence[str]) -> list[str]:
        gone = model if model in before else _resolve(config, model)
        if gone not in before:
            raise UnknownNameError("fallback", model, tuple(before))
        return [one for one in before if one != gone]

    return change


def _change_fallbacks(
    gateway: GatewayOptions,
    key: str,
    change: _ListChange,
    *,
    as_json: bool,
    local: bool,
) -> None:
    async def do(settings: "ConfigClient") -> tuple[list[str], str]:
        config = await settings.config()
        fallbacks = change(config, _configured(config, key).fallbacks)

        def edit(tree: Any) -> Any:
            return _with_choice(tree, key, {**_choice(tree, key), "fallbacks": fallbacks})

        return fallbacks, (await settings.change(edit)).effect

    fallbacks, effect = _run(gateway, do, local=local)
    shown = ", ".join(fallbacks) or "none"
    _print({"fallbacks": fallbacks, "gateway": effect}, f"Fallbacks: {shown}.", as_json)


def _run(gateway: GatewayOptions, do: Callable[["ConfigClient"], Any], *, local: bool) -> Any:
    from homarus.cli.config_client import run_with_config

    return run_with_config(gateway, do, local=local)


def _resolve(config: "Config", model: str) -> str:
    from homarus.providers.resolution import check_reachable, resolve_model

    ref = resolve_model(config, model, default_provider="")
    check_reachable(config, ref, must_be_listed=False)
    return str(ref)


def _models_in_use(config: "Config") -> list[str]:
    defaults = config.agents.defaults
    found = [
        ref
        for choice in (defaults.model, defaults.image_model)
        for ref in (choice.primary, *choice.fallbacks)
    ]
    return [ref for ref in dict.fromkeys(found) if ref and "/" in ref]


def _configured(config: "Config", key: str) -> "ModelChoiceConfig":
    defaults = config.agents.defaults
    return defaults.model if key == "model" else defaults.image_model


def _defaults(tree: Any) -> dict[str, Any]:
    return dict((tree.get("agents") or {}).get("defaults") or {})


def _with_defaults(tree: Any, defaults: Mapping[str, Any]) -> Any:
    return {**tree, "agents": {**(tree.get("agents") or {}), "defaults": dict(defaults)}}


def _choice(tree: Any, key: str) -> dict[str, Any]:
    """Return a choice of models as it is written; a string is a model without fallbacks."""
    found = _defaults(tree).get(key)
    return {"primary": found} if isinstance(found, str) else dict(found or {})


def _with_choice(tree: Any, key: str, choice: Mapping[str, Any]) -> Any:
    return _with_defaults(tree, {**_defaults(tree), key: dict(choice)})


def _models(tree: Any) -> dict[str, Any]:
    return dict(_defaults(tree).get("models") or {})


def _with_models(tree: Any, models: Mapping[str, Any]) -> Any:
    return _with_defaults(tree, {**_defaults(tree), "models": dict(models)})


def _print(result: Mapping[str, Json], text: str, as_json: bool) -> None:
    click.echo(json.dumps({"ok": True, **result}, ensure_ascii=False) if as_json else text)


fallbacks = _fallback_group("fallbacks", "model", "the models that answer when the first cannot")
image_fallbacks = _fallback_group(
    "image-fallbacks", "imageModel", "the models that describe images when the first cannot"
)
CHOICE_COMMANDS: Final[dict[str, click.Command]] = {
    "set-image": set_image,
    "aliases": aliases,
    "fallbacks": fallbacks,
    "image-fallbacks": image_fallbacks,
}
