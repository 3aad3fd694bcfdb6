"""What holds for every test."""

import os
import signal
from collections.abc import Callable
from functools import partial
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

# A shell starts background jobs with SIGINT ignored, and child processes inherit that. The tests
# interrupt programs, which must then see the signal as they do in a terminal.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def fetched(request: pytest.FixtureRequest, pull: Callable[[Path], object]) -> Path:
    """A folder kept with pytest's cache, with what is pulled into it once."""
    folder = request.config.cache.mkdir("homarus-models")
    try:
        pull(folder)
    except HomarusError as exc:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"no weights: {exc}")
    return folder


@pytest.fixture(scope="session")
def demo_weights(request: pytest.FixtureRequest) -> Path:
    """The embedded model's file: the user's, else one that is fetched."""
    own = demo.find(Paths.find(os.environ).models_cache)
    pull = partial(demo.pull, progress=lambda _done, _total: None)
    return own or fetched(request, pull) / demo.DEMO.file


@pytest.fixture(scope="session")
def minilm_folder(request: pytest.FixtureRequest) -> Path:
    """The sentence model's folder: the user's, else one that is fetched."""
    own = minilm.find(Paths.find(os.environ).models_cache)
    pull = partial(minilm.pull, progress=lambda _done, _total: None)
    return own or minilm.folder_in(fetched(request, pull))
