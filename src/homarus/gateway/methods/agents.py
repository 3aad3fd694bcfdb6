"""Methods for agents: list, create, update, delete, and their workspace files."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

from pydantic import Field

from homarus.agent.agent import Agent
from homarus.agent.prompt import workspace_files
from homarus.agent.prompt.identity_file import find_identity, write_identity
from homarus.agent.prompt.workspace_files import MAX_BYTES, WorkspaceFileState
from homarus.agent.workspace import seed_workspace, trash_agent_folders
from homarus.channels.registry import find_traits
from homarus.config import agent_edits
from homarus.config.agent_settings import agent_ids, default_agent_id, resolve_agent_settings
from homarus.config.load import load_config
from homarus.core.errors import InvalidRequestError, UserError
from homarus.core.message import Json
from homarus.core.session_keys import DEFAULT_AGENT, normalize_agent_id
from homarus.core.text import one_line
from homarus.gateway.avatars import avatar_url
from homarus.gateway.frames import NEWEST_PROTOCOL
from homarus.gateway.method import MethodCall, NoParams, Params, method
from homarus.gateway.params import Name
from homarus.gateway.session_rows import resolve_session_defaults


@method("agents.list", scope="read", params=NoParams)
async def list_(call: MethodCall, _params: NoParams) -> Json:
    """Every agent, and which one answers when none is named."""
    config = call.services.loaded.config
    rows = {agent: _row(call, agent) for agent in agent_ids(config)}
    if call.caller.protocol >= NEWEST_PROTOCOL:
        for agent, row in rows.items():
            own = await resolve_session_defaults(call.services, agent)
            if own.model:
                row["model"] = {"primary": f"{own.provider}/{own.model}"}
    return {
        "defaultId": default_agent_id(config),
        "mainKey": "main",
        "scope": config.session.scope,
        "agents": [*rows.values()],
    }


def _row(call: MethodCall, agent: str) -> dict[str, Json]:
    settings = resolve_agent_settings(call.services.loaded.config, call.services.paths, agent)
    own = find_identity(settings)
    fields = {
        "name": own.name,
        "theme": own.theme,
        "emoji": own.emoji,
        "avatar": own.avatar,
        "avatarUrl": avatar_url(agent, own),
    }
    identity = {name: value for name, value in fields.items() if value}
    shown: dict[str, Json] = {"id": agent}
    if settings.name != agent:
        shown["name"] = settings.name
    return {**shown, "identity": identity} if identity else shown


class AgentCreateParams(Params):
    """A new agent."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    workspace: Name
    emoji: Annotated[str, Field(max_length=32)] | None = None
    avatar: Annotated[str, Field(max_length=500)] | None = None


@method("agents.create", scope="admin", params=AgentCreateParams)
async def create(call: MethodCall, params: AgentCreateParams) -> Json:
    """Make an agent with a workspace of its own."""
    with _as_request():
        agent, name = agent_edits.check_name(params.name, agent_ids(call.services.loaded.config))
        workspace = agent_edits.check_workspace(params.workspace, call.services.paths)
        new = agent_edits.NewAgent(agent, name, params.workspace)
        await _edit(call, lambda tree: agent_edits.add_agent(tree, new, find_traits))
    seed_workspace(workspace)
    write_identity(workspace, name=name, emoji=params.emoji, avatar=params.avatar)
    return {"ok": True, "agentId": agent, "name": name, "workspace": str(workspace)}


class AgentUpdateParams(Params):
    """What to change about an agent."""

    agent_id: Name
    name: Annotated[str, Field(min_length=1, max_length=100)] | None = None
    workspace: Name | None = None
    model: Name | None = None
    avatar: Annotated[str, Field(max_length=500)] | None = None


@method("agents.update", scope="admin", params=AgentUpdateParams)
async def update(call: MethodCall, params: AgentUpdateParams) -> Json:
    """Change an agent's name, workspace, model or avatar."""
    agent = _check_agent(call, params.agent_id)
    changes: dict[str, Json] = {}
    if params.name:
        changes["name"] = one_line(params.name, 100)
    if params.workspace:
        with _as_request():
            agent_edits.check_workspace(params.workspace, call.services.paths)
        changes["workspace"] = params.workspace
    if params.model:
        changes["model"] = call.services.models.check_typed(params.model).ref

    if changes:
        with _as_request():
            await _edit(call, lambda tree: agent_edits.update_agent(tree, agent, changes))
    workspace = call.services.agent(agent).workspace
    if params.workspace:
        seed_workspace(workspace)
    write_identity(workspace, name=params.name, avatar=params.avatar)
    return {"ok": True, "agentId": agent}


