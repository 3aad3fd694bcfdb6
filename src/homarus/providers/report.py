"""Reports for users: the default model and the reason, the other models, and their problems."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from homarus.config.load import Loaded
from homarus.config.paths import Paths
from homarus.config.refs import ModelRef, aliases
from homarus.config.resolve import agent_settings, default_agent
from homarus.core.clock import SystemClock
from homarus.core.errors import HomarusError
from homarus.providers import demo
from homarus.providers.catalog import VENDORS, Model, known_models
from homarus.providers.choose import Choice, survey
from homarus.providers.connect import key_of, lacks_account, needs_key, provider_names, resolve
from homarus.providers.models import Models, Wish
from homarus.providers.secret import mask


@asynccontextmanager
async def opened(loaded: Loaded, paths: Paths) -> AsyncIterator[Models]:
    """Open the config's models, separate from those that answer."""
    models = Models(loaded.config, loaded.env, paths, SystemClock())
    try:
        yield models
    finally:
        await models.close()


async def choose_default(loaded: Loaded, paths: Paths) -> Choice:
    """Return the default agent's model, else the default of all agents."""
    async with opened(loaded, paths) as models:
        return await _choice(loaded, paths, models)


async def _choice(loaded: Loaded, paths: Paths, models: Models) -> Choice:
    agent = default_agent(loaded.config)
    own = agent_settings(loaded.config, paths, agent).model
    if own and own != loaded.config.agents.defaults.model.primary:
        why = f"the configuration names it for the agent {agent} (agents.list)"
        return Choice(own, why, ((f"agents.list, {agent}", own),))
    return await models.choice()


async def report_status(loaded: Loaded, paths: Paths) -> dict[str, Any]:
    """Report the model that answers, the reason, its key, and the places that were checked."""
    config = loaded.config
    async with opened(loaded, paths) as models:
        choice = await _choice(loaded, paths, models)
        ref = resolve(config, choice.ref)
        model = models.about(ref)
        weights = demo.find(paths.models_cache)
        return {
            "model": str(ref),
            "why": choice.why,
            "name": model.name,
            "contextWindow": model.window,
            "known": model.known,
            "note": model.note,
            "key": _key(loaded, models, ref.provider),
            "servers": {vendor.id: found for vendor, found in await survey(config)},
            "demo": {"present": weights is not None, "path": str(weights) if weights else None},
            "problem": await _problem(loaded, models, choice.ref),
            "tried": [{"source": source, "outcome": outcome} for source, outcome in choice.tried],
        }


async def report_models(loaded: Loaded, paths: Paths) -> list[dict[str, Any]]:
    """Report every usable model, the default first."""
    config = loaded.config
    async with opened(loaded, paths) as models:
        choice = await _choice(loaded, paths, models)
        default = models.about(resolve(config, choice.ref))
        named = {name: models.about(ref) for name, ref in aliases(config).items()}
        names = {model.ref: name for name, model in named.items()}
        found = [default, *named.values()]
        for provider in provider_names(config):
            found += map(models.learned.complete, known_models(config, provider))
        for vendor, listed in await survey(config):
            found += [models.about(ModelRef(vendor.id, each)) for each in listed or ()]
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


async def find_problem(loaded: Loaded, paths: Paths, ref: str) -> dict[str, str] | None:
    """Return why a model cannot be used, without calling it."""
    async with opened(loaded, paths) as models:
        return await _problem(loaded, models, ref)


async def _problem(loaded: Loaded, models: Models, ref: str) -> dict[str, str] | None:
    try:
        await models.road(Wish(default_agent(loaded.config), ref))
    except HomarusError as exc:
        return {"message": exc.message, "fix": exc.fix}
    return None


def _key(loaded: Loaded, models: Models, provider: str) -> dict[str, str] | None:
    """Return the source of a provider's key, and its ends; None where none is needed."""
    credentials = models.credentials(default_agent(loaded.config))
    stored = {entry.profile.id for entry in credentials.entries(provider) if entry.file}
    first = next(iter(credentials.candidates(provider)), None)
    if first and first.profile_id in stored:
        return {"source": f"the auth profile {first.profile_id}", "shown": first.kind}
    source, key = key_of(loaded.config, loaded.env, provider)
    needed = needs_key(loaded.config, provider)
    return {"source": source, "shown": mask(key)} if key or needed else None


async def _missing(loaded: Loaded, models: Models, model: Model) -> str:
    """Return in two words why a model cannot be used yet."""
    agent, config = default_agent(loaded.config), loaded.config
    keyless = not models.credentials(agent).candidates(model.provider)
    if keyless and needs_key(config, model.provider):
        return f"needs {VENDORS[model.provider].key_names[0]}"
    if keyless and lacks_account(config, loaded.env, model.provider):
        return f"needs {VENDORS[model.provider].account_names[0]}"
    return "not ready" if await _problem(loaded, models, model.ref) else ""
