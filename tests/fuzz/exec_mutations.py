"""Change commands that must not run without a question, in the ways that have fooled parsers.

mutate(random.Random(1), "git diff --output=pwned")   # "git\\tdiff --outp=pwned; git status"
"""

import random
import re
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

Mutation: TypeAlias = Callable[[random.Random, str], str]

_SPACES: Final = (
    " ",
    "  ",
    "\t",
    "\n",
    "\r\n",
    "\x0b",
    "\x0c",
    "\u00a0",
    "\u2003",
    "\u200b",
    "\u2028",
)
_HIDDEN: Final = (
    "\u200b",
    "\u200d",
    "\u202e",
    "\u2066",
    "\ufeff",
    "\u00ad",
    "\0",
    "\x1b",
    "\u0301",
)
_LOOKALIKES: Final = {
    "a": "а", "c": "с", "e": "е", "o": "о", "p": "р", "x": "х", "i": "і", "-": "–", "/": "∕",
    ";": ";", "|": "｜", "&": "＆", ".": "․", "g": "ɡ", "t": "ｔ", "s": "ѕ",
}  # fmt: skip
_WRAPPERS: Final = (
    "env",
    "env -i",
    "env A=1",
    "env -S",
    "nice",
    "nice -n 5",
    "nohup",
    "timeout 5",
    "timeout -k 1 5",
    "setsid",
    "setsid -w",
    "stdbuf -oL",
    "time",
    "command",
    "exec",
    "builtin",
    "eval",
    "xargs",
    "flock x",
    "busybox",
    "busybox sh -c",
    "strace",
    "sudo",
    "doas",
    "ionice",
    "chrt -o 0",
    "script -c",
    "unshare -r",
    "/usr/bin/env",
    "./evil.sh",
    "nice nice",
    "timeout 5 env",
    "env timeout 5",
    "watch",
    "parallel",
    "coproc",
    "!",
    "then",
    "find . -exec",
    "git",
    "bash",
    "sh",
    "ld.so",
)
_PREFIXES: Final = (
    "A=1",
    "PATH=./evilbin",
    "PATH=.",
    "GIT_DIR=evilrepo/.git",
    "GIT_EXTERNAL_DIFF=./evil.sh",
    "GIT_PAGER='touch pwned'",
    "LD_PRELOAD=./x.so",
    "HOME=./evilhome",
    "BASH_ENV=./evil.sh",
    "A+=1",
    "IFS=x",
    "export A=1;",
    "a[0]=1",
    "GIT_EXEC_PATH=./evilbin",
    "LC_ALL=C",
)
_TAILS: Final = (
    "touch pwned",
    "tee pwned",
    "./evil.sh",
    "sh evil.sh",
    "python3 evil.py",
    "cat secret.txt",
    "git -c core.fsmonitor=./evil.sh status",
    "awk -f evil.awk a.txt",
    "sed -f evil.sed a.txt",
    "make -f evil.mk",
    "find . -name scratch -delete",
    "sort -o pwned a.txt",
    "cp a.txt pwned",
)
_JOINS: Final = (
    ";",
    "&&",
    "||",
    "|",
    "&",
    "|&",
    "\n",
    "\r\n",
    ";;",
    " ; ",
    " \\; ",
    "';'",
    "\u037e",
    "%0a",
)
_SUBSTITUTIONS: Final = (
    "$(touch pwned)",
    "`touch pwned`",
    "${x:-$(touch pwned)}",
    "<(touch pwned)",
    ">(tee pwned)",
    "$((a[$(touch pwned)]))",
    "> pwned",
    ">>pwned",
    "2>pwned",
    "&>pwned",
    "< secret.txt",
    "<<<x",
    "$SECRET_TOKEN",
    '"$(touch pwned)"',
    "$'\\x74ouch'",
    "{a,b}",
    "~/secret.txt",
    "*",
    "?",
    "[a-z]*",
    "$0",
    "$@",
    "#",
    "!!",
    "\\",
    "\\\n",
    "'",
    '"',
)
_OPTIONS: Final = (
    "--output=pwned",
    "--outp=pwned",
    "-o pwned",
    "-opwned",
    "--ext-diff",
    "--textconv",
    "--no-index",
    "-c core.pager='touch pwned'",
    "-c alias.x='!touch pwned'",
    "-C evilrepo",
    "--exec-path=./evilbin",
    "-exec touch pwned ';'",
    "-execdir touch pwned ';'",
    "-delete",
    "-fls pwned",
    "-fprintf pwned x",
    "--files0-from=secret.txt",
    "--compress-program=./evil.sh",
    "--compress-prog=./evil.sh",
    "-i",
    "-e '1e touch pwned'",
    "-f evil.sed",
    "-n -i",
    "-ni",
    "-n -e 'w pwned'",
    "--to-command='touch pwned'",
    "-I 'touch pwned'",
    "--checkpoint=1",
    "--checkpoint-action=exec='touch pwned'",
    "-T secret.txt",
    "--rsh-command=./evil.sh",
    "-P 'touch pwned'",
    "--pre ./evil.sh",
    "-x touch pwned",
    "--filter='touch pwned'",
    "--upload-pack='touch pwned;'",
    "-K evil.curl",
    "-p",
    "--paginate",
    "-O./evil.sh",
    "-O ./evil.sh",
    "--open-files-in-pager=./evil.sh",
    "-- secret.txt",
    "--",
    "-",
    "@secret.txt",
    "file://secret.txt",
    "/etc/passwd",
    "../x",
    "--format=%G?",
    "-c",
    "-e",
    "-S 'touch pwned'",
    "--config-env=a=b",
    "--git-dir=evilrepo/.git",
    "--work-tree=/",
    "--exec='touch pwned'",
    "-r ./evil.js",
    "-W exec evil.awk",
)


