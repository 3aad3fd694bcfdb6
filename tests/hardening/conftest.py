"""The fixtures of the end-to-end and crash tests."""

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
