"""Parse Telegram's HTML as its server does, with its error texts."""

import re
from typing import Any, Final

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import utf16_len

_TYPES: Final = {
    "b": "bold",
    "strong": "bold",
    "i": "italic",
    "em": "italic",
    "u": "underline",
    "ins": "underline",
    "s": "strikethrough",
    "strike": "strikethrough",
    "del": "strikethrough",
    "span": "spoiler",
    "tg-spoiler": "spoiler",
    "a": "text_link",
    "tg-emoji": "custom_emoji",
    "code": "code",
    "pre": "pre",
    "blockquote": "blockquote",
}
_NAMED: Final = {"lt": "<", "gt": ">", "amp": "&", "quot": '"'}
_ENTITY: Final = re.compile(r"&(?:#x([0-9a-fA-F]{1,8})|#([0-9]{1,10})|([a-zA-Z]+));?")
_ATTRIBUTE: Final = re.compile(r"""\s*([^\s=>"'/]+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s>"'=]+))?""")
_SPACE: Final = " \t\n\r\f\v"


class BadMarkupError(Exception):
    """The markup is invalid; the text is the server's."""


@dataclass(slots=True)
class _Open:
    tag: str
    about: str
    at_units: int


def parse(source: str) -> tuple[str, list[Json]]:
    """Return the text without its tags, and its entities in UTF-16 units."""
    return _TelegramHtmlParser(source).run()


def trimmed(text: str, entities: list[Json]) -> tuple[str, list[Json]]:
    """Return the text without surrounding blanks, which no message keeps."""
    lead = utf16_len(text) - utf16_len(text.lstrip())
    kept = text.strip()
    most = utf16_len(kept)
    moved: list[Json] = []
    for entity in entities:
        start = max(0, entity["offset"] - lead)
        end = min(most, entity["offset"] + entity["length"] - lead)
        if end > start:
            moved.append({**entity, "offset": start, "length": end - start})
    return kept, moved


class _TelegramHtmlParser:
    def __init__(self, source: str) -> None:
        self._source, self._at = source, 0
        self._out: list[str] = []
        self._units = 0
        self._open: list[_Open] = []
        self._found: list[dict[str, Any]] = []

    def run(self) -> tuple[str, list[Json]]:
        while self._at < len(self._source):
            char = self._source[self._at]
            if char == "<":
                self._tag()
            elif char == "&" and (entity := _ENTITY.match(self._source, self._at)):
                self._entity(entity)
            else:
                self._put(char, 1)
        if self._open:
            tag = self._open[-1].tag
            raise BadMarkupError(f'Can\'t find end tag corresponding to start tag "{tag}"')
        found = sorted(self._found, key=lambda one: (one["offset"], -one["length"]))
        return "".join(self._out), found

    def _put(self, char: str, width: int) -> None:
        self._out.append(char)
        self._units += utf16_len(char)
        self._at += width

    def _entity(self, entity: re.Match[str]) -> None:
        hex_, decimal, name = entity.groups()
        code = int(hex_, 16) if hex_ else int(decimal or "0")
        char = _NAMED.get(name or "", "")
        if 0 < code < 0x110000 and not 0xD800 <= code < 0xE000:
            char = chr(code)
        if char:
            self._put(char, len(entity[0]))
        else:
            self._put("&", 1)  # what it does not know it shows as it is

    def _tag(self) -> None:
        start = self._at
        if self._source[start + 1 : start + 2] == "/":
            self._end_tag(start)
        else:
            self._start_tag(start)

    def _start_tag(self, start: int) -> None:
        at = self._until(start + 1)
        if at == len(self._source):
            raise BadMarkupError(f"Unclosed start tag at byte offset {self._byte(start)}")
        tag = self._source[start + 1 : at].lower()
        if tag not in _TYPES:
            where = self._byte(start)
            raise BadMarkupError(f'Unsupported start tag "{tag}" at byte offset {where}')
        about, at = self._attributes(tag, start, at)
        if tag == "span" and about != "tg-spoiler":
            where = self._byte(start)
            raise BadMarkupError(f'Tag "span" must have class "tg-spoiler" at byte offset {where}')
        self._open.append(_Open(tag, about, self._units))
        self._at = at + 1

    def _attributes(self, tag: str, start: int, at: int) -> tuple[str, int]:
        about = ""
        while True:
            while self._source[at : at + 1] and self._source[at] in _SPACE:
                at += 1
            if self._source[at : at + 1] == ">":
                return about, at
            found = _ATTRIBUTE.match(self._source, at)
            if found is None:
                where = self._byte(start)
                if at >= len(self._source):
                    raise BadMarkupError(f"Unclosed start tag at byte offset {where}")
                raise BadMarkupError(
                    f'Empty attribute name in the tag "{tag}" at byte offset {where}'
                )
            name, value = found[1].lower(), (found[2] or "").strip("\"'")
            if self._source[found.end() :].strip(_SPACE) in {"", "="}:
                raise BadMarkupError(f"Unclosed start tag at byte offset {self._byte(start)}")
            if found[2] is None and (tag, name) != ("blockquote", "expandable"):
                raise BadMarkupError(
                    f'Expected equal sign in declaration of an attribute of the tag "{tag}"'
                    f" at byte offset {self._byte(start)}"
                )
            about = _about(tag, name, value) or about
            at = found.end()

    def _end_tag(self, start: int) -> None:
        if not self._open:
            raise BadMarkupError(f"Unexpected end tag at byte offset {self._byte(start)}")
        at = self._until(start + 2)
        name = self._source[start + 2 : at].lower()
        while at < len(self._source) and self._source[at] in _SPACE:
            at += 1
        if self._source[at : at + 1] != ">":
            raise BadMarkupError(f"Unclosed end tag at byte offset {self._byte(start)}")
        opened = self._open.pop()
        if name and name != opened.tag:
            raise BadMarkupError(
                f"Unmatched end tag at byte offset {self._byte(start)},"
                f' expected "</{opened.tag}>", found "</{name}>"'
            )
        self._close(opened)
        self._at = at + 1

    def _close(self, opened: _Open) -> None:
        length = self._units - opened.at_units
        if length <= 0:
            return
        entity: dict[str, Any] = {"type": _TYPES[opened.tag]}
        entity |= {"offset": opened.at_units, "length": length}
        match opened.tag:
            case "a":
                if not opened.about:
                    return
                entity["url"] = opened.about
            case "tg-emoji":
                entity["custom_emoji_id"] = opened.about
            case "code" if self._open and self._open[-1].tag == "pre":
                self._open[-1].about = opened.about  # one block, which may name its language
                return
            case "pre" if opened.about:
                entity["language"] = opened.about
            case "blockquote" if opened.about:
                entity["type"] = "expandable_blockquote"
        self._found.append(entity)

    def _until(self, at: int) -> int:
        while at < len(self._source) and self._source[at] not in f"{_SPACE}>":
            at += 1
        return at

    def _byte(self, at: int) -> int:
        return len(self._source[:at].encode("utf-8", "replace"))


def _about(tag: str, name: str, value: str) -> str:
    match tag, name:
        case "a", "href":
            return value.replace("&amp;", "&")
        case "code", "class" if value.startswith("language-"):
            return value.removeprefix("language-")
        case ("span", "class") | ("tg-emoji", "emoji-id"):
            return value
        case "blockquote", "expandable":
            return "1"
    return ""