def _words(text: str) -> list[str]:
    return re.split(r"( +)", text)


def _change_word(rng: random.Random, text: str, change: Callable[[str], str]) -> str:
    parts = _words(text)
    places = [index for index, part in enumerate(parts) if part.strip()]
    if places:
        index = rng.choice(places)
        parts[index] = change(parts[index])
    return "".join(parts)


def _insert(rng: random.Random, text: str, pieces: Sequence[str]) -> str:
    place = rng.randint(0, len(text))
    return text[:place] + rng.choice(pieces) + text[place:]


def change_space(rng: random.Random, text: str) -> str:
    """Replace, add or double white space."""
    if " " in text and rng.random() < 0.7:
        places = [index for index, ch in enumerate(text) if ch == " "]
        place = rng.choice(places)
        return text[:place] + rng.choice(_SPACES) + text[place + 1 :]
    return _insert(rng, text, _SPACES)


def change_quotes(rng: random.Random, text: str) -> str:
    """Quote a word or a part of it, or break it by empty quotes and backslashes."""

    def change(word: str) -> str:
        place = rng.randint(0, len(word))
        head, tail = word[:place], word[place:]
        forms = (
            f"'{word}'",
            f'"{word}"',
            f"{head}''{tail}",
            f'{head}""{tail}',
            f"{head}\\{tail}",
            f"$'{word}'",
            f'$"{word}"',
            f"'{head}'{tail}",
            f'{head}"{tail}"',
            f"{head}'{tail}",
            "".join(f"\\{ch}" for ch in word),
            f"{head}\\\n{tail}",
        )
        return rng.choice(forms)

    return _change_word(rng, text, change)


def change_characters(rng: random.Random, text: str) -> str:
    """Replace characters by others that look like them, or hide some between them."""
    if rng.random() < 0.5:
        return _insert(rng, text, _HIDDEN)
    places = [index for index, ch in enumerate(text) if ch in _LOOKALIKES]
    if not places:
        return text
    place = rng.choice(places)
    return text[:place] + _LOOKALIKES[text[place]] + text[place + 1 :]


