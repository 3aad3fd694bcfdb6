"""Which channels there are, and how one is had by its name.

A channel is a module of this package, or a folder, that has `Settings` and `create`; its name is
the name of its section in the config (`-` for `_`). Others come from installed packages, by the
entry-point group `homarus.channels`, whose entries name such a module. To list them imports none.
"""

import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from homarus.core.errors import UnknownName, UserError
from homarus.core.text import nearest

if TYPE_CHECKING:
    from homarus.channels.base import Channel, Place
    from homarus.config.channels import ChannelSettings

GROUP: Final = "homarus.channels"
_NAME: Final = re.compile(r"[a-z][a-z0-9]*(?:-[a-z0-9]+)*")
_PARTS: Final = ("Settings", "create")


class Kind(Protocol):
    """A channel's module. It may have a `LABEL`: its name as people write it."""

    Settings: "type[ChannelSettings]"

    def create(self, place: "Place", settings: Any) -> "Channel":
        """An account of it, connected to nothing; MissingExtra when a library is missing."""
        ...


def known_channels() -> tuple[str, ...]:
    """The names of all channels, ours and those of installed packages."""
    return tuple(sorted({*_own(), *(entry.name for entry in _entries())}))


def load_channel(name: str) -> Kind:
    """A channel by its name; UnknownName says the nearest ones."""
    if found := _find(name):
        return found
    known = known_channels()
    close = nearest(name.lower(), known)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    raise UnknownName("channel", name, close, fix=f"{hint}there are {', '.join(known)}")


def label(name: str) -> str:
    """A channel's name as people write it; its own for one that is not installed."""
    try:
        found = _find(name)  # which others there are is slow to tell, and nobody asks
    except UserError:
        found = None
    return str(getattr(found, "LABEL", name.replace("-", " ").title())) if found else name


def _find(name: str) -> Kind | None:
    if not _NAME.fullmatch(name):
        return None
    module = f"{__package__}.{name.replace('-', '_')}"
    if find_spec(module) and _is_channel(found := import_module(module)):
        return cast("Kind", found)
    return next((_load(entry) for entry in _entries() if entry.name == name), None)


def _own() -> Iterator[str]:
    from importlib.resources import files

    for file in files(__package__).iterdir():
        source = file / "__init__.py" if file.is_dir() else file
        if source.name.endswith(".py") and source.is_file() and _has_parts(source.read_bytes()):
            yield file.name.removesuffix(".py").replace("_", "-")


def _has_parts(source: bytes) -> bool:
    """Whether a module defines, or imports, what makes it a channel: told from its text."""
    import ast

    found: set[str] = set()
    for part in ast.parse(source).body:
        if isinstance(part, ast.ClassDef | ast.FunctionDef):
            found.add(part.name)
        elif isinstance(part, ast.ImportFrom):
            found.update(name.asname or name.name for name in part.names)
    return found.issuperset(_PARTS)


def _is_channel(found: object) -> bool:
    return all(hasattr(found, part) for part in _PARTS)


def _entries() -> tuple[Any, ...]:
    # Slow to load, and who names a channel of ours does not need it.
    from importlib.metadata import entry_points

    return tuple(e for e in entry_points(group=GROUP) if _NAME.fullmatch(e.name))


def _load(entry: Any) -> Kind:
    try:
        found = entry.load()
    except (ImportError, AttributeError) as exc:
        raise UserError(
            f"the channel {entry.name} cannot be loaded from {entry.value}: {exc}",
            fix="install its package anew, or remove its section from the config",
        ) from exc
    if not _is_channel(found):
        raise UserError(
            f"{entry.value} is not a channel: it needs {' and '.join(_PARTS)}",
            fix=f"remove channels.{entry.name} from the config, or mend its package",
        )
    return cast("Kind", found)
