"""Find the adapter module of a wire format by the format's name.

An adapter is a module of this package with `APIS`, the wire formats it serves as a tuple of
literal strings, and `create`. Other packages add formats by entry points of the group
`homarus.providers`, each named after its format. Nothing is imported to find an adapter.
"""

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Final, Protocol

from homarus.config.backend_names import PROVIDER_APIS
from homarus.plugins.backends import BackendKind

if TYPE_CHECKING:
    from homarus.providers.base import Provider
    from homarus.providers.catalog import ModelInfo
    from homarus.providers.endpoint import ProviderConnection


class ProviderModule(Protocol):
    """An adapter. One that finds its service's address itself sets `NEEDS_ADDRESS = False`."""

    APIS: tuple[str, ...]

    def create(
        self, settings: "ProviderConnection", *, models: "Iterable[ModelInfo]" = ()
    ) -> "Provider": ...


PROVIDERS: Final[BackendKind[ProviderModule]] = BackendKind(
    name="wire format",
    package="homarus.providers",
    group="homarus.providers",
    required=("APIS", "create"),
    config_key="models.providers.*.api",
)


def has_api(api: str) -> bool:
    """Return whether there is an adapter for a wire format."""
    return api in _modules() or PROVIDERS.has(api)


def api_names() -> tuple[str, ...]:
    """Return every wire format that has an adapter, sorted."""
    own = _modules()
    others = set(PROVIDERS.names()) - set(own.values())
    return tuple(sorted({*own, *others}))


def load_adapter(api: str) -> ProviderModule:
    """Import the adapter of a wire format. Raises UserError when there is none."""
    return PROVIDERS.load(_modules().get(api, api))


@cache
def _modules() -> Mapping[str, str]:
    """Return the modules of our own adapters by the wire formats that they declare."""
    return PROVIDER_APIS.modules()
