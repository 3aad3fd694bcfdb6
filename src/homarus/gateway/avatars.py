"""Serve the avatar of an agent, a file of its workspace, at `/avatar/<agent>`."""

from homarus.agent.prompt.identity_file import (
    AgentIdentity,
    AvatarImage,
    find_identity,
    read_picture,
)
from homarus.config.agent_settings import agent_ids, resolve_agent_settings
from homarus.gateway.services import GatewayServices

PATH = "/avatar/"


def avatar_url(agent: str, identity: AgentIdentity) -> str:
    """Return the URL of an agent's avatar; empty when it has none."""
    if identity.picture:
        return f"{PATH}{agent}"
    return identity.avatar if identity.avatar.lower().startswith(("http", "data:")) else ""


def find_avatar(services: GatewayServices, agent: str) -> AvatarImage | None:
    """Return an agent's avatar; None when the agent is unknown or has none."""
    config = services.loaded.config
    if agent not in agent_ids(config):
        return None
    settings = resolve_agent_settings(config, services.paths, agent)
    return read_picture(settings.workspace, find_identity(settings).avatar)
