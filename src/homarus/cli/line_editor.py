"""The input line of a chat at a terminal: editing, history, completion, text above the line.

Imported only where standard input and output are a terminal. The editor runs as long as the chat:
what is printed meanwhile is printed above it, and never between the characters of its line.
"""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Final

from prompt_toolkit import PromptSession
from prompt_toolkit.application.current import set_app
from prompt_toolkit.application.run_in_terminal import in_terminal
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import completion_is_selected, is_searching
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.history import History
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.key_processor import KeyProcessor
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.styles import Style

from homarus.cli.chat_history import ChatHistoryFile
from homarus.cli.chat_words import WordCompletion

PROMPT: Final = "> "
_PROMPT: Final = ("ansicyan", PROMPT)  # with a colour, the blank is written too
_REDRAW_S: Final = 0.05
# Keys of one read are processed within microseconds; a person needs tens of milliseconds.
_BURST_S: Final = 0.005
_MORE_LINES_S: Final = 0.03  # the next line of a text that was pasted without marks comes sooner
_MENU_LINES: Final = 8
_MIN_TEXT_LINES: Final = 1


_SGR = re.compile(r"\x1b\[([\d;]*)m")
_STYLES: Final = {
    "1": "bold", "2": "dim", "3": "italic", "4": "underline", "9": "strike", "31": "ansired",
    "32": "ansigreen", "33": "ansiyellow", "34": "ansiblue", "35": "ansimagenta", "36": "ansicyan",
}  # fmt: skip


