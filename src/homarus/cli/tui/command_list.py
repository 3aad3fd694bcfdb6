"""The chat commands above the input, while a first word with a slash is typed."""

from collections.abc import Mapping, Sequence
from typing import Final

from textual.content import Content
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from homarus.cli.text_layout import clip, printable, width
from homarus.cli.tui.payload import read_fields, read_items, read_rows, read_word
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import one_line

_MAX_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class ListedCommand:
    """A command: its name with the slash, its other names, and what it does."""

    name: str
    aliases: tuple[str, ...] = ()
    args: str = ""
    help: str = ""


# Of this program; the gateway does not know them.
OWN_COMMANDS: Final = (
    ListedCommand("/attach", args="PATH", help="Attach a file to the next message."),
    ListedCommand("/quit", ("/exit",), help="Leave."),
)


def parse_commands(result: Json) -> list[ListedCommand]:
    """Return the commands of the result of `commands.list`, and our own."""
    listed = read_rows(read_fields(result).get("commands"))
    found = [_parse(each) for each in listed if read_word(each.get("name"))]
    return sorted([*found, *OWN_COMMANDS], key=lambda each: each.name)


def match_commands(text: str, commands: Sequence[ListedCommand]) -> list[ListedCommand]:
    """Return the commands that a text may become: by the start of a name, then by a part of it."""
    if not text.startswith("/") or " " in text or "\n" in text or "/" in text[1:]:
        return []
    typed = text.lower()
    starts = [c for c in commands if any(n.startswith(typed) for n in (c.name, *c.aliases))]
    inside = [c for c in commands if c not in starts and typed[1:] in c.name]
    return [*starts, *inside][:_MAX_SHOWN]


class CommandList(OptionList, can_focus=False):
    """The list; the input moves in it and takes from it."""

    def __init__(self) -> None:
        super().__init__(id="commands", compact=True, markup=False)
        self._shown: list[ListedCommand] = []
        self.display = False

    @property
    def is_open(self) -> bool:
        return bool(self.display)

    @property
    def chosen(self) -> ListedCommand | None:
        """The command that is marked, if the list is open."""
        place = self.highlighted
        return self._shown[place] if self.display and place is not None else None

    def show_matches(self, found: Sequence[ListedCommand], columns: int) -> None:
        """Show these commands; none hide the list."""
        self.display = bool(found)
        if list(found) == self._shown and found:
            return
        self._shown = list(found)
        names = max((width(_head(each)) for each in found), default=0)
        names = min(names, max(12, columns // 2))
        self.clear_options()
        self.add_options(Option(_row(each, names, columns)) for each in found)
        if found:
            self.highlighted = 0

    def move(self, step: int) -> None:
        """Mark the next or the previous command."""
        if self._shown:
            self.highlighted = ((self.highlighted or 0) + step) % len(self._shown)


def _head(command: ListedCommand) -> str:
    return f"{command.name} {command.args}".rstrip()


def _row(command: ListedCommand, names: int, columns: int) -> Content:
    head = clip(printable(_head(command)), names)
    gap = " " * (names - width(head) + 2)
    room = max(8, columns - names - 6)
    text = clip(printable(one_line(command.help, 300)), room)
    return Content.assemble((head, "bold"), gap, (text, "$muted"))


def _parse(row: Mapping[str, Json]) -> ListedCommand:
    aliases = [word for each in read_items(row.get("textAliases")) if (word := read_word(each))]
    args = read_rows(row.get("args"))
    shown = " ".join(one_line(read_word(each.get("description")), 40) for each in args)
    name = f"/{one_line(str(row.get('name')), 60)}"
    others = tuple(each for each in aliases if each != name)
    return ListedCommand(name, others, shown, read_word(row.get("description")))
