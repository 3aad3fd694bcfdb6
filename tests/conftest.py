"""Fixtures and settings for all tests."""

import gc
import logging
import os
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import settings

from homarus.config import redaction
from homarus.config.paths import Paths
from homarus.core.errors import HomarusError
from homarus.memory.embed import minilm
from homarus.providers import weights

# A busy machine is slow, not wrong: only the timeout of the whole test applies.
settings.register_profile("homarus", deadline=None)
settings.load_profile("homarus")

# Tests of the plain chat page do not depend on whether the control UI was built here.
os.environ.setdefault("HOMARUS_NO_UI", "1")

# A shell starts background jobs with SIGINT ignored, which programs under test would inherit.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


SLOW_TIMEOUT_S = 300  # of a test that is marked as slow; others have the one of pyproject.toml


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give slow tests more time: they start many processes, on a machine that may be busy."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_S))


def pytest_collection_finish() -> None:
    """Exempt what the collection made from garbage collection, as it lasts until the end.

    Else every full collection visits twenty thousand tests and all libraries.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    """Undo `configure_logging`, which a test may call in this process."""
    root = logging.getLogger("homarus")
    before = (root.handlers[:], root.level, root.propagate)
    yield
    if (root.handlers, root.level, root.propagate) != before:
        for handler in set(root.handlers) - set(before[0]):
            handler.close()
        root.handlers[:], root.level, root.propagate = before
    redaction.set_patterns(())
    redaction.forget_known_secrets()


def fetched(request: pytest.FixtureRequest, pull: Callable[[Path], object]) -> Path:
    """Return a folder of pytest's cache, filled by `pull` once."""
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
    """Return the embedded model's file: the user's, else a downloaded one."""
    own = weights.find_weights(Paths.find(os.environ).models_cache)
    pull = partial(weights.pull_weights, progress=lambda _done, _total: None)
    return own or fetched(request, pull) / weights.DEMO.file


@pytest.fixture(scope="session")
def minilm_folder(request: pytest.FixtureRequest) -> Path:
    """Return the sentence model's folder: the user's, else a downloaded one."""
    own = minilm.find(Paths.find(os.environ).models_cache)
    pull = partial(minilm.pull, progress=lambda _done, _total: None)
    return own or minilm.folder_in(fetched(request, pull))
