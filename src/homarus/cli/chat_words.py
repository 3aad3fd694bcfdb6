"""The words of a chat's input line: commands that do not exist, and what Tab completes."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from homarus.agent.commands.catalog import BY_NAME, CommandSpec
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import closest_names, escape_controls

LEAVE: Final = ("quit", "exit")
_NAME = re.compile(r"/([A-Za-z][\w-]*)(?=[\s:@]|\Z)", re.ASCII)
_CHOICE = re.compile(r"[a-z][a-z-]*", re.ASCII)
_MAX_FILES: Final = 200
_MAX_SCANNED: Final = 20_000


def check_command(text: str, implemented: Iterable[CommandSpec], others: Iterable[str]) -> None:
    """Raise UserError for a message whose first word looks like a command and is none.

    A path has a second slash or exists: `/etc/hosts` and `/tmp` are text. `others` are the further
    words that the session understands, such as aliases of models.
    """
    found = _NAME.match(text)
    if found is None or (name := found[1].lower()) in {*BY_NAME, *LEAVE}:
        return
    if name in {each.lower().lstrip("/") for each in others} or Path(f"/{found[1]}").exists():
        return
    names = [*(spec.name for spec in implemented), LEAVE[0]]
    close = ", ".join(f"/{each}" for each in closest_names(name, names, min_ratio=0.0))
    raise UserError(
        f"there is no command /{found[1]}; the nearest are {close}",
        fix="/commands lists all; a blank before the slash sends the line to the model",
    )


@dataclass(frozen=True, slots=True)
class WordCompletion:
    """What replaces the last `replaced` characters before the cursor; `help` explains it."""

    text: str
    replaced: int
    help: str = ""


def complete(
    before: str, commands: Sequence[CommandSpec], folders: Sequence[Path]
) -> Iterator[WordCompletion]:
    """Yield what the word before the cursor may become: a command, its argument, or a file.

    Relative file names are searched in all `folders`.
    """
    word = re.split(r"[\s\"'`(]", before)[-1]
    if before == word and word.startswith("/") and "/" not in word[1:]:
        yield from _commands(word, commands)
    else:
        yield from _arguments(before, word)
    if word and not (before == word and word == "/"):
        yield from _files(word, folders)


def _commands(word: str, commands: Sequence[CommandSpec]) -> Iterator[WordCompletion]:
    names = {spec.name: spec.help for spec in commands} | {LEAVE[0]: "Leave the chat."}
    for name, text in names.items():
        if f"/{name}".startswith(word.lower()):
            yield WordCompletion(f"/{name}", len(word), text)


def _arguments(before: str, word: str) -> Iterator[WordCompletion]:
    """Yield the choices for the first argument, where the table of commands has some."""
    command, _, argument = before.partition(" ")
    spec = BY_NAME.get(command[1:].lower()) if command.startswith("/") else None
    if spec is None or argument.strip() != word:
        return
    first = spec.args.strip("[").split(" ")[0].split("]")[0]
    choices = first.split("|")
    if len(choices) > 1 and all(_CHOICE.fullmatch(each) for each in choices):
        yield from (WordCompletion(each, len(word)) for each in choices if each.startswith(word))


def _files(word: str, folders: Sequence[Path]) -> Iterator[WordCompletion]:
    folder, _, start = word.rpartition("/")
    typed = folder or ("/" if word.startswith("/") else "")
    roots = [Path(typed).expanduser()] if typed.startswith(("/", "~")) else [
        root / typed for root in folders
    ]  # fmt: skip
    found = dict[str, bool]()
    for root in roots:
        for name, is_folder in _names(root, start):
            found.setdefault(name, is_folder)
    for name, is_folder in sorted(found.items())[:_MAX_FILES]:
        yield WordCompletion(name + ("/" if is_folder else ""), len(start))


def _names(folder: Path, start: str) -> Iterator[tuple[str, bool]]:
    try:
        with os.scandir(folder) as entries:
            for _, entry in zip(range(_MAX_SCANNED), entries, strict=False):
                is_hidden = entry.name.startswith(".") and not start.startswith(".")
                if entry.name.startswith(start) and not is_hidden and _is_plain(entry.name):
                    yield entry.name, entry.is_dir()
    except (OSError, RuntimeError, ValueError):
        return


def _is_plain(name: str) -> bool:
    """Return whether a name can be shown as it is, on one line."""
    return "\n" not in name and "\t" not in name and escape_controls(name) == name
