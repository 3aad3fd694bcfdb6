"""The program with a picture, and a fake of a model server that says what is in it."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from homarus.agent.media.image_describer import ImageDescriber
from homarus.agent.media.image_models import tool_models
from homarus.agent.spend_limit import SpendLimiter
from homarus.testing.model_server import ModelServer, Say
from homarus.tools.image_description import ImageAnswer, ImageQuestion
from homarus.tools.registry import ToolRegistry
from homarus.tools.tool import ToolContext
from tests.docs.tool_stages.plain import make_context, open_program
from tests.unit.agent.test_image_scaling import png


@asynccontextmanager
async def open_stage(
    workspace: Path,
) -> AsyncIterator[tuple[ToolRegistry, ToolContext, Mapping[str, str]]]:
    """Open the program, whose model for pictures says what is in `photo.png`."""
    (workspace / "photo.png").write_bytes(png(8, 8))
    async with ModelServer() as server:
        server.script([Say("A grey square.")])
        seeing = {"id": "eye", "name": "Eye", "input": ["text", "image"]}
        provider = {"baseUrl": f"{server.url}/v1", "apiKey": "k", "models": [seeing]}
        agents = {
            "defaults": {
                "workspace": str(workspace),
                "skipBootstrap": True,
                "imageModel": {"primary": "fake/eye"},
            }
        }
        config: dict[str, Any] = {"agents": agents, "models": {"providers": {"fake": provider}}}
        async with open_program(workspace, **config) as app:
            limiter = SpendLimiter(
                app.store,
                lambda: app.loaded.config.agents.defaults.spend,
                app.clock.now_ms,
                app.local_date,
            )
            describer = ImageDescriber(app.models.connect, limiter, "main", "run")

            async def describe(question: ImageQuestion) -> ImageAnswer:
                models = tool_models(
                    app.loaded.config, question.model, "", app.models.find_image_model
                )
                return await describer.describe(
                    question.images, models, lambda _call: None, question.prompt
                )

            yield app.tools("main"), make_context(workspace, describe_images=describe), {}
            (request,) = server.requests
            assert "image_url" in str(request.body)
