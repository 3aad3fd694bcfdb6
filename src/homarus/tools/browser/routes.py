"""The routes of `browser.request`: OpenClaw's requests of its browser service, as actions. Pure."""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import unquote

from homarus.core.errors import InvalidRequestError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import one_line

_ROUTES: Final[Mapping[tuple[str, str], str]] = {
    ("GET", "/"): "status",
    ("GET", "/profiles"): "profiles",
    ("POST", "/start"): "start",
    ("POST", "/stop"): "stop",
    ("POST", "/reset-profile"): "reset-profile",
    ("GET", "/tabs"): "tabs",
    ("POST", "/tabs/open"): "open",
    ("POST", "/tabs/focus"): "focus",
    ("POST", "/navigate"): "navigate",
    ("GET", "/snapshot"): "snapshot",
    ("POST", "/screenshot"): "screenshot",
    ("POST", "/pdf"): "pdf",
    ("POST", "/act"): "act",
    ("GET", "/console"): "console",
    ("POST", "/hooks/dialog"): "dialog",
    ("POST", "/hooks/file-chooser"): "upload",
    ("GET", "/cookies"): "cookies",
    ("POST", "/cookies/set"): "cookies/set",
    ("POST", "/cookies/clear"): "cookies/clear",
}
_TAB: Final = re.compile(r"/tabs/([^/]+)")
_STORAGE: Final = re.compile(r"/storage/(local|session)(?:/(set|clear))?")
_OPENING: Final = frozenset({"open", "navigate"})


@dataclass(frozen=True, slots=True)
class BrowserRoute:
    """The action that a request means, with its arguments."""

    action: str
    values: Mapping[str, Json]


def find_route(
    method: str, path: str, query: Mapping[str, Json], body: Mapping[str, Json]
) -> BrowserRoute:
    """Return what a request means. Raises InvalidRequestError for one that there is not."""
    values = {**query, **body}
    if action := _ROUTES.get((method, path)):
        if action in _OPENING and "url" in values:
            values["targetUrl"] = values.pop("url")
        return BrowserRoute(action, values)
    if method == "DELETE" and (tab := _TAB.fullmatch(path)):
        return BrowserRoute("close", {**values, "targetId": unquote(tab[1])})
    if found := _STORAGE.fullmatch(path):
        kind, change = found.groups()
        if (method, bool(change)) in {("GET", False), ("POST", True)}:
            action = f"storage/{change}" if change else "storage"
            return BrowserRoute(action, {**values, "kind": kind})
    raise InvalidRequestError(f"browser.request: there is no {method} {one_line(path, 80)}")
