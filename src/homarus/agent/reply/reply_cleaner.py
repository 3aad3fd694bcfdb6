"""Clean a model's reply for its readers: complete, or while it is being written.

Every reader gets the same: the terminal, `homarus agent`, the events and the history of the
gateway, and chats. Removed are reasoning in tags, reply tags, `MEDIA:` lines, tool calls written
as text, and the silent word. Transcripts keep what the model wrote.

    cleaner = ReplyCleaner(final_only=uses_final_tag(provider))
    for piece in pieces:
        show(cleaner.feed(piece).visible)
    show(cleaner.finish().visible)

However the text was cut into pieces, what was shown is `clean_reply(text).text`.
"""

import re
from dataclasses import replace
from typing import Final, NamedTuple

from homarus.agent.reply.directive_filter import DirectiveFilter
from homarus.agent.reply.reply_parser import REASONING_WORDS, ParsedReply, uses_final_tag
from homarus.agent.reply.stream_filters import ReasoningFilter
from homarus.core.message import Message
from homarus.core.silent_reply import DECORATION, SILENT_WORD, SKIP_WORD, may_be_silent

_MAX_SILENT_CHARS: Final = 200  # a longer text is not the silent word with some markup around it
_MARKUP = re.compile(r"[`<\[\n]")
_DIRECTIVES = re.compile(r"\[\[|\[tool |MEDIA:", re.IGNORECASE)
_REASONING = re.compile(
    rf"<\s{{0,4}}/?\s{{0,4}}(?:antml:)?(?:{'|'.join(REASONING_WORDS)})\b", re.IGNORECASE
)


class CleanedText(NamedTuple):
    """What is newly clear of a reply: visible text, reasoning, and the files it names.

    `reply_to` and `reply_to_current` say what it replies to, as far as that is known.
    """

    visible: str = ""
    reasoning: str = ""
    media: tuple[str, ...] = ()
    reply_to: str = ""
    reply_to_current: bool = False


class ReplyCleaner:
    """Cleans one reply while it is being written.

    With `final_only`, only the text in `<final>` is visible, as `ReasoningFilter` describes. Text
    that may still become the silent word is held back.
    """

    def __init__(self, *, final_only: bool = False, silent_word: str = SILENT_WORD) -> None:
        self._tags = ReasoningFilter(final_only=final_only)
        self._directives = DirectiveFilter(silent_word)
        self._silent_word = silent_word
        self._held = ""
        self._is_released = False
        self._is_plain = False  # text without markup is visible as it is
        self._is_silent = False
        self._media_counts = 0, 0

    def feed(self, piece: str) -> CleanedText:
        """Read the next piece; return what is clear now."""
        if self._is_plain and _MARKUP.search(piece) is None:
            return CleanedText(self._directives.feed_plain(piece))
        text, reasoning = self._tags.feed(piece)
        shown = self._release(self._directives.feed(text)) if text else ""
        self._is_plain = (
            self._is_released and self._tags.is_in_plain_line and self._directives.is_in_plain_line
        )
        return self._cleaned(shown, reasoning)

    def finish(self) -> CleanedText:
        """Return what was held back: the text is complete."""
        text, reasoning = self._tags.finish()
        shown = self._release(self._directives.feed(text)) if text else ""
        shown += self._release(self._directives.finish())
        if not self._is_released:
            bare = self._held.strip(DECORATION)
            is_word = bool(bare) and bare in {self._silent_word, SKIP_WORD}
            self._is_silent = is_word or (self._directives.has_silent_line and not bare)
            shown = "" if self._is_silent else self._held
        return self._cleaned(shown, reasoning)

    def parse(self, text: str) -> ParsedReply:
        """Return a complete text, of which nothing was read yet, as a reply."""
        first, rest = self.feed(text), self.finish()
        directives = self._directives.directives
        media = (*directives.media, *directives.tag_media)
        return ParsedReply(
            text=first.visible + rest.visible,
            media=media,
            reply_to=directives.reply_to,
            reply_to_current=directives.reply_to_current,
            as_voice=directives.as_voice,
            silent=self._is_silent and not media,
            reasoning=first.reasoning + rest.reasoning,
        )

    def _cleaned(self, shown: str, reasoning: str) -> CleanedText:
        found = self._directives.directives
        return CleanedText(
            shown, reasoning, self._new_media(), found.reply_to, found.reply_to_current
        )

    def _release(self, text: str) -> str:
        if self._is_released or not text:
            return text
        self._held += text
        is_short = len(self._held) <= _MAX_SILENT_CHARS
        if is_short and may_be_silent(self._held, self._silent_word):
            return ""
        self._is_released = True
        return self._held

    def _new_media(self) -> tuple[str, ...]:
        directives, (lines, tags) = self._directives.directives, self._media_counts
        if len(directives.media) == lines and len(directives.tag_media) == tags:
            return ()
        self._media_counts = len(directives.media), len(directives.tag_media)
        return (*directives.media[lines:], *directives.tag_media[tags:])


def make_reply_cleaner(provider: str) -> ReplyCleaner:
    """Return the cleaner for a reply of one of the provider's models."""
    return ReplyCleaner(final_only=uses_final_tag(provider))


def has_markup(text: str) -> bool:
    """Return whether a complete reply may contain something that is removed."""
    if SILENT_WORD in text or SKIP_WORD in text:
        return True
    return bool(_DIRECTIVES.search(text) or _REASONING.search(text))


def clean_reply(
    text: str, *, final_only: bool = False, silent_word: str = SILENT_WORD
) -> ParsedReply:
    """Return a complete reply as its readers get it. It is silent when it has no other text."""
    if silent_word in text or has_markup(text):
        return ReplyCleaner(final_only=final_only, silent_word=silent_word).parse(text)
    return ParsedReply(text.strip())


def clean_message(message: Message) -> ParsedReply:
    """Return a model's message as its readers get it, with all of its reasoning."""
    origin, thinking = message.origin, message.thinking
    reply = clean_reply(message.text, final_only=bool(origin and uses_final_tag(origin.provider)))
    if not thinking:
        return reply
    reasoning = f"{thinking}\n\n{reply.reasoning}" if reply.reasoning else thinking
    return replace(reply, reasoning=reasoning)
