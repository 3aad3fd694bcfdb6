"""Which backend an agent's memory has, as its settings say."""

from collections.abc import Callable

from homarus.memory.base import Backend
from homarus.memory.place import Place


def open_backend(place: Place, builtin: Callable[[], Backend]) -> Backend:
    """The backend; `builtin` opens the one that is always there, when it is needed."""
    if place.settings.backend == "builtin":
        return builtin()
    from homarus.memory.both import Both
    from homarus.memory.qmd.backend import Qmd

    return Both(Qmd(place), builtin)
