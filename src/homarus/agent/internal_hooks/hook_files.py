"""The files of a hook: who may write them, what they are, and the source of its handler.

What a hook runs is what was checked: the handler's source is taken from the bytes that are part of
the digest, and never read a second time.
"""

import ast
import hashlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from homarus.agent.internal_hooks.hook import HookTier, InternalHook
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line

MAX_FILES: Final = 200
MAX_TOTAL_BYTES: Final = 4_000_000
MAX_HANDLER_BYTES: Final = 512_000
_OPEN: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class HookFileError(Exception):
    """A hook whose files cannot be used: why, and what helps."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(message)
        self.message, self.fix = message, fix


@dataclass(frozen=True, slots=True)
class HookFiles:
    """The files of a hook at one moment.

    `digest` is that of all of them with their names, `stamp` changes when one of them was written.
    """

    digest: str
    stamp: int
    source: str
    names: tuple[str, ...]


def load_hook_files(hook: InternalHook) -> HookFiles:
    """Read and check the files of a hook. Raises HookFileError."""
    try:
        names = [hook.handler.name] if hook.tier is HookTier.CONFIG else list(_walk(hook.folder))
        _check_writers(hook.folder.stat(), hook.folder)
        return _read(hook, names)
    except OSError as exc:
        reason = one_line(str(exc), 160)
        raise HookFileError(f"its files cannot be read: {reason}", "check the folder") from exc


def find_stamp(hook: InternalHook) -> int:
    """Return the stamp of a hook's files as they are now; 0 when they cannot be listed."""
    try:
        names = [hook.handler.name] if hook.tier is HookTier.CONFIG else list(_walk(hook.folder))
        return _stamp(hook.folder, names)
    except (HookFileError, OSError):
        return 0


def check_handler(source: str, export: str) -> None:
    """Check, without running it, that a handler defines its function. Raises HookFileError."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as exc:
        line = getattr(exc, "lineno", None)
        place = f"line {line} of handler.py" if line else "handler.py"
        raise HookFileError(f"{place} is not Python: {exc.args[0]}", "correct it") from None
    if export not in _defined_names(tree):
        message = f"handler.py has no function {export}"
        raise HookFileError(message, f"define `def {export}(event):` in it")


def _defined_names(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in tree.body:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                names.add(node.name)
            case ast.Assign():
                names |= {each.id for each in node.targets if isinstance(each, ast.Name)}
            case ast.ImportFrom() | ast.Import():
                names |= {alias.asname or alias.name for alias in node.names}
            case _:
                pass
    return names


def _walk(folder: Path) -> Iterator[str]:
    """Yield the names of all files below a folder, sorted. Raises HookFileError for links."""
    count = 0
    for top, folders, files in os.walk(folder):
        folders.sort()
        for name in [*folders, *files]:
            path = Path(top) / name
            if path.is_symlink():
                raise HookFileError(
                    f"{path.relative_to(folder)} is a link", "put the file itself into the folder"
                )
        for name in sorted(files):
            count += 1
            if count > MAX_FILES:
                message = f"it has more than {MAX_FILES} files"
                raise HookFileError(message, "keep data elsewhere")
            yield str((Path(top) / name).relative_to(folder))


def _stamp(folder: Path, names: list[str]) -> int:
    digest = hashlib.blake2b(digest_size=8)
    for name in names:
        found = os.lstat(folder / name)
        # ctime cannot be set: a file that was replaced or changed never has its old stamp.
        fields = (name, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        digest.update(repr((*fields, found.st_mode, found.st_uid)).encode())
    digest.update(repr(folder.stat().st_mode).encode())
    return int.from_bytes(digest.digest()) | 1


def _read(hook: InternalHook, names: list[str]) -> HookFiles:
    handler = str(hook.handler.relative_to(hook.folder))
    stamp, digest, source, total = _stamp(hook.folder, names), hashlib.sha256(), b"", 0
    for name in names:
        data = _read_file(hook.folder / name)
        total += len(data)
        if total > MAX_TOTAL_BYTES:
            message = f"its files have more than {MAX_TOTAL_BYTES} bytes"
            raise HookFileError(message, "keep data elsewhere")
        digest.update(f"{len(name.encode())}:{name}\0{len(data)}:".encode() + data)
        if name == handler:
            source = data
    if len(source) > MAX_HANDLER_BYTES:
        raise HookFileError(f"{handler} has more than {MAX_HANDLER_BYTES} bytes", "split it")
    if stamp != _stamp(hook.folder, names):
        raise HookFileError("its files changed while they were read", "try again")
    try:
        text = source.decode()
    except UnicodeDecodeError:
        raise HookFileError(f"{handler} is not UTF-8", "save it as UTF-8") from None
    return HookFiles(digest.hexdigest(), stamp, text, tuple(names))


def _read_file(path: Path) -> bytes:
    handle = os.open(path, _OPEN)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode):
            raise HookFileError(f"{path.name} is not a file", "remove it")
        _check_writers(found, path)
        with os.fdopen(os.dup(handle), "rb") as file:
            return file.read(MAX_TOTAL_BYTES + 1)
    finally:
        os.close(handle)


def _check_writers(found: os.stat_result, path: Path) -> None:
    """Raise HookFileError for a file that other users of this machine may write."""
    if found.st_uid not in (0, os.geteuid()):
        message = f"{path} belongs to another user"
        raise HookFileError(message, f"chown it: sudo chown $USER {path}")
    if found.st_mode & stat.S_IWOTH:
        raise HookFileError(f"every user may write {path}", f"chmod o-w {path}")
