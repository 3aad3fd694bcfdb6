"""Judge the arguments of a program: they run nothing else, and reach nothing but the workspace.

The rules are data (`arg_rules.txt`). An option that is not listed is refused, also an abbreviation
of a listed one, and every letter of a bundle like `-la` is judged.
"""

import os
import re
from collections.abc import Sequence
from typing import Final

from homarus.core.fast_dataclass import dataclass
from homarus.tools.exec.arg_rules import ArgRule, arg_rules, parse_rule
from homarus.tools.exec.executable import (
    Executable,
    find_program,
    is_beneath,
    program_name,
    real_path,
)

# Programs that stand for many, by the name they are called with.
_MULTI_CALL: Final = frozenset(("busybox", "toybox", "coreutils", "uutils"))
_CODE_PREFIXES: Final = ("ld-", "ld.so", "git-", "python", "perl", "ruby", "lua", "php", "vim")
_USUAL_LETTERS: Final = frozenset("cefioxrCDEFIKLOPRSTWX")
_NUMBER: Final = re.compile(r"-\d+")
_ADDRESS: Final = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_REMOTE: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_REFSPEC: Final = re.compile(r"\+?[A-Za-z0-9_][A-Za-z0-9_./@+-]*(?::[A-Za-z0-9_./@+-]*)?")
# What operands of a kind look like.
_KINDS: Final = {
    "none": re.compile(r"(?!)"),
    "numbers": re.compile(r"[+-]?\d+(?:\.\d+)?[a-zA-Z%]{0,3}"),
    "names": re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.:@,-]|/(?!/))*"),
    "ps": re.compile(r"a?u?x?[fw]*"),  # `ps e` would show the environment of other processes
    "format": re.compile(r"\+.*", re.DOTALL),
    "url": re.compile(r"https?://[^\s{}\[\]]+"),
}
_GIT_KINDS: Final = frozenset(("remote", "remotes", "reflog", "stash", "worktree"))
_SED: Final = re.compile(
    r"(?:(?:\d+|\$)(?:,(?:\d+|\$))?|/[^/\\\n]*/)?[pdq]|"
    + "|".join(
        rf"s{d}(?:[^{d}\\\n]|\\[^{d}\n])*{d}(?:[^{d}\\\n]|\\[0-9&])*{d}[gp0-9]*"
        for d in ("/", r"\|", "#")
    )
)
_AWK: Final = re.compile(
    r"\s*(?:NR\s*(?:==|!=|<=|>=|<|%)\s*\d+|NF|/[\w .:-]*/)?"
    r"\s*(?:\{\s*print(?:\s*(?:\$(?:\d+|NF)|NR|NF|\"[\w :,.=-]*\"|,))*\s*\})?\s*"
)
_JQ_DENIED: Final = re.compile(
    r"\benv\b|\$ENV|\bimport\b|\binclude\b|\binput|\bget_search_list|\$__prog|\bmodulemeta"
)
_PATTERN_OPTIONS: Final = frozenset(("-e", "--regexp", "--files", "--type-list"))


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command runs: relative paths are in `folder`, bare names are looked up in `path`."""

    folder: str
    workspace: str
    path: str

    def has(self, name: str) -> bool:
        """Return whether the folder has a file or folder of that name."""
        return os.path.lexists(f"{self.folder}/{name}")

    def contains(self, path: str) -> bool:
        """Return whether a path leads into the workspace, also after links are followed."""
        if path == "/dev/null":
            return True
        if path.startswith("~") or "\0" in path:
            return False
        full = os.path.join(self.folder, path)  # noqa: PTH118 - pathlib would cost more
        return is_beneath(real_path(full), self.workspace)


@dataclass(frozen=True, slots=True)
class _ReadArguments:
    """Arguments taken apart; each operand has whether it is judged."""

    operands: Sequence[tuple[str, bool]]
    options: frozenset[str]
    values: Sequence[str]

    @property
    def judged(self) -> list[str]:
        return [text for text, is_judged in self.operands if is_judged]


def program_names(executable: Executable) -> frozenset[str]:
    """Return the names that a program is known by: as found, and of the real file."""
    found = executable.path.rpartition("/")[2]
    real = executable.real_path.rpartition("/")[2]
    names = (found,) if program_name(real) in _MULTI_CALL and found != real else (found, real)
    return frozenset(names) | frozenset(program_name(each) for each in names)


def runs_other_code(executable: Executable) -> bool:
    """Return whether a program runs other programs or code by its purpose."""
    names = program_names(executable)
    return bool(names & arg_rules().denied) or any(e.startswith(_CODE_PREFIXES) for e in names)


def is_wrapper(executable: Executable) -> bool:
    """Return whether a program runs the command that its operands are."""
    names = program_names(executable)
    return bool(names & arg_rules().wrappers) or any(e.startswith(("ld-", "ld.so")) for e in names)


def is_interpreter(executable: Executable) -> bool:
    """Return whether a program runs a file that its operand names."""
    return bool(program_names(executable) & arg_rules().interpreters)


def runs_project_code(executable: Executable) -> bool:
    """Return whether a program runs what files of the project say, which the agent may change."""
    names = program_names(executable)
    return bool(names & arg_rules().project_runners) or is_interpreter(executable)


def find_denied_argument(
    executable: Executable, args: Sequence[str], literal: int, place: Place, *, is_explicit: bool
) -> str:
    """Return why the arguments are refused; "" when they are allowed.

    The first `literal` arguments are those that an entry writes out: they are not judged.
    `is_explicit`: the entry is a command line, so the program's purpose is known to its author.
    """
    names, rules = program_names(executable), arg_rules()
    if "git" in names:
        return _judge_git(args, literal, place)
    if runs_other_code(executable):
        line = _runner_rule(names, args[:literal]) if is_explicit else None
        if line is None:
            return f"{executable.name} runs other programs or code"
        return judge_arguments(line, args, literal, place)
    line = next((rules.programs[each] for each in sorted(names) if each in rules.programs), None)
    if line is None and "/sbin/" in executable.real_path:
        return f"{executable.name} is a program for administrators"
    if line is None:
        return _judge_unknown(args, literal, place)
    return judge_arguments(line, args, literal, place)


def _runner_rule(names: frozenset[str], written: Sequence[str]) -> str | None:
    """Return the rule for the program and the words that an entry writes out."""
    runners = arg_rules().runners
    lines = (" ".join((name, *written[:count])) for name in names for count in (2, 1, 0))
    return next((runners[line] for line in lines if line in runners), None)


def _judge_git(args: Sequence[str], literal: int, place: Place) -> str:
    if args and args[0] == "--no-pager":
        return _judge_git(args[1:], max(literal - 1, 0), place)
    if not args or list(args) == ["--version"]:
        return ""
    line = arg_rules().git.get(args[0])
    writing = arg_rules().git_writing.get(args[0]) if literal else None
    if line is None and writing is None:
        return f"git {args[0]} may change the repository or run something"
    reason = judge_arguments(line, args[1:], literal - 1, place) if line else ""
    if writing and (reason or line is None):
        reason = judge_arguments(writing, args[1:], literal - 1, place)
    if not reason and args[0] == "commit" and not {"--no-edit", "--dry-run"} & set(args):
        has_message = any(re.match(r"-[aqsvn]*m|--message\b", each) for each in args[1:])
        reason = "" if has_message else "git commit without -m starts an editor"
    return reason


def judge_arguments(line: str, args: Sequence[str], literal: int, place: Place) -> str:
    """Return why an argument is refused by a rule, "" when none is."""
    rule = parse_rule(line)
    found = _read(rule, args, literal)
    if isinstance(found, str):
        return found
    if any(each.startswith("@") for each in found.values):
        return "a value that starts with @ names a file"
    if any("%G" in each or "signature" in each for each in found.values):
        return "a format with signatures runs a program"
    return _judge_operands(rule.operands, found, place)


def _read(rule: ArgRule, args: Sequence[str], literal: int) -> "_ReadArguments | str":
    """Take arguments apart, or return why an option is refused."""
    operands: list[tuple[str, bool]] = []
    options: set[str] = set()
    values: list[str] = []
    rest = iter(enumerate(args))
    for index, each in rest:
        if each == "--":
            operands += [(text, later >= literal) for later, text in rest]
        elif each == "-" or not each.startswith("-"):
            operands.append((each, index >= literal))
        elif (taken := _read_option(rule, each)) is not None:
            options |= taken.options
            values += taken.values
            for _ in range(taken.missing):
                if (following := next(rest, None)) is None:
                    return f"the option {each} has no value"
                values += [following[1]] if following[0] >= literal else []
        elif index >= literal:
            return f"the option {each} is not one of those that are known to be harmless"
    return _ReadArguments(operands, frozenset(options), values)


@dataclass(frozen=True, slots=True)
class _ReadOption:
    options: frozenset[str]
    missing: int = 0  # how many of the next words are its values
    values: tuple[str, ...] = ()


def _read_option(rule: ArgRule, text: str) -> _ReadOption | None:
    """Take one option apart; None when it is not allowed."""
    name, has_value, value = text.partition("=")
    if text in rule.flags or (rule.has_numbers and _NUMBER.fullmatch(text)):
        return _ReadOption(frozenset((text,)))
    if name in rule.values and (len(name) > 2 or not has_value):
        return _ReadOption(frozenset((name,)), 0 if has_value else 1, (value,) * bool(has_value))
    if name in rule.optional and (len(name) > 2 or not has_value):
        return _ReadOption(frozenset((name,)), 0, (value,) * bool(has_value))
    if text in rule.pairs:
        return _ReadOption(frozenset((text,)), 2)
    if text.startswith("--"):
        return None
    seen: set[str] = set()
    for index, letter in enumerate(text[1:], 2):
        seen.add(option := f"-{letter}")
        own = text[index:]
        if option in rule.values:
            return _ReadOption(frozenset(seen), 0 if own else 1, (own,) if own else ())
        if option in rule.optional:
            return _ReadOption(frozenset(seen), 0, (own,) if own else ())
        if option not in rule.flags:
            return None
    return _ReadOption(frozenset(seen))


def _judge_operands(kind: str, found: _ReadArguments, place: Place) -> str:
    judged = found.judged
    if kind in _KINDS:
        is_fine = all(_KINDS[kind].fullmatch(each) and "::" not in each for each in judged)
        return "" if is_fine else f"operands have to be of the kind {kind}: {judged[0]}"
    if kind in _GIT_KINDS:
        return _judge_git_operands(kind, found, place)
    if kind in ("sed", "awk", "jq"):
        return _judge_script(kind, found, place)
    if kind == "text":
        return ""
    if kind == "tar":
        judged = [*found.values, *judged]
        if not found.values or any(":" in each for each in found.values):
            return "tar may only list an archive of the workspace"
    elif kind == "find":
        judged = [each for each in judged if each not in ("(", ")", "!", ",")]
    elif kind == "pattern" and not found.options & _PATTERN_OPTIONS:
        judged = [text for text, is_judged in found.operands[1:] if is_judged]
    return _judge_paths(judged, place)


def _judge_paths(paths: Sequence[str], place: Place) -> str:
    outside = next((each for each in paths if each != "-" and not place.contains(each)), None)
    return "" if outside is None else f"{outside} is not in the workspace"


def _judge_git_operands(kind: str, found: _ReadArguments, place: Place) -> str:
    words = [text for text, _ in found.operands]
    match kind:
        case "remote":
            is_fine = not words or (
                words[0] in ("show", "get-url") and all(map(_KINDS["names"].fullmatch, words))
            )
            return "" if is_fine else "git remote may only list"
        case "reflog":
            is_fine = not words or words[0] not in ("expire", "delete", "drop", "exists", "write")
            return "" if is_fine and not any("/" in each for each in words) else "only git reflog"
        case "stash":
            is_fine = bool(words) and words[0] in ("list", "show")
            return "" if is_fine else "git stash may only list and show"
        case "worktree":
            return "" if words == ["list"] else "git worktree may only list"
    is_fine = not words or _REMOTE.fullmatch(words[0]) is not None
    is_fine = is_fine and not (words and place.has(words[0]))  # a repository next to this one
    is_fine = is_fine and all(_REFSPEC.fullmatch(e) and "::" not in e for e in words[1:])
    return "" if is_fine else "only names of remotes and branches are allowed"


def _judge_script(kind: str, found: _ReadArguments, place: Place) -> str:
    """Return why the operands of a program with a language of its own are refused."""
    has_option = kind == "sed" and bool(found.options & {"-e", "--expression"})
    scripts = list(found.values) if has_option else [text for text, _ in found.operands[:1]]
    files = found.operands if has_option else found.operands[1:]
    if kind == "sed" and not all(_SED.fullmatch(each) for each in scripts):
        return "only printing lines and plain substitutions are known to be harmless in sed"
    if kind == "awk" and not all(_AWK.fullmatch(each) for each in scripts):
        return "only printing fields is known to be harmless in awk"
    if kind == "jq" and any(_JQ_DENIED.search(each) for each in scripts):
        return "the filter reads variables or files"
    return _judge_paths([text for text, is_judged in files if is_judged], place)


def _judge_unknown(args: Sequence[str], literal: int, place: Place) -> str:
    """Judge the arguments of a program without a rule: by what options usually mean."""
    for each in args[literal:]:
        if each.startswith("--") and each != "--":
            name, _, value = each[2:].lower().partition("=")
            if len(name) < 2 or any(_is_like(name, bad) for bad in arg_rules().usual_options):
                return f"the option {each} may run, read or write something"
            if value and not place.contains(value):
                return f"{each} names something outside the workspace"
        elif each.startswith("-") and len(each) > 1:
            if _USUAL_LETTERS & set(each[1:]):
                return f"the option {each} may run, read or write something"
        elif each[:1] in tuple("+@!|<>:=") or each.endswith("|") or _ADDRESS.match(each):
            return f"the operand {each} may be more than a name"
        elif "=" in each or "::" in each or not place.contains(each):
            return f"{each} is not in the workspace"
        elif find_program(each, place.folder, place.path) is not None:
            return f"it may run {each}"
    return ""


def _is_like(name: str, bad: str) -> bool:
    """Return whether an option is a denied one, an abbreviation of it, or one of its family."""
    return bad.startswith(name) or name.startswith(bad) or bad in re.split(r"[-_.]", name)
