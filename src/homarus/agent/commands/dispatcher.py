"""Dispatch chat commands and inline directives of messages, from every channel.

    control = SessionControl(SessionServices(…, interpret=dispatcher.interpret))

A message that is a command is executed at once, next to whatever runs. One of directives alone
changes the session's settings; next to other text they hold for that message alone. A command of
a sender without authority is ignored; the rest of what they write is plain text.

Commands are messages: accepted before they are executed and settled with their reply, so that a
crash loses none of them and repeats none that was answered.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from homarus.agent.commands.catalog import (
    BY_NAME,
    RESETS,
    ParsedCommand,
    is_abort_trigger,
    parse_command,
    parse_reset,
)
from homarus.agent.commands.context import AgentCommandContext, CommandServices
from homarus.agent.commands.inline_directives import (
    DIRECTIVES,
    GivenCommand,
    ParsedDirectives,
    extract_directives,
)
from homarus.agent.commands.listing import command_handlers
from homarus.agent.run import RunOutcome
from homarus.config.change_log import changes_by
from homarus.core.errors import HomarusError, RunCrashedError, UserError
from homarus.core.event import CommandAnswered, Event
from homarus.core.message import Inbound, Json, Message, Text
from homarus.core.session_keys import agent_id_of
from homarus.core.tasks import run_contained
from homarus.core.text import one_line
from homarus.plugins.commands import (
    CommandContext,
    CommandPorts,
    CommandReply,
)
from homarus.plugins.values import HookContext
from homarus.sessions.chat_fields import chat_fields
from homarus.sessions.control import InterpretedMessage, SessionControl
from homarus.store.base import TranscriptEntry
from homarus.store.journal import InboxRecord, JournalTransaction, Lease

_TRANSCRIPT_CHANNEL: Final = "webchat"  # its clients read the transcript: replies must be in it
_LISTS_COMMANDS: Final = frozenset({"telegram"})  # services that show a list of commands
_MAX_REASON_CHARS = 300
_NOT_AGAIN: Final = "it may have run, and is not run again; send it once more if it should be"

# What a message leads to: a reply, or a message that is left for a run.
CommandWork: TypeAlias = Callable[[AgentCommandContext], Awaitable[CommandReply | Inbound]]


class CommandDispatcher:
    """Interprets messages and executes the commands in them."""

    def __init__(self, services: CommandServices) -> None:
        self._services, self._journal = services, services.store.journal
        self._ports = CommandPorts(
            load_entry=self._load_entry,
            stop_runs=partial(services.control.stop, by="stop-command"),
            call_hooks=services.hooks.command,
            get_restart=services.get_restart,
            stop_children=services.control.stop_children,
        )

    def interpret(self, key: str, record: InboxRecord) -> InterpretedMessage[RunOutcome]:
        """Parse a message: a command, text with directives, or plain text."""
        inbound = record.inbound
        if inbound and inbound.metadata.approval:
            return self._interpret_answer(key, record, inbound)
        if inbound is None or self._is_text_only(inbound):
            return InterpretedMessage(record)
        parsed = self._parse(inbound.text) or self._parse_bang(inbound)
        if inbound.authority not in {"owner", "authorised"}:
            is_command = parsed is not None and not inbound.images
            ignore = partial(self._ignore, record) if is_command else None
            return InterpretedMessage(record, execute=ignore)
        if skill := self._interpret_skill(key, record, inbound, parsed):
            return skill
        if parsed and parsed.command.name in RESETS:
            rest = replace(record, inbound=replace(inbound, text=parsed.args or inbound.text))
            return self._as_command(key, record, inbound, partial(self._reset, parsed), rest)
        if inbound.images:  # text with an image is about the image
            parsed = None
        elif is_abort_trigger(inbound.text):
            parsed = ParsedCommand(BY_NAME["stop"])
        if parsed and parsed.command.name not in DIRECTIVES:
            return self._interpret_command(key, record, inbound, parsed)
        if parsed is None and (answer := self._find_answer(key, inbound)):
            answered = replace(inbound, metadata=replace(inbound.metadata, approval=answer))
            return self._interpret_answer(key, record, answered)
        return self._interpret_text(key, record, inbound, parsed)

    def _interpret_command(
        self, key: str, record: InboxRecord, inbound: Inbound, parsed: ParsedCommand
    ) -> InterpretedMessage[RunOutcome]:
        given = ((parsed.command.name, parsed.args),)
        handler = command_handlers().get(parsed.command.name)
        is_once = handler is not None and handler.runs_once
        work: CommandWork = partial(self._run_commands, given)
        if is_once and record.attempts:
            work = partial(_fail, UserError("the program ended while this ran", fix=_NOT_AGAIN))
        return self._as_command(key, record, inbound, work, is_once=is_once)

    def _interpret_skill(
        self, key: str, record: InboxRecord, inbound: Inbound, parsed: ParsedCommand | None
    ) -> InterpretedMessage[RunOutcome] | None:
        """Return what a run answers when the message is the command of a skill, else None."""
        if not inbound.text.lstrip().startswith("/"):
            return None
        if parsed and (parsed.command.name != "skill" or not parsed.args):
            return None
        from homarus.agent.commands.skills import find_skill_message

        try:
            invoked = find_skill_message(self._services, key, inbound, parsed)
        except UserError as exc:
            return self._as_command(key, record, inbound, partial(_fail, exc))
        return InterpretedMessage(replace(record, inbound=invoked)) if invoked else None

    def _find_answer(self, key: str, inbound: Inbound) -> str:
        """Return the id and the answer when a plain message answers a question of the agent."""
        if inbound.images or inbound.media or not self._services.open_questions():
            return ""
        from homarus.agent.commands.approvals import find_answered_question

        return find_answered_question(self.make_context(key, inbound))

    def _interpret_answer(
        self, key: str, record: InboxRecord, inbound: Inbound
    ) -> InterpretedMessage[RunOutcome]:
        """Return the press of a button that answers an approval, which is never text for a run."""
        if inbound.authority not in {"owner", "authorised"}:
            return InterpretedMessage(record, execute=partial(self._ignore, record))
        given = (("approve", inbound.metadata.approval),)
        return self._as_command(key, record, inbound, partial(self._run_commands, given))

    def _is_text_only(self, inbound: Inbound) -> bool:
        """Return whether commands are off: `commands.text`, in a chat that lists no commands.

        As in OpenClaw, services without a list of commands have text commands in any case. A
        message that no person sent, such as that of a sub-agent, is never a command.
        """
        if not inbound.authority or inbound.is_internal:
            return True
        config, channel = self._services.get_config(), inbound.address.channel
        if config.commands.text or channel not in _LISTS_COMMANDS:
            return False
        section = config.channels.get(channel)
        own = section.get("commands") if isinstance(section, Mapping) else None
        native = own.get("native") if isinstance(own, Mapping) else None
        return (config.commands.native if native is None else native) is False

    def _interpret_text(
        self, key: str, record: InboxRecord, inbound: Inbound, parsed: ParsedCommand | None
    ) -> InterpretedMessage[RunOutcome]:
        try:
            found = self._extract(key, inbound, parsed)
            self._check_elevated(key, inbound, found)
        except UserError as exc:
            return self._as_command(key, record, inbound, partial(_fail, exc))
        if found.commands:
            return self._as_command(
                key, record, inbound, partial(self._run_commands, found.commands)
            )
        if found.text == inbound.text.strip() and not found.shows_status:
            return InterpretedMessage(record)
        message = replace(inbound, text=found.text, options=found.options)
        rest = replace(record, inbound=message)
        if found.shows_status:
            show = partial(self._show_status, key, rest, message)
            return InterpretedMessage(rest, found.queue, show)
        return InterpretedMessage(rest, found.queue)

    def _as_command(
        self,
        key: str,
        record: InboxRecord,
        inbound: Inbound,
        work: CommandWork,
        rest: InboxRecord | None = None,
        *,
        is_once: bool = False,
    ) -> InterpretedMessage[RunOutcome]:
        """Return a message that is executed at once; `rest` is what of it a run would get."""
        execute = partial(self._execute, key, record, inbound, work, is_once=is_once)
        return InterpretedMessage(rest or record, execute=execute)

    def _parse(self, text: str) -> ParsedCommand | None:
        """Return the command that the complete message is; reset triggers mean `/new`."""
        triggers = self._services.get_config().session.reset_triggers
        return parse_command(text) or parse_reset(text, triggers)

    def _parse_bang(self, inbound: Inbound) -> ParsedCommand | None:
        """Return the `/bash` that `! COMMAND`, `!poll` or `!stop` of the owner is."""
        body = inbound.text.strip()
        if not body.startswith("!") or not body[1:].strip() or inbound.authority != "owner":
            return None
        if not self._services.get_config().commands.bash:
            return None  # a sentence may start with an exclamation mark
        return ParsedCommand(BY_NAME["bash"], body[1:].strip())

    def _extract(
        self, key: str, inbound: Inbound, parsed: ParsedCommand | None = None
    ) -> ParsedDirectives:
        config, models = self._services.get_config(), self._services.get_models()
        return extract_directives(inbound, parsed, config, models, key)

    def _check_elevated(self, key: str, inbound: Inbound, found: ParsedDirectives) -> None:
        """Raise UserError for an inline `/elevated` of a sender who may not have it."""
        if found.options.elevated in {None, "off"}:
            return
        if refusal := self.make_context(key, inbound).elevated_refusal:
            raise UserError(f"elevated commands are not for you here: {refusal}")

    @property
    def control(self) -> SessionControl[RunOutcome]:
        return self._services.control

    def make_context(self, key: str, inbound: Inbound, run_id: str = "") -> AgentCommandContext:
        """Return the context of a command in a session; its arguments are empty.

        `run_id` is the id of the command's message, for hooks: it is the same after a crash.
        """
        agent, channel = self._services.get_agent(agent_id_of(key)), inbound.address.channel
        run = inbound.run_id or run_id
        where = HookContext(agent.id, key, run, str(agent.workspace), channel)
        config = self._services.get_config()
        return AgentCommandContext(self._ports, config, where, key, inbound, "", self._services)

    async def _load_entry(self, key: str) -> Mapping[str, Json]:
        return (await self._services.control.load(key)).record.data

    # Execution

    async def _run_commands(
        self, given: Sequence[GivenCommand], context: AgentCommandContext
    ) -> CommandReply:
        """Run the commands of one message in order; return their replies as one."""
        replies = [await self._call(replace(context, args=args), name) for name, args in given]
        fields = {name: value for reply in replies for name, value in reply.fields.items()}
        on_saved = next((reply.on_saved for reply in replies if reply.on_saved), None)
        return CommandReply("\n".join(reply.text for reply in replies), fields, on_saved)

    async def _call(self, context: AgentCommandContext, name: str) -> CommandReply:
        if BY_NAME[name].owner_only and not context.is_owner:
            raise UserError(f"/{name} is for the owner alone")
        handler = command_handlers().get(name)
        if handler is None:
            raise UserError(f"/{name} is not built yet", fix="/commands lists what is")
        return await handler(context)

    async def _reset(
        self, parsed: ParsedCommand, context: AgentCommandContext
    ) -> CommandReply | Inbound:
        """Reset the session, perhaps with another model; return the message that follows."""
        from homarus.agent.commands import models as model_commands  # with the first command
        from homarus.agent.commands import sessions as session_commands

        name = parsed.command.name
        lines = await self._services.hooks.command(context.where, name, parsed.args)
        session = await session_commands.reset_session(context)
        first, _, rest = parsed.args.partition(" ")
        chosen = model_commands.find_named_model(context, first) if first else None
        text = rest.strip() if chosen else parsed.args
        if chosen:
            _, fields = await model_commands.choose_model(context, chosen)
            await session.update(**fields)
        found = self._extract(context.key, replace(context.inbound, text=text))
        if found.text or context.inbound.images:
            return replace(context.inbound, text=found.text, options=found.options)
        model = model_commands.describe_model(session, await context.default_model())
        reply = "\n".join([f"A new conversation. Model: {model}.", *lines])
        if not found.commands:
            return CommandReply(reply)
        more = await self._run_commands(found.commands, context)
        return CommandReply(f"{reply}\n{more.text}", more.fields)

    async def _execute(
        self,
        key: str,
        record: InboxRecord,
        inbound: Inbound,
        work: CommandWork,
        *,
        is_once: bool = False,
    ) -> RunOutcome | InboxRecord:
        """Execute a message and settle it; return the record that is left for a run.

        The attempt of a command that is executed once counts also if a clean stop cancels it.
        """
        with changes_by(f"{inbound.address.channel}:{inbound.sender}"):
            return await self._execute_leased(key, record, inbound, work, is_once=is_once)

    async def _execute_leased(
        self,
        key: str,
        record: InboxRecord,
        inbound: Inbound,
        work: CommandWork,
        *,
        is_once: bool,
    ) -> RunOutcome | InboxRecord:
        async with self._journal.lease(f"command:{record.id}") as lease:
            async with self._journal.transaction() as transaction:
                transaction.mark_running([record.id], lease, run=record.id)
            try:
                done = await _attempt(
                    f"command in {key}", lambda: work(self.make_context(key, inbound, record.id))
                )
            except asyncio.CancelledError:
                if self._services.control.is_shutting_down and not is_once:
                    async with self._journal.transaction() as transaction:
                        transaction.cancel_attempt([record.id], lease)
                raise
            if isinstance(done, Inbound):
                return replace(record, inbound=done, run=record.id, attempts=record.attempts + 1)
            if isinstance(done, HomarusError):
                return await self._report(key, record, inbound, lease, done)
            await self._settle(key, record, inbound, lease, done)
        self._publish(record.id, key, CommandAnswered(done.text))
        if done.on_saved:
            done.on_saved()
        return RunOutcome(record.id, key, "answered", text=done.text)

    async def _settle(
        self, key: str, record: InboxRecord, inbound: Inbound, lease: Lease, reply: CommandReply
    ) -> None:
        """Save the reply, the fields it changes and the outcome in one transaction."""
        at_ms = self._services.clock.now_ms()
        outbox = self._services.build_reply(inbound, record.id, reply.text)

        def extra_writes(
            transaction: JournalTransaction, entries: Sequence[TranscriptEntry]
        ) -> None:
            entry = entries[-1].id if entries else ""
            transaction.settle([record.id], lease, "answered", at_ms=at_ms, reply=entry)
            transaction.enqueue(*outbox)

        message = self._transcript_message(record, reply.text)
        if message or reply.fields:
            session = await self._services.control.load(key)
            fields = {**chat_fields(session.record.data, inbound, key), **reply.fields}
            await session.record_command(message, fields, extra_writes)
        else:
            async with self._journal.transaction() as transaction:
                extra_writes(transaction, ())
        if outbox:
            self._services.on_enqueued()

    async def _report(
        self, key: str, record: InboxRecord, inbound: Inbound, lease: Lease, error: HomarusError
    ) -> RunOutcome:
        """Settle a command that failed, and report the error to its sender."""
        outbox = self._services.build_reply(inbound, record.id, str(error))
        async with self._journal.transaction() as transaction:
            reason = one_line(str(error), _MAX_REASON_CHARS)
            at_ms = self._services.clock.now_ms()
            transaction.settle([record.id], lease, "reported", at_ms=at_ms, why=reason)
            transaction.enqueue(*outbox)
        if outbox:
            self._services.on_enqueued()
        self._publish(record.id, key, CommandAnswered(error=str(error)))
        return RunOutcome(record.id, key, "failed", error=error)

    async def _ignore(self, record: InboxRecord) -> RunOutcome:
        """Settle a command of a sender without authority, without a reply."""
        journal, at_ms = self._journal, self._services.clock.now_ms()
        reason = "a command of a stranger"
        async with (
            journal.lease(f"command:{record.id}") as lease,
            journal.transaction() as transaction,
        ):
            transaction.mark_running([record.id], lease, run=record.id)
            transaction.settle([record.id], lease, "silent", at_ms=at_ms, why=reason)
        return RunOutcome(record.id, record.session, "answered")

    async def _show_status(self, key: str, record: InboxRecord, inbound: Inbound) -> InboxRecord:
        """Send the status card; the rest of the message is answered even when that fails."""

        async def make_card() -> CommandReply:
            return await self._call(self.make_context(key, inbound), "status")

        reply = await _attempt(f"status in {key}", make_card)
        if not isinstance(reply, CommandReply):
            return record
        card, run = reply.text, f"{record.id}:status"
        if message := self._transcript_message(record, card):
            await (await self._services.control.load(key)).record_command(message, {})
        outbox = self._services.build_reply(inbound, run, card)
        if outbox:
            async with self._journal.transaction() as transaction:
                transaction.enqueue(*outbox)
            self._services.on_enqueued()
        self._publish(run, key, CommandAnswered(card))
        return record

    def _transcript_message(self, record: InboxRecord, text: str) -> Message | None:
        """Return a reply as a message of the transcript, for clients that read it there."""
        if record.channel != _TRANSCRIPT_CHANNEL:
            return None
        return Message("assistant", (Text(text),), self._services.clock.now_ms())

    def _publish(self, run_id: str, key: str, answer: CommandAnswered) -> None:
        now_ms = self._services.clock.now_ms()
        self._services.bus.publish(Event(run_id, key, 1, now_ms, answer))


async def _attempt(
    name: str, work: Callable[[], Awaitable[CommandReply | Inbound]]
) -> CommandReply | Inbound | HomarusError:
    """Return the result of `work`, or its error; a bug is logged."""
    done: CommandReply | Inbound | HomarusError = RunCrashedError(
        "the command met a bug and broke off", fix="homarus logs has the details"
    )

    async def run() -> None:
        nonlocal done
        try:
            done = await work()
        except HomarusError as exc:
            done = exc

    await run_contained(name, run, lambda _exc: None)
    return done


async def _fail(error: UserError, _context: CommandContext) -> CommandReply:
    raise error
