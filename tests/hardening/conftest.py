"""The home, the model and the terminal of the end-to-end tests."""

from tests.e2e.conftest import gateway, home, model_url, open_chat, start

__all__ = ["gateway", "home", "model_url", "open_chat", "start"]
