"""Build the environment of a command from lists of harmless names.

Nothing else is inherited, so a provider's key in the gateway's environment stays there. What the
model sets is on a list of its own: any other variable may change which program runs, which files
it reads as its settings, or what is loaded into it, and no list of dangerous names is complete.
"""

import os
import re
from collections.abc import Mapping, Sequence

from homarus.core.errors import ToolDeniedError, ToolError
from homarus.core.text import one_line

_INHERITED_NAMES = (
    "PATH HOME LANG LANGUAGE TERM TZ USER LOGNAME SHELL TMPDIR XDG_CACHE_HOME XDG_RUNTIME_DIR"
)
INHERITED = frozenset(_INHERITED_NAMES.split())
LOCALE_PREFIX = "LC_"
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
DEFAULT_TERM = "xterm-256color"
MAX_NAMES = 64
MAX_CHARS = 32_000

# What the model may set: how output looks, and under OWN_PREFIX values that no program reads by
# itself, only the command that names them.
_ALLOWED_NAMES = (
    "LANG LANGUAGE TZ TERM COLUMNS LINES NO_COLOR FORCE_COLOR CLICOLOR CLICOLOR_FORCE CI NODE_ENV"
    " SOURCE_DATE_EPOCH RUST_BACKTRACE"
)
ALLOWED = frozenset(_ALLOWED_NAMES.split())
OWN_PREFIX = "ARG_"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
# A locale, a time zone, a number: not a path out of the folder where such things are looked up.
_SETTING = re.compile(r"(?!.*\.\.)(?:[A-Za-z0-9_+-][A-Za-z0-9_.,:+@/=-]{0,99})?", re.ASCII)
_IN_COMMAND = "put it in the command, where the person sees it"


def build_environment(
    requested: Mapping[str, str],
    outer: Mapping[str, str],
    *,
    path_prepend: Sequence[str] = (),
    pty: bool = False,
) -> dict[str, str]:
    """Return the harmless part of `outer` and the requested variables.

    `path_prepend` are folders of the config that are searched before those of PATH. A command with
    a terminal has TERM.
    """
    check_requested_env(requested)
    inherited = {
        name: outer[name] for name in outer if name in INHERITED or name.startswith(LOCALE_PREFIX)
    }
    # A relative folder would let a file in the workspace stand in for a program of the system.
    folders = [each for each in outer.get("PATH", "").split(":") if each.startswith("/")]
    own = [os.path.expanduser(each) for each in path_prepend]  # noqa: PTH111 - kept as written
    path = ":".join(
        [each for each in own if each.startswith("/") and ":" not in each]
        + (folders or [DEFAULT_PATH])
    )
    terminal = {"TERM": DEFAULT_TERM} if pty and inherited.get("TERM", "dumb") == "dumb" else {}
    return inherited | {"PATH": path} | terminal | dict(requested)


def check_requested_env(requested: Mapping[str, str]) -> None:
    """Refuse names and values that a command may not be given."""
    if len(requested) > MAX_NAMES or sum(len(n) + len(v) for n, v in requested.items()) > MAX_CHARS:
        raise ToolError(f"env is too big: {MAX_NAMES} names and {MAX_CHARS} characters at most")
    for name, value in requested.items():
        if not _NAME.fullmatch(name):
            raise ToolError(f"env: {one_line(name)!r} is not the name of a variable")
        if "\0" in value or not _encodable(value):
            raise ToolError(f"env: the value of {name} is not text")
        if name.startswith(OWN_PREFIX):
            continue
        if name not in ALLOWED and not name.startswith(LOCALE_PREFIX):
            fix = f"name a value of your own {OWN_PREFIX}…; any other: {_IN_COMMAND}"
            raise ToolDeniedError(f"env may not set {name}", fix=fix)
        if not _SETTING.fullmatch(value):
            raise ToolDeniedError(f"env may not set {name} to that value", fix=_IN_COMMAND)


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
