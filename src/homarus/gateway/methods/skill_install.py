"""`skills.install`: install a program that a skill requires, after a person has approved it."""

from typing import Annotated

from pydantic import Field

from homarus.config.agent_settings import agent_ids, default_agent_id
from homarus.core.errors import InvalidRequestError, ToolDeniedError, UnavailableError, UserError
from homarus.core.message import Json
from homarus.core.session_keys import normalize_agent_id
from homarus.core.text import one_line
from homarus.gateway.method import MethodCall, Params, method
from homarus.gateway.methods.exec_approval import describe_caller
from homarus.gateway.params import Name

_MAX_MS = 3_600_000


class SkillsInstallParams(Params):
    """A skill, and the id of an install as `skills.status` lists it.

    `agentId` is the agent whose skill it is; without it, the default agent.
    """

    name: Name
    install_id: Name
    timeout_ms: Annotated[int, Field(ge=1_000, le=_MAX_MS)] | None = None
    agent_id: Name | None = None


@method("skills.install", scope="admin", params=SkillsInstallParams)
async def install(call: MethodCall, params: SkillsInstallParams) -> Json:
    """Install a program for a skill; answered after the approval and the install."""
    from homarus.agent.skill_install import DEFAULT_TIMEOUT_S, DependencyInstaller

    services = call.services
    if services.get_skills is None:
        raise UnavailableError("this gateway has no skills")
    config = services.loaded.config
    agent = normalize_agent_id(params.agent_id or default_agent_id(config))
    if agent not in agent_ids(config):
        raise InvalidRequestError(f'unknown agent id "{one_line(agent, 64)}"')
    requester = f"gateway:{describe_caller(call.caller)}"
    installer = DependencyInstaller(services, services.get_skills(), agent, requester)
    timeout_s = params.timeout_ms / 1000 if params.timeout_ms else DEFAULT_TIMEOUT_S
    try:
        found, skill = await installer.load(params.name)
        (plan,) = installer.plan(found, skill, params.install_id)
        outcome = await installer.install(plan, timeout_s)
    except ToolDeniedError as exc:
        raise UnavailableError(exc.message, fix=exc.fix) from exc
    except UserError as exc:
        raise InvalidRequestError(exc.message, fix=exc.fix) from exc
    payload = outcome.encode()
    if not outcome.is_success:
        error = UnavailableError(f"the install failed: {outcome.message}")
        error.payload = payload
        raise error
    return payload
