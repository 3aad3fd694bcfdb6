"""The program with a local site in place of the web, and a local SearXNG server (a fake)."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from homarus.tools.registry import ToolRegistry
from homarus.tools.tool import ToolContext
from tests.docs.tool_stages.plain import make_context, open_program
from tests.unit.tools.web_builders import SiteRequest, open_site, respond, respond_json

PAGE = """<html><head><title>Opening hours</title></head><body><nav>Menu</nav><article>
<h1>Opening hours</h1><p>The aquarium is open every day from nine to six, also on holidays.</p>
<p>The lobsters are fed at eleven, and visitors may watch from the gallery above.</p></article>
</body></html>"""


@asynccontextmanager
async def open_stage(
    workspace: Path,
) -> AsyncIterator[tuple[ToolRegistry, ToolContext, Mapping[str, str]]]:
    """Open the program with a config that names the local servers."""

    def answer(request: SiteRequest) -> bytes:
        if request.path != "/search":
            return respond(PAGE)
        row = {"title": "Opening hours", "url": f"{site.url}/hours", "content": "Nine to six"}
        return respond_json({"query": request.query["q"], "results": [row]})

    async with open_site(answer) as site:
        web = {
            "search": {"searxng": {"baseUrl": site.url}},
            "fetch": {"ssrfPolicy": {"allowedHostnames": ["127.0.0.1"]}},
        }
        async with open_program(workspace, tools={"web": web}) as app:
            yield app.tools("main"), make_context(workspace), {"url": site.url}
