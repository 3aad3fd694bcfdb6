"""Which channels there are, and how one is had by its name.

A channel is a module of this package, or a folder, that has `Settings` and `create`; its name is
the name of its section in the config (`-` for `_`). Others come from installed packages, by the
entry-point group `homarus.channels`, whose entries name such a module. To list them imports none.
"""

from typing import TYPE_CHECKING, Any, Final, Protocol

from homarus.core.errors import UserError
from homarus.plugins.backends import BackendKind

if TYPE_CHECKING:
    from homarus.channels.base import Channel, Place
    from homarus.config.channels import ChannelSettings


class Kind(Protocol):
    """A channel's module. It may have a `LABEL`: its name as people write it."""

    Settings: "type[ChannelSettings]"

    def create(self, place: "Place", settings: Any) -> "Channel":
        """An account of it, connected to nothing; MissingExtra when a library is missing."""
        ...


CHANNELS: Final[BackendKind[Kind]] = BackendKind(
    name="channel",
    package="homarus.channels",
    group="homarus.channels",
    required=("Settings", "create"),
    config_key="channels.{name}",
)


def known_channels() -> tuple[str, ...]:
    """Return the names of all channels, ours and those of installed packages."""
    return CHANNELS.names()


def load_channel(name: str) -> Kind:
    """Import a channel by its name. Raises UnknownNameError with the closest names."""
    return CHANNELS.load(name)


def label(name: str) -> str:
    """Return a channel's name as people write it, or `name` if it is not installed."""
    try:
        module = CHANNELS.find(name)  # unlike `load`, it does not list all channels on failure
    except UserError:
        module = None
    return str(getattr(module, "LABEL", name.replace("-", " ").title())) if module else name
