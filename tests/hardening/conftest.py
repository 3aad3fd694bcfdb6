"""The home, the model and the terminal of the end-to-end tests."""

import logging
from collections.abc import Iterator

import pytest

from homarus.config import log_setup
from tests.e2e.conftest import gateway, home, model_url, open_chat, start

__all__ = ["gateway", "home", "model_url", "open_chat", "start"]


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    """Undo `configure_logging`, which a test may call in this process."""
    root = logging.getLogger("homarus")
    before = (root.handlers[:], root.level, root.propagate)
    yield
    for handler in set(root.handlers) - set(before[0]):
        handler.close()
    root.handlers[:], root.level, root.propagate = before
    log_setup._own_patterns.clear()
