"""Matrix, by the client-server API of its homeservers: people and rooms, threads, edits, files."""

from typing import TYPE_CHECKING, Final

from homarus.channels.base import Place
from homarus.channels.matrix.settings import Settings
from homarus.channels.matrix.traits import TRAITS
from homarus.core.keys import DEFAULT_ACCOUNT

if TYPE_CHECKING:
    from homarus.channels.matrix.adapter import Matrix

LABEL: Final = TRAITS.title

__all__ = ["LABEL", "TRAITS", "Settings", "create"]


def create(place: Place, settings: Settings) -> "Matrix":
    """Return one account, not signed in. Raises ConfigError without a way to sign in."""
    from homarus.channels.matrix.adapter import Matrix

    # The variables of the environment belong to one account; another would sign in as the same.
    env = place.env if place.account == DEFAULT_ACCOUNT else {}
    return Matrix(place, settings.completed(place.channel, env))
