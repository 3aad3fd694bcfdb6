"""The names of backends that the config may use, found without importing a backend.

The loader, `homarus.plugins.backends`, is above this package and decides when a backend is used.
"""

import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from homarus.core.fast_dataclass import dataclass

_DEFINED = r"^(?:def |from \S+ import (?:\w+ as )?)?%s\b"


@dataclass(frozen=True, slots=True)
class BackendNames:
    """The names of one kind of backend: our own modules, entry points and `special` ones.

    `pattern` finds the top-level line that makes a module a backend. A backend is named by the
    quoted words of the pattern's group, or like its module if the pattern has none.
    """

    package: str
    group: str
    pattern: str
    special: tuple[str, ...] = ()
    head_bytes: int = -1  # how much of a module is read; -1: all of it

    def all(self) -> list[str]:
        """Return every name, the special ones first."""
        from importlib.metadata import entry_points  # slow to import

        others = (entry.name for entry in entry_points(group=self.group))
        return [*self.special, *sorted({*self.modules(), *others} - {*self.special})]

    def modules(self) -> dict[str, str]:
        """Return the names of our own backends' modules by the names of the backends."""
        return {name: module for path in self._files("*") for name, module in self._read(path)}

    def has(self, name: str) -> bool:
        """Return whether there is a backend that is named like its module or an entry point."""
        if self._is_module(name):
            return True
        from importlib.metadata import entry_points  # slow to import and rarely needed

        return any(entry.name == name for entry in entry_points(group=self.group))

    def check(self, name: str) -> str:
        """Return the name, if there is such a backend. Raises PydanticCustomError."""
        if name in self.special or self._is_module(name) or name in self.modules():
            return name
        if name in (names := self.all()):
            return name
        from pydantic_core import PydanticCustomError

        *others, last = map(repr, names)
        expected = f"{', '.join(others)} or {last}"
        raise PydanticCustomError(
            "literal_error", "Input should be {expected}", {"expected": expected}
        )

    def add_to(self, schema: dict[str, Any]) -> None:
        """Add the names to a JSON schema."""
        schema["enum"] = self.all()

    def _is_module(self, name: str) -> bool:
        """Return whether a backend is named like its module; only that module is read."""
        if not name.replace("-", "").isalnum():
            return False
        paths = self._files(name.replace("-", "_"))
        return any(name == found for path in paths for found, _ in self._read(path))

    def _files(self, module: str) -> Iterator[Path]:
        # Not by importlib.resources: importing it takes longer than reading the files.
        for folder in map(Path, import_module(self.package).__path__):
            yield from folder.glob(f"{module}.py")
            yield from folder.glob(f"{module}/__init__.py")

    def _read(self, path: Path) -> Iterator[tuple[str, str]]:
        with path.open("rb") as file:
            match = re.search(self.pattern.encode(), file.read(self.head_bytes), re.MULTILINE)
        if match is None:
            return
        module = (path.parent.name if path.stem == "__init__" else path.stem).replace("_", "-")
        names = re.findall(r'"([^"]+)"', match[1].decode()) if match.re.groups else [module]
        yield from ((name, module) for name in names)


CHANNEL_NAMES: Final = BackendNames("homarus.channels", "homarus.channels", _DEFINED % "create")
EMBEDDER_NAMES: Final = BackendNames(
    "homarus.memory.embed", "homarus.embedders", _DEFINED % "AUTO", ("auto", "none")
)
MEMORY_BACKEND_NAMES: Final = BackendNames(
    "homarus.memory", "homarus.memory", _DEFINED % "sync_interval_s"
)
# OpenClaw has `github-copilot`, which has no adapter yet: it is refused when it is used.
PROVIDER_APIS: Final = BackendNames(
    "homarus.providers",
    "homarus.providers",
    r"^APIS = \(([^)]*)\)",
    ("github-copilot",),
    head_bytes=8192,
)
SEARCH_PROVIDER_NAMES: Final = BackendNames(
    "homarus.tools.web.search", "homarus.search_providers", _DEFINED % "find_access"
)
SANDBOX_NAMES: Final = BackendNames(
    "homarus.tools.sandbox", "homarus.sandboxes", _DEFINED % "create", ("auto",)
)
