"""One assistant message while the model is writing it: the part that a chat may see of it.

Reasoning and directives are filtered out of the deltas, and text that may still turn out to be the
silent reply is held back. `end` parses the complete message, whatever the deltas were.
"""

from homarus.agent.reply.reply_parser import ParsedReply, parse_reply, strip_reasoning_tags
from homarus.agent.reply.stream_filters import DirectiveFilter, ReasoningFilter
from homarus.core.message import Message
from homarus.core.silent_reply import may_be_silent

_MAX_SILENT_CHARS = 200  # a longer text is not the silent reply with some markup around it


class MessageStream:
    """A message being written."""

    def __init__(self) -> None:
        self._reasoning: list[str] = []
        self._reset()

    def _reset(self) -> None:
        self._raw: list[str] = []
        self._tags, self._directives = ReasoningFilter(), DirectiveFilter()
        self._visible: list[str] = []
        self._has_visible_text = False

    @property
    def has_visible_text(self) -> bool:
        """Whether there is text to show that cannot become the silent reply any more."""
        return self._has_visible_text

    @property
    def visible(self) -> str:
        return "".join(self._visible) if self._has_visible_text else ""

    @property
    def reasoning(self) -> str:
        return "".join(self._reasoning)

    def add_text(self, delta: str) -> None:
        """Read the next piece of the text."""
        self._raw.append(delta)
        visible, reasoning = self._tags.feed(delta)
        if reasoning:
            self._reasoning.append(reasoning)
        self._show(self._directives.feed(visible))

    def add_reasoning(self, delta: str) -> None:
        """Read the next piece of the reasoning."""
        self._reasoning.append(delta)

    def end(self, message: Message) -> ParsedReply:
        """Read what the deltas left out, and return the parsed reply."""
        if message.thinking and not self._reasoning:
            self._reasoning.append(message.thinking)
        self._catch_up(message.text)
        self._reasoning.append(self._tags.finish().reasoning)
        return parse_reply(strip_reasoning_tags(message.text))

    def _catch_up(self, text: str) -> None:
        """Read the rest of the text; all of it again when the service changed it at the end."""
        raw = "".join(self._raw)
        if not text.startswith(raw):
            self._reset()
            raw = ""
        if len(text) > len(raw):
            self.add_text(text[len(raw) :])

    def _show(self, text: str) -> None:
        if not text:
            return
        self._visible.append(text)
        if not self._has_visible_text:
            visible = "".join(self._visible)
            self._has_visible_text = len(visible) > _MAX_SILENT_CHARS or not may_be_silent(visible)
