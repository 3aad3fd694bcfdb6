"""Open the provider of a model as a run does."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.providers.base import Provider
from homarus.providers.catalog import ModelInfo
from homarus.providers.fallback import FallbackProvider
from homarus.providers.model_router import ModelRouter, ModelSelection
from homarus.testing.clock import FakeClock


def first_of(
    ref: str,
    config: Config | None = None,
    env: Mapping[str, str] | None = None,
    home: Path = Path("/nowhere"),
) -> tuple[Provider, ModelInfo]:
    """Return the provider of the first target of a model; nothing is sent."""
    models = ModelRouter(
        config or Config(), env or {}, Paths.find({}, home), FakeClock(patient=False)
    )

    async def main() -> tuple[Provider, ModelInfo]:
        road, model = await models.connect(ModelSelection("main", ref))
        assert isinstance(road, FallbackProvider)
        return await road._ways[0].open(), model

    return asyncio.run(main())