def add_wrapper(rng: random.Random, text: str) -> str:
    """Put the command behind a program that runs it."""
    quoted = text.replace("'", "'\\''")
    forms = (
        f"{rng.choice(_WRAPPERS)} {text}",
        f"{rng.choice(_WRAPPERS)} {text}",
        f"sh -c '{quoted}'",
        f"bash -lc '{quoted}'",
        f"env -S '{quoted}'",
        f"eval '{quoted}'",
        f"bash -c '$0 \"$@\"' {text}",
        f"bash -c 'git status' {text}",
        f"({text})",
        f"{{ {text}; }}",
        f"if true; then {text}; fi",
        f"echo '{quoted}' | sh",
        f"echo {text} | xargs",
    )
    return rng.choice(forms)


def add_prefix(rng: random.Random, text: str) -> str:
    """Set a variable before the command."""
    return f"{rng.choice(_PREFIXES)} {text}"


def change_option(rng: random.Random, text: str) -> str:
    """Abbreviate a long option, bundle short ones, or move its value."""

    def change(word: str) -> str:
        if word.startswith("--"):
            name, sign, value = word.partition("=")
            cut = name[: rng.randint(3, max(3, len(name)))]
            return rng.choice((f"{cut}{sign}{value}", f"{name} {value}", word.upper(), f"-{word}"))
        if word.startswith("-") and len(word) > 1:
            letter = rng.choice("nsvqalrzuhpie")
            forms = (f"-{letter}{word[1:]}", f"{word}{letter}", f"-{word}", f"{word}=x", word[1:])
            return rng.choice(forms)
        return word

    if rng.random() < 0.3:
        return re.sub(r" -(\w) -(\w)", r" -\1\2", text)
    return _change_word(rng, text, change)


def add_option(rng: random.Random, text: str) -> str:
    """Insert a dangerous option or operand after one of the words."""
    parts = text.split(" ")
    place = rng.randint(1, len(parts))
    return " ".join([*parts[:place], rng.choice(_OPTIONS), *parts[place:]])


def add_command(rng: random.Random, text: str) -> str:
    """Join another command to it, before or behind."""
    first, second = text, rng.choice(_TAILS)
    if rng.random() < 0.3:
        first, second = rng.choice(("git status", "echo x", "cat notes.md", "ls -la", "true")), text
    return f"{first}{rng.choice(('', ' '))}{rng.choice(_JOINS)}{rng.choice(('', ' '))}{second}"


def add_expansion(rng: random.Random, text: str) -> str:
    """Insert something that a shell would expand, redirect or take for a comment."""
    piece = rng.choice(_SUBSTITUTIONS)
    if rng.random() < 0.6:
        return f"{text} {piece}"
    return _insert(rng, text, (piece,))


def change_glob(rng: random.Random, text: str) -> str:
    """Replace a character by a pattern that matches it."""
    place = rng.randrange(len(text)) if text else 0
    return text[:place] + rng.choice(("*", "?", "[a-z]", "**")) + text[place + 1 :]


def change_path(rng: random.Random, text: str) -> str:
    """Name a program or a file by another path."""
    forms = ("./", "evilbin/", "/usr/bin/", "/usr/bin/../bin/", ".//", "/proc/self/cwd/", "../ws/")
    return _change_word(rng, text, lambda word: rng.choice(forms) + word)


MUTATIONS: Final[tuple[Mutation, ...]] = (
    change_space,
    change_quotes,
    change_characters,
    add_wrapper,
    add_prefix,
    change_option,
    add_option,
    add_command,
    add_expansion,
    change_glob,
    change_path,
)


def mutate(rng: random.Random, command: str) -> str:
    """Return the command after one to four random changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        command = rng.choice(MUTATIONS)(rng, command)
    return command
