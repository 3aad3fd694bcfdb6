"""The entries that let commands run without a question, and how they match.

An entry of `exec-approvals.json` is one of three kinds:
- OpenClaw's: an object with a `pattern` for the real path of a program (`*` and `?` stay inside a
  folder, `**` crosses), or the bare name of a program that is looked up in trusted folders; with
  `argPattern`, a regular expression for all arguments. The arguments are judged by the rules.
- a command line, a string like `git diff *`: compared word by word. A `*` as the last word stands
  for further words that the rules allow; a `*` inside a word never crosses `/`.
- an exact command: `=`, the program's path and its arguments, in one folder. OpenClaw, which takes
  a pattern for the path of a program, finds no program by it.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.regex import compile_fullmatch
from homarus.tools.exec.arg_policy import (
    Place,
    find_denied_argument,
    is_interpreter,
    is_wrapper,
    runs_other_code,
)
from homarus.tools.exec.executable import Executable, HashedFile, is_beneath, real_path
from homarus.tools.exec.plan import SimpleCommand

_GLOB: Final = re.compile(r"[*?]")
_MAX_GLOBS: Final = 8  # of one pattern: more would take long to compare
_TO_QUOTE: Final = re.compile(r"[\s'\"\\]|\A\Z")
SCRIPT_HASH_KEY: Final = "scriptSha256"


@dataclass(frozen=True, slots=True)
class AllowEntry:
    """One entry as read; `key` identifies it in the file and in what a decision says."""

    key: str
    pattern: str
    is_command_line: bool = False
    arg_pattern: str = ""
    folder: str = ""  # of an exact command
    resolved: str = ""
    script_hash: str = ""


@dataclass(frozen=True, slots=True)
class MatchContext:
    """Where a command runs, and the home folder that `~` in a pattern means."""

    place: Place
    home: str


def read_entry(entry: Json) -> AllowEntry | None:
    """Return an entry of the file, None when it is none."""
    if isinstance(entry, str):
        text = entry.strip()
        is_path = text.startswith(("/", "~")) and len(text.split()) == 1
        return AllowEntry(text, text, not is_path) if text else None
    if not isinstance(entry, dict) or not isinstance(pattern := entry.get("pattern"), str):
        return None
    pattern = pattern.strip()
    if not pattern:
        return None
    key = _text(entry, "id") or pattern
    if "argPattern" in entry and not isinstance(entry["argPattern"], str):
        return None
    words = pattern.split()
    # OpenClaw turns strings into objects when it writes the file.
    is_line = len(words) > 1 and "/" not in words[0] and not pattern.startswith("=")
    return AllowEntry(
        key,
        pattern,
        is_line,
        _text(entry, "argPattern"),
        _text(entry, "cwd"),
        _text(entry, "lastResolvedPath"),
        _text(entry, SCRIPT_HASH_KEY),
    )


def _text(entry: Mapping[str, Json], key: str) -> str:
    value = entry.get(key)
    return value if isinstance(value, str) else ""


def find_entry(
    command: SimpleCommand, entries: Sequence[AllowEntry], context: MatchContext
) -> tuple[AllowEntry | None, str]:
    """Return the entry that allows a command, or why the entry that comes closest does not."""
    reason = ""
    for entry in entries:
        refusal = match_entry(command, entry, context)
        if refusal == "":
            return entry, ""
        reason = reason or refusal or ""
    return None, reason or f"no entry allows {command.executable.name}"


def match_entry(command: SimpleCommand, entry: AllowEntry, context: MatchContext) -> str | None:
    """Return "" when the entry allows the command, None when it is for another one.

    Any other text is why the command is not allowed although the entry is for its program.
    """
    if entry.pattern.startswith("="):
        return _match_exact(command, entry, context)
    if entry.is_command_line:
        return _match_line(command, entry, context)
    executable, args = command.executable, command.words[1:]
    if not _is_program_of(entry.pattern, executable, context):
        return None
    if is_wrapper(executable):
        return f"{executable.name} runs the command that it is given"
    if entry.arg_pattern:
        if not _match_args(entry.arg_pattern, args):
            return f"the arguments are not those that the entry for {executable.name} allows"
        if runs_other_code(executable):
            has_option = not args or args[0].startswith("-")
            return f"{executable.name} may run code from elsewhere" if has_option else ""
    return find_denied_argument(executable, args, 0, context.place, is_explicit=False)


def exact_pattern(command: SimpleCommand) -> str:
    """Return the pattern of an entry that allows exactly one command."""
    return "=" + shlex.join([command.executable.path, *command.words[1:]])


def script_hash(script: HashedFile | None) -> str:
    """Return the hash of a script, "" without one."""
    return script.sha256 if script else ""


def _match_exact(command: SimpleCommand, entry: AllowEntry, context: MatchContext) -> str | None:
    executable = command.executable
    found = (exact_pattern(command), context.place.folder, executable.real_path)
    if found != (entry.pattern, entry.folder, entry.resolved):
        return None
    if is_wrapper(executable):
        return f"{executable.name} runs the command that it is given"
    if is_interpreter(executable) and not entry.script_hash:
        return f"{executable.name} runs code that may have changed"
    if entry.script_hash and script_hash(executable.script) != entry.script_hash:
        return "the script has changed since the command was allowed"
    return ""


def _is_program_of(pattern: str, executable: Executable, context: MatchContext) -> bool:
    """Return whether the pattern of a program is for this one."""
    if "/" not in pattern:
        # A pattern of names would be one of programs that do not exist yet.
        return executable.is_looked_up and executable.name == pattern
    if pattern.startswith("~/"):
        pattern = context.home.rstrip("/") + pattern[1:]
    if match_path(pattern, executable.real_path):
        return True
    is_literal = pattern.startswith("/") and not _GLOB.search(pattern)
    if not is_literal or is_beneath(pattern, context.place.workspace):
        return False
    return real_path(pattern) == executable.real_path


def match_path(pattern: str, path: str) -> bool:
    """Return whether a pattern of OpenClaw matches an absolute path; only with a `/` it does."""
    return "/" in pattern and _match_glob(pattern, path)


def _match_glob(pattern: str, text: str) -> bool:
    if len(_GLOB.findall(pattern)) > _MAX_GLOBS:
        return False
    return _path_regex(pattern).fullmatch(text) is not None


@lru_cache(512)
def _path_regex(pattern: str) -> re.Pattern[str]:
    """`**` crosses folders, `*` and `?` do not. No two repetitions touch, so it is fast."""
    parts = re.split(r"(\*{2,}/?|\*|\?)", pattern)
    made = [
        r"(?:.*/)?" if part.startswith("**") and part.endswith("/")
        else ".*" if part.startswith("**")
        else "[^/]*" if part == "*"
        else "[^/]" if part == "?"
        else re.escape(part)
        for part in parts
    ]  # fmt: skip
    return re.compile("".join(made), re.DOTALL)


def _match_args(pattern: str, args: Sequence[str]) -> bool:
    """Match all arguments: joined by NUL when the pattern says so, else by blanks.

    An argument with a blank or a quote is quoted, so that no two lists of arguments are the same
    text.
    """
    if "\0" in pattern:
        text = "".join(f"{each}\0" for each in args)
    else:
        text = " ".join(shlex.quote(each) if _TO_QUOTE.search(each) else each for each in args)
    try:
        return compile_fullmatch(pattern)(text)
    except UserError:
        return False


@lru_cache(512)
def _pattern_words(pattern: str) -> tuple[str, ...]:
    try:
        return tuple(shlex.split(pattern))
    except ValueError:
        return ()


def _match_line(command: SimpleCommand, entry: AllowEntry, context: MatchContext) -> str | None:
    """Compare word by word with the pattern of a command line."""
    executable, args = command.executable, command.words[1:]
    words = _pattern_words(entry.pattern)
    if not words or not _is_named(words[0], command, context):
        return None
    wanted, is_open = words[1:], len(words) > 1 and words[-1] == "*"
    wanted = wanted[:-1] if is_open else wanted
    if len(args) < len(wanted) or (len(args) > len(wanted) and not is_open):
        return None
    if not all(map(_match_word, wanted, args)):
        return None
    if is_wrapper(executable):
        return f"{executable.name} runs the command that it is given"
    literal = next((i for i, word in enumerate(wanted) if _GLOB.search(word)), len(wanted))
    if literal == len(args) and not is_open:
        return _judge_written_out(executable, args)
    return find_denied_argument(executable, args, literal, context.place, is_explicit=True)


def _is_named(word: str, command: SimpleCommand, context: MatchContext) -> bool:
    if "/" not in word:
        return command.executable.is_looked_up and command.words[0] == word
    if word.startswith(("/", "~/")):
        return _is_program_of(word, command.executable, context)
    return command.words[0] == word


def _match_word(wanted: str, word: str) -> bool:
    if not _GLOB.search(wanted):
        return wanted == word
    if word.startswith("-") and not wanted.startswith("-"):
        return False
    return _match_glob(re.sub(r"\*+", "*", wanted), word)


def _judge_written_out(executable: Executable, args: Sequence[str]) -> str:
    """Every word is the entry's: only code that comes from the input is refused."""
    if is_interpreter(executable) and executable.script is None and not _names_code(args):
        return f"{executable.name} would run what it reads"
    return ""


def _names_code(args: Sequence[str]) -> bool:
    """Return whether an interpreter is told what to run, or only prints something."""
    return bool(args) and (args[0] in ("-m", "--version", "-V", "-v", "--help", "test", "run"))
