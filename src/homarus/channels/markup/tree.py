"""Parse markdown to a tree: what counts as markup, and what stays text.

CommonMark with strikethrough, tables and `||spoilers||`, and four deviations, each so that nothing
is lost: HTML is text, reference definitions are text, blocks nested too deep are text, and so is
markup in an address. Only links with a safe scheme are links; any other stays as written.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, paragraph, table
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Delimiter
from markdown_it.token import Token

# A longer text stays plain: parsing blocks the event loop, and adversarial texts take long.
MAX_CHARS = 65_536
_SCHEMES = ("http://", "https://", "mailto:", "tel:", "tg://")
_MAX_LINK_CHARS = 2_048
_MAX_DEPTH = 16  # levels of blocks; a list takes two
_MAX_NESTING = 20  # the parser drops blocks beyond it, and its time for brackets grows with it
_MAX_BRACKETS = 4_000  # no text has so many links; the parser's time for them grows fastest
_BAR = "|"
# The rest of a bare address, from its colon; it does not end with sentence punctuation.
_ADDRESS = re.compile(r"://[^\s<>`|\\*\[\]]*[^\s<>`|\\*\[\]_~.,;:!?'\")]")

_ODD = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ufff9-\ufffb\ud800-\udfff]"
)
_LINE_ENDS = re.compile("\r\n?|[\u2028\u2029]")
_SPACES = re.compile("[\x0b\x0c\x85]")
# Control characters, and those that change the direction of text.
_HIDDEN = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufff9-\ufffb]")
_SURROGATES = re.compile("[\ud800-\udfff]")


def parse_markdown(text: str, *, tables: bool = False) -> list[Token]:
    """Return the blocks of a text; without `tables`, tables are paragraphs."""
    text = strip_unsafe_chars(text)
    tokens = _parser(tables, text.count("[") <= _MAX_BRACKETS).parse(text)
    for token in tokens:
        _tidy(token)
    return tokens


def parse_line(text: str) -> list[Token]:
    """Return the inline tokens of one line, such as a table's cell."""
    text = strip_unsafe_chars(text)
    (token,) = _parser(tables=False, links=text.count("[") <= _MAX_BRACKETS).parseInline(text)
    _tidy(token)
    return token.children or []


def strip_unsafe_chars(text: str) -> str:
    """Remove control characters, invisible and bidi characters, and invalid ones."""
    if not _ODD.search(text):
        return text
    text = _SPACES.sub(" ", _LINE_ENDS.sub("\n", text))
    return _SURROGATES.sub("\ufffd", _HIDDEN.sub("", text))


class _MarkdownParser(MarkdownIt):
    def validateLink(self, url: str) -> bool:  # noqa: N802 - the library's name
        return len(url) <= _MAX_LINK_CHARS and url.lower().startswith(_SCHEMES)


@cache
def _parser(tables: bool, links: bool) -> _MarkdownParser:  # noqa: FBT001 - keys of a cache
    options = {"html": False, "linkify": False, "typographer": False, "maxNesting": _MAX_NESTING}
    made = _MarkdownParser("default", options)
    made.disable(["reference", "html_block", "html_inline", "linkify"])
    if not tables:
        made.disable("table")
    if not links:
        made.disable(["link", "image"])
    made.block.ruler.at("table", _find_table, {"alt": ["paragraph"]})
    made.block.ruler.before("table", "deep", _deep)
    made.inline.ruler.after("text", "address", _keep_address)
    made.inline.add_terminator_char(_BAR)
    made.inline.ruler.before("emphasis", "spoiler", _scan_spoiler)
    made.inline.ruler2.before("emphasis", "spoiler", _pair_spoilers)
    return made


def _deep(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001 - a rule
    """Turn blocks below the maximum depth into paragraphs."""
    return not silent and state.level >= _MAX_DEPTH and paragraph(state, start, end, silent)


def _find_table(state: StateBlock, start: int, end: int, silent: bool) -> bool:  # noqa: FBT001 - a rule
    """Parse a table as one token; the library's rule makes tokens for missing cells too."""
    if not table(state, start, end, silent=True):
        return False
    if not silent:
        line = start + 2
        while line < end and not _ends_table(state, line, end):
            line += 1
        state.push("table", "table", 0).map = [start, line]
        state.line = line
    return True


def _ends_table(state: StateBlock, line: int, end: int) -> bool:
    if state.isEmpty(line) or state.sCount[line] < state.blkIndent or state.is_code_block(line):
        return True
    rules = state.md.block.ruler.getRules("blockquote")
    return any(rule(state, line, end, True) for rule in rules)  # noqa: FBT003 - a rule


def _keep_address(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - a rule
    """Keep markup inside a bare address as part of it."""
    if state.src[state.pos] != ":" or not state.src.endswith(("http", "https"), 0, state.pos):
        return False
    if not (found := _ADDRESS.match(state.src, state.pos)):
        return False
    if not silent:
        state.append_pending(found[0])
    state.pos = found.end()
    return True


def _scan_spoiler(state: StateInline, silent: bool) -> bool:  # noqa: FBT001 - a rule
    if silent or state.src[state.pos] != _BAR:
        return False
    found = state.scanDelims(state.pos, canSplitWord=True)
    if found.length == 2:
        state.push("text", "", 0).content = _BAR * 2
        state.delimiters.append(
            Delimiter(
                marker=ord(_BAR),
                length=0,
                token=len(state.tokens) - 1,
                end=-1,
                open=found.can_open,
                close=found.can_close,
            )
        )
    else:
        state.append_pending(_BAR * found.length)
    state.pos += found.length
    return True


def _pair_spoilers(state: StateInline) -> None:
    below = (meta["delimiters"] for meta in state.tokens_meta if meta and "delimiters" in meta)
    for delimiters in (state.delimiters, *below):
        for opened in delimiters:
            if opened.marker == ord(_BAR) and opened.end != -1:
                _turn(state.tokens[opened.token], "spoiler_open", 1)
                _turn(state.tokens[delimiters[opened.end].token], "spoiler_close", -1)


def _turn(token: Token, kind: str, nesting: int) -> None:
    token.type, token.nesting, token.content = kind, 1 if nesting > 0 else -1, ""


def _tidy(token: Token) -> None:
    """Clean decoded entities, and make bold the outer of bold and italic."""
    token.content = strip_unsafe_chars(token.content)
    if token.children is None:
        return
    children = [child for child in token.children if child.content or child.type != "text"]
    token.children = children
    for child in children:
        _tidy(child)
    pairs = dict(_pairs(children))
    for opened, closed in pairs.items():
        kinds = (children[opened].type, children[opened + 1].type)
        if kinds == ("em_open", "strong_open") and pairs[opened + 1] == closed - 1:
            for first in (opened, closed - 1):
                children[first : first + 2] = children[first + 1], children[first]


def _pairs(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Return where each opening token closes."""
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.nesting > 0:
            opened.append(index)
        elif token.nesting < 0 and opened:
            yield opened.pop(), index
