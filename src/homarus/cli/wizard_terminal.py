"""Show the steps of a wizard at the terminal, or read the answers from standard input.

Choices are numbered, so that they work with every terminal and with screen readers. Where the
terminal can move its cursor, the arrow keys step through them, and lines can be edited.
"""

import asyncio
import os
import shutil
import sys
from getpass import getpass
from signal import SIGINT, default_int_handler, signal
from typing import TYPE_CHECKING, Any

import click

from homarus.cli.terminal import BOLD, CLEAR_LINE, PLAIN, colour_wanted
from homarus.cli.text_layout import wrap
from homarus.core.errors import HomarusError
from homarus.core.message import Json
from homarus.core.text import closest_names

if TYPE_CHECKING:
    from homarus.gateway.wizard.step import WizardStep

_YES, _NO = frozenset({"y", "yes"}), frozenset({"n", "no"})


class WizardStoppedError(Exception):
    """The person pressed Ctrl-C or Ctrl-D, or the input ended."""


class TerminalPrompter:
    """A person at a terminal; without one, lines of standard input."""

    is_interactive = True

    def __init__(self) -> None:
        self._is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        self._has_cursor = self._is_terminal and os.environ.get("TERM", "dumb") != "dumb"
        self._has_styles = colour_wanted(sys.stdout)
        self._has_progress = False  # a progress line without an end is shown

    async def ask(self, step: "WizardStep") -> Json:
        self._clear_progress()
        match step.type:
            case "select":
                return await self._select(step)
            case "confirm":
                return await self._confirm(step)
            case "text":
                return await self._text(step)
        self._heading(step)
        return None

    def show_progress(self, step: "WizardStep") -> None:
        if self._has_cursor:
            click.echo(f"{CLEAR_LINE}{step.message}", nl=False)
            sys.stdout.flush()
        elif not self._has_progress:
            click.echo(step.message)
        self._has_progress = True

    def reject(self, step: "WizardStep", error: HomarusError) -> None:
        del step
        self._complain(error.message, error.fix)

    def _complain(self, message: str, fix: str = "") -> None:
        click.echo(f"! {message}" + (f" ({fix})" if fix else ""))

    def _clear_progress(self) -> None:
        if self._has_progress and self._has_cursor:
            click.echo(CLEAR_LINE, nl=False)
        self._has_progress = False

    def _heading(self, step: "WizardStep") -> None:
        title = f"{BOLD}{step.title}{PLAIN}" if self._has_styles else step.title
        click.echo(f"\n{title}")
        for line in step.message.splitlines():
            for row in self._wrap(line):
                click.echo(f"  {row}")

    def _wrap(self, line: str) -> list[str]:
        """Return a line in rows of the terminal; a link stays whole, so that it can be opened."""
        if not self._is_terminal or "://" in line:
            return [line]
        columns = shutil.get_terminal_size().columns - len("  ")
        return ["".join(text for text, _ in row) for row in wrap([(line, "")], columns)]

    async def _select(self, step: "WizardStep") -> str:
        self._heading(step)
        options = step.options
        for number, option in enumerate(options, 1):
            hint = f" ({option.hint})" if option.hint else ""
            click.echo(f"  {number:>2}. {option.label}{hint}")
        values = [option.value for option in options]
        default = values.index(step.initial) + 1 if step.initial in values else 0
        labels = [f"{number} {option.label}" for number, option in enumerate(options, 1)]
        while True:
            shown = f" [{default}]" if default else ""
            typed = (await self._read(f"Number{shown}: ", choices=labels)).strip()
            word = typed.split(" ", 1)[0].rstrip(".")
            if not typed and default:
                return values[default - 1]
            if word.isdecimal() and 1 <= int(word) <= len(values):
                return values[int(word) - 1]
            if typed in values:
                return typed
            near = closest_names(typed, values) if typed else ()
            hint = f"did you mean {' or '.join(near)}?" if near else ""
            self._complain(f"Type a number from 1 to {len(values)}.", hint)

    async def _confirm(self, step: "WizardStep") -> bool:
        self._heading(step)
        shown = {True: " [Y/n]", False: " [y/N]"}.get(step.initial, "")
        while True:
            typed = (await self._read(f"Yes or no{shown}: ")).strip().lower()
            if not typed and isinstance(step.initial, bool):
                return step.initial
            if typed in _YES | _NO:
                return typed in _YES
            self._complain("Type yes or no.")

    async def _text(self, step: "WizardStep") -> str:
        self._heading(step)
        example = f" (for example {step.placeholder})" if step.placeholder else ""
        shown = f" [{step.initial}]" if step.initial else example
        prompt = f"Not shown{shown}: " if step.sensitive else f"Answer{shown}: "
        typed = await self._read(prompt, is_hidden=step.sensitive)
        return typed if typed.strip() or step.initial is None else str(step.initial)

    async def _read(self, prompt: str, *, is_hidden: bool = False, choices: Any = ()) -> str:
        await asyncio.sleep(0)  # a Ctrl-C since the last question ends the wizard here
        try:
            if self._has_cursor:
                return await _read_line(prompt, is_hidden=is_hidden, choices=choices)
            return self._read_plainly(prompt, is_hidden=is_hidden)
        except (EOFError, KeyboardInterrupt):
            raise WizardStoppedError from None

    def _read_plainly(self, prompt: str, *, is_hidden: bool) -> str:
        before = signal(SIGINT, default_int_handler)  # the event loop would wait for the line
        try:
            if not self._is_terminal:
                click.echo(prompt, nl=False)
                sys.stdout.flush()
                line = sys.stdin.readline()
                click.echo()
                if not line:
                    raise EOFError
                return line.rstrip("\n")
            return getpass(prompt) if is_hidden else input(prompt)
        finally:
            signal(SIGINT, before)


async def _read_line(prompt: str, *, is_hidden: bool, choices: Any) -> str:
    """Read a line that can be edited; Up and Down step through the choices."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.key_binding import KeyBindings
    from prompt_toolkit.output.vt100 import Vt100_Output

    keys, position = KeyBindings(), 0

    def step(event: Any, by: int) -> None:
        nonlocal position
        position = (position + by - (1 if not position and by < 0 else 0)) % (len(choices) + 1)
        position = position or (1 if by > 0 else len(choices))
        event.current_buffer.text = choices[position - 1]
        event.current_buffer.cursor_position = len(choices[position - 1])

    if choices:
        keys.add("down")(lambda event: step(event, 1))
        keys.add("up")(lambda event: step(event, -1))
    output = Vt100_Output.from_pty(sys.stdout, term=os.environ.get("TERM"))
    output.enable_cpr = False  # no question to the terminal: not every one answers
    session: PromptSession[str] = PromptSession(output=output, key_bindings=keys)
    return await session.prompt_async(prompt, is_password=is_hidden)
