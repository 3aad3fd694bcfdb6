"""Leave messages that a model service rejected out of later requests. Pure.

The transcript keeps everything, and clients show it. A question whose model call failed or was
stopped before anything was answered is followed by an empty assistant message with the error. The
person was told, and writes again: the next request does not contain the failed question. It would
be answered twice, or, when its content is the reason, make every later request fail as well.

A message is only left out once another question follows: a run that is resumed, or that repeats
its call, still sends its own. Messages that follow each other without such a failure stay: merged
and steering messages, questions that a spend limit or a bug of ours left without an answer, and
one whose run a newer message interrupted (`SUPERSEDED`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from homarus.core.errors import (
    BadRequestError,
    ContentFilterError,
    ContextOverflowError,
    ImageTooLargeError,
    ProviderError,
)
from homarus.core.message import Message, Text
from homarus.sessions.transcript import is_injected, is_summary

SUPERSEDED: Final = "run.superseded"  # the code of a run that a newer message interrupted
# The errors whose reason may be what the request contains: the same content fails again.
CONTENT_ERRORS: Final = frozenset(
    kind.code
    for kind in (BadRequestError, ContentFilterError, ContextOverflowError, ImageTooLargeError)
)
_LEFT_OUT = (
    "[I called {names} here. The calls and their results are left out, because the model service "
    "refused the request that contained them; they did take place.]"
)


def is_rejection(message: Message) -> bool:
    """Return whether a message says that a model call ended without an answer that can be used."""
    origin = message.origin
    if message.role != "assistant" or origin is None or origin.stop not in {"error", "aborted"}:
        return False
    if message.calls or is_injected(message):
        return False
    if origin.stop == "error" and not _is_by_provider(origin.code):
        return False
    return (not message.text.strip() and origin.code != SUPERSEDED) or _is_filtered(origin.code)


def is_answer(message: Message) -> bool:
    """Return whether a model wrote this message, and it is sent in later requests."""
    return message.role == "assistant" and not is_injected(message) and not is_rejection(message)


def leave_out_rejected(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages without those that were rejected, when another question follows."""
    if not any(map(is_rejection, messages)):
        return messages
    return [message for _, message in indexed_without_rejected(messages)]


def indexed_without_rejected(messages: Sequence[Message]) -> list[tuple[int, Message]]:
    """Return the same, each message with its index."""
    kept: list[tuple[int, Message]] = []
    answer_at = -1  # the place in `kept` of the last answer: what follows is new to the service
    rejection: Message | None = None
    for index, message in enumerate(messages):
        if is_rejection(message):
            rejection = message
        elif is_answer(message):
            answer_at, rejection = len(kept), None
        elif rejection is not None and message.role == "user":
            kept[max(answer_at, 0) :] = _without_rejected(kept[max(answer_at, 0) :], rejection)
            rejection = None
        kept.append((index, message))
    return kept


def _without_rejected(
    refused: Sequence[tuple[int, Message]], rejection: Message
) -> Iterator[tuple[int, Message]]:
    """Yield what stays of a rejected request's new part, which starts with the last answer."""
    origin = rejection.origin
    has_bad_content = origin is not None and origin.code in CONTENT_ERRORS
    is_without_results = False
    for index, message in refused:
        if message.calls and has_bad_content:
            names = ", ".join(dict.fromkeys(call.name for call in message.calls))
            yield index, replace(message, parts=(Text(_LEFT_OUT.format(names=names)),))
            is_without_results = True
        elif message.role == "tool":
            if not is_without_results:
                yield index, message
        elif message.role == "assistant":
            if not is_rejection(message):
                yield index, message
        elif is_summary(message):
            yield index, message


def _is_by_provider(code: str) -> bool:
    """Return whether an error is of a model service; transcripts of OpenClaw have no codes."""
    return not code or code.partition(".")[0] == ProviderError.code


def _is_filtered(code: str) -> bool:
    """Return whether the answer itself was refused: what came of it may be refused again."""
    return code == ContentFilterError.code
