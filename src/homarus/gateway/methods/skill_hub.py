"""`skills.search|detail|add`: find skills in a registry, check them and install them.

A client installs what a person has seen: `skills.add` names the fingerprint that `skills.detail`
returned, and a skill that the check blocks is not installed for a client at all.
"""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from homarus.config.agent_settings import agent_ids, default_agent_id, resolve_agent_settings
from homarus.core.errors import InvalidRequestError, UserError
from homarus.core.message import Json
from homarus.core.session_keys import normalize_agent_id
from homarus.core.text import one_line
from homarus.gateway.method import MethodCall, Params, method
from homarus.gateway.params import Name

if TYPE_CHECKING:
    from homarus.skills.hub.prepared_skill import PreparedSkill
    from homarus.skills.hub.registry_client import RegistryClient

_MAX_RESULTS = 100
Query = Annotated[str, Field(min_length=1, max_length=200)]
Slug = Annotated[str, Field(min_length=1, max_length=200)]


class SkillsSearchParams(Params):
    """What to search for."""

    query: Query
    limit: Annotated[int, Field(ge=1, le=_MAX_RESULTS)] = 20


class SkillsDetailParams(Params):
    """A skill of the registry: `slug`, or `@owner/slug`; and its version, the newest by default."""

    slug: Slug
    version: Name | None = None


class SkillsAddParams(SkillsDetailParams):
    """Which skill, as it was shown; and the agent that gets it, or `managed` for all agents."""

    fingerprint: Name
    agent_id: Name | None = None
    managed: bool = False
    accept_warnings: bool = False


@method("skills.search", scope="admin", params=SkillsSearchParams, advertised=False)
async def search(call: MethodCall, params: SkillsSearchParams) -> Json:
    """Search the registry for skills."""
    try:
        found = await _client(call).search(params.query, params.limit)
    except UserError as exc:
        raise InvalidRequestError(exc.message, fix=exc.fix) from exc
    rows: list[Json] = [
        {
            "slug": each.slug,
            "displayName": each.name,
            "summary": each.summary,
            "version": each.version,
            "ownerHandle": each.owner,
            "score": each.score,
        }
        for each in found
    ]
    return {"results": rows}


@method("skills.detail", scope="admin", params=SkillsDetailParams, advertised=False)
async def detail(call: MethodCall, params: SkillsDetailParams) -> Json:
    """What a skill of the registry asks for and contains. It is checked, and not installed."""
    return _describe(await _prepare(call, params))


@method("skills.add", scope="admin", params=SkillsAddParams, advertised=False)
async def add(call: MethodCall, params: SkillsAddParams) -> Json:
    """Install a skill of the registry, if it is still what `skills.detail` showed. Ours."""
    prepared = await _prepare(call, params)
    report = prepared.report
    if prepared.fingerprint != params.fingerprint:
        raise InvalidRequestError(
            "the skill is not what was shown: its files have changed", fix="look at it again"
        )
    if report.blocks:
        first = report.blocks[0]
        raise InvalidRequestError(
            f"it is not installed: {first.place} {first.message}",
            fix="`homarus skills install --force-unsafe` installs it if you have read it",
        )
    if report.warnings and not params.accept_warnings:
        raise InvalidRequestError("the check has warnings", fix="read them and accept them")
    try:
        path = await asyncio.to_thread(_install, call, params, prepared)
    except UserError as exc:
        raise InvalidRequestError(exc.message, fix=exc.fix) from exc
    return {"ok": True, "slug": prepared.slug, "version": prepared.version, "path": path}


def _client(call: MethodCall) -> "RegistryClient":
    from homarus.config.network_policy import resolve_network_policy
    from homarus.skills.hub.registry_address import find_registry, find_token
    from homarus.skills.hub.registry_client import RegistryClient

    loaded, paths = call.services.loaded, call.services.paths
    address = find_registry(None, loaded.env, loaded.config.skills.registry or "")
    return RegistryClient(
        address,
        token=find_token(address, loaded.env, paths.home),
        policy=resolve_network_policy(loaded.config.tools.web.fetch),
    )


async def _prepare(call: MethodCall, params: SkillsDetailParams) -> "PreparedSkill":
    """Return a skill of the registry; a path of this machine is not a name."""
    from homarus.skills.hub.prepared_skill import parse_reference, prepare_from_registry

    try:
        reference = parse_reference(params.slug)
        return await prepare_from_registry(_client(call), reference, params.version or "")
    except UserError as exc:
        raise InvalidRequestError(exc.message, fix=exc.fix) from exc


def _describe(prepared: "PreparedSkill") -> dict[str, Json]:
    from homarus.skills.lint import encode_report

    needs = prepared.report.needs
    return {
        "slug": prepared.slug,
        "name": needs.name,
        "description": needs.description,
        "version": prepared.version,
        "ownerHandle": prepared.owner,
        "registry": prepared.registry,
        "changelog": prepared.changelog,
        "fingerprint": prepared.fingerprint,
        "files": [{"path": each.path, "size": len(each.data)} for each in prepared.files],
        **encode_report(prepared.report),
    }


def _install(call: MethodCall, params: SkillsAddParams, prepared: "PreparedSkill") -> str:
    """Install a checked skill, record it, and return its folder. Raises UserError."""
    from homarus.config.change_log import log_change
    from homarus.skills.hub.installer import SkillInstaller, check_replacement

    services = call.services
    installer = SkillInstaller(
        services.paths.state if params.managed else _workspace(call, params.agent_id)
    )
    with installer.changing():
        check_replacement(installer, prepared, is_forced=False)
        origin = prepared.origin(services.clock.now_ms())
        installer.install(prepared.slug, prepared.files, origin)
    folder = str(installer.skills / prepared.slug)
    log_change(
        services.paths.state,
        "skill",
        action="install",
        name=prepared.slug,
        version=prepared.version,
        registry=prepared.registry,
        fingerprint=prepared.fingerprint,
        path=folder,
        unsafe=False,
    )
    return folder


def _workspace(call: MethodCall, agent_id: str | None) -> Path:
    config = call.services.loaded.config
    agent = normalize_agent_id(agent_id or default_agent_id(config))
    if agent not in agent_ids(config):
        raise InvalidRequestError(f'unknown agent id "{one_line(agent, 64)}"')
    return resolve_agent_settings(config, call.services.paths, agent).workspace
