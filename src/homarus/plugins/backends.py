"""Find and load backends by name: channels, providers, embedders, memory backends, stores.

A backend is a module. The name in the config is the module's name (`-` for `_`), and a module of
the kind's package is a backend if it has the required attributes. Installed packages add others by
the kind's entry-point group, whose entries name such a module; they cannot replace ours.

    CHANNELS: Final[BackendKind[ChannelModule]] = BackendKind(
        name="channel",
        package="homarus.channels",
        group="homarus.channels",
        required=("Settings", "create"),
        config_key="channels.{name}",
    )
    CHANNELS.load("telegram").create(...)

Only `find` and `load` import a backend. What a missing library raises is the backend's business:
a module can be imported without its extra, and raises MissingExtraError when it is used.
"""

import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from homarus.core.errors import UnknownNameError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import closest_names

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ModuleT = TypeVar("ModuleT")

_NAME_PATTERN: Final = r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*"


@dataclass(slots=True, frozen=True)
class BackendKind(Generic[ModuleT]):
    """One kind of backend; `ModuleT` is the protocol of its modules."""

    name: str  # in messages: "channel"
    package: str  # the package that holds our own modules of this kind
    group: str  # the entry-point group of other packages
    required: tuple[str, ...]  # the attributes that make a module a backend of this kind
    config_key: str  # where the config names one, with {name} for its name: "channels.{name}"
    name_pattern: str = _NAME_PATTERN

    def names(self) -> tuple[str, ...]:
        """Return the names of all backends, ours and those of installed packages, sorted."""
        return tuple(sorted({*self._own_names(), *(entry.name for entry in self._entries())}))

    def has(self, name: str) -> bool:
        """Return whether there is a backend of this name, without importing it."""
        if not self._is_name(name):
            return False
        module = name.replace("-", "_")
        own = any(
            self._is_own(folder / file)
            for folder in self._folders()
            for file in (f"{module}.py", module)
        )
        return own or any(entry.name == name for entry in self._entries())

    def find(self, name: str) -> ModuleT | None:
        """Import a backend; None if there is none. Raises UserError for a broken package."""
        if not self._is_name(name):
            return None
        path = f"{self.package}.{name.replace('-', '_')}"
        if find_spec(path) and self._has_required(module := import_module(path)):
            return cast("ModuleT", module)
        # Only for names that are not ours: reading the installed packages is slow.
        return next((self._load(entry) for entry in self._entries() if entry.name == name), None)

    def load(self, name: str) -> ModuleT:
        """Import a backend. Raises UnknownNameError with the closest names, or UserError."""
        if module := self.find(name):
            return module
        names = self.names()
        close = closest_names(name.lower(), names)
        hint = f"did you mean {' or '.join(close)}? " if close else ""
        raise UnknownNameError(self.name, name, close, fix=f"{hint}there are {', '.join(names)}")

    def _is_name(self, name: str) -> bool:
        return re.fullmatch(self.name_pattern, name) is not None

    def _own_names(self) -> Iterator[str]:
        for file in (file for folder in self._folders() for file in folder.iterdir()):
            name = file.name.removesuffix(".py").replace("_", "-")
            if self._is_name(name) and self._is_own(file):
                yield name

    def _folders(self) -> list[Path]:
        return [Path(folder) for folder in import_module(self.package).__path__]

    def _is_own(self, file: Path) -> bool:
        """Return whether a file or folder of the package is a backend, by its source text."""
        source = file / "__init__.py" if file.is_dir() else file
        if not source.name.endswith(".py") or not source.is_file():
            return False
        return _top_level_names(source.read_bytes()).issuperset(self.required)

    def _has_required(self, module: object) -> bool:
        return all(hasattr(module, attribute) for attribute in self.required)

    def _entries(self) -> tuple["EntryPoint", ...]:
        from importlib.metadata import entry_points

        return tuple(entry for entry in entry_points(group=self.group) if self._is_name(entry.name))

    def _load(self, entry: "EntryPoint") -> ModuleT:
        config_key = self.config_key.format(name=entry.name)
        try:
            module = entry.load()
        except (ImportError, AttributeError) as exc:
            raise UserError(
                f"the {self.name} {entry.name} cannot be loaded from {entry.value}: {exc}",
                fix=f"reinstall its package, or remove {config_key} from the config",
            ) from exc
        if not self._has_required(module):
            raise UserError(
                f"{entry.value} is not a {self.name}: it needs {' and '.join(self.required)}",
                fix=f"remove {config_key} from the config, or fix its package",
            )
        return cast("ModuleT", module)


def _top_level_names(source: bytes) -> set[str]:
    """Return the names that a module defines, assigns or imports at its top level."""
    import ast

    names: set[str] = set()
    for statement in ast.parse(source).body:
        match statement:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                names.add(statement.name)
            case ast.ImportFrom():
                names.update(alias.asname or alias.name for alias in statement.names)
            case ast.Assign():
                names.update(each.id for each in statement.targets if isinstance(each, ast.Name))
            case ast.AnnAssign(target=ast.Name(id=name)) if statement.value:
                names.add(name)
            case _:
                pass
    return names
