"""Build the blocks that a chat gets of a run from the run's events.

A `ReplyBuilder` receives every event of one run, in order, and returns blocks when messages are
saved or the run ends. It has no clock and does no I/O.

    builder = ReplyBuilder(resolve_reply_settings(config, agent_id, target))
    typing = builder.feed(event)       # whether the typing indicator is switched on or off
    blocks = builder.save(message)     # with `sends_on_save`: they are sent in that transaction
    end = builder.finish(reply)        # before the reply is saved: its blocks go with it

The run itself feeds it, not a subscriber of the bus, which may drop deltas. With `sends_on_save`
the text of a message is sent in the transaction that saves the message, so that a run which
resumes after a crash knows what was sent; otherwise every block comes from `finish`. With a
`BlockStream`, blocks of a message are sent before it is complete: `take_streamed` returns them, and
`save` and `finish` what is left of the message.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

from homarus.agent.reply.blocks import Block
from homarus.agent.reply.duplicate_filter import SentTexts
from homarus.agent.reply.reply_cleaner import clean_message
from homarus.agent.reply.reply_parser import ParsedReply
from homarus.agent.reply.settings import (
    DEFAULT_TEXT_LIMIT,
    ReplySettings,
    ReplyTarget,
    resolve_reply_settings,
)
from homarus.agent.reply.typing_policy import is_activity
from homarus.agent.reply.wording import (
    COMPACTED,
    EMPTY,
    add_prefix,
    failed_tool_notice,
    fill_prefix,
    new_session_notice,
    prefix_names,
    reasoning_text,
    usage_line,
)
from homarus.config.schema import Config
from homarus.core.channel_traits import FindTraits, no_traits
from homarus.core.event import (
    AttemptFailed,
    CompactionEnded,
    ErrorNoted,
    EventData,
    MessageSaved,
    RunEnded,
    RunStarted,
    TextAdded,
    ThinkingAdded,
    ToolEnded,
    ToolStarted,
)
from homarus.core.fast_dataclass import dataclass
from homarus.core.fences import match_marker
from homarus.core.message import Address, Inbound, Json, Message, ToolCall, ToolResult, Usage
from homarus.core.session_keys import agent_id_of
from homarus.core.silent_reply import is_silent_text, strip_heartbeat_ack
from homarus.sessions.session import Session
from homarus.tools.describe import format_call_line, format_output

if TYPE_CHECKING:  # imported where blocks are streamed
    from homarus.agent.reply.block_stream import BlockStream


@dataclass(frozen=True, slots=True)
class ReplyEnd:
    """The last blocks of a run; `status` is silent when the chat gets nothing of the run."""

    blocks: tuple[Block, ...]
    status: Literal["answered", "silent"]


class ReplyBuilder:
    """Builds the reply of one run for one chat."""

    def __init__(self, settings: ReplySettings, *, sends_on_save: bool = False) -> None:
        self._settings, self._sends_on_save = settings, sends_on_save
        self._stream: BlockStream | None = None
        self._is_heartbeat = settings.ack_max_chars is not None
        self._sent_texts = SentTexts(settings.address)
        self._texts: list[str] = []  # of the message being written
        self._thoughts: list[str] = []
        self._calls: dict[str, ToolCall] = {}
        self._failed_tool = ""  # the last that failed, until a call of it succeeds
        self._pending: list[Block] = []
        self._answered = 0  # so many of them, up to an answer, are sent also before a silent reply
        self._has_sent_text = False
        self._is_silent = False  # the last message is the silent reply
        self._read: Message | None = None  # the message that was read before it was saved
        self._usage = Usage()
        self._prefix = ""
        self._set_prefix("", "")

    @property
    def visible(self) -> str:
        """The visible text of the message being written; "" while it may become silent."""
        return "".join(self._texts)

    @property
    def preview(self) -> str:
        """The text that will be sent, as far as it is known; before text comes, the reasoning."""
        if self._is_heartbeat or self._settings.unasked:
            return ""
        text = self.visible or (reasoning_text(self.reasoning) if self.reasoning.strip() else "")
        blocks = [block.text for block in self._pending if block.kind == "text"]
        return "\n\n".join([*blocks, *([add_prefix(self._prefix, text)] if text.strip() else [])])

    @property
    def sends_on_save(self) -> bool:
        return self._sends_on_save

    def send_on_save(self) -> None:
        """Send each message when it is saved: an earlier attempt at the run did so."""
        self._sends_on_save = True

    def set_stream(self, stream: "BlockStream") -> None:
        """Stream blocks: `take_streamed` returns those of the message that is being written."""
        self._stream = stream

    @property
    def sent_texts(self) -> SentTexts:
        return self._sent_texts

    @property
    def settings(self) -> ReplySettings:
        return self._settings

    @property
    def reasoning(self) -> str:
        """The model's reasoning so far, where it is to be shown live."""
        return "".join(self._thoughts) if self._settings.reasoning == "stream" else ""

    @property
    def failed_tool(self) -> str:
        """The tool whose failure an answer without a text reports; "" for none."""
        return self._failed_tool if self._settings.reports_tool_error else ""

    def feed(self, data: EventData) -> bool | None:
        """Read one event; return whether typing is switched on or off, None for no change."""
        match data:
            case TextAdded():
                self._add_text(data)
            case ThinkingAdded(delta):
                self._thoughts.append(delta)
            case MessageSaved(message):
                if message.role == "assistant" and message is not self._read:
                    self._add_message(message)
            case ToolStarted() | ToolEnded():
                self._add_tool(data)
            case AttemptFailed(then=then):
                provider, _, model = then.partition(" ")[0].partition("/")
                self._start_message()
                if self._stream:
                    self._stream.restart()
                self._set_prefix(provider, model)
            case _:
                self._add_notice(data)
        if isinstance(data, RunEnded):
            return False
        mode, has_text = self._settings.typing, bool(self._texts)
        return is_activity(mode, data, has_text=has_text) or None

    def take_streamed(self) -> tuple[Block, ...]:
        """Return the blocks of the message being written that are ready, and what comes before."""
        streamed = self._stream.take() if self._stream else []
        if not streamed:
            return ()
        pending, self._pending, self._answered = self._pending, [], 0
        self._has_sent_text = True
        return (*pending, *map(self._decorated, streamed))

    def save(self, message: Message) -> tuple[Block, ...]:
        """Return the blocks that are sent together with saving this message."""
        if not self._sends_on_save:
            return ()
        if message.role == "assistant":
            self._read = message
            self._add_message(message)
        blocks, self._pending, self._answered = tuple(self._pending), [], 0
        self._has_sent_text = self._has_sent_text or any(block.kind == "text" for block in blocks)
        return blocks

    def restore(self, message: Message) -> None:
        """Read a message that an earlier attempt at this run saved, and sent if it does so."""
        if self._sends_on_save:
            self.save(message)
        else:
            self.feed(MessageSaved(message))
        for part in message.parts:
            if isinstance(part, ToolCall):
                self._sent_texts.start(part)
            elif isinstance(part, ToolResult):
                self._sent_texts.end(part)
                self._track_failure(part)

    def finish(self, reply: Message) -> ReplyEnd:
        """Read the last message of the run, before it is saved, and return what is left to send."""
        self._read = reply
        if self._is_heartbeat:
            self._pending, self._answered = [], 0  # text before the last message is no alert
        self._add_message(reply)
        blocks = self._pending[: self._answered] if self._is_silent else self._pending
        self._pending = []
        has_sent = self._has_sent_text or self._sent_texts.has_any
        has_text = has_sent or any(block.kind == "text" for block in blocks)
        if not has_text and not self._is_silent:
            notice = failed_tool_notice(self.failed_tool) if self.failed_tool else EMPTY
            blocks.append(self._decorated(Block(notice, "notice")))
        if blocks or self._has_sent_text:
            self._add_usage(blocks)
        return ReplyEnd(tuple(blocks), "answered" if blocks or has_sent else "silent")

    def fail(self, error: str) -> tuple[Block, ...]:
        """Return what is left to send of a run without an answer, and the error for its user."""
        self._start_message()
        pending, self._pending = self._pending, []
        return (*pending, self._decorated(Block(error, "error"))) if error else tuple(pending)

    def _add_text(self, added: TextAdded) -> None:
        if added.delta:
            self._texts.append(added.delta)
        if self._stream:
            self._stream.feed(added.delta, added.reply_to, reply_to_current=added.reply_to_current)

    def _add_message(self, message: Message) -> None:
        """Add the blocks of a complete message."""
        origin = message.origin
        self._start_message()
        if origin:
            self._usage += origin.usage
        if not (origin and origin.stop == "aborted"):  # a person stopped it: it is not sent
            self._add_reply(message, clean_message(message))
        if self._stream:
            self._stream.restart()

    def _add_reply(self, message: Message, reply: ParsedReply) -> None:
        self._is_silent = self._is_silent_reply(reply) and not reply.media
        if self._is_silent:
            return
        if self._settings.reasoning == "on" and reply.reasoning.strip():
            self._add(Block(reasoning_text(reply.reasoning), "reasoning"))
        target = Block("", reply_to=reply.reply_to, reply_to_current=reply.reply_to_current)
        text = self._unsent_text(reply.text)
        blocks = [replace(target, text=text)] if text else []
        if self._stream:
            blocks = self._stream.finish(text, reply.text, target)
        if reply.media:
            last = blocks.pop() if blocks else target
            as_voice = reply.as_voice
            blocks.append(replace(last, media=reply.media, as_voice=as_voice))
        for block in blocks:
            self._add(block)
        if not message.calls:  # an answer; later messages answer a steering message
            self._answered = len(self._pending)

    def _start_message(self) -> None:
        self._texts.clear()
        self._thoughts.clear()

    def _unsent_text(self, text: str) -> str:
        """Return the text without a heartbeat word; "" when it is empty or was sent by a tool."""
        max_chars = self._settings.ack_max_chars or 0
        text = strip_heartbeat_ack(text, heartbeat=self._is_heartbeat, max_chars=max_chars).text
        return "" if _is_blank(text) or self._sent_texts.contains(text) else text

    def _is_silent_reply(self, reply: ParsedReply) -> bool:
        max_chars = self._settings.ack_max_chars or 0
        ack = strip_heartbeat_ack(reply.text, heartbeat=self._is_heartbeat, max_chars=max_chars)
        return (
            reply.silent
            or (ack.skip and (ack.found or (self._is_heartbeat and not self.failed_tool)))
            or (self._settings.unasked and is_silent_text(reply.text))
        )

    def _add_tool(self, data: ToolStarted | ToolEnded) -> None:
        """Add a line about a tool's start or its output, where the chat wants to know."""
        text, verbose = "", self._settings.verbose
        if isinstance(data, ToolStarted):
            self._sent_texts.start(data.call)
            self._calls[data.call.id] = data.call
            text = format_call_line(data.call) if verbose != "off" else ""
        else:
            self._sent_texts.end(data.result)
            call = self._calls.pop(data.result.call_id, None)
            self._track_failure(data.result)
            text = format_output(call, data.result) if call and verbose == "full" else ""
        if text:
            self._add(Block(text, "tool"))

    def _track_failure(self, result: ToolResult) -> None:
        if result.is_error:
            self._failed_tool = result.name
        elif self._failed_tool == result.name:
            self._failed_tool = ""

    def _add_notice(self, data: EventData) -> None:
        """Add a notice about the run, where the chat wants to know."""
        text = ""
        match data:
            case RunStarted(provider, model):
                self._set_prefix(provider, model)
                text = (
                    new_session_notice(self._settings.new_session)
                    if self._settings.new_session
                    else ""
                )
            case CompactionEnded():
                text = COMPACTED
            case ErrorNoted(message):
                text = f"⚠️ {message}"
            case _:
                pass
        if text and self._settings.verbose != "off":
            self._add(Block(text, "notice"))

    def _add(self, block: Block) -> None:
        self._pending.append(self._decorated(block))

    def _set_prefix(self, provider: str, model: str) -> None:
        """Fill the prefix, which may name the model that answers."""
        settings = self._settings
        names = prefix_names(provider, model, settings.thinking, settings.identity)
        self._prefix = fill_prefix(settings.prefix, names)

    def _decorated(self, block: Block) -> Block:
        text = add_prefix(self._prefix, block.text.strip("\n"))
        return replace(block, text=text) if text != block.text else block

    def _add_usage(self, blocks: list[Block]) -> None:
        line = usage_line(self._usage, self._settings.usage, self._settings.session_key)
        if not line:
            return
        if blocks and blocks[-1].kind == "text" and blocks[-1].text:
            blocks[-1] = replace(blocks[-1], text=f"{blocks[-1].text}\n\n{line}")
        else:
            blocks.append(Block(line, "notice"))


