"""Run git so that a repository's own settings start no program.

`git status` in a repository runs what the repository's config names as its file watcher; hooks,
pagers, external diff programs and transports are other ways. What can be overridden is overridden
in the argument list that is executed; a repository whose config has other settings than the
harmless ones gets no command without a question.
"""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from homarus.tools.exec.executable import is_beneath, open_file

# No setting of the machine, no prompt, no transport that runs a program of the address.
GIT_ENV: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
}
_SETTINGS: Final = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "protocol.ext.allow=never",
    "safe.bareRepository=explicit",
    "diff.ignoreSubmodules=dirty",
    "fetch.recurseSubmodules=false",
)
_OPTIONS: Final = (*(word for each in _SETTINGS for word in ("-c", each)), "--no-pager")
_DIFF_OPTIONS: Final = ("--no-ext-diff", "--no-textconv")
_DIFF_COMMANDS: Final = frozenset(("diff", "log", "show", "whatchanged", "format-patch"))
HARDENING: Final = (
    "git runs without hooks, file watcher, pager, external diff programs and submodules"
)

_MAX_CONFIG_BYTES: Final = 200_000
_MAX_PATH_BYTES: Final = 4_096
_SECTION: Final = re.compile(r'\[([A-Za-z0-9-]+)(?:[ \t]+"(?:[^"\\\n]|\\.)*")?\]')
_KEY: Final = re.compile(r"([A-Za-z][A-Za-z0-9-]*)[ \t]*(?:=[^\n]*)?")
# Settings that start nothing and lead nowhere, by section.
_HARMLESS: Final = {
    section: frozenset(keys.split())
    for section, keys in {
        "core": "repositoryformatversion filemode bare logallrefupdates ignorecase symlinks"
        " autocrlf precomposeunicode eol safecrlf fsmonitor hookspath abbrev quotepath compression"
        " untrackedcache whitespace sharedrepository preloadindex longpaths fscache"
        " sparsecheckout sparsecheckoutcone commentchar bigfilethreshold",
        "remote": "url fetch pushurl push tagopt prune mirror skipdefaultupdate gh-resolved",
        "branch": "remote merge rebase pushremote description vscode-merge-base gh-merge-base"
        " github-pr-owner-number",
        "user": "name email",
        "init": "defaultbranch",
        "pull": "rebase ff",
        "push": "default autosetupremote followtags",
        "fetch": "prune prunetags parallel",
        "submodule": "active url branch ignore",
        "extensions": "objectformat worktreeconfig",
        "rerere": "enabled autoupdate",
        "merge": "conflictstyle ff renamelimit",
        "rebase": "autosquash autostash",
        "diff": "colormoved renames algorithm mnemonicprefix renamelimit",
        "status": "showuntrackedfiles short branch",
        "log": "date follow",
        "color": "ui diff status branch",
        "advice": "detachedhead addignoredfile statushints skippedcherrypicks",
        "lfs": "repositoryformatversion",
        "index": "version threads",
        "feature": "manyfiles",
        "gc": "auto",
        "maintenance": "auto strategy",
        "safe": "directory",
    }.items()
}


def hardened_git_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a git command with the options that keep it from running programs."""
    rest = words[1:]
    if rest and rest[0] in _DIFF_COMMANDS:
        rest = (rest[0], *_DIFF_OPTIONS, *rest[1:])
    elif rest and rest[0] == "blame":
        rest = (rest[0], "--no-textconv", *rest[1:])
    return (words[0], *_OPTIONS, *rest)


def find_repository_risk(folder: str, workspace: str, home: str) -> str:
    """Return the setting of the repository of a folder that may run something; "" without one.

    The person's own config is trusted, unless the agent can write it.
    """
    try:
        for path in _config_files(folder, workspace, home):
            with suppress(FileNotFoundError, NotADirectoryError):
                if risk := _find_risk(_read(path, _MAX_CONFIG_BYTES + 1)):
                    return f"{path} has {risk}"
    except OSError as exc:
        return f"the settings of the repository cannot be read: {exc.strerror or exc}"
    return ""


def _read(path: str, max_bytes: int) -> bytes:
    """Read a regular file; a pipe would make us wait."""
    fd = open_file(path)
    try:
        return os.read(fd, max_bytes)
    finally:
        os.close(fd)


def _read_path(path: str) -> str:
    return _read(path, _MAX_PATH_BYTES).decode("utf-8", "replace").strip()


def _config_files(folder: str, workspace: str, home: str) -> Iterator[str]:
    """Yield the files to read, some of which may not exist. Called for every git command."""
    for path in (f"{home}/.gitconfig", f"{home}/.config/git/config"):
        # A file that is missing is not read by git either.
        if home and os.path.lexists(path) and is_beneath(os.path.realpath(path), workspace):
            yield path
    each = folder.rstrip("/")
    while True:
        found = f"{each}/.git"
        kind = _file_kind(found)
        if kind == stat.S_IFDIR:
            yield from (f"{found}/config", f"{found}/config.worktree")
            return
        if kind:
            own = _join(each, _read_path(found).removeprefix("gitdir:").strip())
            yield from (f"{own}/config", f"{own}/config.worktree")
            if _file_kind(common := f"{own}/commondir") == stat.S_IFREG:
                yield f"{_join(own, _read_path(common))}/config"
            return
        if not each:
            return
        each = each.rpartition("/")[0]


def _join(folder: str, path: str) -> str:
    return os.path.join(folder or "/", path)  # noqa: PTH118 - pathlib costs more


def _file_kind(path: str) -> int:
    """Return the type of a file, links followed; 0 without one."""
    try:
        return stat.S_IFMT(os.stat(path).st_mode)  # noqa: PTH116 - called for every folder
    except (FileNotFoundError, NotADirectoryError):
        return 0


def _find_risk(data: bytes) -> str:
    if len(data) > _MAX_CONFIG_BYTES:
        return "more settings than are read"
    section = ""
    for raw in data.decode("utf-8", "replace").splitlines():
        line = raw.strip()
        if found := _SECTION.match(line):
            section, line = found[1].lower(), line[found.end() :].strip()
        if not line or line.startswith(("#", ";")):
            continue
        key = _KEY.fullmatch(line)
        if key is None or line.endswith("\\"):
            return "a line that is not understood"
        if key[1].lower() not in _HARMLESS.get(section, frozenset()):
            return f"the setting {section}.{key[1]}"
    return ""
