"""Read frontmatter: the YAML between two `---` at the top of a markdown file.

The text may come from anyone. PyYAML splits it into events and constructs nothing: values are made
here, by the core schema of YAML 1.2 (`yes`, `on` and dates are text), within limits on size,
depth and the number of values, aliases counted in full. A key that is there twice is refused.

Many skills are written for readers that know less than YAML. When a block is not valid YAML, it is
read a second time with corrections: metadata in braces is read as JSON5 (which it also is when it
has comments), a one-line value with `: ` in it as if it had quotes, and two escapes that JSON has
for one character as that character.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from homarus.config import json5_document
from homarus.core.errors import ConfigError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import one_line

# An event of PyYAML: its attributes depend on its class, and two parsers have classes of their own.
_Event: TypeAlias = Any

MAX_FRONTMATTER_CHARS: Final = 65_536
MAX_DEPTH: Final = 20
MAX_VALUES: Final = 5_000  # a block of a skill has a few dozen

_END: Final = re.compile(r"\n---[ \t]*(?:\n|\Z)")
_NULL: Final = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS: Final[Mapping[str, bool]] = {
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip
# At most 15 digits: a longer number, such as an id, would be rounded.
_NUMBER: Final = re.compile(
    r"[-+]?(?:(?=[\d.]{1,16}(?:[eE]|\Z))(?:\d{1,15}|\d+\.\d*|\.\d+)(?:[eE][-+]?\d{1,2})?)", re.ASCII
)
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")
_STR_TAGS: Final = frozenset({None, "!", "tag:yaml.org,2002:str"})
_CORE_TAGS: Final = frozenset(
    f"tag:yaml.org,2002:{kind}" for kind in ("int", "float", "bool", "null")
)
_COMMENT: Final = re.compile(r"//|/\*")  # in braces, YAML would read it as a key
_BRACES: Final = re.compile(
    r"^metadata:[ \t]*(?:\n[ \t]+)?(\{.*(?:\n(?:[ \t}].*)?)*)", re.MULTILINE
)
# An object to the end of the line, text in quotes, or a plain scalar that starts with a letter.
_SIMPLE_LINE: Final = re.compile(
    r"([A-Za-z][\w-]*): (\{[^\\]{0,4000}\}|\"[^\"\\]*\"|"
    r"[A-Za-z](?:[^\s:#]|:(?=\S)|(?<=\S)#| (?=[^\s#]))*)",
    re.ASCII,
)
_ESCAPED_PAIR: Final = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_PLAIN_VALUE: Final = re.compile(r"^([A-Za-z][\w-]*):[ \t]+([^\s\"'\[{|>&*!%@`#].*)$", re.MULTILINE)


class FrontmatterError(ValueError):
    """A frontmatter block that cannot be used, and why."""


@dataclass(slots=True)
class _Collection:
    """A mapping or list that is being read; `key` is the one whose value comes next."""

    value: dict[str, Json] | list[Json]
    first_count: int
    start: _Event
    key: str | None = None


def find_block(text: str) -> str | None:
    """Return the text between the two `---` at the top; None when there is no closed block.

    Raises FrontmatterError when the end is further away than a block may be long.
    """
    head = text.removeprefix("\ufeff")
    if not head.startswith("---"):
        return None
    head = head[: MAX_FRONTMATTER_CHARS + 8].replace("\r\n", "\n")
    first, line_end, _rest = head.partition("\n")
    if first.rstrip() != "---" or not line_end:
        return None
    end = _END.search(head, len(first))
    if end is None:
        if len(text) > MAX_FRONTMATTER_CHARS:
            raise FrontmatterError(
                f"its frontmatter has more than {MAX_FRONTMATTER_CHARS} characters or no end"
            )
        return None
    return head[len(first) + 1 : end.start() + 1]


def read_frontmatter(text: str) -> dict[str, Json]:
    """Return the keys and values; none when the text does not start with a closed block.

    Raises FrontmatterError, which says what is wrong and in which line of the file.
    """
    block = find_block(text)
    return {} if block is None else parse_block(block)


def parse_block(block: str, written: dict[str, str] | None = None) -> dict[str, Json]:
    """Parse the text of a block. Raises FrontmatterError.

    `written` gets the text of the lists and mappings that stand in brackets, by their key.
    """
    written = {} if written is None else written
    if (simple := _parse_simple(block, written)) is not None:
        return simple
    try:
        values = _parse_yaml(block, written)
    except _InvalidYamlError as invalid:
        metadata, corrected = _correct(block)
        if corrected == block:
            raise
        try:
            values = _parse_yaml(corrected, written)
        except FrontmatterError:
            raise invalid from None
        return values if metadata is None else {**values, "metadata": metadata}
    if _COMMENT.search(braces := written.get("metadata", "")):
        values["metadata"] = _parse_json5(braces, values["metadata"])
    return values


def _parse_simple(block: str, written: dict[str, str]) -> dict[str, Json] | None:
    """Parse a block of plain text and JSON objects, one a line; None for any other.

    Most skills have one. YAML reads the same values from it, in ten times the time and after the
    import of its parser.
    """
    values, objects = dict[str, Json](), dict[str, str]()
    for line in block.removesuffix("\n").split("\n"):
        if not (found := _SIMPLE_LINE.fullmatch(line)) or found[1] in values:
            return None
        key, text = found[1], found[2]
        if text.startswith("{"):
            try:
                values[key] = _SIMPLE_JSON.decode(text)
            except (ValueError, RecursionError):
                return None
            objects[key] = text
        elif text.startswith('"'):
            values[key] = text[1:-1]
        elif text.lower() in _NULL or text.lower() in _BOOLEANS:
            return None
        else:
            values[key] = text
        if not text.isprintable() or _is_deep(text, values[key]):
            return None
    written.update(objects)
    return values


def _is_deep(text: str, value: Json) -> bool:
    """Return whether a value may be nested deeper than one may be."""
    if text.count("{") + text.count("[") < MAX_DEPTH:
        return False
    level: list[Json] = [value]
    for _ in range(MAX_DEPTH - 1):
        level = [
            inner
            for each in level
            if isinstance(each, list | dict)
            for inner in (each.values() if isinstance(each, dict) else each)
        ]
    return any(isinstance(each, list | dict) for each in level)


def _unique_keys(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    """Return the object; a repeated key is left to the reader that reports it."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError
    return made


