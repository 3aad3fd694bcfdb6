"""Make the control of browsers when one is first used; nothing of it is imported before."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from homarus.config.schema import Config

if TYPE_CHECKING:
    from homarus.tools.browser.control import BrowserControl
    from homarus.tools.browser.tabs import Spawn


class BrowserLoader:
    """Returns the control when called."""

    def __init__(self, get_config: Callable[[], Config], state: Path, spawn: "Spawn") -> None:
        self._get_config, self._state, self._spawn = get_config, state, spawn
        self._control: BrowserControl | None = None

    def __call__(self) -> "BrowserControl":
        """Return the control of browsers."""
        if self._control is None:
            from homarus.tools.browser.control import BrowserControl

            self._control = BrowserControl(self._get_config, self._state, self._spawn)
        return self._control

    def stop(self) -> None:
        """End all browsers."""
        if self._control:
            self._control.stop()
