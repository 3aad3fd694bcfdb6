"""Wrap text that others wrote, so that a model can tell it from the words of its person.

    <<<EXTERNAL_UNTRUSTED_CONTENT id="5f0c…">>>
    Source: web (https://a.example)
    ---
    what the page says
    <<<END_EXTERNAL_UNTRUSTED_CONTENT id="5f0c…">>>

The id is random and new for every text, so the text cannot contain the markers around it. What
looks like a marker in it is replaced, in whatever letters, brackets or spacing it is written;
invisible characters, which may hide instructions, are removed; and tokens that start a role in the
templates of models are broken up. This is for clarity: what a model does after it has read such
text is limited by `policy.taint`.
"""

import re
import secrets
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from homarus.core.text import JOINERS, one_line, repair_surrogates

START: Final = "EXTERNAL_UNTRUSTED_CONTENT"
END: Final = f"END_{START}"
REMOVED: Final = "[marker removed]"
_ID_BYTES: Final = 8
_MAX_ORIGIN_CHARS: Final = 200
# Compiled by `re` at the first text that needs one: most programs see none.
# A notice has it on one line.
_WRAPPED: Final = (
    rf'<<<{START} id="([0-9a-f]{{16}})">>>[ \n]'
    r"[ ]*Source: ([\w-]{1,40})(?: \(([^\n]*?)\))?[ \n][ ]*---[ \n]"
    rf'(.*?)\n?[ ]*<<<{END} id="\1">>>'
)
# Letters of other scripts, and of mathematics, that look like those of the markers.
_LOOKALIKES: Final = {
    **dict(zip("АВСЕНІЈКМОРЅТХУѴԜԌԁаѕеһіјорԛсуѵѡхԝтнɴᴜʀꮪᎬΑΒΕΖΗΙΚΜΝΟΡΤΥΧαεινορτυχ",
               "ABCEHIJKMOPSTXYVWGdaSehijopqcyvwxwthNURSEABEZHIKMNOPTYXaeivoptux", strict=True)),
    "ı": "i", "ℓ": "l", "ꞁ": "l", "ǀ": "l", "Ι": "I", "ø": "o", "Ø": "O", "ł": "l", "Ł": "L",
    "đ": "d", "Đ": "D", "ᴇ": "E", "ᴛ": "T", "ᴄ": "C", "ᴏ": "O", "ᴅ": "D", "ʟ": "L", "ᴀ": "A",
    "ꜱ": "S",
}  # fmt: skip
_BRACKETS: Final = "<>‹›«»≪≫⟨⟩⟪⟫〈〉《》〈〉❮❯❰❱＜＞⋘⋙＿"
_MAX_BRACKETS: Final = 6
_GAP: Final = r"[\W_]{0,6}"
_LETTERS: Final = "EXTERNALUNTRUSTEDCONTENT"
_SPELLED: Final = _GAP.join(_LETTERS)
_MARKER: Final = (
    rf"(?:{_GAP.join('END')}{_GAP})?{_SPELLED}"
    rf"(?:\s{{0,3}}id\s?=\s?\S{{0,64}}|[{re.escape(_BRACKETS)}]{{0,6}})"
)
# Invisible characters that are letters or marks, not formats.
_FILLERS: Final = frozenset(
    "\u034f\u115f\u1160\u17b4\u17b5\u180b\u180c\u180d\u180f\u2800\u3164\uffa0"
)
_EMOJI_STYLE: Final = "\ufe0f"
_SPARED: Final = frozenset(JOINERS + _EMOJI_STYLE)
# A joiner between letters of other scripts or emoji, and the emoji style after one, are ordinary.
_STRAY: Final = (
    rf"(?<![^\x00-\x7f{JOINERS}])[{JOINERS}]+|[{JOINERS}]+(?![^\x00-\x7f{JOINERS}])"
    rf"|(?<=[{JOINERS}])[{JOINERS}]+|(?<![^\x00-\x7f{_EMOJI_STYLE}]){_EMOJI_STYLE}+"
)
_ROLE_START: Final = r"<(?=[|｜])|(?<=[|｜])>"