def _parse_styles(text: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a text with their styles in the words of the editor."""
    plain, *styled = _SGR.split(text)
    yield "", plain
    for codes, part in zip(styled[::2], styled[1::2], strict=True):
        yield " ".join(_STYLES.get(code, "") for code in codes.split(";")), part


@contextmanager
def without_echo() -> Iterator[None]:
    """Have what is typed before the editor starts not be shown twice: it is read by the editor."""
    import termios

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    mode = termios.tcgetattr(descriptor)
    mode[3] &= ~termios.ECHO
    termios.tcsetattr(descriptor, termios.TCSANOW, mode)
    try:
        yield
    finally:
        with suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(descriptor, termios.TCSANOW, before)


class _StoredHistory(History):
    """The entries of the file, and those of this chat."""

    def __init__(self, file: ChatHistoryFile) -> None:
        super().__init__()
        self._file = file

    def load_history_strings(self) -> Iterable[str]:
        return reversed(self._file.load())

    def store_string(self, string: str) -> None:
        self._file.add(string)


class _WordCompleter(Completer):
    def __init__(self, complete: Callable[[str], Iterable[WordCompletion]]) -> None:
        self._complete = complete

    def get_completions(
        self, document: Document, complete_event: CompleteEvent
    ) -> Iterable[Completion]:
        for each in self._complete(document.text_before_cursor):
            yield Completion(each.text, -each.replaced, display_meta=each.help or None)


class LineEditor:
    """Edits one message at a time.

    `on_submit` gets each complete message, `on_interrupt` is called for Ctrl-C, with whether it
    cleared any text; `get_above` returns what is drawn between the printed text and the line.
    """

    def __init__(
        self,
        history: ChatHistoryFile,
        complete: Callable[[str], Iterable[WordCompletion]],
        *,
        colour: bool,
        on_submit: Callable[[str], None],
        on_interrupt: Callable[[bool], None],
        get_above: Callable[[int], list[str]],
    ) -> None:
        self._on_submit, self._on_interrupt, self._get_above = on_submit, on_interrupt, get_above
        self._prompt: StyleAndTextTuples = [_PROMPT]
        self._started = asyncio.Event()
        self._is_suspended = False
        self._key_at_s = 0.0
        self._is_burst = False
        self._submission: asyncio.TimerHandle | None = None
        # Without requests for the cursor's position: the reply of a slow terminal would be taken
        # for keys, and an approval question counts every key.
        self._output = Vt100_Output.from_pty(sys.stdout)
        self._output.enable_cpr = False
        self._session: PromptSession[str] = PromptSession(
            message=lambda: self._prompt,
            multiline=True,
            prompt_continuation=" " * len(PROMPT),
            history=_StoredHistory(history),
            completer=_WordCompleter(complete),
            complete_while_typing=False,
            reserve_space_for_menu=_MENU_LINES,
            key_bindings=self._make_bindings(),
            enable_suspend=True,
            color_depth=None if colour else ColorDepth.DEPTH_1_BIT,
            style=Style([]),
            output=self._output,
        )
        self._app = self._session.app
        self._app.min_redraw_interval = _REDRAW_S
        self._app.before_render += self._compose
        self._app.key_processor.before_key_press += self._on_key

    async def run(self) -> None:
        """Edit until the person leaves or the terminal is gone."""
        with suppress(EOFError):
            await self._session.prompt_async(
                pre_run=self._started.set, handle_sigint=False, set_exception_handler=False
            )

    def leave(self) -> None:
        """End `run`."""
        if self._app.is_running:
            self._app.exit(result="")

    def get_columns(self) -> int:
        """Return the width of the terminal."""
        return self._output.get_size().columns

    def refresh(self) -> None:
        """Draw what is above the line again, soon."""
        self._app.invalidate()

    def print(self, text: str) -> None:
        """Print complete lines above the input line."""
        if not self._app.is_running or self._is_suspended:
            self._output.write_raw(text)
            self._output.flush()
            return
        # Not by `run_in_terminal`: it gives up the keyboard, and a key pressed at that moment
        # would be echoed into the text.
        with set_app(self._app):
            self._app.renderer.erase()
            self._output.write_raw(text)
            self._output.flush()
            self._compose()
            self._app.render_counter += 1  # else the layout has what was above the line before
            self._app.renderer.render(self._app, self._app.layout)

    @asynccontextmanager
    async def exclusive(self) -> AsyncIterator[None]:
        """Give the terminal to the caller; what was typed stays, and is shown again afterwards."""
        await self._started.wait()  # a run that is resumed at the start may ask before
        with set_app(self._app):
            async with in_terminal():
                self._is_suspended = True
                try:
                    yield
                finally:
                    self._is_suspended = False

    def _compose(self, _app: object = None) -> None:
        """Prepare what is drawn before the text of the line; the layout needs it several times."""
        rows = self._output.get_size().rows - self._session.default_buffer.document.line_count - 2
        above = self._get_above(max(rows, _MIN_TEXT_LINES))
        self._prompt = [*_parse_styles("".join(f"{line}\n" for line in above)), _PROMPT]

    # Keys

    def _make_bindings(self) -> KeyBindings:
        keys = KeyBindings()
        # In a search (Ctrl-R), Enter takes what was found and Ctrl-C leaves the search.
        keys.add("enter", filter=~completion_is_selected & ~is_searching)(self._enter)
        keys.add("enter", filter=completion_is_selected)(self._accept_completion)
        keys.add("escape", "enter")(lambda event: event.current_buffer.insert_text("\n"))
        keys.add("c-c", filter=~is_searching)(self._clear)
        keys.add("<sigint>")(self._clear)
        keys.add("c-d")(self._end)
        return keys

    def _on_key(self, _processor: KeyProcessor) -> None:
        """Recognise keys that come faster than a person types."""
        now_s = asyncio.get_running_loop().time()
        self._is_burst, self._key_at_s = now_s - self._key_at_s < _BURST_S, now_s
        if self._submission:  # more follows: that line break was part of a pasted text
            self._submission.cancel()
            self._submission = None
            self._session.default_buffer.insert_text("\n")

    def _enter(self, event: KeyPressEvent) -> None:
        """Submit the text, unless it is a pasted one of which more lines follow."""
        if event.app.key_processor.input_queue:
            event.current_buffer.insert_text("\n")
        elif self._is_burst:
            loop = asyncio.get_running_loop()
            self._submission = loop.call_later(_MORE_LINES_S, self._submit)
        else:
            self._submit()

    def _accept_completion(self, event: KeyPressEvent) -> None:
        event.current_buffer.complete_state = None

    def _submit(self) -> None:
        self._submission = None
        buffer = self._session.default_buffer
        text = buffer.text
        if text.strip():
            buffer.append_to_history()
        buffer.reset()
        self.refresh()
        self._on_submit(text)

    def _clear(self, event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        had_text = bool(self._session.default_buffer.text)
        buffer.reset()
        self._session.default_buffer.reset()
        event.app.layout.focus(self._session.default_buffer)
        self._on_interrupt(had_text)

    def _end(self, event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.delete()
        else:
            self.leave()
