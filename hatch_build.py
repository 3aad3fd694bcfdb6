"""Write the package's description for an index page: the README, its links made absolute."""

import re
import tomllib
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

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
