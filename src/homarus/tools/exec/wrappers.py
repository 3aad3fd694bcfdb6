"""Find the command inside a command: `timeout 60 npm test`, `bash -c 'git status'`. Pure."""

import re
from collections.abc import Sequence
from typing import Final

from homarus.tools.exec.grammar import NotUnderstood, ParsedChain, Words, parse_command

_SHELLS: Final = frozenset(("sh", "bash", "dash", "zsh"))
_SHELL_OPTIONS: Final = frozenset(("-c", "-lc", "-cl"))
_DURATION: Final = re.compile(r"\d+(?:\.\d+)?[smhd]?")
# Options of programs that run their operands and change nothing about what runs.
_FLAGS: Final[dict[str, re.Pattern[str]]] = {
    "nohup": re.compile(r"(?!)"),
    "env": re.compile(r"(?!)"),
    "setsid": re.compile(r"-w|--wait"),
    "nice": re.compile(r"-n\d+|-\d+|--adjustment=\d+"),
    "stdbuf": re.compile(r"-[ioe][0L]"),
    "timeout": re.compile(
        r"--preserve-status|--foreground|-v|--verbose|-[sk][A-Z0-9]+[smhd]?"
        r"|--signal=[A-Z0-9]+|--kill-after=[0-9.]+[smhd]?"
    ),
}
_VALUES: Final = {"nice": re.compile(r"-n"), "timeout": re.compile(r"-[sk]")}


def find_inner(name: str, args: Sequence[str]) -> int | None:
    """Return where the inner command starts in the arguments of a program that only runs it.

    None when the program is another one, or an option or assignment may change what runs.
    """
    flags = _FLAGS.get(name)
    if flags is None:
        return None
    index = 0
    while index < len(args) and args[index].startswith("-"):
        if flags.fullmatch(args[index]):
            index += 1
        elif name in _VALUES and _VALUES[name].fullmatch(args[index]):
            index += 2
        else:
            return None
    if name == "timeout":
        if index >= len(args) or not _DURATION.fullmatch(args[index]):
            return None
        index += 1
    if index >= len(args) or args[index].startswith("-") or "=" in args[index]:
        return None
    return index


def unwrap_shell(parsed: ParsedChain) -> ParsedChain:
    """Return the commands of `sh -c 'TEXT'` when the grammar understands TEXT, else the same.

    The program of the shell has to be looked up by its name, and nothing else may be given to it.
    """
    if len(parsed) != 1 or len(parsed[0][1]) != 1:
        return parsed
    words: Words = parsed[0][1][0]
    if len(words) != 3 or words[0] not in _SHELLS or words[1] not in _SHELL_OPTIONS:
        return parsed
    inner = parse_command(words[2])
    return parsed if isinstance(inner, NotUnderstood) else inner
