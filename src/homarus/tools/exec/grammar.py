"""Parse a command completely, or not at all. Pure, total and bounded.

Understood are simple commands of literal words (bare, in single or double quotes, with backslashes)
that are joined by `|`, `&&`, `||` and `;`. A word means the same here and in a shell, and it is
passed to the program as it stands. Everything that a shell would expand, redirect, define or run
in another way is not understood, and then nothing of the command is.
"""

import re
from typing import Final, Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass

ChainOperator: TypeAlias = Literal["", "&&", "||", ";"]
Words: TypeAlias = tuple[str, ...]
# Pipelines with the operator before each; a pipeline is the words of its commands.
ParsedChain: TypeAlias = tuple[tuple[ChainOperator, tuple[Words, ...]], ...]

MAX_CHARS: Final = 20_000
MAX_WORDS: Final = 1_000
MAX_COMMANDS: Final = 50

_RESERVED_NAMES = (
    "if then else elif fi do done case esac while until for in function select time coproc"
    " [[ ]] { } !"
)
# What a shell does itself, and a program of that name would do otherwise or not at all.
_BUILTIN_NAMES = (
    ". : source alias bg bind break builtin caller cd command compgen complete compopt continue"
    " declare dirs disown enable eval exec exit export fc fg getopts hash help history jobs let"
    " local logout mapfile popd pushd read readarray readonly return set shift shopt suspend"
    " times trap type typeset ulimit umask unalias unset wait"
)
SHELL_NAMES: Final = frozenset(f"{_RESERVED_NAMES} {_BUILTIN_NAMES}".split())

_TOKEN: Final = re.compile(
    r"(?P<blank>[ \t]+)"
    r"|(?P<operator>\|\||&&|[|;])"
    r"|'(?P<single>[^']*)'"
    r'|"(?P<double>(?:[^"\\$`]|\\[^\n])*)"'
    r"|\\(?P<escaped>[^\n])"
    r"|(?P<plain>[^\x00-\x20\x7f|&;<>()$`\\\"'*?\[\]{}~#!]+)"
    r"|(?P<inside>[~#])",
    re.DOTALL,
)
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\[[^\]]*\])?\+?=", re.ASCII)
_IN_DOUBLE: Final = re.compile(r'\\(["\\$`])')
_OPEN_DOUBLE: Final = re.compile(r'"(?:[^"\\$`]|\\[^\n])*(?=[$`])')
_CONTROL: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f\x80-\x9f\u2028\u2029\ud800-\udfff]")
_NAMES: Final = {
    "\n": "a line break",
    "\r": "a line break",
    "<": "a redirection",
    ">": "a redirection",
    "$": "a variable or substitution",
    "`": "a substitution",
    "&": "a background command",
    "(": "a subshell",
    ")": "a subshell",
    "*": "a file pattern",
    "?": "a file pattern",
    "[": "a file pattern",
    "]": "a file pattern",
    "{": "a brace",
    "}": "a brace",
    "~": "a tilde",
    "#": "a comment",
    "!": "an exclamation mark",
    "'": "a quote without its end",
    '"': "a quote without its end",
    "\\": "a backslash at the end",
}


@dataclass(frozen=True, slots=True)
class NotUnderstood:
    """The reason why a command is not parsed, for the person who is asked about it.

    `token` is the piece of shell syntax that is not understood, "" where the reason is another.
    """

    reason: str
    token: str = ""


def parse_command(command: str) -> ParsedChain | NotUnderstood:
    """Return the commands and how they are joined, or why the command is not understood."""
    if len(command) > MAX_CHARS:
        return NotUnderstood(f"it has more than {MAX_CHARS} characters")
    if found := _CONTROL.search(command):
        return _not_understood(command, found.start())
    tokens = _tokenize(command)
    return tokens if isinstance(tokens, NotUnderstood) else _group(tokens)


def _not_understood(command: str, place: int) -> NotUnderstood:
    if found := _OPEN_DOUBLE.match(command, place):
        place = found.end() if found.end() < len(command) else place
    ch = command[place]
    token = "$()" if command.startswith("$(", place) else ch
    return NotUnderstood(f"it has {_NAMES.get(ch, f'the character U+{ord(ch):04X}')}", token)


def _tokenize(command: str) -> list[tuple[bool, str]] | NotUnderstood:
    """Return the operators (True) and words (False) in order."""
    tokens: list[tuple[bool, str]] = []
    word: list[str] | None = None
    place = 0
    while place < len(command):
        found = _TOKEN.match(command, place)
        kind = found.lastgroup if found else None
        if found is None or (kind == "inside" and _starts_expansion(command, place, word)):
            return _not_understood(command, place)
        place = found.end()
        if kind in ("blank", "operator"):
            if word is not None:
                tokens.append((False, "".join(word)))
                word = None
            if kind == "operator":
                tokens.append((True, found[0]))
            continue
        text = found[kind or 0]
        word = [] if word is None else word
        word.append(_IN_DOUBLE.sub(r"\1", text) if kind == "double" else text)
        is_first = not tokens or tokens[-1][0]
        if is_first and kind == "plain" and _ASSIGNMENT.match("".join(word)):
            return NotUnderstood("it sets a variable")
        if len(tokens) > MAX_WORDS:
            return NotUnderstood(f"it has more than {MAX_WORDS} words")
    if word is not None:
        tokens.append((False, "".join(word)))
    return tokens


def _starts_expansion(command: str, place: int, word: list[str] | None) -> bool:
    """Return whether a shell may read `~` or `#` here as more than a character of the word."""
    return word is None or (command[place] == "~" and command[place - 1] in "=:")


def _group(tokens: list[tuple[bool, str]]) -> ParsedChain | NotUnderstood:
    chain: list[tuple[ChainOperator, tuple[Words, ...]]] = []
    operator: ChainOperator = ""
    pipeline: list[Words] = []
    words: list[str] = []
    if tokens and tokens[-1] == (True, ";"):
        tokens = tokens[:-1]
    for is_operator, text in [*tokens, (True, ";")]:
        if not is_operator:
            words.append(text)
            continue
        if not words:
            return NotUnderstood("a command is missing" if tokens else "it is empty")
        if words[0] in SHELL_NAMES:
            return NotUnderstood(f"{words[0]} is a part of the shell, not a program")
        if not words[0]:
            return NotUnderstood("the name of a program is empty")
        pipeline.append(tuple(words))
        words = []
        if text != "|":
            chain.append((operator, tuple(pipeline)))
            operator, pipeline = _chain_operator(text), []
    if sum(len(commands) for _, commands in chain) > MAX_COMMANDS:
        return NotUnderstood(f"it has more than {MAX_COMMANDS} commands")
    return tuple(chain)


def _chain_operator(text: str) -> ChainOperator:
    return "&&" if text == "&&" else "||" if text == "||" else ";"