class AgentDeleteParams(Params):
    """The agent, and whether to delete its files."""

    agent_id: Name
    delete_files: bool = True


@method("agents.delete", scope="admin", params=AgentDeleteParams)
async def delete(call: MethodCall, params: AgentDeleteParams) -> Json:
    """Remove an agent. Its files go to `trash` in the state directory; sessions are put aside."""
    agent = _check_agent(call, params.agent_id)
    config = call.services.loaded.config
    if agent in {DEFAULT_AGENT, default_agent_id(config)}:
        raise InvalidRequestError(f'"{agent}" cannot be deleted')
    settings = resolve_agent_settings(config, call.services.paths, agent)
    removed = 0

    def remove(tree: dict[str, Json]) -> Json:
        nonlocal removed
        changed, removed = agent_edits.remove_agent(tree, agent)
        return changed

    await _forget_sessions(call, agent, keep_files=not params.delete_files)
    await _edit(call, remove)
    if params.delete_files:
        now_ms = call.services.clock.now_ms()
        trash_agent_folders(
            call.services.paths, agent, now_ms, settings.workspace, settings.agent_dir
        )
    return {"ok": True, "agentId": agent, "removedBindings": removed}


async def _forget_sessions(call: MethodCall, agent: str, *, keep_files: bool) -> None:
    services = call.services
    for record in await services.store.sessions(agent=agent):
        async with services.control.exclusive(record.key):
            if not keep_files:
                await services.sessions.delete(record.key, services.clock.now_ms())


async def _edit(call: MethodCall, change: Callable[[dict[str, Json]], Json]) -> None:
    """Change the config file and apply it at once."""
    from homarus.gateway.client_changes import write_client_change

    services = call.services
    write_client_change(services, change)
    await services.reload(load_config(services.paths, services.loaded.env))


def _check_agent(call: MethodCall, agent_id: str) -> str:
    agent = normalize_agent_id(agent_id)
    if agent not in agent_ids(call.services.loaded.config):
        raise InvalidRequestError(f'agent "{one_line(agent_id, 64)}" not found')
    return agent


@contextmanager
def _as_request() -> Iterator[None]:
    """Return a user's mistake as the client's INVALID_REQUEST."""
    try:
        yield
    except UserError as exc:
        raise InvalidRequestError(exc.message, fix=exc.fix) from None


class AgentFilesParams(Params):
    """The agent whose files are listed."""

    agent_id: Name


@method("agents.files.list", scope="admin", params=AgentFilesParams)
async def list_files(call: MethodCall, params: AgentFilesParams) -> Json:
    """The files that make an agent who it is."""
    agent = call.services.agent(_check_agent(call, params.agent_id))
    return {
        **_of(agent),
        "files": [_file(one) for one in workspace_files.list_files(agent.workspace)],
    }


class AgentFileParams(AgentFilesParams):
    """A workspace file of an agent."""

    name: Name


@method("agents.files.get", scope="admin", params=AgentFileParams)
async def get_file(call: MethodCall, params: AgentFileParams) -> Json:
    """One of those files, with its text."""
    agent = call.services.agent(_check_agent(call, params.agent_id))
    found = workspace_files.get_file(agent.workspace, params.name)
    shown = _file(found)
    return {**_of(agent), "file": shown if found.missing else {**shown, "content": found.content}}


class AgentSetFileParams(AgentFileParams):
    """A workspace file and its new text."""

    content: Annotated[str, Field(max_length=MAX_BYTES)]


@method("agents.files.set", scope="admin", params=AgentSetFileParams)
async def set_file(call: MethodCall, params: AgentSetFileParams) -> Json:
    """Replace one of those files, whole or not at all."""
    agent = call.services.agent(_check_agent(call, params.agent_id))
    found = workspace_files.set_file(agent.workspace, params.name, params.content)
    return {"ok": True, **_of(agent), "file": {**_file(found), "content": params.content}}


def _of(agent: Agent) -> dict[str, Json]:
    return {"agentId": agent.id, "workspace": str(agent.workspace)}


def _file(file: WorkspaceFileState) -> dict[str, Json]:
    shown: dict[str, Json] = {"name": file.name, "path": str(file.path), "missing": file.missing}
    return shown if file.missing else {**shown, "size": file.size, "updatedAtMs": file.updated_ms}
