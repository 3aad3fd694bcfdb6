"""Open the provider of a model as a run does."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from homarus.config.paths import Paths
from homarus.config.schema import Config
from homarus.providers.base import Provider
from homarus.providers.catalog import Model
from homarus.providers.fallback import Fallback
from homarus.providers.models import Models, Wish
from homarus.testing.clock import FakeClock


def first_of(
    ref: str,
    config: Config | None = None,
    env: Mapping[str, str] | None = None,
    home: Path = Path("/nowhere"),
) -> tuple[Provider, Model]:
    """Return the provider of the first target of a model; nothing is sent."""
    models = Models(config or Config(), env or {}, Paths.find({}, home), FakeClock(patient=False))

    async def main() -> tuple[Provider, Model]:
        road, model = await models.road(Wish("main", ref))
        assert isinstance(road, Fallback)
        return await road._ways[0].open(), model

    return asyncio.run(main())
