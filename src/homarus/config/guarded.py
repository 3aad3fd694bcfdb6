"""Settings that are not changed from afar: what is run, what is loaded, which files are read.

Whoever can set the path of a program runs any program. Such settings are changed on the machine
itself, in the file; a client may send them back as they are. Pure.
"""

import json
import re
from collections.abc import Iterator

from homarus.config.document import KeyPath, Value
from homarus.config.edit import show_path
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
_WHOLE = (("plugins", "load"), ("gateway", "controlUi", "root"), ("canvasHost", "root"))
# Variables that decide which code a program loads or where it looks for others.
_LOADERS = re.compile(
    r"(?i)(?:PATH|HOME|SHELL|ENV|BASH_ENV|IFS|(?:LD|DYLD|PYTHON|NODE|GIT|PERL|RUBY|JAVA|XDG)_?.*"
    r"|.*_OPTIONS|OPENCLAW_.*)\Z"
)


def refuse_guarded(old: Value, new: Value) -> None:
    """Refuse a change that sets what only the machine's owner may; UserError names it."""
    known = {(path, value) for path, value in _guarded(old, ())}
    for path, value in _guarded(new, ()):
        if (path, value) not in known:
            raise UserError(
                f"{show_path(path)} cannot be set through the gateway",
                fix="it decides what is run or read: change it in the file, on the machine itself",
            )


def _guarded(tree: Value, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Every such setting with its value; entries of lists go by any place."""
    if isinstance(tree, list):
        for item in tree:
            yield from _guarded(item, path)
    elif isinstance(tree, dict):
        for key, value in tree.items():
            here = (*path, key)
            if _is_guarded(here):
                yield here, json.dumps(value, sort_keys=True)
            else:
                yield from _guarded(value, here)


def _is_guarded(path: KeyPath) -> bool:
    key = str(path[-1])
    if len(path) > 1 and path[-2] == "customCommands":
        return False  # words for a chat's menu; nothing is run
    if "env" in path[:-1]:
        return _LOADERS.match(key) is not None
    return key.lower() in _NAMES or _FILES.search(key) is not None or path in _WHOLE
