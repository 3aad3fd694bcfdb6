"""One message of a model while it is being written: what may be shown of it, and in which pieces.

Joins `tags`, `text` and `blocks`: thoughts and asides are taken out, what may mean silence is
held back, and the rest is cut into chunks for a chat that streams. Fed with deltas; `end` settles
it by the message itself, whatever the deltas were.
"""

import re

from homarus.agent.reply.blocks import Chunk, Chunker, Chunking
from homarus.agent.reply.tags import Asides, Tags
from homarus.agent.reply.text import Asked, parse_reply, strip_reasoning_tags
from homarus.core.message import Message
from homarus.core.silence import may_be_silent
from homarus.core.value import dataclass

_PUNCTUATION = re.compile(r"[.!?]+\Z")
_MAX_SILENT_CHARS = 200  # a longer beginning is no word with a little markup around it


@dataclass(frozen=True, slots=True)
class Spoken:
    """What is left of a message at its end. `text` is all of it; `silent`: it says nothing."""

    chunks: tuple[Chunk, ...]
    text: str
    media: tuple[str, ...]
    silent: bool


class Speech:
    """A message being written. Without `chunking` it comes in one piece, at its end."""

    def __init__(self, chunking: Chunking | None, *, waits: bool = False) -> None:
        self._chunking, self._waits = chunking, waits
        self.sent = False  # the chat has seen some of it
        self._thought: list[str] = []
        self._taken = 0  # thoughts that were taken
        self._begin()

    def _begin(self) -> None:
        self._raw: list[str] = []
        self._tags, self._asides = Tags(), Asides()
        self._clean: list[str] = []
        self._speaking = False
        self._chunker = Chunker(self._chunking or Chunking())
        self._tail = ""  # a full stop at the end may yet be the middle of a number

    @property
    def asked(self) -> Asked:
        """What it asks for beside its words, so far."""
        return self._asides.asked

    @property
    def speaking(self) -> bool:
        """Whether there is something to show, and it cannot be silence any more."""
        return self._speaking

    @property
    def visible(self) -> str:
        return "".join(self._clean) if self._speaking else ""

    @property
    def thoughts(self) -> str:
        return "".join(self._thought)

    def say(self, delta: str) -> list[Chunk]:
        """More of the text; the chunks that are ready."""
        self._raw.append(delta)
        said, thought = self._tags.feed(delta)
        if thought:
            self._thought.append(thought)
        return self._add(self._asides.feed(said))

    def think(self, delta: str) -> None:
        """More of what is only thought."""
        self._thought.append(delta)

    def take_thoughts(self) -> str:
        """The thoughts since the last time."""
        thoughts = "".join(self._thought[self._taken :])
        self._taken = len(self._thought)
        return thoughts

    def end(self, message: Message) -> Spoken:
        """The message is whole: what is left of it."""
        if message.thinking and not self._thought:
            self._thought.append(message.thinking)
        chunks = self._catch_up(message.text)
        said, thought = self._tags.finish()
        self._thought.append(thought)
        chunks += self._add(self._asides.feed(said) + self._asides.finish())
        reply = parse_reply(strip_reasoning_tags(message.text))
        if self._chunking is None:
            asked, text = self.asked, reply.text
            asked.reply_to, asked.reply_to_current = reply.reply_to, reply.reply_to_current
            asked.as_voice = reply.as_voice
            return Spoken((Chunk(text),) if text else (), text, reply.media, reply.silent)
        if self._waits or not self._speaking:
            chunks += self._chunker.add("".join(self._clean))
        chunks += [*self._chunker.add(self._tail), *self._chunker.flush()]
        return Spoken(tuple(chunks), reply.text, tuple(self.asked.media), reply.silent)

    def _catch_up(self, whole: str) -> list[Chunk]:
        """Hear what the deltas left out.

        A service that mended its words at the end has said something else before: then the whole
        is heard anew. It is better to say a thing twice than to leave it out.
        """
        heard = "".join(self._raw)
        if not whole.startswith(heard):
            self._begin()
            heard = ""
        return self.say(whole[len(heard) :]) if len(whole) > len(heard) else []

    def _add(self, text: str) -> list[Chunk]:
        if not text:
            return []
        self._clean.append(text)
        if not self._speaking:
            text = "".join(self._clean)
            if len(text) <= _MAX_SILENT_CHARS and may_be_silent(text):
                return []
            self._speaking = True
        if self._chunking is None or self._waits:
            return []
        text = self._tail + text
        end = _PUNCTUATION.search(text)
        self._tail = end[0] if end else ""
        return self._chunker.add(text[: end.start()] if end else text)
