"""The shape of an answer: what a chat gets to see of a run, and when.

A `Shape` is fed with the facts of one run, in order, and gives blocks to send now; `finish` gives
what is left when the last message is there. It has no clock and does no I/O: the times are
arguments, and whoever feeds it sends.

    shape = Shape(manner(config, agent, surroundings))
    step = shape.feed(fact, at_s)      # step.send, step.typing
    step = shape.tick(at_s)            # not before shape.due_s
    ending = shape.finish(reply)       # before the reply is saved: its blocks go in that commit

It must see every delta: it is fed by the run itself, not by a reader of the bus. A chat that does
not stream gets the same blocks, all of them from `finish`, except what says that tools are at
work, which is news only while they are.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Literal

from homarus.agent.blocks import Block, Chunker, Coalescer, Kind
from homarus.agent.manner import Manner
from homarus.agent.replies import parse_reply, strip_reasoning_tags
from homarus.agent.said import Said
from homarus.agent.tags import Asides, Tags
from homarus.agent.typing import is_activity
from homarus.agent.wording import (
    AGAIN,
    COMPACTED,
    EMPTY,
    add_prefix,
    fill_prefix,
    new_session,
    prefix_names,
    reasoning_text,
    usage_line,
)
from homarus.core.event import (
    AttemptFailed,
    CompactionEnded,
    ErrorNoted,
    Fact,
    MessageSaved,
    RunEnded,
    RunStarted,
    TextAdded,
    ThinkingAdded,
    ToolEnded,
    ToolStarted,
)
from homarus.core.fences import split_lines
from homarus.core.message import Message, ToolCall, Usage
from homarus.core.silence import DECORATION, SILENT_WORD, is_silent_text, may_be_silent, strip_ack
from homarus.core.value import dataclass
from homarus.tools.caption import tool_line, tool_output


@dataclass(frozen=True, slots=True)
class Step:
    """What one fact leads to. `typing`: the sign is wanted (again), or no longer."""

    send: tuple[Block, ...] = ()
    typing: bool | None = None


@dataclass(frozen=True, slots=True)
class Ending:
    """What is left to send. `outcome` is silent when the chat has seen and will see nothing."""

    blocks: tuple[Block, ...]
    outcome: Literal["answered", "silent"]


class Shape:
    """One run as one chat sees it."""

    def __init__(self, manner: Manner) -> None:
        self._manner = manner
        self._streams = manner.streams and manner.ack_max_chars is None
        self._coalescer = Coalescer(manner.coalescing) if manner.coalescing else None
        self._said = Said(manner.here)
        self._speech = _Speech(manner)
        self._calls: dict[str, ToolCall] = {}
        self._kept: list[Block] = []  # for a chat that does not stream
        self._ready: list[Block] = []
        self._shown = False  # the chat has seen something of the answer
        self._silent = False  # the model chose to say nothing
        self._finished: Message | None = None
        self._usage = Usage()
        self._names = prefix_names("", "", manner.thinking, manner.identity)

    @property
    def due_s(self) -> float | None:
        """When `tick` has something to give, if nothing comes before."""
        return self._coalescer.due_s if self._coalescer else None

    @property
    def visible(self) -> str:
        """The message being written, as far as it may be shown: for a channel that edits a draft.

        Empty while it may still turn out to be silence.
        """
        return self._speech.visible

    @property
    def thoughts(self) -> str:
        """What the model thinks, for a channel that shows it live; only where that is asked for."""
        return self._speech.all_thought if self._manner.reasoning == "stream" else ""

    def feed(self, fact: Fact, at_s: float = 0.0) -> Step:
        """One more fact of the run."""
        self._take_in(fact, at_s)
        if isinstance(fact, RunEnded):
            return Step(self._take(), typing=False)
        wanted = is_activity(self._manner.typing, fact, speaking=bool(self._speech.visible))
        return Step(self._take(), typing=True if wanted else None)

    def tick(self, at_s: float) -> Step:
        """Time has passed."""
        if self._coalescer:
            self._out(*self._coalescer.tick(at_s))
        return Step(self._take())

    def finish(self, reply: Message) -> Ending:
        """The last message of the run, before it is saved: what is left to send."""
        self._finished = reply
        self._end_message(reply)
        self._flush()
        blocks = [*self._kept, *self._take()]
        self._kept = []
        if self._manner.ack_max_chars is not None:
            blocks = self._without_ack(blocks, self._manner.ack_max_chars)
        elif not (blocks or self._shown or self._silent or self._said.anything):
            blocks = [self._decorated(Block(EMPTY, "notice"))]
        seen = self._shown or self._said.anything
        if blocks or self._shown:
            blocks = self._with_usage(blocks)
        return Ending(tuple(blocks), "answered" if blocks or seen else "silent")

    def fail(self, told: str) -> tuple[Block, ...]:
        """There is no answer: what was said on the way, and why there is no more."""
        self._flush()
        kept, self._kept = self._kept, []
        error = [self._decorated(Block(told, "error"))] if told else []
        return (*kept, *self._take(), *error)

    def _take_in(self, fact: Fact, at_s: float) -> None:
        match fact:
            case TextAdded(delta):
                self._speak(self._speech.say(delta), at_s)
            case ThinkingAdded(delta):
                self._speech.think(delta)
            case MessageSaved(message) if message.role == "assistant":
                if message is not self._finished:
                    self._end_message(message, at_s)
                    self._flush()
            case ToolStarted(call):
                self._start_tool(call)
            case ToolEnded(result):
                self._said.end(result)
                call = self._calls.pop(result.call_id, None)
                if call and self._manner.verbose == "full":
                    self._show("tool", tool_output(call, result))
            case AttemptFailed() as failed:
                self._begin_again(failed)
            case RunStarted(provider, model):
                self._name(provider, model)
                if self._manner.new_session:
                    self._note(new_session(self._manner.new_session))
            case CompactionEnded():
                self._note(COMPACTED)
            case ErrorNoted(message):
                self._note(f"⚠️ {message}")
            case _:
                pass

    def _speak(self, chunks: Sequence[str], at_s: float) -> None:
        """Send chunks of the message being written."""
        for chunk in chunks:
            block = self._block(chunk)
            if block is None:
                continue
            self._muse()
            self._speech.sent = True
            if self._coalescer:
                self._out(*self._coalescer.add(block, at_s))
            else:
                self._out(block)

    def _block(self, chunk: str, media: tuple[str, ...] = ()) -> Block | None:
        """A chunk as a block; None when there is nothing in it to send."""
        text = strip_ack(chunk, heartbeat=False).text
        if _is_hollow(text) or self._said.repeats(text):
            text = ""
        asked = self._speech.asides.asked
        if not text and not media:
            return None
        return Block(
            text,
            media=media,
            reply_to=asked.reply_to,
            reply_to_current=asked.reply_to_current,
            as_voice=asked.as_voice and bool(media),
        )

    def _end_message(self, message: Message, at_s: float = 0.0) -> None:
        """A message is whole: send what is left of it, or keep it."""
        speech = self._speech
        if message.origin:
            self._usage += message.origin.usage
        if message.origin and message.origin.stop == "aborted":
            self._drop()
        elif self._streams:
            chunks, media = speech.end(message)
            self._silent = speech.silent
            *first, last = (chunks or [""])
            self._speak(first, at_s)
            if block := self._block(last, media):
                self._muse()
                self._hand(block, at_s)
        else:
            self._keep(message)
        self._speech = _Speech(self._manner)

    def _hand(self, block: Block, at_s: float) -> None:
        self._out(*(self._coalescer.add(block, at_s) if self._coalescer else [block]))

    def _keep(self, message: Message) -> None:
        """A whole message for a chat that does not stream."""
        reply = parse_reply(strip_reasoning_tags(message.text))
        self._silent = reply.silent or (self._manner.unasked and is_silent_text(reply.text))
        self._speech.end(message)
        self._speech.asides.asked.reply_to = reply.reply_to
        self._speech.asides.asked.reply_to_current = reply.reply_to_current
        self._speech.asides.asked.as_voice = reply.as_voice
        text = "" if self._silent else reply.text
        if self._manner.ack_max_chars is not None and text:
            self._kept.append(Block(text, media=reply.media))
        elif block := self._block(text, reply.media):
            self._muse()
            self._out(block)

    def _muse(self) -> None:
        """Show the thoughts before what they led to."""
        thought = self._speech.take_thought()
        if thought.strip() and self._manner.reasoning == "on":
            self._flush()
            self._out(Block(reasoning_text(thought), "reasoning"))

    def _start_tool(self, call: ToolCall) -> None:
        self._said.start(call)
        self._calls[call.id] = call
        if self._manner.verbose != "off":
            self._show("tool", tool_line(call))

    def _begin_again(self, failed: AttemptFailed) -> None:
        """What was said so far is void; what the chat has seen of it cannot be taken back."""
        seen = self._speech.sent and self._streams
        self._drop()
        self._speech = _Speech(self._manner)
        provider, _, model = failed.then.split(" ")[0].partition("/")
        self._name(provider, model or provider)
        if seen:
            self._out(Block(AGAIN, "notice"))

    def _drop(self) -> None:
        self._speech.drop()
        if self._coalescer:
            self._coalescer.drop()

    def _note(self, text: str) -> None:
        if self._manner.verbose != "off":
            self._flush()
            self._out(Block(text, "notice"))

    def _show(self, kind: Kind, text: str) -> None:
        """Something that is news now, also for a chat that does not stream."""
        self._flush()
        self._ready.append(self._decorated(Block(text, kind)))

    def _flush(self) -> None:
        if self._coalescer:
            self._out(*self._coalescer.flush())

    def _out(self, *blocks: Block) -> None:
        """Blocks for the chat: now, or with the answer."""
        where = self._ready if self._streams else self._kept
        for block in blocks:
            self._shown = self._shown or (self._streams and block.kind == "text")
            where.append(self._decorated(block))

    def _take(self) -> tuple[Block, ...]:
        ready, self._ready = tuple(self._ready), []
        return ready

    def _decorated(self, block: Block) -> Block:
        prefix = fill_prefix(self._manner.prefix, self._names)
        return replace(block, text=add_prefix(prefix, block.text)) if block.text else block

    def _name(self, provider: str, model: str) -> None:
        self._names = prefix_names(provider, model, self._manner.thinking, self._manner.identity)

    def _without_ack(self, blocks: Sequence[Block], max_chars: int) -> list[Block]:
        """A heartbeat's answer: none when it only says that all is well."""
        texts = [block for block in blocks if block.kind == "text"]
        media = any(block.media for block in texts)
        ack = strip_ack("\n\n".join(b.text for b in texts), heartbeat=True, max_chars=max_chars)
        if ack.skip and not media:
            self._silent = True
            return []
        kept = [b for b in blocks if b.kind != "text"]
        attached = tuple(item for block in texts for item in block.media)
        return [*kept, self._decorated(Block(ack.text, media=attached))]

    def _with_usage(self, blocks: Sequence[Block]) -> list[Block]:
        line = usage_line(self._usage, self._manner.usage, self._manner.session_key)
        if not line:
            return list(blocks)
        if blocks and blocks[-1].kind == "text" and blocks[-1].text:
            return [*blocks[:-1], replace(blocks[-1], text=f"{blocks[-1].text}\n\n{line}")]
        return [*blocks, Block(line, "notice")]


