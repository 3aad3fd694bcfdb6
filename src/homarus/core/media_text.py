r"""The text of a message's files as OpenClaw writes it into the message, and its removal. Pure.

    [Image]
    User text:
    what is this?
    Description:
    <<<EXTERNAL_UNTRUSTED_CONTENT id="5f0c…">>> …

    <file name="a.csv" mime="text/csv">
    <<<EXTERNAL_UNTRUSTED_CONTENT id="77ab…">>> …
    </file>

Who made a file is unknown, so what was read in it is between the markers of untrusted content.
"""

import re
from collections.abc import Sequence
from html import escape
from typing import Final, Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.core.untrusted import END, START, neutralize_name, wrap_untrusted

MediaTextKind: TypeAlias = Literal["image", "audio"]
_TITLES: Final = {"image": ("Image", "Description"), "audio": ("Audio", "Transcript")}
_MAX_NAME_CHARS: Final = 120
_USER_TEXT: Final = "User text:\n"
_WRAPPED: Final = rf'<<<{START} id="([0-9a-f]{{16}})">>>\n.*?<<<{END} id="\1">>>'
_FILE: Final = rf'(?:\n\n)?<file name="[^"\n]*" mime="[^"\n]*">\n{_WRAPPED}\n</file>'
_DESCRIPTION: Final = rf"(?:\n\n)?(?:\[Image(?: \d+/\d+)?\]\n|\n)Description:\n{_WRAPPED}"


@dataclass(frozen=True, slots=True)
class MediaText:
    """What was read in one file of a message; `name` is the file's."""

    kind: MediaTextKind
    text: str
    name: str = ""


def format_media_text(message: str, outputs: Sequence[MediaText]) -> str:
    """Return the text of a message with what was read in its files."""
    if not outputs:
        return message
    sections = list[str]()
    user_text = message.strip("\n")
    if user_text.strip() and len(outputs) > 1:
        sections.append(f"{_USER_TEXT}{user_text}")
    for at, output in enumerate(outputs):
        title, label = _TITLES[output.kind]
        same = [each.kind for each in outputs].count(output.kind)
        number = [each.kind for each in outputs[: at + 1]].count(output.kind)
        lines = [f"[{title} {number}/{same}]" if same > 1 else f"[{title}]"]
        if user_text.strip() and len(outputs) == 1:
            lines.append(f"{_USER_TEXT}{user_text}")
        lines.append(f"{label}:\n{wrap_untrusted(output.text, 'file', output.name)}")
        sections.append("\n".join(lines))
    return "\n\n".join(sections)


def format_file_text(name: str, mime: str, text: str) -> str:
    """Return the text of a document as a block of a message."""
    shown = escape(neutralize_name(one_line(name, _MAX_NAME_CHARS)), quote=True)
    # The content cannot end the block that it is in.
    plain = re.sub(r"</(?=\s*file)", "&lt;/", text, flags=re.IGNORECASE)
    wrapped = wrap_untrusted(plain, "file", name)
    return (
        f'<file name="{shown}" mime="{escape(one_line(mime, 80), quote=True)}">\n{wrapped}\n</file>'
    )


def strip_media_text(text: str) -> str:
    """Return a message without the descriptions and documents in it; transcripts stay."""
    if START not in text:
        return text
    text = re.sub(_FILE, "", text, flags=re.DOTALL)
    plain = re.sub(_DESCRIPTION, "", text, flags=re.DOTALL)
    if plain == text:
        return text
    return plain.removeprefix("[Image]\n").removeprefix(_USER_TEXT).strip("\n")
