"""Cut the messages of a run into blocks while the model writes them: block streaming.

A `BlockStream` receives the cleaned text of one message after the other, as it comes. What is
ready is taken with `take`; `finish` gets the complete message and returns the rest of it. The
blocks of a message contain all of its text once, apart from white space between two blocks and the
lines that close and reopen a code fence.

Text is held back while it may turn out not to be sent: where a tool has sent a text to the same
chat that the message may repeat, and from a `HEARTBEAT_OK` on, which is removed at the end of a
message. It has a clock and does no I/O.
"""

from collections.abc import Callable, Sequence
from typing import Final

from homarus.agent.reply.blocks import Block, BlockLimits, Chunker, Coalescer, TextChunk
from homarus.core.fast_dataclass import replace
from homarus.core.silent_reply import ACK_WORD, strip_heartbeat_ack

_POINTS: Final = frozenset(".!?")
_RECHECK_CHARS: Final = 64  # so much more text before it is compared again with what was sent


class BlockStream:
    """The blocks of the message that is being written.

    `may_repeat` returns whether a text that grows may be one that was already sent.
    """

    def __init__(
        self,
        limits: BlockLimits,
        monotonic: Callable[[], float],
        may_repeat: Callable[[str], bool] = lambda _text: False,
    ) -> None:
        self._limits, self._monotonic, self._may_repeat = limits, monotonic, may_repeat
        self.change_count = 0  # of what is ready, and of when something will be
        self.has_diverged = False  # a message was not the one of which blocks were taken
        self.restart()

    def restart(self) -> None:
        """Discard the message: it is complete, or the model starts again."""
        self._chunker = Chunker(self._limits.chunk)
        self._coalescer = Coalescer(self._limits.coalesce)
        self._ready: list[Block] = []
        self._target = Block("")
        self._source: list[str] = []  # what the chunker has received
        self._held, self._next_check_chars = "", 0
        self._is_released = self._is_stopped = False
        self._has_taken = False

    @property
    def due_s(self) -> float | None:
        """When a block that waits for more text is ready without it."""
        return self._coalescer.due_s

    def feed(self, text: str, reply_to: str = "", *, reply_to_current: bool = False) -> None:
        """Read the next piece of the message, and what it replies to as far as that is known."""
        if self._limits.waits_for_end or self._is_stopped:
            return
        if reply_to or reply_to_current:
            self._target = Block("", reply_to=reply_to, reply_to_current=reply_to_current)
        self._held += text
        if not self._is_released and not self._release():
            return
        clear = self._take_clear()
        if clear:
            self._source.append(clear)
            self._add(self._chunker.add(clear))

    def take(self) -> list[Block]:
        """Return the blocks that are ready now."""
        ready = [*self._ready, *self._coalescer.tick(self._monotonic())]
        self._ready = []
        self._has_taken = self._has_taken or bool(ready)
        return ready

    def finish(self, text: str, raw: str, target: Block) -> list[Block]:
        """Return the blocks of the complete message that were not taken.

        `text` is what is to be sent of it, `raw` the same before `HEARTBEAT_OK` was removed;
        `target` is a block without a text that says what the message replies to.
        """
        rest = self._rest(text, raw) if self._has_taken else None
        if rest is None:
            self.has_diverged = self.has_diverged or self._has_taken
            self.restart()
            rest = text
        self._target = target
        self._add([*self._chunker.add(rest), *self._chunker.flush()])
        return [*self._ready, *self._coalescer.flush()]

    def _rest(self, text: str, raw: str) -> str | None:
        """Return the message without what the chunker has; None when it starts otherwise."""
        source = "".join(self._source)
        bare = source.rstrip()
        if text.startswith(bare):
            return text[len(source if text.startswith(source) else bare) :]
        if raw.startswith(bare):
            return strip_heartbeat_ack(raw[len(bare) :], heartbeat=False).text
        return None

    def _release(self) -> bool:
        """Return whether the text is certainly not one that was already sent."""
        if len(self._held) < self._next_check_chars:
            return False
        self._is_released = not self._may_repeat(self._held)
        self._next_check_chars = len(self._held) + _RECHECK_CHARS
        return self._is_released

    def _take_clear(self) -> str:
        """Return the held text up to a `HEARTBEAT_OK`, or to what may become one.

        A point at its end is held back: whether it ends a sentence depends on what follows.
        """
        held = self._held
        at = held.find(ACK_WORD)
        if at >= 0:
            self._is_stopped = True
        else:
            lengths = range(min(len(ACK_WORD) - 1, len(held)), 0, -1)
            at = len(held) - next((n for n in lengths if held.endswith(ACK_WORD[:n])), 0)
            if held[at - 1 : at] in _POINTS:
                at -= 1
        self._held = held[at:]
        return held[:at]

    def _add(self, chunks: Sequence[TextChunk]) -> None:
        for chunk in chunks:
            block = replace(self._target, text=chunk.text)
            self._ready += self._coalescer.add(block, self._monotonic(), chunk.gap, chunk.seam)
        if chunks:
            self.change_count += 1
