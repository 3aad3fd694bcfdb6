"""Matrix, by the client-server API of its homeservers: people and rooms, threads, edits, files."""

from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from homarus.channels.base import ChannelContext
from homarus.channels.matrix.settings import MatrixSettings as Settings
from homarus.channels.matrix.traits import TRAITS
from homarus.core.errors import MissingExtraError
from homarus.core.session_keys import DEFAULT_ACCOUNT

if TYPE_CHECKING:
    from homarus.channels.matrix.adapter import MatrixChannel

LABEL: Final = TRAITS.title

__all__ = ["LABEL", "TRAITS", "Settings", "create"]


def create(context: ChannelContext, settings: Settings) -> "MatrixChannel":
    """Return one account, not signed in.

    Raises ConfigError without a way to sign in, MissingExtraError without the encryption it wants.
    """
    if settings.encryption and not all(find_spec(name) for name in ("nio", "vodozemac")):
        raise MissingExtraError("the encryption of Matrix", "matrix-e2ee")
    from homarus.channels.matrix.adapter import MatrixChannel

    # The variables of the environment belong to one account; another would sign in as the same.
    env = context.env if context.account == DEFAULT_ACCOUNT else {}
    return MatrixChannel(context, settings.completed(context.channel, env))