def wrap_untrusted(text: str, kind: str, origin: str = "") -> str:
    """Return the text between markers with a new id, with the source that it comes from."""
    mark = secrets.token_hex(_ID_BYTES)
    named = neutralize(one_line(origin, _MAX_ORIGIN_CHARS)).replace("\n", " ")
    source = f"{kind} ({named})" if named else kind
    return (
        f'<<<{START} id="{mark}">>>\nSource: {source}\n---\n{neutralize(text)}\n'
        f'<<<{END} id="{mark}">>>'
    )


def neutralize(text: str) -> str:
    """Return the text without invisible characters, and without what looks like a marker."""
    text = strip_hidden(text)
    if "<" in text or ">" in text:
        text = re.sub(_ROLE_START, lambda found: " >" if found[0] == ">" else "< ", text)
    return _replace_markers(text)


def neutralize_name(text: str) -> str:
    """Return a name, a title or a path without what looks like a marker; most are too short."""
    return text if len(text) < len(_LETTERS) else _replace_markers(text)


def strip_hidden(text: str) -> str:
    """Return the text without controls, invisible and reordering characters, and lone halves."""
    if text.isascii() and text.isprintable():
        return text
    text = repair_surrogates(text.replace("\r\n", "\n").replace("\r", "\n"))
    hidden = {ord(ch): None for ch in set(text) if _is_hidden(ch)}
    text = text.translate(hidden) if hidden else text
    return text if text.isascii() else re.sub(_STRAY, "", text)


def untrusted_sources(text: str) -> Iterator[tuple[str, str]]:
    """Yield kind and origin of every wrapped text in a text."""
    if START in text:
        for found in re.finditer(_WRAPPED, text, re.DOTALL):
            yield found[2], found[3] or ""


def unwrap_untrusted(text: str) -> str:
    """Return the text without markers and sources, for people."""
    return (
        re.sub(_WRAPPED, lambda found: found[4], text, flags=re.DOTALL) if START in text else text
    )


def _is_hidden(ch: str) -> bool:
    if ch in "\n\t" or ch in _SPARED:
        return False
    if ch in _FILLERS or "\ufe00" <= ch <= "\ufe0f" or "\U000e0000" <= ch <= "\U000e0fff":
        return True
    return unicodedata.category(ch) in {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}


def _replace_markers(text: str) -> str:
    folded, places = _fold(text)
    spans = [found.span() for found in _find_marker().finditer(folded)]
    if not spans:
        return text
    parts, end = list[str](), 0
    for start, stop in spans:
        at = start - _brackets_before(folded, start)
        first = places[at] if places else at
        last = places[stop - 1] + 1 if places else stop
        parts += (text[end:first], REMOVED)
        end = max(last, end)
    return "".join((*parts, text[end:]))


def _brackets_before(text: str, end: int) -> int:
    lead = text[max(0, end - 2 * _MAX_BRACKETS) : end]
    return len(lead) - len(lead.rstrip(f"{_BRACKETS} \t\n"))


@lru_cache(1)
def _find_marker() -> re.Pattern[str]:
    return re.compile(_MARKER, re.IGNORECASE)


def _fold(text: str) -> tuple[str, list[int]]:
    """Return the text in plain letters, and for each of them its place in the text, if it moved."""
    if text.isascii():
        return text, []
    letters = {ch: _fold_letter(ch) for ch in set(text)}
    if all(len(plain) == 1 for plain in letters.values()):
        return text.translate({ord(ch): plain for ch, plain in letters.items()}), []
    places = [at for at, ch in enumerate(text) for _ in letters[ch]]
    return "".join(letters[ch] for ch in text), places


def _fold_letter(ch: str) -> str:
    if ch.isascii():
        return ch
    plain = "".join(_LOOKALIKES.get(one, one) for one in unicodedata.normalize("NFKD", ch))
    return "".join(one for one in plain if not unicodedata.combining(one)) if plain else ch
