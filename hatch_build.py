"""Hooks of the package's build.

The control UI is built into the package by web/build_ui.py, and the description for an index page
is the README with absolute links.
"""

import re
import runpy
import tomllib
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

_EDITABLE_TIMEOUT_S = 90.0  # `dev.py run` opens a chat soon, with or without the UI

_LINK = re.compile(r"(!?)(\[[^\]]*\])\(([^)\s]+)\)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def absolute_links(text: str, home: str) -> str:
    """Return Markdown whose relative links and images lead to the repository at `home`."""
    images = home.replace("https://github.com/", "https://raw.githubusercontent.com/")

    def replace_link(found: re.Match[str]) -> str:
        mark, label, target = found.groups()
        if re.match(r"[a-z]+:|#", target):
            return found[0]
        folder = f"{images}/main" if mark else f"{home}/blob/main"
        return f"{mark}{label}({folder}/{target})"

    parts, last = list[str](), 0
    for fence in _FENCE.finditer(text):  # what is typed or printed stays as it is
        parts += [_LINK.sub(replace_link, text[last : fence.start()]), fence[0]]
        last = fence.end()
    return "".join([*parts, _LINK.sub(replace_link, text[last:])])


class CustomMetadataHook(MetadataHookInterface):
    """Sets the readme of the wheel and the source distribution."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add what `dynamic` in pyproject.toml leaves to this hook."""
        root = Path(self.root)
        project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        readme = (root / "README.md").read_text(encoding="utf-8")
        text = absolute_links(readme, project["urls"]["Homepage"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


class CustomBuildHook(BuildHookInterface[Any]):
    """Builds the control UI, unless it is fresh or HOMARUS_NO_UI is set.

    A wheel and a source distribution are not built without it. An editable install uses the Node
    of the system alone, and does without the UI when that fails: the gateway then serves its plain
    chat page.
    """

    def dependencies(self) -> list[str]:
        """Return the package with Node, where the system has none and a build needs one."""
        ui = self._load_builder()
        if ui is None or ui["is_skipped"]() or ui["is_fresh"]() or ui["system_npm"]():
            return []
        return [str(ui["NODE_PACKAGE"])]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the UI before the files of the package are collected."""
        ui = self._load_builder()
        if ui is None or ui["is_skipped"]() or ui["is_fresh"]():
            return
        if version != "editable":
            ui["build"]()
            return
        if ui["system_npm"]() is None:
            self.app.display_warning("No Node for the control UI: `dev.py ui` builds it later.")
            return
        try:
            ui["build"](timeout_s=_EDITABLE_TIMEOUT_S)
        except ui["UiBuildError"] as exc:
            self.app.display_warning(str(exc))

    def _load_builder(self) -> dict[str, Any] | None:
        """Return what web/build_ui.py defines; None where the sources of the UI are missing."""
        script = Path(self.root) / "web" / "build_ui.py"
        return runpy.run_path(str(script)) if script.exists() else None
