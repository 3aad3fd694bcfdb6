"""Whether the MCP library, an optional dependency, is installed. It is not imported here."""

from importlib.util import find_spec
from typing import Final

from homarus.core.errors import ConfigError, MissingExtraError

_KEY: Final = "gateway.http.endpoints.mcp.enabled"


def check_mcp_library() -> None:
    """Raise MissingExtraError when the library is not installed."""
    if find_spec("mcp") is None:
        raise MissingExtraError("the MCP server", "mcp")


def check_mcp_endpoint() -> None:
    """Raise ConfigError for a config that enables an endpoint which cannot be served."""
    try:
        check_mcp_library()
    except MissingExtraError as exc:
        raise ConfigError(exc.message, key=_KEY, fix=exc.fix) from None
