"""Which model answers and why, what else there is, and what stands in the way. For people."""

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
from homarus.providers.catalog import VENDORS, Model, known_models, lookup
from homarus.providers.choose import Choice, survey
from homarus.providers.connect import key_of, lacks_account, needs_key, provider_names, resolve
from homarus.providers.models import Models, Wish
from homarus.providers.secret import mask


@asynccontextmanager
async def opened(loaded: Loaded, paths: Paths) -> AsyncIterator[Models]:
    """The models of a config, apart from those that answer."""
    models = Models(loaded.config, loaded.env, paths, SystemClock())
    try:
        yield models
    finally:
        await models.close()


async def choose_default(loaded: Loaded, paths: Paths) -> Choice:
    """The default agent's own model, else what holds for all."""
    agent = default_agent(loaded.config)
    own = agent_settings(loaded.config, paths, agent).model
    if own and own != loaded.config.agents.defaults.model.primary:
        why = f"the configuration names it for the agent {agent} (agents.list)"
        return Choice(own, why, ((f"agents.list, {agent}", own),))
    async with opened(loaded, paths) as models:
        return await models.choice()


async def report_status(loaded: Loaded, paths: Paths) -> dict[str, Any]:
    """The model that answers, why, its key, and what was looked at."""
    config = loaded.config
    choice = await choose_default(loaded, paths)
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
        "problem": await find_problem(loaded, paths, choice.ref),
        "tried": [{"source": source, "outcome": outcome} for source, outcome in choice.tried],
    }


async def report_models(loaded: Loaded, paths: Paths) -> list[dict[str, Any]]:
    """Every model there is to name, the default one first."""
    config = loaded.config
    default = lookup(config, resolve(config, (await choose_default(loaded, paths)).ref))
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


async def find_problem(loaded: Loaded, paths: Paths, ref: str) -> dict[str, str] | None:
    """What stands between a model and its first answer, short of asking it."""
    try:
        async with opened(loaded, paths) as models:
            await models.road(Wish(default_agent(loaded.config), ref))
    except HomarusError as exc:
        return {"message": exc.message, "fix": exc.fix}
    return None


async def _missing(loaded: Loaded, paths: Paths, model: Model) -> str:
    """In two words, why a model cannot be used yet."""
    keyless = not key_of(loaded.config, loaded.env, model.provider)[1]
    if keyless and needs_key(loaded.config, model.provider):
        return f"needs {VENDORS[model.provider].key_names[0]}"
    if keyless and lacks_account(loaded.config, loaded.env, model.provider):
        return f"needs {VENDORS[model.provider].account_names[0]}"
    return "not ready" if await find_problem(loaded, paths, model.ref) else ""
