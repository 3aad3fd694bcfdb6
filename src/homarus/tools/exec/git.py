"""Run git so that a repository's own settings start no program.

`git status` in a repository runs what the repository's config names as its file watcher; hooks,
pagers, external diff programs and transports are other ways. The settings that can be overridden
are overridden in the argument list that is executed.
"""

from typing import Final

# No setting of the machine, no prompt, no program of another repository's choice.
GIT_ENV: Final = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
}
_OPTIONS: Final = (
    "-c",
    "core.fsmonitor=false",
    "-c",
    "core.hooksPath=/dev/null",
    "-c",
    "protocol.ext.allow=never",
    "-c",
    "log.showSignature=false",
    "--no-pager",
)
_DIFF_OPTIONS: Final = ("--no-ext-diff", "--no-textconv")
_DIFF_COMMANDS: Final = frozenset(("diff", "log", "show", "whatchanged", "format-patch"))


def hardened_git_words(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a git command with the options that keep it from running programs."""
    rest = words[1:]
    if rest and rest[0] in _DIFF_COMMANDS:
        rest = (rest[0], *_DIFF_OPTIONS, *rest[1:])
    elif rest and rest[0] == "blame":
        rest = (rest[0], "--no-textconv", *rest[1:])
    return (words[0], *_OPTIONS, *rest)
