"""Read the files of a config safely, and resolve their `$include`s.

An include is replaced by the content of its file; several are merged in order, and the keys next
to `$include` win over the included ones.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import field
from hashlib import sha256
from pathlib import Path

from homarus.config.json5_document import (
    MAX_DEPTH,
    KeyPath,
    Node,
    PathStep,
    Value,
    line_and_column,
    locate,
    parse_json5,
    to_plain,
)
from homarus.config.own_config import own_path
from homarus.config.paths import Paths
from homarus.config.tree_edit import deep_merge, format_path
from homarus.core.errors import ConfigError
from homarus.core.fast_dataclass import dataclass

MAX_BYTES = 4 << 20
MAX_INCLUDE_DEPTH = 10
_MAX_TOTAL_CHARS = 16 << 20  # of all includes: a few small files can include each other many times
_INCLUDE = "$include"


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """One file, and the key path at which it is included."""

    file: Path
    text: str
    root: Node
    mount: KeyPath = ()


@dataclass(frozen=True, slots=True)
class ConfigFiles:
    """A config with its includes resolved, and the files it was read from, in order."""

    tree: dict[str, Value]
    files: tuple[ConfigFile, ...]
    own: ConfigFile | None = None  # homarus.json, whose values are in `tree` already
    shared: dict[str, Value] = field(default_factory=dict)  # `tree` without those values
    is_newer: bool = False  # the files have the keys of OpenClaw 2026.9, the trees those we know

    @property
    def own_tree(self) -> dict[str, Value]:
        tree: dict[str, Value] = to_plain(self.own.root) if self.own else {}
        return tree

    def error(self, path: Sequence[PathStep], message: str, fix: str = "") -> ConfigError:
        """Return the ConfigError for a key, with its file and line."""
        best, line, file = -1, 0, str(self.files[0].file)
        written = self._to_written_path(tuple(path))
        for source in self.files:
            if written[: len(source.mount)] != source.mount:
                continue
            position, found = locate(source.root, written[len(source.mount) :])
            if found + len(source.mount) > best:
                best = found + len(source.mount)
                line, _ = line_and_column(source.text, position)
                file = str(source.file)
        if self.own:
            position, found = locate(self.own.root, own_path(tuple(path), self.tree, self.own_tree))
            if found == len(path) or found > best:
                line, _ = line_and_column(self.own.text, position)
                file = str(self.own.file)
        return ConfigError(message, file=file, line=line, key=format_path(written), fix=fix)

    def _to_written_path(self, path: KeyPath) -> KeyPath:
        if not self.is_newer:
            return path
        from homarus.config.newer_config import to_written_path  # only for such a config

        return to_written_path(path, self.tree)


def read_text(file: Path, *, linked: bool = True) -> str | None:
    """Read a text file; None if there is none. Raises ConfigError for anything else.

    Without `linked` it must not be a link: a user who may write its other name could change it.
    """
    try:
        data = _read(file, linked=linked)
    except FileNotFoundError:
        if file.is_symlink():
            raise ConfigError("points to nothing", file=str(file), fix="mend the link") from None
        return None
    except OSError as exc:
        reason = exc.strerror or str(exc)
        raise ConfigError(
            f"cannot be read: {reason}", file=str(file), fix="check it with ls -l"
        ) from None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise ConfigError(
            "is not UTF-8 text", file=str(file), line=line, fix="save it as UTF-8"
        ) from None


def hash_text(text: str) -> str:
    """Return the hash by which a write notices that the file was changed meanwhile."""
    return sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class ConfigTexts:
    """The texts of `openclaw.json` and `homarus.json`; None is a file that does not exist."""

    shared: str | None
    own: str | None = None

    @property
    def hash(self) -> str:
        """The hash by which a write notices that one of the files was changed meanwhile."""
        return hash_text((self.shared or "") + ("" if self.own is None else f"\0{self.own}"))


def read_config_texts(paths: Paths) -> ConfigTexts:
    """Read both files of the config. Raises ConfigError."""
    return ConfigTexts(read_text(paths.config), read_text(paths.own_config))


def parse_object(file: Path, text: str | None) -> tuple[Node, dict[str, Value]]:
    """Parse the text of a file that must be one object. Raises ConfigError."""
    root = parse_json5("{}" if text is None else text, str(file))
    tree = to_plain(root)
    if not isinstance(tree, dict):
        raise ConfigError(
            "the file must be one object", file=str(file), line=1, fix="begin it with {"
        )
    return root, tree


def read_config_files(file: Path, text: str) -> ConfigFiles:
    """Parse a config and the files it includes. Raises ConfigError."""
    root, own = parse_object(file, text)
    resolver = _IncludeResolver([ConfigFile(file, text, root)])
    tree = resolver.resolve(own, file, (), (_real(file),))
    if not isinstance(tree, dict):
        raise ConfigError(
            "what is included must be one object", file=str(file), line=1, key=_INCLUDE
        )
    return ConfigFiles(tree, tuple(resolver.files), shared=tree)


def _read(file: Path, *, linked: bool) -> bytes:
    # Without O_NONBLOCK, opening a named pipe would wait for its writer.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if linked else os.O_NOFOLLOW)
    if not linked and file.is_symlink():
        raise _linked(file)
    descriptor = os.open(file, flags)
    try:
        status = os.fstat(descriptor)
        mode = status.st_mode
        if not stat.S_ISREG(mode):
            kind = "a directory" if stat.S_ISDIR(mode) else "not a file"
            raise ConfigError(f"is {kind}", file=str(file), fix="put a JSON5 file there")
        if not linked and status.st_nlink > 1:
            raise _linked(file)
        with open(descriptor, "rb", closefd=False) as opened:
            data = opened.read(MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    if len(data) > MAX_BYTES:
        raise ConfigError(
            f"is larger than a config can be ({MAX_BYTES >> 20} MB)",
            file=str(file),
            fix="is it the right file?",
        )
    return data


def _linked(file: Path) -> ConfigError:
    return ConfigError(
        "is a link, or has another name elsewhere",
        file=str(file),
        fix="include the file itself, or put a copy there",
    )


def _real(file: Path) -> str:
    return os.path.realpath(file)


@dataclass(slots=True)
class _IncludeResolver:
    files: list[ConfigFile]
    chars: int = field(default=0)

    def resolve(self, value: Value, file: Path, mount: KeyPath, chain: tuple[str, ...]) -> Value:
        if len(mount) > MAX_DEPTH:
            raise self._error(file, mount, f"nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, list):
            return [self.resolve(item, file, (*mount, i), chain) for i, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        own = {
            key: self.resolve(inner, file, (*mount, key), chain)
            for key, inner in value.items()
            if key != _INCLUDE
        }
        if _INCLUDE not in value:
            return own
        included: Value = None
        for index, name in enumerate(self._names(value[_INCLUDE], file, mount)):
            tree = self._include(name, file, mount, chain)
            included = deep_merge(included, tree) if index else tree
        if not own:
            return {} if included is None else included
        if not isinstance(included, dict | None):
            raise self._error(file, mount, "keys stand beside it, but it includes no object")
        return deep_merge(included or {}, own)

    def _names(self, value: Value, file: Path, mount: KeyPath) -> Iterator[str]:
        for name in value if isinstance(value, list) else [value]:
            if not isinstance(name, str) or not name.strip():
                raise self._error(file, mount, "expected a file name, or a list of them")
            yield name

    def _include(self, name: str, file: Path, mount: KeyPath, chain: tuple[str, ...]) -> Value:
        target = file.parent / name
        real = _real(target)
        shown = " → ".join(Path(each).name for each in (*chain, real))
        if real in chain:
            raise self._error(file, mount, f"includes itself: {shown}")
        if len(chain) > MAX_INCLUDE_DEPTH:
            raise self._error(file, mount, f"more than {MAX_INCLUDE_DEPTH} includes deep: {shown}")
        text = read_text(target, linked=False)
        if text is None:
            raise self._error(file, mount, f"there is no file {name}: {shown}")
        self.chars += len(text)
        if self.chars > _MAX_TOTAL_CHARS:
            raise self._error(file, mount, "the included files are too large together")
        root = parse_json5(text, str(target))
        self.files.append(ConfigFile(target, text, root, mount))
        return self.resolve(to_plain(root), target, mount, (*chain, real))

    def _error(self, file: Path, mount: KeyPath, message: str) -> ConfigError:
        own = [source for source in self.files if source.file == file]
        path = (*mount, _INCLUDE)
        return ConfigFiles({}, tuple(own)).error(path, message)
