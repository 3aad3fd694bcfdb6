"""Load embedders by name: `memorySearch.provider` is the name of a module here.

Other packages add embedders by the entry-point group `homarus.embedders`.
"""

from typing import Final, Protocol

from homarus.core.clock import Clock
from homarus.core.fast_dataclass import dataclass
from homarus.memory.embed.base import Embedder, OnCost, OnNotice
from homarus.memory.spec import MemorySpec
from homarus.plugins.backends import BackendKind


@dataclass(frozen=True, slots=True)
class EmbedderRequest:
    """What an embedder is created from.

    `uses_settings` is whether `memorySearch.remote`, `model` and `local` are meant for it.
    """

    spec: MemorySpec
    provider: str
    on_cost: OnCost
    on_notice: OnNotice
    clock: Clock
    uses_settings: bool = True


@dataclass(frozen=True, slots=True)
class AvailableEmbedder:
    """An embedder, why it is available, and the host that notes are sent to."""

    embedder: Embedder
    why: str
    sent_to: str = ""


@dataclass(frozen=True, slots=True)
class AutoSelection:
    """When `auto` selects an embedder: those of lower `order` are tried first.

    `takes_settings` is whether `memorySearch.remote`, `model` and `local` are meant for it though
    the config does not name it.
    """

    order: int
    takes_settings: bool = False


class EmbedderModule(Protocol):
    """A module that implements an embedder."""

    @property
    def AUTO(self) -> AutoSelection | None:  # noqa: N802 - a constant of the module
        """When `auto` selects it; None: only if the config names it."""
        ...

    def create(self, request: EmbedderRequest) -> AvailableEmbedder:
        """Return the embedder; a HomarusError says what is missing: a key, an extra, a model.

        Nothing heavy is loaded and no service is called before the first text is embedded.
        """
        ...


EMBEDDERS: Final[BackendKind[EmbedderModule]] = BackendKind(
    name="embedder",
    package="homarus.memory.embed",
    group="homarus.embedders",
    required=("AUTO", "create"),
    config_key="memorySearch.provider",
)
