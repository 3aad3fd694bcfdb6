"""`skills.*`: the skills of an agent, what each of them lacks, and their settings."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from homarus.config.agent_settings import agent_ids, default_agent_id
from homarus.config.load import load_config
from homarus.config.redaction import redact_tree
from homarus.config.tree_edit import get_path, set_path
from homarus.core.errors import InvalidRequestError, UnavailableError, UserError
from homarus.core.message import Json
from homarus.core.session_keys import normalize_agent_id
from homarus.core.text import one_line
from homarus.gateway.method import MethodCall, NoParams, Params, method
from homarus.gateway.params import Name

if TYPE_CHECKING:
    from homarus.skills.catalog import SkillCatalog

_ENTRIES = ("skills", "entries")


class SkillsStatusParams(Params):
    """The agent; without one, the default agent."""

    agent_id: Name | None = None


@method("skills.status", scope="read", params=SkillsStatusParams)
async def status(call: MethodCall, params: SkillsStatusParams) -> Json:
    """The skills of an agent: which can be used, and what the others lack."""
    from homarus.skills.status import encode_status

    config, catalog = call.services.loaded.config, _catalog(call)
    agent = normalize_agent_id(params.agent_id or default_agent_id(config))
    if agent not in agent_ids(config):
        raise InvalidRequestError(f'unknown agent id "{one_line(agent, 64)}"')
    found = await asyncio.to_thread(catalog.load, agent)
    return encode_status(found, str(catalog.managed))


@method("skills.bins", scope="none", params=NoParams)
async def bins(call: MethodCall, _params: NoParams) -> Json:
    """The programs that the skills of all agents use, for a node; operators may not ask."""
    from homarus.skills.status import list_bins

    catalog, agents = _catalog(call), agent_ids(call.services.loaded.config)
    found = await asyncio.to_thread(lambda: [catalog.load(agent) for agent in agents])
    return {"bins": list_bins(skill for each in found for skill in each.skills)}


class SkillsUpdateParams(Params):
    """The settings of one skill to change; an empty key or variable removes it."""

    skill_key: Annotated[str, Field(min_length=1, max_length=128)]
    enabled: bool | None = None
    api_key: Annotated[str, Field(max_length=10_000)] | None = None
    env: dict[Name, Annotated[str, Field(max_length=10_000)]] | None = None


@method("skills.update", scope="admin", params=SkillsUpdateParams)
async def update(call: MethodCall, params: SkillsUpdateParams) -> Json:
    """Change the settings of a skill in the config, and bring them into use."""
    from homarus.gateway.client_changes import write_client_change

    services, path = call.services, (*_ENTRIES, params.skill_key)

    def change(tree: dict[str, Json]) -> Json:
        return set_path(tree, path, _change_entry(_find_entry(tree, path), params))

    try:
        await asyncio.to_thread(write_client_change, services, change)
    except UserError as exc:
        raise InvalidRequestError(exc.message, fix=exc.fix) from None
    await services.reload(load_config(services.paths, services.loaded.env))
    entry = _find_entry(services.loaded.raw, path)
    return {"ok": True, "skillKey": params.skill_key, "config": redact_tree(entry, path)}


def _find_entry(tree: Mapping[str, Json], path: Sequence[str]) -> dict[str, Json]:
    try:
        found = get_path(tree, path)
    except LookupError:
        return {}
    return dict(found) if isinstance(found, dict) else {}


def _change_entry(old: Mapping[str, Json], params: SkillsUpdateParams) -> dict[str, Json]:
    entry, env = dict(old), old.get("env")
    if params.enabled is not None:
        entry["enabled"] = params.enabled
    if params.api_key is not None:
        entry = _set_text(entry, "apiKey", params.api_key)
    variables: dict[str, Json] = dict(env) if isinstance(env, dict) else {}
    for name, value in (params.env or {}).items():
        variables = _set_text(variables, name, value)
    return {**entry, "env": variables} if params.env else entry


def _set_text(values: Mapping[str, Json], key: str, text: str) -> dict[str, Json]:
    """Return the values with a text; an empty one is removed."""
    rest = {name: value for name, value in values.items() if name != key}
    return {**rest, key: text.strip()} if text.strip() else rest


def _catalog(call: MethodCall) -> "SkillCatalog":
    if call.services.get_skills is None:
        raise UnavailableError("this gateway has no skills")
    return call.services.get_skills()
