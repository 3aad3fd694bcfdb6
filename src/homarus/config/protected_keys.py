"""Protect settings that decide which programs are run, which code is loaded, which files are read.

A client that can set the path of a program can run any program. Such settings can only be changed
in the file, on the machine itself; a client may send them back unchanged.
"""

import json
import re
from collections.abc import Iterator

from homarus.config.json5_document import KeyPath, Value
from homarus.config.tree_edit import format_path
from homarus.core.errors import UserError

_NAMES = frozenset(
    {
        "$include", "agentdir", "apikeyfrom", "args", "bin", "binary", "clibackends", "clipath",
        "command", "executable", "executablepath", "extensionpath", "extradirs", "file",
        "filepath", "installpath", "installs", "module", "modulepath", "pathprepend", "safebins",
        "script", "setupcommand", "sourcepath", "transformsdir",
    }
)  # fmt: skip
_FILES = re.compile(r"(?i)(?:file|filepath)\Z")
_SECTIONS = (("plugins", "load"), ("gateway", "controlUi", "root"), ("canvasHost", "root"))
# Variables that decide which code a program loads, or where it finds other programs.
_LOADERS = re.compile(
    r"(?i)(?:PATH|HOME|SHELL|ENV|BASH_ENV|IFS|(?:LD|DYLD|PYTHON|NODE|GIT|PERL|RUBY|JAVA|XDG)_?.*"
    r"|.*_OPTIONS|OPENCLAW_.*)\Z"
)


def check_protected_keys(old: Value, new: Value) -> None:
    """Raise UserError if a change sets a protected key to another value."""
    existing = {(path, value) for path, value in _protected(old, ())}
    for path, value in _protected(new, ()):
        if (path, value) not in existing:
            raise UserError(
                f"{format_path(path)} cannot be set through the gateway",
                fix="it decides what is run or read: change it in the file, on the machine itself",
            )


def _protected(tree: Value, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Yield every protected setting with its value; paths have no list indexes."""
    if isinstance(tree, list):
        for item in tree:
            yield from _protected(item, path)
    elif isinstance(tree, dict):
        for key, value in tree.items():
            key_path = (*path, key)
            if _is_protected(key_path):
                yield key_path, json.dumps(value, sort_keys=True)
            else:
                yield from _protected(value, key_path)


def _is_protected(path: KeyPath) -> bool:
    key = str(path[-1])
    if len(path) > 1 and path[-2] == "customCommands":
        return False  # entries of a chat's menu; nothing is run
    if "env" in path[:-1]:
        return _LOADERS.match(key) is not None
    return key.lower() in _NAMES or _FILES.search(key) is not None or path in _SECTIONS
