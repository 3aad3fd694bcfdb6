"""Which paths the HTTP API has, which module serves each, and which settings turn it on.

A row here and a module with `@api_endpoint` functions are all that an endpoint needs. Imported with
the gateway's other routes, so it imports nothing of the API itself.
"""

from collections.abc import Mapping
from typing import Final

from homarus.config.gateway_schema import EndpointsConfig
from homarus.core.fast_dataclass import dataclass

# The endpoints that a config can enable, by their key below `gateway.http.endpoints`.
SETTINGS: Final = ("chatCompletions", "responses", "embeddings", "toolsInvoke")


@dataclass(frozen=True, slots=True)
class ApiRoute:
    """A path; its last part may be `{name}`, which is the rest of the path, slashes included.

    `module` is one of this package. The path is served if any of `settings` is on.
    """

    path: str
    module: str
    settings: tuple[str, ...]

    def match(self, path: str) -> dict[str, str] | None:
        """Return the parameter of a path, if it has one; None if this is another path."""
        start, _, name = self.path.partition("{")
        if not name:
            return {} if path == start else None
        rest = path.removeprefix(start)
        return {name.removesuffix("}"): rest} if rest and rest != path else None

    def is_enabled(self, endpoints: EndpointsConfig) -> bool:
        """Return whether the config turns it on."""
        return any(name in enabled_settings(endpoints) for name in self.settings)


ROUTES: Final = (
    ApiRoute("/tools/invoke", "tools_invoke", ("toolsInvoke",)),
    ApiRoute("/v1/chat/completions", "chat_completions", ("chatCompletions",)),
    ApiRoute("/v1/responses", "responses", ("responses",)),
    ApiRoute("/v1/models", "models", ("chatCompletions", "responses", "embeddings")),
    ApiRoute("/v1/models/{model}", "models", ("chatCompletions", "responses", "embeddings")),
    ApiRoute("/v1/embeddings", "embeddings", ("embeddings",)),
    ApiRoute("/openapi.json", "openapi", SETTINGS),
)  # fmt: skip


def enabled_settings(endpoints: EndpointsConfig) -> tuple[str, ...]:
    """Return the endpoints that the config turns on."""
    is_enabled: Mapping[str, bool] = {
        "chatCompletions": endpoints.chat_completions.enabled,
        "responses": endpoints.responses.enabled,
        "embeddings": endpoints.embeddings.enabled,
        "toolsInvoke": endpoints.tools_invoke.enabled,
    }
    return tuple(name for name in SETTINGS if is_enabled[name])


def find_api_route(path: str) -> tuple[ApiRoute, dict[str, str]] | None:
    """Return the route of a path with its parameters; None if it is not one of the API."""
    for route in ROUTES:
        if (found := route.match(path)) is not None:
            return route, found
    return None
