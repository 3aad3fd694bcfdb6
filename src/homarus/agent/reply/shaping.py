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
work, which is news only while they are. With `at_end` nobody sends on the way: that comes from
`finish`, too. With `posts` it comes from `save` as well: what a message says is sent in the
commit that saves it, so that a run which goes on after a crash knows what was sent.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Literal

from homarus.agent.reply.blocks import Block, Chunk, Coalescer
from homarus.agent.reply.manner import Manner, Surroundings, manner
from homarus.agent.reply.said import Said
from homarus.agent.reply.speech import Speech
from homarus.agent.reply.typing import is_activity
from homarus.agent.reply.wording import (
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
from homarus.config.schema import Config
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
from homarus.core.fences import match_marker
from homarus.core.keys import agent_of
from homarus.core.message import Address, Inbound, Json, Message, ToolCall, ToolReturn, Usage
from homarus.core.silence import is_silent_text, strip_ack
from homarus.core.value import dataclass
from homarus.sessions.session import Session
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

    def __init__(self, manner: Manner, *, at_end: bool = False, posts: bool = False) -> None:
        self._manner, self._at_end, self._posts = manner, at_end, posts
        self._heartbeat = manner.ack_max_chars is not None
        self._streams = manner.streams and not self._heartbeat
        joins = manner.coalescing if self._streams else None
        self._coalescer = Coalescer(joins) if joins else None
        self._said = Said(manner.here)
        self._speech = self._listen()
        self._calls: dict[str, ToolCall] = {}
        self._kept: list[Block] = []  # until the end, for a chat that does not stream
        self._owed = 0  # so many of them, up to an answer: sent also when the last one is silence
        self._ready: list[Block] = []
        self._shown = False  # the chat has seen some of the answer
        self._silent = False  # the model's last message says nothing
        self._ended: Message | None = None  # heard to its end before it was saved
        self._usage = Usage()
        self._prefix = ""
        self._name("", "")

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
    def preview(self) -> str:
        """All that is going to be sent, as far as it is known; until words come, the thoughts."""
        if self._heartbeat or self._manner.unasked:
            return ""
        words = self.visible or (reasoning_text(self.thoughts) if self.thoughts.strip() else "")
        said = [block.text for block in self._kept if block.kind == "text"]
        return "\n\n".join([*said, *([add_prefix(self._prefix, words)] if words.strip() else [])])

    @property
    def posts(self) -> bool:
        """Whether what is said is sent as it is saved."""
        return self._posts

    @property
    def manner(self) -> Manner:
        return self._manner

    @property
    def thoughts(self) -> str:
        """What the model thinks, for a channel that shows it live, where that is asked for."""
        return self._speech.thoughts if self._manner.reasoning == "stream" else ""

    def feed(self, fact: Fact, at_s: float = 0.0) -> Step:
        """One more fact of the run."""
        match fact:
            case TextAdded(delta):
                self._speak(self._speech.say(delta), at_s)
            case ThinkingAdded(delta):
                self._speech.think(delta)
            case MessageSaved(message):
                if message.role == "assistant" and message is not self._ended:
                    self._end_message(message)
            case ToolStarted() | ToolEnded():
                self._follow_tool(fact)
            case AttemptFailed(then=then):
                self._begin_again(then)
            case _:
                self._notice(fact)
        return Step(self._take(), self._wants_typing(fact))

    def tick(self, at_s: float) -> Step:
        """Time has passed."""
        if self._coalescer:
            self._out(self._coalescer.tick(at_s))
        return Step(self._take())

    def save(self, message: Message) -> tuple[Block, ...]:
        """A message of the run, before it is saved: what is sent with it."""
        if not self._posts:
            return ()
        if message.role == "assistant":
            self._ended = message
            self._end_message(message)
        blocks, self._kept, self._owed = tuple(self._kept), [], 0
        self._shown = self._shown or any(block.kind == "text" for block in blocks)
        return blocks

    def recall(self, message: Message) -> None:
        """A message of this run that an earlier process saved: `posts` says if it was sent."""
        if self._posts:
            self.save(message)
        else:
            self.feed(MessageSaved(message))
        for part in message.parts:
            if isinstance(part, ToolCall):
                self._said.start(part)
            elif isinstance(part, ToolReturn):
                self._said.end(part)

    def finish(self, reply: Message) -> Ending:
        """The last message of the run, before it is saved: what is left to send."""
        self._ended = reply
        if self._heartbeat:
            self._kept, self._owed = [], 0  # what was said on the way is no alert
        self._end_message(reply)
        blocks = [*(self._kept[: self._owed] if self._silent else self._kept), *self._take()]
        self._kept = []
        seen = self._shown or self._said.anything
        says = seen or any(block.kind == "text" for block in blocks)
        if not says and not self._silent:
            blocks.append(self._decorated(Block(EMPTY, "notice")))
        if blocks or self._shown:
            self._add_usage(blocks)
        return Ending(tuple(blocks), "answered" if blocks or seen else "silent")

    def fail(self, told: str) -> tuple[Block, ...]:
        """There is no answer: what was said on the way, and why there is no more."""
        self._flush()
        self._drop()
        kept, self._kept = self._kept, []
        why = [self._decorated(Block(told, "error"))] if told else []
        return (*kept, *self._take(), *why)

    def _listen(self) -> Speech:
        waits = self._manner.boundary == "message_end"
        return Speech(self._manner.chunking if self._streams else None, waits=waits)

    def _speak(self, chunks: Iterable[Chunk], at_s: float, media: tuple[str, ...] = ()) -> None:
        """Send chunks of the message being written; its media go with the last."""
        said = [(text, chunk.gap) for chunk in chunks if (text := self._clean(chunk.text))]
        if media and not said:
            said = [("", "")]
        asked = self._speech.asked
        for number, (text, gap) in enumerate(said, 1):
            attached = media if number == len(said) else ()
            block = Block(
                text,
                media=attached,
                reply_to=asked.reply_to,
                reply_to_current=asked.reply_to_current,
                as_voice=asked.as_voice and bool(attached),
            )
            self._show_thoughts()
            self._out(self._coalescer.add(block, at_s, gap) if self._coalescer else [block])

    def _clean(self, chunk: str) -> str:
        """A chunk as the chat should see it; nothing when it has seen it, or there is nothing."""
        most = self._manner.ack_max_chars or 0
        text = strip_ack(chunk, heartbeat=self._heartbeat, max_chars=most).text
        return "" if _is_hollow(text) or self._said.repeats(text) else text

    def _end_message(self, message: Message) -> None:
        """A message is whole: send what is left of it."""
        speech, origin = self._speech, message.origin
        if origin:
            self._usage += origin.usage
        if origin and origin.stop == "aborted":  # a person said stop
            self._drop()
            return
        spoken = speech.end(message)
        says_nothing = self._says_nothing(spoken.text, silent=spoken.silent)
        self._silent = says_nothing and not speech.sent and not spoken.media
        if self._silent:
            self._drop()
            return
        self._speak(spoken.chunks, 0.0, spoken.media)
        self._show_thoughts()
        self._flush()
        self._speech = self._listen()
        if not message.calls:  # an answer; what comes now is of another question
            self._owed = len(self._kept)

    def _says_nothing(self, text: str, *, silent: bool) -> bool:
        ack = strip_ack(text, heartbeat=self._heartbeat, max_chars=self._manner.ack_max_chars or 0)
        return (
            silent
            or (ack.skip and (ack.found or self._heartbeat))
            or (self._manner.unasked and is_silent_text(text))
        )

    def _show_thoughts(self) -> None:
        """Thoughts come before what they led to."""
        thoughts = self._speech.take_thoughts()
        if self._manner.reasoning == "on" and thoughts.strip():
            self._flush()
            self._out([Block(reasoning_text(thoughts), "reasoning")])

    def _follow_tool(self, fact: ToolStarted | ToolEnded) -> None:
        """Tell of a tool while it is at work, also in a chat that does not stream."""
        told = ""
        if isinstance(fact, ToolStarted):
            self._said.start(fact.call)
            self._calls[fact.call.id] = fact.call
            told = tool_line(fact.call) if self._manner.verbose != "off" else ""
        else:
            self._said.end(fact.result)
            call = self._calls.pop(fact.result.call_id, None)
            told = tool_output(call, fact.result) if call and self._manner.verbose == "full" else ""
        if told:
            self._flush()
            now = self._kept if self._at_end else self._ready
            now.append(self._decorated(Block(told, "tool")))

    def _begin_again(self, then: str) -> None:
        """What was said so far is void; what the chat has seen of it cannot be taken back."""
        seen = self._speech.sent
        self._drop()
        provider, _, model = then.partition(" ")[0].partition("/")
        self._name(provider, model)
        if seen:
            self._out([Block(AGAIN, "notice")])

    def _drop(self) -> None:
        self._speech = self._listen()
        if self._coalescer:
            self._coalescer.drop()

    def _notice(self, fact: Fact) -> None:
        """What a person may like to know; told where they like to know much."""
        told = ""
        match fact:
            case RunStarted(provider, model):
                self._name(provider, model)
                told = new_session(self._manner.new_session) if self._manner.new_session else ""
            case CompactionEnded():
                told = COMPACTED
            case ErrorNoted(message):
                told = f"⚠️ {message}"
            case _:
                pass
        if told and self._manner.verbose != "off":
            self._flush()
            self._out([Block(told, "notice")])

    def _wants_typing(self, fact: Fact) -> bool | None:
        if isinstance(fact, RunEnded):
            return False
        return is_activity(self._manner.typing, fact, speaking=self._speech.speaking) or None

    def _flush(self) -> None:
        if self._coalescer:
            self._out(self._coalescer.flush())

    def _out(self, blocks: Iterable[Block]) -> None:
        """Blocks for the chat: now, or with the answer."""
        for block in blocks:
            (self._ready if self._streams else self._kept).append(self._decorated(block))
            if self._streams and block.kind == "text":
                self._shown = self._speech.sent = True

    def _take(self) -> tuple[Block, ...]:
        ready, self._ready = tuple(self._ready), []
        return ready

    def _name(self, provider: str, model: str) -> None:
        """Who answers: some prefixes say so."""
        names = prefix_names(provider, model, self._manner.thinking, self._manner.identity)
        self._prefix = fill_prefix(self._manner.prefix, names)

    def _decorated(self, block: Block) -> Block:
        text = add_prefix(self._prefix, block.text.strip("\n"))
        return replace(block, text=text) if text != block.text else block

    def _add_usage(self, blocks: list[Block]) -> None:
        line = usage_line(self._usage, self._manner.usage, self._manner.session_key)
        if not line:
            return
        if blocks and blocks[-1].kind == "text" and blocks[-1].text:
            blocks[-1] = replace(blocks[-1], text=f"{blocks[-1].text}\n\n{line}")
        else:
            blocks.append(Block(line, "notice"))


def _is_hollow(text: str) -> bool:
    """Whether there is nothing in a text but the lines around code that is not there."""
    return all(not line.strip() or match_marker(line) for line in text.split("\n"))


def shape_reply(
    config: Config,
    session: Session,
    inbound: Inbound,
    *,
    thinking: str,
    text_limit: int,
    anew: str = "",
) -> Shape:
    """How a run is told to the chat its message came from, message by message or all at its end.

    `anew` is the id of a conversation that begins with this run.
    """
    to, occasion = inbound.address, inbound.occasion
    at = Surroundings(
        here=to,
        channel=_section(config, to),
        entry=session.record.data,
        session_key=session.key,
        new_session=anew,
        thinking=thinking,
        verbose=inbound.wishes.verbose,
        reasoning=inbound.wishes.reasoning,
        text_limit=text_limit,
        group=occasion.kind != "direct",
        mentioned=occasion.mentioned or occasion.answers_us,
    )
    found = manner(config, agent_of(session.key), at)
    return Shape(replace(found, streams=False), at_end=True, posts=found.streams)


def _section(config: Config, to: Address) -> Mapping[str, Json] | None:
    """What the config says of an account."""
    if to.channel not in config.channels:
        return None
    from homarus.config.channels import merged  # for who has channels

    return merged(config.channels, to.channel, to.account)
