"""The line in which the conversation is searched."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static


class SearchBar(Horizontal):
    """Hidden until it is opened."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", show=False, priority=True),
        Binding("up", "find(-1)", show=False, priority=True),
        Binding("down", "find(1)", show=False, priority=True),
    ]

    class Wanted(Message):
        """A text is searched: before what was found last, or after it."""

        def __init__(self, text: str, step: int) -> None:
            super().__init__()
            self.text, self.step = text, step

    class Closed(Message):
        """The search has ended."""

    def __init__(self) -> None:
        super().__init__(id="search")
        self.display = False

    def compose(self) -> ComposeResult:
        yield Static(Content(" Search "), id="search-title")
        yield Input(id="search-text", compact=True)
        yield Static(id="search-state", markup=False)

    def open(self) -> None:
        """Show the line and take the keys."""
        self.display = True
        self.show_state("")
        self.query_one(Input).focus()

    def show_state(self, text: str) -> None:
        """Show what came of the search."""
        self.query_one("#search-state", Static).update(Content(f" {text} "))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_find(-1)

    def action_find(self, step: int) -> None:
        if text := self.query_one(Input).value.strip():
            self.post_message(self.Wanted(text, step))

    def action_close(self) -> None:
        self.display = False
        self.post_message(self.Closed())
