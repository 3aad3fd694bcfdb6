"""The colours of the full-screen interface, for its style sheet and for the text that it draws."""

from functools import lru_cache
from typing import Final

from rich.style import Style
from textual.theme import Theme

MUTED: Final = "#8a93a3"
FOREGROUND: Final = "#d8dce4"
ACCENT: Final = "#ee8a6b"
INFO: Final = "#74b6d8"
SUCCESS: Final = "#8fc27c"
WARNING: Final = "#e2b65c"
ERROR: Final = "#e56b74"
BACKGROUND: Final = "#14171c"
SURFACE: Final = "#1b1f26"
PANEL: Final = "#242a33"

THEME: Final = Theme(
    name="homarus",
    primary=ACCENT,
    secondary=INFO,
    accent=ACCENT,
    warning=WARNING,
    error=ERROR,
    success=SUCCESS,
    foreground=FOREGROUND,
    background=BACKGROUND,
    surface=SURFACE,
    panel=PANEL,
    dark=True,
    variables={"muted": MUTED, "input-selection-background": f"{INFO} 35%"},
)
# The numbers of SGR sequences, as the layout of Markdown has them.
_SGR: Final = {
    "1": Style(bold=True),
    "2": Style(color=MUTED),
    "3": Style(italic=True),
    "4": Style(underline=True),
    "9": Style(strike=True),
    "31": Style(color=ERROR),
    "32": Style(color=SUCCESS),
    "33": Style(color=WARNING),
    "34": Style(color=INFO),
    "35": Style(color="#c79bdc"),
    "36": Style(color="#7cc5c0"),
}
PLAIN: Final = Style(color=FOREGROUND)
DIM: Final = Style(color=MUTED)
BOLD: Final = Style(color=FOREGROUND, bold=True)
ASKED: Final = Style(color=FOREGROUND, bgcolor=PANEL)
ASKED_MARK: Final = Style(color=ACCENT, bgcolor=PANEL)
ASKED_DIM: Final = Style(color=MUTED, bgcolor=PANEL)
FOUND: Final = Style(color="#14171c", bgcolor=WARNING)
SELECTED: Final = Style(bgcolor="#35526b")
TONES: Final = {
    "dim": DIM,
    "error": Style(color=ERROR),
    "warning": Style(color=WARNING),
    "success": Style(color=SUCCESS),
    "info": Style(color=INFO),
    "accent": Style(color=ACCENT),
}


@lru_cache(200)
def style_of(numbers: str) -> Style:
    """Return the style of the numbers of an SGR sequence."""
    return Style.combine([PLAIN, *(_SGR[each] for each in numbers.split(";") if each in _SGR)])
