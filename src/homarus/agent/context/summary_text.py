"""The parts of a summary that need no model. Pure.

Whatever the model writes, the summary quotes the user's sentences that have a number, a name or
an address; lists the files that were read and changed and the tools that failed; and exists also
when no model answers.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

from homarus.agent.context.tokens import text_bytes
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Message, ToolResult
from homarus.core.text import clip_middle, one_line

_EXACT, _FILES, _FAILED = "## Kept word for word", "## Files", "## Tools that failed"
_OPEN_QUESTION = "## Still to be answered"
_READERS, _WRITERS = frozenset({"read"}), frozenset({"write", "edit", "apply_patch"})
_ENVELOPE = re.compile(r"\[[^\]\n]{0,160}\]\s*")
_SENTENCE = re.compile(r"(?<=[.!?。！？])\s+|\n+")
_EDGES = "()[]{}<>\"'`“”‘’«».,;:!?…*_"
_MAX_SENTENCE_CHARS = 160
_MAX_SEARCHED_CHARS = 20_000  # of one message that are searched
_MAX_FILES, _MAX_FAILURES = 30, 8


# --- without a model ---------------------------------------------------------------------------


def summarize_without_model(messages: Iterable[Message], max_bytes: int) -> str:
    """Return a summary made without a model: the start of each message."""
    lines: list[str] = []
    for message in messages:
        text = one_line(_plain(message) if message.role == "user" else message.text, 240)
        if text and message.role in {"user", "assistant"}:
            lines.append(f"- {'person' if message.role == 'user' else 'assistant'}: {text}")
        if names := [call.name for call in message.calls]:
            lines.append(f"- assistant used {', '.join(dict.fromkeys(names))}")
    return "\n".join(_drop_middle(lines, max_bytes))


def clip_bytes(text: str, max_bytes: int) -> str:
    """Truncate a text to so many bytes, with a marker in the middle."""
    size = text_bytes(text)
    if size <= max_bytes:
        return text
    text_max_bytes = max(max_bytes - 64, 0)  # for the marker
    chars = len(text) * text_max_bytes // size
    while text_bytes(clipped := clip_middle(text, chars)) > max_bytes and chars:
        chars = chars * 3 // 4
    return clipped if chars else ""


def _drop_middle(lines: Sequence[str], max_bytes: int) -> list[str]:
    """Return the first and last lines that fit, with a marker between them."""
    sizes = [text_bytes(line) + 1 for line in lines]
    if sum(sizes) <= max_bytes:
        return list(lines)
    left = max_bytes - 8
    first, last = 0, len(lines)
    while first < last:
        at = first if first <= (len(lines) - last) else last - 1
        left -= sizes[at]
        if left < 0:
            break
        first, last = (first + 1, last) if at == first else (first, last - 1)
    return [*lines[:first], "…", *lines[last:]]


# --- what is always there ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TouchedFiles:
    """The files that were read and changed, by the arguments of tool calls."""

    read: tuple[str, ...]
    changed: tuple[str, ...]


def compose_summary(
    notes: str,
    messages: Sequence[Message],
    *,
    before: str,
    open_question: str,
    max_bytes: int,
    has_lists: bool = True,
) -> str:
    """Return a summary of at most so many bytes: the notes, and what must not be lost.

    `before` is the previous summary, `open_question` one that is still being answered. Without
    `has_lists` there are no quotes and no lists of files and failed tools.
    """
    question = one_line(open_question, 1_000) if open_question else ""
    tail = f"{_OPEN_QUESTION}\n{question}" if question else ""
    max_bytes -= text_bytes(tail) + 8
    if not has_lists:
        return "\n\n".join(block for block in (clip_bytes(_body(notes), max_bytes), tail) if block)
    notes = clip_bytes(_body(notes), max_bytes * 6 // 10)
    files = files_in(messages)
    touched = [f"read {path}" for path in files.read] + [f"changed {p}" for p in files.changed]
    file_lines = list(dict.fromkeys(chain(_section(before, _FILES), touched)))[-_MAX_FILES:]
    failed = list(_failures(messages))[-_MAX_FAILURES:]
    lists = [
        _block(_FILES, file_lines, max_bytes * 8 // 100),
        _block(_FAILED, failed, max_bytes * 6 // 100),
        tail,
    ]
    left = max_bytes - text_bytes(notes) - sum(map(text_bytes, lists[:2])) - 8
    exact = _block(_EXACT, _exact(messages, before, notes, left), left)
    return "\n\n".join(block for block in (notes, exact, *lists) if block)


def files_in(messages: Iterable[Message]) -> TouchedFiles:
    """Return the files that calls name."""
    read: dict[str, None] = {}
    changed: dict[str, None] = {}
    for call in (call for message in messages for call in message.calls):
        path = call.args.get("path") or call.args.get("file_path")
        if isinstance(path, str) and path:
            if call.name in _READERS:
                read[one_line(path, 200)] = None
            elif call.name in _WRITERS:
                changed[one_line(path, 200)] = None
    return TouchedFiles(tuple(path for path in read if path not in changed), tuple(changed))


def _failures(messages: Iterable[Message]) -> Iterator[str]:
    for message in messages:
        for part in message.parts:
            if isinstance(part, ToolResult) and part.is_error:
                yield f"{part.name}: {one_line(part.text, 160)}"


def _block(title: str, lines: Sequence[str], max_bytes: int) -> str:
    kept = _drop_middle([f"- {line}" for line in lines], max_bytes - len(title) - 1)
    return "\n".join([title, *kept]) if any(line != "…" for line in kept) else ""


def _section(summary: str, title: str) -> list[str]:
    """Return the lines under one of our headings in a previous summary."""
    _, found, rest = summary.partition(f"{title}\n")
    lines = rest.partition("\n\n")[0].splitlines() if found else []
    return [line[2:] for line in lines if line.startswith("- ")]


def _body(summary: str) -> str:
    """Return the notes without our own headings."""
    for title in (_EXACT, _FILES, _FAILED, _OPEN_QUESTION):
        summary = summary.partition(f"\n{title}\n")[0].removeprefix(f"{title}\n")
    return summary.strip()


def _exact(messages: Iterable[Message], before: str, notes: str, max_bytes: int) -> list[str]:
    """Return the sentences with an exact term that is not in the notes."""
    previous_lines = (line.lstrip("-*# ") for line in _body(before).splitlines())
    lines = dict.fromkeys([*_section(before, _EXACT), *filter(None, map(_around, previous_lines))])
    for message in messages:
        if message.role == "user":
            for sentence in _SENTENCE.split(_plain(message)[:_MAX_SEARCHED_CHARS]):
                if next(exact_terms(sentence), ""):
                    lines[_around(sentence)] = None
    kept: list[str] = []
    seen: set[str] = set()
    for line in lines:
        terms = {term for term in exact_terms(line) if term not in notes}
        if terms - seen:
            kept.append(line)
            seen |= terms
    if sum(map(text_bytes, kept)) <= max_bytes:
        return kept
    return [line for line in kept if any(not term.isalpha() for term in exact_terms(line))]


def _around(sentence: str) -> str:
    """Return a sentence in one line; of a long one, the part around its first exact term."""
    flat = " ".join(sentence.split())
    if len(flat) <= _MAX_SENTENCE_CHARS:
        return flat
    term = next(exact_terms(flat), "")
    at = max(0, flat.find(term) - _MAX_SENTENCE_CHARS // 2)
    return flat[at : at + _MAX_SENTENCE_CHARS]


def _plain(message: Message) -> str:
    """Return a user message without its envelope."""
    lines = message.text.splitlines()
    text = "\n".join(line for line in lines if not line.startswith("System: ["))
    return _ENVELOPE.sub("", text, count=1) if text.startswith("[") else text


def exact_terms(text: str) -> Iterator[str]:
    """Yield the words that cannot be paraphrased: with a digit, addresses, paths, names."""
    first = True
    for raw in text.split():
        word = raw.strip(_EDGES)
        if 2 <= len(word) <= 200 and _is_exact_term(word, first=first):
            yield word
        first = raw[-1] in ".!?:"


def _is_exact_term(word: str, *, first: bool) -> bool:
    if any(ch.isdigit() for ch in word):
        return len(word) > 2
    if "://" in word or "@" in word[1:-1] or word.count("/") > 1 or "_" in word[1:-1]:
        return True
    if any(ch.isupper() for ch in word[1:]):
        return True
    return word[0].isupper() and not first and len(word) > 2 and word.isalpha()
