"""Reports for users: the default model and the reason, the other models, and their problems."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from homarus.config.agent_settings import default_agent_id, resolve_agent_settings
from homarus.config.load import LoadedConfig
from homarus.config.model_refs import ModelRef, aliases, normalize_provider_id
from homarus.config.paths import Paths
from homarus.core.clock import SystemClock
from homarus.core.errors import HomarusError
from homarus.core.text import closest_names
from homarus.providers import weights
from homarus.providers.catalog import LOCAL, VENDORS, ModelInfo, known_models
from homarus.providers.default_model import DefaultModel, probe_local_servers
from homarus.providers.model_router import ModelRouter, ModelSelection
from homarus.providers.resolution import (
    key_of,
    lacks_account,
    needs_key,
    provider_names,
    resolve_model,
)
from homarus.providers.secret import mask

if TYPE_CHECKING:
    from homarus.config.schema import Config


@asynccontextmanager
async def open_router(loaded: LoadedConfig, paths: Paths) -> AsyncIterator[ModelRouter]:
    """Open the config's models, separate from those that answer."""
    models = ModelRouter(loaded.config, loaded.env, paths, SystemClock())
    try:
        yield models
    finally:
        await models.close()


async def choose_default(loaded: LoadedConfig, paths: Paths) -> DefaultModel:
    """Return the default agent's model, else the default of all agents."""
    async with open_router(loaded, paths) as models:
        return await _choice(loaded, paths, models)


async def _choice(loaded: LoadedConfig, paths: Paths, models: ModelRouter) -> DefaultModel:
    agent = default_agent_id(loaded.config)
    own = resolve_agent_settings(loaded.config, paths, agent).model
    if own and own != loaded.config.agents.defaults.model.primary:
        why = f"the configuration names it for the agent {agent} (agents.list)"
        return DefaultModel(own, why, ((f"agents.list, {agent}", own),))
    return await models.default_model()


async def report_status(loaded: LoadedConfig, paths: Paths) -> dict[str, Any]:
    """Report the model that answers, the reason, its key, and the places that were checked."""
    config = loaded.config
    async with open_router(loaded, paths) as models:
        choice = await _choice(loaded, paths, models)
        ref = resolve_model(config, choice.ref)
        model = models.describe(ref)
        weights_file = weights.find_weights(paths.models_cache)
        return {
            "model": str(ref),
            "why": choice.why,
            "name": model.name,
            "contextWindow": model.window,
            "known": model.known,
            "note": model.note,
            "key": _key(loaded, models, ref.provider),
            "servers": {vendor.id: found for vendor, found in await probe_local_servers(config)},
            "demo": {
                "present": weights_file is not None,
                "path": str(weights_file) if weights_file else None,
            },
            "problem": await _problem(loaded, models, choice.ref),
            "tried": [{"source": source, "outcome": outcome} for source, outcome in choice.tried],
        }


async def report_models(loaded: LoadedConfig, paths: Paths) -> list[dict[str, Any]]:
    """Report every usable model, the default first."""
    config = loaded.config
    async with open_router(loaded, paths) as models:
        choice = await _choice(loaded, paths, models)
        default = models.describe(resolve_model(config, choice.ref))
        named = {name: models.describe(ref) for name, ref in aliases(config).items()}
        names = {model.ref: name for name, model in named.items()}
        found = [default, *named.values()]
        running = {vendor.id: ids for vendor, ids in await probe_local_servers(config)}
        for provider in provider_names(config):
            if (ids := running.get(provider)) is None:
                found += models.listed(provider)
            else:  # what runs now is newer than what was fetched
                found += known_models(config, provider)
                found += [models.describe(ModelRef(provider, each)) for each in ids]
        rows = []
        for ref, model in {model.ref: model for model in found}.items():
            tags = ["default"] if ref == default.ref else []
            tags += [f"alias {names[ref]}"] if ref in names else []
            missing = await _missing(loaded, models, model)
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


async def report_refresh(loaded: LoadedConfig, paths: Paths, provider: str) -> dict[str, Any]:
    """Fetch a provider's models; report how many it lists, and how many can be used here."""
    async with open_router(loaded, paths) as models:
        name = normalize_provider_id(provider)
        listed = await models.refresh(name)
        usable = [model for model in models.listed(name) if not _refusal(models, model.ref)]
        return {"ok": True, "provider": name, "models": len(usable), "listed": listed}


def _refusal(models: ModelRouter, ref: str) -> str:
    """Return why the configuration excludes a model, or an empty string."""
    try:
        models.check(ref)
    except HomarusError as exc:
        return exc.message
    return ""


async def find_doubt(config: "Config", env: Mapping[str, str], paths: Paths, ref: ModelRef) -> str:
    """Return why a model may not exist: no list has it; an empty string when one does."""
    if ref.provider == LOCAL:
        return ""
    models = ModelRouter(config, env, paths, SystemClock())
    found = {vendor.id: ids for vendor, ids in await probe_local_servers(config)}
    ids = {*(model.id for model in models.listed(ref.provider)), *(found.get(ref.provider) or ())}
    model = models.describe(ref)
    if model.id in ids or model.known:
        return ""
    if near := closest_names(model.id, ids):
        names = " or ".join(f"{ref.provider}/{name}" for name in near)
        return f"no list has {model.ref}: did you mean {names}?"
    return f"no list has {model.ref}: homarus models refresh {ref.provider} asks which there are"


async def find_problem(loaded: LoadedConfig, paths: Paths, ref: str) -> dict[str, str] | None:
    """Return why a model cannot be used, without calling it."""
    async with open_router(loaded, paths) as models:
        return await _problem(loaded, models, ref)


async def _problem(loaded: LoadedConfig, models: ModelRouter, ref: str) -> dict[str, str] | None:
    try:
        await models.connect(ModelSelection(default_agent_id(loaded.config), ref))
    except HomarusError as exc:
        return {"message": exc.message, "fix": exc.fix}
    return None


def _key(loaded: LoadedConfig, models: ModelRouter, provider: str) -> dict[str, str] | None:
    """Return the source of a provider's key, and its ends; None where none is needed."""
    credentials = models.credentials(default_agent_id(loaded.config))
    stored = {entry.profile.id: entry for entry in credentials.entries(provider) if entry.file}
    first = next(iter(credentials.candidates(provider)), None)
    if first and (entry := stored.get(first.profile_id)):
        place = f" of OpenClaw ({entry.place})" if entry.is_inherited else ""
        return {"source": f"the auth profile {first.profile_id}{place}", "shown": first.kind}
    source, key = key_of(loaded.config, loaded.env, provider)
    needed = needs_key(loaded.config, provider)
    return {"source": source, "shown": mask(key)} if key or needed else None


async def _missing(loaded: LoadedConfig, models: ModelRouter, model: ModelInfo) -> str:
    """Return in two words why a model cannot be used yet."""
    agent, config = default_agent_id(loaded.config), loaded.config
    keyless = not models.credentials(agent).candidates(model.provider)
    if keyless and needs_key(config, model.provider):
        return f"needs {VENDORS[model.provider].key_names[0]}"
    if keyless and lacks_account(config, loaded.env, model.provider):
        return f"needs {VENDORS[model.provider].account_names[0]}"
    return "not ready" if await _problem(loaded, models, model.ref) else ""
