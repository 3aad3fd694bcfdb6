"""Find the file of a transform: inside the folder of transforms, and changed by the owner alone."""

import os
import stat
from pathlib import Path
from typing import Final

from homarus.core.text import one_line
from homarus.gateway.hooks.refusal import HookRefusedError

MAX_SOURCE_BYTES: Final = 1_000_000
_OTHER_LANGUAGES: Final = (".js", ".mjs", ".cjs", ".ts", ".mts", ".cts")


def find_transform(folder: Path, module: str) -> Path:
    """Return the real path of a transform; raises HookRefusedError (501, 500) with the fix."""
    shown = one_line(module, 100)
    if module.lower().endswith(_OTHER_LANGUAGES):
        raise HookRefusedError(
            501,
            "transform",
            f"the transform {shown} is JavaScript, which is not run here",
            fix="write it as a Python function: docs/webhooks.md",
        )
    if not module.endswith(".py") or "\0" in module:
        raise _refused(f"the transform {shown} is not a Python file", "name a file with .py")
    base = folder.resolve()
    file = (base / module).resolve()
    if not file.is_relative_to(base):
        raise _refused(f"the transform {shown} is outside of {base}", "move it there")
    if not file.is_file():
        raise _refused(f"there is no transform {shown} in {base}", "write it, or correct the name")
    above = (folder for folder in file.parents if folder.is_relative_to(base))
    for each in (file, *above, *file.parent.glob("*.py")):  # it may import those next to it
        _check_owner(each)
    return file


def read_transform(file: Path) -> bytes:
    """Return the source of a transform; raises HookRefusedError when it cannot be read."""
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as source:  # noqa: PTH123 - a descriptor, not a path
            _check_mode(os.fstat(descriptor), file)
            data = source.read(MAX_SOURCE_BYTES + 1)
    except OSError as exc:
        raise _refused(f"the transform {file.name} cannot be read: {exc.strerror}", "") from None
    if len(data) > MAX_SOURCE_BYTES:
        raise _refused(f"the transform {file.name} has more than {MAX_SOURCE_BYTES} bytes", "")
    return data


def _check_owner(path: Path) -> None:
    try:
        _check_mode(path.stat(), path)
    except OSError as exc:
        raise _refused(f"{path} cannot be read: {exc.strerror}", "check who owns it") from None


def _check_mode(found: os.stat_result, path: Path) -> None:
    if found.st_uid not in (os.geteuid(), 0) or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise _refused(f"others than the owner can change {path}", f"chmod go-w {path}, and own it")


def _refused(message: str, fix: str) -> HookRefusedError:
    return HookRefusedError(500, "transform", message, fix=fix)
