"""The fixtures of the end-to-end and crash tests."""

import logging
from collections.abc import Iterator

import pytest

from homarus.config import redaction
from tests.crash.conftest import fork_server, launch, make_rig
from tests.e2e.conftest import gateway, home, model_url, open_chat, start

__all__ = [
    "fork_server",
    "gateway",
    "home",
    "launch",
    "make_rig",
    "model_url",
    "open_chat",
    "start",
]


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    """Undo `configure_logging`, which a test may call in this process."""
    root = logging.getLogger("homarus")
    before = (root.handlers[:], root.level, root.propagate)
    yield
    for handler in set(root.handlers) - set(before[0]):
        handler.close()
    root.handlers[:], root.level, root.propagate = before
    redaction.set_patterns(())