def _is_blank(text: str) -> bool:
    """Whether a text has nothing but white space and the markers of empty code fences."""
    return all(not line.strip() or match_marker(line) for line in text.split("\n"))


def make_reply_builder(
    config: Config,
    session: Session,
    inbound: Inbound,
    *,
    thinking: str,
    new_session_id: str = "",
    find_traits: FindTraits = no_traits,
    text_limit: int = DEFAULT_TEXT_LIMIT,
) -> ReplyBuilder:
    """Return the builder for the chat that a message came from.

    `new_session_id` is set when the session starts with this run; `text_limit` is the longest
    message of the service.
    """
    to, metadata, heartbeat = inbound.address, inbound.metadata, inbound.options.heartbeat
    target = ReplyTarget(
        address=to,
        channel=_section(config, to),
        entry=session.record.data,
        session_key=session.key,
        new_session=new_session_id,
        thinking=thinking,
        verbose=inbound.options.verbose,
        reasoning=inbound.options.reasoning,
        group=metadata.kind != "direct",
        mentioned=metadata.mentioned or metadata.replies_to_us,
        heartbeat_chars=heartbeat.ack_max_chars if heartbeat else None,
        hides_tool_errors=heartbeat is not None and heartbeat.suppresses_tool_errors,
        traits=find_traits(to.channel),
        text_limit=text_limit,
    )
    settings = resolve_reply_settings(config, agent_id_of(session.key), target)
    return ReplyBuilder(settings, sends_on_save=settings.streams)


def _section(config: Config, to: Address) -> Mapping[str, Json] | None:
    """Return the config section of an account, with its channel's settings merged in."""
    if to.channel not in config.channels:
        return None
    from homarus.config.channels import merged_section  # only for config files that name channels

    return merged_section(config.channels, to.channel, to.account)
