"""The input: several lines, earlier messages, and long pastes as one word that stands for them."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from textual import events
from textual.message import Message
from textual.widgets import TextArea

from homarus.core.fast_dataclass import dataclass
from homarus.core.text import repair_surrogates

_MAX_LINES: Final = 12  # of a paste that is shown as it is
_MAX_CHARS: Final = 2_000
_NEWLINE: Final = frozenset({"alt+enter", "ctrl+j", "shift+enter"})
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_PASTED: Final = re.compile(r"\[pasted #(\d+): [^\]]*\]")


@dataclass(frozen=True, slots=True)
class Draft:
    """A text with the pastes that it names."""

    text: str
    pastes: Mapping[int, str]


class Composer(TextArea):
    """Where messages are typed. It knows nothing of sessions."""

    class Submitted(Message):
        """A message was sent; pastes are in it as a whole.

        The line is empty already, so that what is typed next is not lost; not so while the list
        above is open, which may replace the text. `draft` puts it back.
        """

        def __init__(self, text: str, draft: "Draft", *, is_cleared: bool) -> None:
            super().__init__()
            self.text, self.draft, self.is_cleared = text, draft, is_cleared

    class Typed(Message):
        """The text or the place of the cursor changed."""

    class Pasted(Message):
        """A line was pasted, which may be the path of a file."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    class Moved(Message):
        """Up or Down was pressed while the list above takes these keys."""

        def __init__(self, step: int) -> None:
            super().__init__()
            self.step = step

    class Completed(Message):
        """Tab was pressed."""

    class EmptyBackspace(Message):
        """Backspace was pressed where there is nothing to delete."""

    def __init__(self, history: Sequence[str] = ()) -> None:
        super().__init__(id="composer", soft_wrap=True, compact=True, highlight_cursor_line=False)
        self._earlier, self._place = list(history), len(history)
        self._draft = ""
        self._pastes: dict[int, str] = {}
        self.has_list = False  # above it, which takes Up and Down

    def add_history(self, text: str) -> None:
        """Add a message that was sent."""
        if not self._earlier or self._earlier[-1] != text:
            self._earlier.append(text)
        self._place = len(self._earlier)

    def get_message(self) -> str:
        """Return the text with the pastes that it names."""
        return _PASTED.sub(lambda found: self._pastes.get(int(found[1]), found[0]), self.text)

    def set_text(self, text: str) -> None:
        """Replace the text, and put the cursor at its end."""
        self.load_text(text)
        self.move_cursor(self.document.end)

    async def _on_key(self, event: events.Key) -> None:
        """Handle Enter and Tab in their turn: a binding with priority would overtake what is typed.

        TextArea calls nothing else for these keys, and its own function for all others.
        """
        if event.key == "enter":
            draft = Draft(self.text, dict(self._pastes))
            is_cleared = not self.has_list
            self.post_message(self.Submitted(self.get_message(), draft, is_cleared=is_cleared))
            if is_cleared:
                self.forget()
        elif event.key in _NEWLINE:
            self.replace("\n", *self.selection)
        elif event.key == "tab":
            self.post_message(self.Completed())
        else:
            return
        event.stop()
        event.prevent_default()

    def put_back(self, draft: Draft) -> None:
        """Show a text that could not be sent, unless another one was started."""
        if not self.text:
            self._pastes = dict(draft.pastes)
            self.set_text(draft.text)

    def forget(self) -> None:
        """Clear the text after it was sent."""
        self._pastes.clear()
        self._draft = ""
        self.set_text("")

    def action_cursor_up(self, select: bool = False) -> None:  # noqa: FBT002 - as in TextArea
        if self.has_list and not select:
            self.post_message(self.Moved(-1))
        elif select or not self.cursor_at_first_line or not self._go(-1):
            super().action_cursor_up(select)

    def action_cursor_down(self, select: bool = False) -> None:  # noqa: FBT002 - as in TextArea
        if self.has_list and not select:
            self.post_message(self.Moved(1))
        elif select or not self.cursor_at_last_line or not self._go(1):
            super().action_cursor_down(select)

    def action_delete_left(self) -> None:
        if not self.text:
            self.post_message(self.EmptyBackspace())
        super().action_delete_left()

    def _go(self, step: int) -> bool:
        """Show an earlier or a later message; what was typed comes after the last one."""
        place = self._place + step
        if not 0 <= place <= len(self._earlier):
            return False
        if self._place == len(self._earlier):
            self._draft = self.text
        self._place = place
        self.set_text(self._draft if place == len(self._earlier) else self._earlier[place])
        return True

    async def _on_paste(self, event: events.Paste) -> None:
        """Insert a paste; a long one as a word with its number of lines."""
        event.stop()
        event.prevent_default()
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        text = _CONTROLS.sub("", repair_surrogates(text))
        if not text:
            return
        lines = text.count("\n") + 1
        if lines > _MAX_LINES or len(text) > _MAX_CHARS:
            number = len(self._pastes) + 1
            self._pastes[number] = text
            size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
            text = f"[pasted #{number}: {size}]"
        elif lines == 1 and not self.text:
            self.post_message(self.Pasted(text))
        self.replace(text, *self.selection)

    def on_text_area_changed(self) -> None:
        self.post_message(self.Typed())
