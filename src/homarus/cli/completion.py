"""`homarus completion`: scripts with which a shell completes our command lines.

The script calls `homarus` with the command line in the environment, and click finds what could come
next. Bash splits words at `:`, which session keys contain, so its script sends the line itself.
"""

import os
from typing import ClassVar

import click
from click.shell_completion import (
    BashComplete,
    FishComplete,
    ShellComplete,
    ZshComplete,
    split_arg_string,
)

from homarus.cli.command_group import examples
from homarus.cli.main import COMPLETE_VARIABLE, group

_BASH = """\
%(complete_func)s() {
    local line="${COMP_LINE:0:$COMP_POINT}" response type value
    local word="${line##*[[:space:]]}"
    [[ $word == --*=* ]] && word="${word#*=}"
    local typed=""  # bash replaces only what follows the last colon
    [[ $COMP_WORDBREAKS == *:* && $word == *:* ]] && typed="${word%%"${word##*:}"}"
    COMPREPLY=()
    response=$(COMP_LINE="$line" %(complete_var)s=bash_complete "$1" 2>/dev/null) || return 0
    while IFS=, read -r type value; do
        case $type in
            dir) compopt -o dirnames 2>/dev/null ;;
            file) compopt -o default 2>/dev/null ;;
            plain) COMPREPLY+=("${value#"$typed"}") ;;
        esac
    done <<< "$response"
}
complete -o nosort -F %(complete_func)s %(prog_name)s 2>/dev/null ||
    complete -F %(complete_func)s %(prog_name)s
"""


class LineBashComplete(BashComplete):
    """Completes the line up to the cursor, however bash splits it into words."""

    source_template: ClassVar[str] = _BASH

    def source(self) -> str:
        return ShellComplete.source(self)  # without looking for bash: it may be another machine's

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = split_arg_string(line)[1:]
        if not words or line[-1:].isspace():
            return words, ""
        return words[:-1], words[-1]


SHELLS: dict[str, type[ShellComplete]] = {
    "bash": LineBashComplete,
    "fish": FishComplete,
    "zsh": ZshComplete,
}


@click.command("completion")
@examples(
    'eval "$(homarus completion bash)"',
    "homarus completion zsh > ~/.zfunc/_homarus",
    "homarus completion fish > ~/.config/fish/completions/homarus.fish",
)
@click.argument("shell", metavar="SHELL", type=click.Choice(list(SHELLS)))
def command(shell: str) -> None:
    """Print a completion script for bash, zsh or fish.

    To install it for bash, add `eval "$(homarus completion bash)"` to ~/.bashrc. For zsh, add
    `eval "$(homarus completion zsh)"` to ~/.zshrc after compinit. For fish, write the script to
    ~/.config/fish/completions/homarus.fish. Then start a new shell.
    """
    click.echo(_make(shell).source(), nl=False)


def answer_shell() -> int:
    """Print what can follow on the command line of a shell, and return the exit status."""
    shell, _, action = os.environ.pop(COMPLETE_VARIABLE).partition("_")
    if shell not in SHELLS or action != "complete":
        return 1
    click.echo(_make(shell).complete())
    return 0


def _make(shell: str) -> ShellComplete:
    return SHELLS[shell](group, {}, "homarus", COMPLETE_VARIABLE)
