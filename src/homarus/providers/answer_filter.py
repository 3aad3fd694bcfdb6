"""Check what a provider yields: the length of an answer, and that its text is valid Unicode.

A service may send half of a surrogate pair as a JSON escape, or the halves of one character in two
pieces. Nothing behind this filter gets such a half, in text, reasoning or tool calls.
"""

from dataclasses import replace
from typing import Final

from homarus.core.errors import AnswerTooLongError
from homarus.core.message import Message, Part, Text, Thinking, ToolCall
from homarus.core.text import repair_json, repair_surrogates
from homarus.providers.base import Delta, TextDelta, ThinkingDelta

MAX_ANSWER_CHARS: Final = 1_000_000  # twice what the longest answer of any model has (128k tokens)
_HIGH: Final = ("\ud800", "\udbff")  # the first and the last first half of a pair


class AnswerFilter:
    """Checks the pieces of one answer; `source` names the model in errors."""

    def __init__(self, source: str) -> None:
        self._source, self._chars, self._half = source, 0, ""

    def check(self, piece: Delta | Message) -> Delta | Message | None:
        """Return the piece, repaired; None when it has to wait for the next one.

        Raises AnswerTooLongError.
        """
        if isinstance(piece, TextDelta | ThinkingDelta):
            self._chars += len(piece.text)
            if self._chars > MAX_ANSWER_CHARS:
                raise self._too_long()
            return piece if not self._half and piece.text.isascii() else self._repair(piece)
        return repair_message(piece) if isinstance(piece, Message) else piece

    def _repair(self, piece: TextDelta | ThinkingDelta) -> TextDelta | ThinkingDelta | None:
        text, self._half = self._half + piece.text, ""
        if text and _HIGH[0] <= text[-1] <= _HIGH[1]:
            text, self._half = text[:-1], text[-1]
        return replace(piece, text=repair_surrogates(text)) if text else None

    def _too_long(self) -> AnswerTooLongError:
        return AnswerTooLongError(
            f"{self._source}: its answer has more than {MAX_ANSWER_CHARS:,} characters and does "
            "not end",
            fix="try again, or use another model",
        )


def repair_message(message: Message) -> Message:
    """Return a message whose text is valid; the same object when it was."""
    parts = tuple(map(_repair_part, message.parts))
    is_same = all(new is part for new, part in zip(parts, message.parts, strict=True))
    return message if is_same else replace(message, parts=parts)


def _repair_part(part: Part) -> Part:
    match part:
        case Text(text, signature) | Thinking(text, signature):
            new_text, new_signature = repair_surrogates(text), repair_surrogates(signature)
            if new_text is text and new_signature is signature:
                return part
            return replace(part, text=new_text, signature=new_signature)
        case ToolCall():
            given = [part.id, part.name, part.args, part.broken, part.signature]
            repaired = repair_json(given)
            return part if repaired is given else ToolCall(*repaired)
        case _:
            return part
