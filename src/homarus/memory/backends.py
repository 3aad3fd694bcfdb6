"""Load the backend that the settings name: `memory.backend` is the name of a module here.

Other packages add backends by the entry-point group `homarus.memory`.
"""

from typing import Final, Protocol, runtime_checkable

from homarus.memory.base import DEFAULT_BACKEND, MemoryBackend
from homarus.memory.embed.base import OnCost
from homarus.memory.spec import MemorySpec
from homarus.memory.view import MemoryView
from homarus.plugins.backends import BackendKind


class MemoryBackendModule(Protocol):
    """A module that implements a memory backend."""

    def create(self, spec: MemorySpec, on_cost: OnCost) -> MemoryBackend:
        """Open the backend of one agent; `on_cost` gets the cost of each embedding call."""
        ...

    def sync_interval_s(self, spec: MemorySpec) -> float:
        """Return the seconds between two periodic syncs; 0 for none."""
        ...


@runtime_checkable
class SupportsDocuments(Protocol):
    """A backend module whose results name documents as `<backend>/<name>`."""

    def read_document(self, spec: MemorySpec, name: str, view: MemoryView) -> bytes | None:
        """Return the text of a document; None if there is none, or the view does not show it."""
        ...


MEMORY_BACKENDS: Final[BackendKind[MemoryBackendModule]] = BackendKind(
    name="memory backend",
    package="homarus.memory",
    group="homarus.memory",
    required=("create", "sync_interval_s"),
    config_key="memory.backend",
)


def load_backend(spec: MemorySpec) -> MemoryBackendModule:
    """Import the module of an agent's backend. Raises UnknownNameError."""
    return MEMORY_BACKENDS.load(spec.settings.backend)


def open_backend(spec: MemorySpec, on_cost: OnCost) -> MemoryBackend:
    """Open an agent's backend; any but the default one fails over to the default."""
    name = spec.settings.backend
    backend = load_backend(spec).create(spec, on_cost)
    if name == DEFAULT_BACKEND:
        return backend
    from homarus.memory.failover import FailoverBackend

    default = MEMORY_BACKENDS.load(DEFAULT_BACKEND)
    return FailoverBackend(name, backend, lambda: default.create(spec, on_cost))
