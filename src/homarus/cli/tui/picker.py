"""A list to pick from, with a search: sessions, agents, models, thinking levels."""

from collections.abc import Awaitable, Callable, Sequence
from typing import ClassVar, Final

from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from homarus.cli.text_layout import clip, printable, width
from homarus.core.errors import HomarusError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line

_SEARCH_S: Final = 0.15
_MAX_ITEMS: Final = 500


@dataclass(frozen=True, slots=True)
class PickItem:
    """A row: what is picked, its name, and what is said of it at the right."""

    value: str
    name: str
    note: str = ""
    is_current: bool = False


LoadItems = Callable[[str], Awaitable[Sequence[PickItem]]]


def filter_items(items: Sequence[PickItem], text: str) -> list[PickItem]:
    """Return the rows that contain every word."""
    words = text.casefold().split()
    return [
        each
        for each in items
        if all(word in f"{each.name} {each.value} {each.note}".casefold() for word in words)
    ]


class PickerScreen(ModalScreen[str | None]):
    """Returns the value of the row that was picked; None when it was closed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "close", "Close", show=False, priority=True),
        Binding("down,ctrl+n", "move(1)", show=False, priority=True),
        Binding("up", "move(-1)", show=False, priority=True),
        Binding("pagedown", "move(8)", show=False, priority=True),
        Binding("pageup", "move(-8)", show=False, priority=True),
    ]

    def __init__(self, title: str, load: LoadItems, *, columns: int) -> None:
        super().__init__()
        self._title, self._load, self._columns = title, load, columns
        self._items: list[PickItem] = []

    def compose(self) -> ComposeResult:
        with Vertical(id="picker"):
            yield Static(Content(self._title), id="picker-title", markup=False)
            yield Input(placeholder="Search", id="picker-search", compact=True)
            yield OptionList(id="picker-list", compact=True, markup=False)
            yield Static(Content("↑↓ move · Enter picks · Esc closes"), id="picker-help")

    def on_mount(self) -> None:
        self.query_one("#picker-list", OptionList).can_focus = False
        self.on_resize()
        self._search("", 0.0)

    def on_resize(self) -> None:
        """Leave room for the last line."""
        rows = max(3, min(16, self.app.size.height - 7))
        self.query_one("#picker-list").styles.max_height = rows

    @on(Input.Changed)
    def _on_search(self, event: Input.Changed) -> None:
        event.stop()
        self._search(event.value, _SEARCH_S)

    @on(Input.Submitted)
    def _on_search_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        place = self.query_one("#picker-list", OptionList).highlighted
        if place is not None and place < len(self._items):
            self.dismiss(self._items[place].value)

    @on(OptionList.OptionSelected)
    def _on_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.dismiss(self._items[event.option_index].value)

    @work(exclusive=True)
    async def _search(self, text: str, wait_s: float) -> None:
        from asyncio import sleep

        await sleep(wait_s)
        try:
            found = list(await self._load(text))[:_MAX_ITEMS]
        except HomarusError as exc:
            self.query_one("#picker-help", Static).update(Content(printable(str(exc))))
            return
        self._show(found)

    def _show(self, items: list[PickItem]) -> None:
        shown = self.query_one("#picker-list", OptionList)
        kept = self._items[shown.highlighted].value if shown.highlighted is not None else None
        self._items = items
        shown.clear_options()
        columns = max(16, min(self._columns - 8, 92))
        shown.add_options(Option(_row(each, columns)) for each in items)
        places = [n for n, each in enumerate(items) if each.value == kept]
        current = [n for n, each in enumerate(items) if each.is_current]
        if items:
            shown.highlighted = [*places, *current, 0][0]

    def action_move(self, step: int) -> None:
        shown = self.query_one("#picker-list", OptionList)
        if self._items:
            place = (shown.highlighted or 0) + step
            shown.highlighted = max(0, min(place, len(self._items) - 1))

    def action_close(self) -> None:
        self.dismiss(None)


def _row(item: PickItem, columns: int) -> Content:
    mark = "● " if item.is_current else "  "
    note = clip(printable(one_line(item.note, 200)), max(0, columns * 2 // 5)) if item.note else ""
    room = columns - width(note) - 3
    name = clip(printable(one_line(item.name, 300)), max(6, room))
    gap = " " * max(1, columns - 2 - width(name) - width(note))
    return Content.assemble((mark, "$accent"), name, gap, (note, "$muted"))
