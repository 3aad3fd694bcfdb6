"""The browser of an agent, for clients of the gateway.

A client that may write to an agent may use its browser, since it could ask the agent to.
"""

import asyncio
from typing import Annotated, Literal

from pydantic import Field

from homarus.config.agent_settings import default_agent_id
from homarus.core.errors import InvalidRequestError, ToolDeniedError, ToolError, UnavailableError
from homarus.core.message import Json
from homarus.gateway.method import MethodCall, Params, method
from homarus.gateway.params import Name

_MAX_MS = 120_000
_DEFAULT_MS = 60_000


class BrowserRequestParams(Params):
    """A request of the browser service, as OpenClaw's clients send it."""

    method: Literal["GET", "POST", "DELETE"]
    path: Annotated[str, Field(min_length=1, max_length=500)]
    query: dict[str, Json] | None = None
    body: dict[str, Json] | None = None
    timeout_ms: Annotated[int, Field(ge=1, le=_MAX_MS)] | None = None
    agent_id: Name | None = None


@method("browser.request", scope="write", params=BrowserRequestParams)
async def request(call: MethodCall, params: BrowserRequestParams) -> Json:
    """Use the browser of an agent: tabs, pages, snapshots, cookies and storage."""
    from homarus.tools.browser.routes import find_route
    from homarus.tools.browser.workspace_files import WorkspaceFiles
    from homarus.tools.rooted_fs import RootedFs

    if call.services.get_browsers is None:
        raise UnavailableError("this gateway has no browser")
    route = find_route(params.method, params.path, params.query or {}, params.body or {})
    agent = call.services.agent(params.agent_id or default_agent_id(call.services.loaded.config))
    root = RootedFs(agent.workspace)
    control = call.services.get_browsers()
    try:
        async with asyncio.timeout((params.timeout_ms or _DEFAULT_MS) / 1000):
            files = WorkspaceFiles(root, lambda _path: (root, ""))
            result = await control.run(agent.id, route.action, route.values, files)
    except TimeoutError as exc:
        raise UnavailableError(f"{params.path} was not done in time") from exc
    except ToolDeniedError as exc:
        raise InvalidRequestError(exc.message, fix=exc.fix) from exc
    except ToolError as exc:
        raise UnavailableError(exc.message, fix=exc.fix) from exc
    return result.data