def _no_number(_text: str) -> Json:
    """Leave numbers to the reader that knows when they are text."""
    raise ValueError


_SIMPLE_JSON: Final = json.JSONDecoder(
    object_pairs_hook=_unique_keys,
    parse_int=_no_number,
    parse_float=_no_number,
    parse_constant=_no_number,
)


def read_texts(text: str) -> dict[str, str]:
    """Return the values as text, as OpenClaw's readers have them; empty values are left out.

    A list or mapping in brackets is text as it is written, another one compact JSON. A block that
    cannot be used has no values.
    """
    written: dict[str, str] = {}
    try:
        block = find_block(text)
        values = {} if block is None else parse_block(block, written)
    except FrontmatterError:
        return {}
    given = {key: value for key, value in values.items() if value is not None}
    return {key: written.get(key) or format_value(value).strip() for key, value in given.items()}


def format_value(value: Json) -> str:
    """Format a value as JavaScript does: whole numbers without a fraction, lower-case booleans."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class _InvalidYamlError(FrontmatterError):
    """The text is not YAML; it may be readable with corrections."""


def _parse_yaml(block: str, written: dict[str, str]) -> dict[str, Json]:
    import yaml  # with the first skill

    if _SURROGATE.search(block):
        raise FrontmatterError("its frontmatter is not valid Unicode")
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)(block)
    try:
        value = _ValueReader(block, written).read(loader)
    except yaml.YAMLError as exc:
        raise _InvalidYamlError(_describe(exc)) from None
    finally:
        loader.dispose()
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise FrontmatterError("its frontmatter is not a list of keys and values")
    return value


class _ValueReader:
    """Makes values of the events of one block, without recursion and within the limits."""

    def __init__(self, block: str, written: dict[str, str]) -> None:
        self._block, self._written = block, written
        self._open: list[_Collection] = []
        self._anchors: dict[str, tuple[Json, int]] = {}
        self._count = 0
        self._result: Json = None

    def read(self, loader: Any) -> Json:
        from yaml import events

        steps = {
            events.ScalarEvent: self._add_scalar,
            events.MappingStartEvent: lambda event: self._start({}, event),
            events.SequenceStartEvent: lambda event: self._start([], event),
            events.MappingEndEvent: self._end,
            events.SequenceEndEvent: self._end,
            events.AliasEvent: self._add_alias,
        }
        documents = 0
        while (event := loader.get_event()) is not None:
            step = steps.get(type(event))
            if step is not None:
                step(event)
            elif type(event) is events.DocumentStartEvent:
                documents += 1
                if documents > 1:
                    raise FrontmatterError("its frontmatter has more than one document")
        return self._result

    def _start(self, value: dict[str, Json] | list[Json], event: _Event) -> None:
        self._check_tag(event, "map" if isinstance(value, dict) else "seq")
        if len(self._open) >= MAX_DEPTH:
            raise FrontmatterError(f"{_line(event)} is nested more than {MAX_DEPTH} levels deep")
        self._open.append(_Collection(value, self._count, event))
        self._count_values(1)

    def _end(self, event: _Event) -> None:
        done = self._open.pop()
        if done.start.anchor:
            self._anchors[done.start.anchor] = done.value, self._count - done.first_count
        if done.start.flow_style and len(self._open) == 1 and (key := self._open[0].key):
            text = self._block[done.start.start_mark.index : event.end_mark.index]
            self._written[key] = text
        self._add(done.value, event)

    def _add_scalar(self, event: _Event) -> None:
        self._count_values(1)
        if self._needs_key():
            self._set_key(event.value, event)
            return
        value = _scalar(event)
        if event.anchor:
            self._anchors[event.anchor] = value, 1
        self._add(value, event)

    def _add_alias(self, event: _Event) -> None:
        found = self._anchors.get(event.anchor)
        if found is None:  # unknown, or the collection that contains it
            raise FrontmatterError(f"{_line(event)} refers to what is not there: *{event.anchor}")
        self._count_values(found[1])
        if self._needs_key():
            raise FrontmatterError(f"{_line(event)} has a key that is not text")
        self._add(found[0], event)

    def _needs_key(self) -> bool:
        return bool(
            self._open and isinstance(self._open[-1].value, dict) and self._open[-1].key is None
        )

    def _set_key(self, key: str, event: _Event) -> None:
        into = self._open[-1]
        if key in into.value:
            raise FrontmatterError(f"{_line(event)} has the key {one_line(key, 60)} a second time")
        into.key = key

    def _add(self, value: Json, event: _Event) -> None:
        if not self._open:
            self._result = value
            return
        into = self._open[-1]
        if isinstance(into.value, list):
            into.value.append(value)
            return
        if into.key is None:
            raise FrontmatterError(f"{_line(event)} has a key that is not text")
        into.value[into.key] = value
        into.key = None

    def _count_values(self, count: int) -> None:
        self._count += count
        if self._count > MAX_VALUES:
            raise FrontmatterError(f"its frontmatter has more than {MAX_VALUES} values")

    @staticmethod
    def _check_tag(event: _Event, kind: str) -> None:
        if event.tag not in {None, "!", f"tag:yaml.org,2002:{kind}"}:
            raise FrontmatterError(f"{_line(event)} has a tag: {one_line(str(event.tag), 60)}")


def _scalar(event: _Event) -> Json:
    text: str = event.value
    if _SURROGATE.search(text):
        raise _InvalidYamlError(f"{_line(event)} is not valid Unicode")
    if not event.implicit[0] and event.tag in _STR_TAGS:
        return text
    if event.tag is not None and event.tag not in _CORE_TAGS | _STR_TAGS:
        raise FrontmatterError(f"{_line(event)} has a tag: {one_line(str(event.tag), 60)}")
    return _plain_value(text)


def _plain_value(text: str) -> Json:
    """Return a value that has no quotes: nothing, a truth value, a number or text."""
    if text in _NULL:
        return None
    if text in _BOOLEANS:
        return _BOOLEANS[text]
    if text[0] in "+-.0123456789" and _NUMBER.fullmatch(text):
        number = float(text)
        return int(number) if number.is_integer() else number
    return text


def _correct(block: str) -> tuple[Json, str]:
    """Return metadata that is JSON5, None if it is not, and the block without it, values quoted."""
    metadata: Json = None
    if found := _BRACES.search(block):
        metadata = _parse_json5(found[1].strip(), None)
        if metadata is not None:
            block = block[: found.start()] + block[found.end() :]
    return metadata, _ESCAPED_PAIR.sub(_join_pair, _PLAIN_VALUE.sub(_quote, block))


def _parse_json5(text: str, default: Json) -> Json:
    try:
        return json5_document.to_plain(json5_document.parse_json5(text))
    except ConfigError:
        return default


def _quote(found: re.Match[str]) -> str:
    key, value = found[1], found[2].rstrip()
    if ": " not in value and not value.endswith(":") and " #" not in value:
        return found[0]
    return f"{key}: '" + value.replace("'", "''") + "'"


def _join_pair(found: re.Match[str]) -> str:
    return str(json.loads(f'"{found[0]}"'))


def _line(event: _Event) -> str:
    return f"line {event.start_mark.line + 2}"  # the first line is `---`


def _describe(exc: Exception) -> str:
    mark = getattr(exc, "problem_mark", None)
    problem = one_line(str(getattr(exc, "problem", None) or exc), 120)
    return f"line {mark.line + 2} is not YAML: {problem}" if mark else f"it is not YAML: {problem}"
