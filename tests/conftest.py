"""What holds for every test."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

from homarus.config.paths import Paths
from homarus.core.errors import HomarusError
from homarus.memory.embed import minilm
from homarus.providers import demo

# A busy machine is slow, not wrong; the time limit of the whole test stands.
settings.register_profile("homarus", deadline=None)
settings.load_profile("homarus")


@pytest.fixture(scope="session")
def demo_weights(request: pytest.FixtureRequest) -> Path:
    """The embedded model's file: the user's, else one fetched once and kept with pytest's cache."""
    own = demo.find(Paths.find(os.environ).models_cache)
    if own:
        return own
    folder = request.config.cache.mkdir("homarus-models")
    try:
        demo.pull(folder, lambda _done, _total: None)
    except HomarusError as exc:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no weights: {exc}")
    return folder / demo.DEMO.file


@pytest.fixture(scope="session")
def minilm_folder(request: pytest.FixtureRequest) -> Path:
    """The sentence model's folder: the user's, else one fetched once, as the demo model is."""
    own = minilm.find(Paths.find(os.environ).models_cache)
    if own:
        return own
    cache = request.config.cache.mkdir("homarus-models")
    try:
        minilm.pull(cache, lambda _done, _total: None)
    except HomarusError as exc:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no weights: {exc}")
    return minilm.folder_in(cache)
