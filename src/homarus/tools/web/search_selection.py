"""Which search provider is used, and why."""

from collections.abc import Mapping
from dataclasses import replace

from homarus.config.web_schema import WebSearchConfig
from homarus.core.errors import ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.tools.web.search.base import SEARCH_PROVIDERS, SearchAccess, SearchModule


@dataclass(frozen=True, slots=True)
class SelectedProvider:
    """A provider and how it is reached; `reason` is the setting that chose it."""

    name: str
    module: SearchModule
    access: SearchAccess
    reason: str


def select_provider(config: WebSearchConfig, env: Mapping[str, str]) -> SelectedProvider:
    """Return the provider of the config, else the first that is configured.

    Raises ToolError when the config names one that has no key or address.
    """
    if name := config.provider:
        module = SEARCH_PROVIDERS.load(name)
        access = module.find_access(config, env)
        if access is None:
            what = f"tools.web.search.provider is {name}, and it is not configured"
            raise ToolError(what, fix=module.FIX)
        return _selected(config, name, module, access, "tools.web.search.provider names it")
    modules = [(each, SEARCH_PROVIDERS.load(each)) for each in SEARCH_PROVIDERS.names()]
    for name, module in sorted(modules, key=lambda entry: (entry[1].AUTO_ORDER, entry[0])):
        access = module.find_access(config, env)
        if access and access.is_automatic:
            return _selected(config, name, module, access, access.origin)
    raise ToolError("no search provider is configured", fix="set BRAVE_API_KEY")


def _selected(
    config: WebSearchConfig, name: str, module: SearchModule, access: SearchAccess, reason: str
) -> SelectedProvider:
    timed = replace(access, timeout_s=float(config.timeout_seconds))
    return SelectedProvider(name, module, timed, reason)