class _Speech:
    """One message of the model while it is being written."""

    def __init__(self, manner: Manner) -> None:
        self._streams = manner.streams and manner.ack_max_chars is None
        self._waits = manner.boundary == "message_end"
        self._chunking = manner.chunking
        self._begin()
        self.sent = False  # some of it is out

    def _begin(self) -> None:
        self.asides = Asides()
        self._tags = Tags()
        self._chunker = Chunker(self._chunking)
        self._raw: list[str] = []
        self._clean: list[str] = []
        self._thought: list[str] = []
        self._taken = 0  # thoughts shown
        self._tail = ""  # punctuation that may be the middle of a number
        self._may_be_silent = True

    @property
    def visible(self) -> str:
        return "" if self._may_be_silent else "".join(self._clean)

    @property
    def all_thought(self) -> str:
        return "".join(self._thought)

    @property
    def silent(self) -> bool:
        """Whether all that was said is the word for silence."""
        raw = strip_reasoning_tags("".join(self._raw))
        return not self.sent and parse_reply(raw).silent

    def say(self, delta: str) -> list[str]:
        """More of the text; the chunks that are ready."""
        self._raw.append(delta)
        said, thought = self._tags.feed(delta)
        if thought:
            self._thought.append(thought)
        return self._add(self.asides.feed(said))

    def think(self, delta: str) -> None:
        self._thought.append(delta)

    def take_thought(self) -> str:
        """The thoughts that were not taken yet."""
        thought = "".join(self._thought[self._taken :])
        self._taken = len(self._thought)
        return thought

    def end(self, message: Message) -> tuple[list[str], tuple[str, ...]]:
        """The message is whole: the chunks and the media that are left.

        A service that does not stream, or that mended its words at the end, has said something
        else before: then the message counts.
        """
        chunks = self._catch_up(message.text)
        if not self._thought and message.thinking:
            self._thought.append(message.thinking)
        said, thought = self._tags.finish()
        self._thought.append(thought)
        chunks += self._add(self.asides.feed(said) + self.asides.finish())
        chunks += self._chunk(self._tail)
        chunks += self._chunker.flush()
        self._tail = ""
        if "".join(self._clean).strip(DECORATION) == SILENT_WORD:
            chunks = []
        return chunks, tuple(self.asides.asked.media)

    def drop(self) -> None:
        self._begin()

    def _catch_up(self, whole: str) -> list[str]:
        heard = "".join(self._raw)
        if heard == whole:
            return []
        if not whole.startswith(heard):
            thought = self._thought
            self._begin()
            self._thought, heard = thought, ""
        return self.say(whole[len(heard) :])

    def _add(self, text: str) -> list[str]:
        if not text:
            return []
        self._clean.append(text)
        if self._may_be_silent:
            text = "".join(self._clean)
            if may_be_silent(text):
                return []
            self._may_be_silent = False
        return self._chunk(text)
