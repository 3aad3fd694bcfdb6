"""The program with a real Chromium, and a local site that the policy allows."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from homarus.tools.registry import ToolRegistry
from homarus.tools.tool import ToolContext
from tests.docs.tool_stages.plain import make_context, open_program
from tests.peers.adversarial_site import local_site

SETTINGS = {"noSandbox": True, "ssrfPolicy": {"allowedHostnames": ["127.0.0.1"]}}


@asynccontextmanager
async def open_stage(
    workspace: Path,
) -> AsyncIterator[tuple[ToolRegistry, ToolContext, Mapping[str, str]]]:
    """Open the program next to a site; `url` is the site's address."""
    with local_site() as site:
        async with open_program(workspace, browser=SETTINGS) as app:
            url = f"http://127.0.0.1:{site.port}"
            yield app.tools("main"), make_context(workspace), {"url": url}
