"""Build the environment of a command from a list of harmless names; nothing else is inherited.

So a provider's key in the gateway's environment stays there. Variables that the model requests may
not change which program runs or what is loaded into it.
"""

import re
from collections.abc import Mapping

from homarus.core.errors import ToolDeniedError, ToolError
from homarus.core.text import one_line

INHERITED = frozenset(
    {"PATH", "HOME", "LANG", "LANGUAGE", "TERM", "TZ", "USER", "LOGNAME", "SHELL", "TMPDIR"}
)
INHERITED_PREFIXES = ("LC_", "XDG_")
DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
MAX_NAMES = 64
MAX_CHARS = 32_000

# Each of these makes a program run or load something that was not approved.
_FORBIDDEN = (
    "PATH HOME SHELL ENV BASH_ENV BASHOPTS SHELLOPTS PS4 IFS CDPATH PROMPT_COMMAND ZDOTDIR"
    " NODE_OPTIONS NODE_PATH PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONINSPECT RUBYLIB RUBYOPT"
    " PERL5LIB PERL5OPT PERLLIB JAVA_TOOL_OPTIONS _JAVA_OPTIONS GCONV_PATH SSLKEYLOGFILE"
    " EDITOR VISUAL PAGER MANPAGER BROWSER LESSOPEN LESSCLOSE TERMINFO TERMCAP"
)
FORBIDDEN = frozenset(_FORBIDDEN.split())
FORBIDDEN_PREFIXES = ("LD_", "DYLD_", "GIT_", "BASH_FUNC_")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


def build_environment(requested: Mapping[str, str], outer: Mapping[str, str]) -> dict[str, str]:
    """Return the harmless part of `outer` and the requested variables."""
    check_requested_env(requested)
    inherited = {
        name: value
        for name, value in outer.items()
        if name in INHERITED or name.startswith(INHERITED_PREFIXES)
    }
    return {"PATH": DEFAULT_PATH} | inherited | dict(requested)


def check_requested_env(requested: Mapping[str, str]) -> None:
    """Refuse names and values that a command may not be given."""
    if len(requested) > MAX_NAMES or sum(len(n) + len(v) for n, v in requested.items()) > MAX_CHARS:
        raise ToolError(f"env is too big: {MAX_NAMES} names and {MAX_CHARS} characters at most")
    for name, value in requested.items():
        if not _NAME.fullmatch(name):
            raise ToolError(f"env: {one_line(name)!r} is not the name of a variable")
        if name.upper() in FORBIDDEN or name.upper().startswith(FORBIDDEN_PREFIXES):
            fix = "put it in the command, where the person sees it"
            raise ToolDeniedError(f"env may not set {name}", fix=fix)
        if "\0" in value or not _encodable(value):
            raise ToolError(f"env: the value of {name} is not text")


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
