"""The keys, on a screen of their own."""

from typing import ClassVar, Final

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from homarus.cli.text_layout import wrap

_MAX_COLUMNS: Final = 96
_MIN_COLUMNS: Final = 56
# docs/tui.md has the same list; a test compares them.
KEYS: Final = (
    ("Enter", "sends the message; during an answer it is queued, or steers it"),
    ("Alt-Enter, Ctrl-J", "starts a new line"),
    ("Up, Down", "earlier messages, at the first and the last line"),
    ("/", "lists the commands; Tab completes, Enter takes the marked one"),
    ("Esc", "stops the answer; closes a list or the search"),
    ("Ctrl-P", "picks a session, or makes a new one"),
    ("Ctrl-G", "picks an agent"),
    ("Ctrl-L", "picks the model of the session"),
    ("Ctrl-R", "picks the thinking level of the session"),
    ("Ctrl-T", "shows or hides the thinking"),
    ("Ctrl-O", "opens or closes the tool cards; a click, one of them"),
    ("Ctrl-F", "searches the conversation; Enter or Up finds the one before, Down the next"),
    ("PageUp, PageDown", "scroll; Ctrl-Home and Ctrl-End go to the start and the end"),
    ("F2, Tab", "goes to a question that waits, and back: y once, a always, n denies"),
    ("Ctrl-Y", "copies the last answer; Ctrl-C, what the mouse has selected"),
    ("Ctrl-C", "clears the line; twice, it leaves"),
    ("Ctrl-D", "leaves, if the line is empty"),
    ("F1", "this help"),
)


class HelpScreen(ModalScreen[None]):
    """Shows the keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f1,q,ctrl+c,enter", "close", show=False, priority=True),
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
    ]

    def compose(self) -> ComposeResult:
        room = max(20, min(self.app.size.width, _MAX_COLUMNS) - 8)
        with Vertical(id="help"):
            yield Static(Content("Keys"), id="help-title")
            with VerticalScroll(id="help-keys"):
                for keys, text in KEYS:
                    yield Static(_row(keys, text, room), classes="help-row")
            yield Static(Content("Esc closes"), id="help-end")

    def on_mount(self) -> None:
        self._fit()

    def on_resize(self) -> None:
        self._fit()

    def _fit(self) -> None:
        """Leave room for the last line."""
        self.query_one("#help-keys").styles.max_height = max(3, self.app.size.height - 6)

    def action_close(self) -> None:
        self.dismiss(None)

    def action_move(self, step: int) -> None:
        self.query_one("#help-keys", VerticalScroll).scroll_relative(y=step, animate=False)


def _row(keys: str, text: str, room: int) -> Content:
    """Return a row with the text next to the keys, or below them where there is little room."""
    columns = max(len(each) for each, _ in KEYS) + 2
    is_narrow = room < _MIN_COLUMNS
    indent = 2 if is_narrow else columns
    lines = ["".join(part for part, _ in line) for line in wrap([(text, "")], room - indent)]
    shown = f"\n{' ' * indent}".join(lines)
    head = f"{keys}\n{' ' * indent}" if is_narrow else f"{keys:<{columns}}"
    return Content.assemble((head, "bold $accent"), shown)
