"""Chat commands and inline directives: heard in every message, whichever way it came in.

    reception = Reception(…, hear=commands.hear)

A message that is a command is obeyed at once, whatever runs. One that is only directives changes
the session's settings; with other words beside them they hold for that message alone. Who may
not give commands is not answered when that is all he says, and his other words are just words.

Commands are messages: accepted before they are obeyed and settled with their reply, so that a
crash loses none of them and repeats none that was answered.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

from homarus.agent.commands import models as model_commands
from homarus.agent.commands import sessions as session_commands
from homarus.agent.commands import settings as setting_commands
from homarus.agent.commands.orders import Answer, Order, Program, Reply
from homarus.agent.commands.wishes import DIRECTIVES, Given, Reading, read
from homarus.agent.run import Outcome
from homarus.config.schema import Commands as CommandRules
from homarus.core.errors import HomarusError, RunBroke, UserError
from homarus.core.event import CommandAnswered, Event
from homarus.core.message import Inbound, Message, Text
from homarus.core.tasks import contain
from homarus.core.text import one_line
from homarus.sessions.commands import (
    COMMANDS,
    Category,
    Spoken,
    is_abort_trigger,
    parse_command,
)
from homarus.sessions.reception import Heard
from homarus.sessions.reset import after_trigger
from homarus.store.base import Entry
from homarus.store.journal import Accepted, BuildReply, JournalUnit, Lease

_FIRST: Final = (
    "new", "stop", "status", "model", "think", "verbose", "reasoning", "usage", "queue",
    "compact", "context", "export-session", "whoami", "commands",
)  # fmt: skip
_RESETS: Final = frozenset({"new", "reset"})
_OWN_TRANSCRIPT: Final = "webchat"  # reads the session itself: replies must stand in it
_MAX_WHY_CHARS = 300

# What a message is to do: it ends in a reply, or in words that are left for a run.
Work: TypeAlias = Callable[[Order], Awaitable[Reply | Inbound]]


class Commands:
    """Hears commands and obeys them. Built once, by app.py."""

    def __init__(self, program: Program, *, pack: BuildReply, posted: Callable[[], None]) -> None:
        self._program, self._pack, self._posted = program, pack, posted

    def hear(self, key: str, row: Accepted) -> Heard[Outcome]:
        """What a message is: a command, words with wishes, or just words."""
        inbound = row.inbound
        if inbound is None or not inbound.authority:
            return Heard(row)
        spoken = self._spoken(inbound.text)
        if inbound.authority not in {"owner", "authorised"}:
            is_command = spoken is not None and not inbound.images
            return Heard(row, instead=partial(self._ignore, row)) if is_command else Heard(row)
        if spoken and spoken.command.name in _RESETS:
            left = replace(row, inbound=replace(inbound, text=spoken.args or inbound.text))
            return self._heard(key, row, inbound, partial(self._anew, spoken), left)
        if inbound.images:  # whoever sends a picture says something about it
            spoken = None
        elif is_abort_trigger(inbound.text):
            spoken = Spoken(_NAMED["stop"])
        if spoken and spoken.command.name not in DIRECTIVES:
            given = ((spoken.command.name, spoken.args),)
            return self._heard(key, row, inbound, partial(self._answer, given))
        return self._hear_words(key, row, inbound, spoken)

    def _hear_words(
        self, key: str, row: Accepted, inbound: Inbound, spoken: Spoken | None
    ) -> Heard[Outcome]:
        try:
            reading = self._read(inbound, spoken)
        except UserError as exc:
            return self._heard(key, row, inbound, partial(_fail, exc))
        if reading.given:
            return self._heard(key, row, inbound, partial(self._answer, reading.given))
        if reading.text == inbound.text.strip() and not reading.shows_status:
            return Heard(row)
        words = replace(inbound, text=reading.text, wishes=reading.wishes)
        left = replace(row, inbound=words)
        if reading.shows_status:
            return Heard(left, reading.queue, partial(self._show_status, key, left, words))
        return Heard(left, reading.queue)

    def _heard(
        self, key: str, row: Accepted, inbound: Inbound, work: Work, left: Accepted | None = None
    ) -> Heard[Outcome]:
        """A message that is work to be done at once; `left` is what of it a run would get."""
        return Heard(left or row, instead=partial(self._obey, key, row, inbound, work))

    def _spoken(self, text: str) -> Spoken | None:
        """The command that a whole message is; the config has words of its own for `/new`."""
        if spoken := parse_command(text):
            return spoken
        rest = after_trigger(text, self._program.loaded.config.session.reset_triggers)
        return None if rest is None else Spoken(_NAMED["new"], rest)

    def _read(self, inbound: Inbound, spoken: Spoken | None = None) -> Reading:
        return read(inbound, spoken, self._program.loaded.config, self._program.models)

    # What is done

    async def _answer(self, given: Sequence[Given], order: Order) -> Reply:
        """Obey commands of one message in order; what they say and change together."""
        replies = [await self._call(replace(order, args=args), name) for name, args in given]
        fields = {name: value for reply in replies for name, value in reply.fields.items()}
        then = next((reply.then for reply in replies if reply.then), None)
        return Reply("\n".join(reply.text for reply in replies), fields, then)

    async def _call(self, order: Order, name: str) -> Reply:
        if _NAMED[name].owner_only and not order.is_owner:
            raise UserError(f"/{name} is for the owner alone")
        answer = ANSWERS.get(name)
        if answer is None:
            raise UserError(f"/{name} is not built yet", fix="/commands lists what is")
        return await answer(order)

    async def _anew(self, spoken: Spoken, order: Order) -> Reply | Inbound:
        """A new conversation, perhaps with another model, and what is said in it first."""
        name = spoken.command.name
        hints = await self._program.hooks.command(order.where, name, spoken.args)
        session = await session_commands.start_afresh(order)
        first, _, rest = spoken.args.partition(" ")
        chosen = model_commands.named(order, first) if first else None
        text = rest.strip() if chosen else spoken.args
        if chosen:
            _, fields = await model_commands.choose(order, chosen)
            await session.update(**fields)
        reading = self._read(replace(order.inbound, text=text))
        if reading.text or order.inbound.images:
            return replace(order.inbound, text=reading.text, wishes=reading.wishes)
        usual = await order.usual_model()
        told = [f"A new conversation. Model: {model_commands.describe(session, usual)}.", *hints]
        if not reading.given:
            return Reply("\n".join(told))
        more = await self._answer(reading.given, order)
        return Reply("\n".join([*told, more.text]), more.fields)

    async def _obey(
        self, key: str, row: Accepted, inbound: Inbound, work: Work
    ) -> Outcome | Accepted:
        """Do what a message says and settle it; what is left for a run comes back as a row."""
        order = Order(self._program, key, inbound)
        async with self._program.store.journal.lease(f"command:{row.id}") as lease:
            async with self._program.store.journal.commit() as unit:
                unit.start([row.id], lease, run=row.id)
            done = await _attempt(f"command in {key}", lambda: work(order))
            if isinstance(done, Inbound):
                return replace(row, inbound=done, run=row.id, attempts=row.attempts + 1)
            if isinstance(done, HomarusError):
                return await self._report(key, row, inbound, lease, done)
            await self._settle(key, row, inbound, lease, done)
        self._tell(row.id, key, CommandAnswered(done.text))
        if done.then:
            done.then()
        return Outcome(row.id, key, "answered", text=done.text)

    async def _settle(
        self, key: str, row: Accepted, inbound: Inbound, lease: Lease, reply: Reply
    ) -> None:
        """The reply, what it changes and the outcome, in one commit."""
        at_ms = self._program.clock.now_ms()
        parcels = self._pack(inbound, row.id, reply.text)

        def also(unit: JournalUnit, entries: Sequence[Entry]) -> None:
            entry = entries[-1].id if entries else ""
            unit.settle([row.id], lease, "answered", at_ms=at_ms, reply=entry)
            unit.post(*parcels)

        told = self._message(row, reply.text)
        if told or reply.fields:
            await (await self._program.session(key)).note(told, reply.fields, also)
        else:
            async with self._program.store.journal.commit() as unit:
                also(unit, ())
        if parcels:
            self._posted()

    async def _report(
        self, key: str, row: Accepted, inbound: Inbound, lease: Lease, error: HomarusError
    ) -> Outcome:
        """It could not be done: the sender is told why."""
        parcels = self._pack(inbound, row.id, str(error))
        async with self._program.store.journal.commit() as unit:
            why, at_ms = one_line(str(error), _MAX_WHY_CHARS), self._program.clock.now_ms()
            unit.settle([row.id], lease, "reported", at_ms=at_ms, why=why)
            unit.post(*parcels)
        if parcels:
            self._posted()
        self._tell(row.id, key, CommandAnswered(error=str(error)))
        return Outcome(row.id, key, "failed", error=error)

    async def _ignore(self, row: Accepted) -> Outcome:
        """A command of somebody who may give none: nothing is done or said."""
        journal, at_ms = self._program.store.journal, self._program.clock.now_ms()
        why = "a command of a stranger"
        async with journal.lease(f"command:{row.id}") as lease, journal.commit() as unit:
            unit.start([row.id], lease, run=row.id)
            unit.settle([row.id], lease, "silent", at_ms=at_ms, why=why)
        return Outcome(row.id, row.session, "answered")

    async def _show_status(self, key: str, row: Accepted, inbound: Inbound) -> Accepted:
        """The card, beside the answer to the rest of a message, which is owed whatever comes."""
        order = Order(self._program, key, inbound)
        made = await _attempt(f"status in {key}", lambda: self._call(order, "status"))
        if not isinstance(made, Reply):
            return row
        card, run = made.text, f"{row.id}:status"
        if told := self._message(row, card):
            await (await self._program.session(key)).note(told, {})
        parcels = self._pack(inbound, run, card)
        if parcels:
            async with self._program.store.journal.commit() as unit:
                unit.post(*parcels)
            self._posted()
        self._tell(run, key, CommandAnswered(card))
        return row

    def _message(self, row: Accepted, text: str) -> Message | None:
        """A reply for the transcript, where that is what its reader looks at."""
        if row.channel != _OWN_TRANSCRIPT:
            return None
        return Message("assistant", (Text(text),), self._program.clock.now_ms())

    def _tell(self, run_id: str, key: str, fact: CommandAnswered) -> None:
        self._program.bus.publish(Event(run_id, key, 1, self._program.clock.now_ms(), fact))


async def _attempt(
    name: str, work: Callable[[], Awaitable[Reply | Inbound]]
) -> Reply | Inbound | HomarusError:
    """What came of it; a bug is an error like any other, and in the log."""
    done: Reply | Inbound | HomarusError = RunBroke(
        "the command met a bug and broke off", fix="homarus logs has the details"
    )

    async def run() -> None:
        nonlocal done
        try:
            done = await work()
        except HomarusError as exc:
            done = exc

    await contain(name, run, lambda _exc: None)
    return done


async def _fail(error: UserError, _order: Order) -> Reply:
    raise error


# The commands that are built, each by its function


async def _help(_order: Order) -> Reply:
    lines = [_line(name) for name in _FIRST]
    return Reply("\n".join([*lines, "A directive inside a message holds for that message alone."]))


async def _commands(_order: Order) -> Reply:
    built = {*ANSWERS, *_RESETS}
    lines = list[str]()
    for category in dict.fromkeys(command.category for command in COMMANDS):
        names = [c.name for c in COMMANDS if c.category == category and c.name in built]
        lines += [f"{_TITLES[category]}:", *map(_line, names), ""] if names else []
    missing = ", ".join(f"/{c.name}" for c in COMMANDS if c.name not in built)
    return Reply("\n".join([*lines, f"Not built yet: {missing}"]))


_TITLES: Final[Mapping[Category, str]] = {
    "session": "Conversation", "options": "Settings", "status": "Looking", "media": "Media",
    "management": "Management", "tools": "Tools", "docks": "Other channels",
}  # fmt: skip


def _line(name: str) -> str:
    command = _NAMED[name]
    shown = "export" if name == "export-session" else name
    return f"/{shown}{f' {command.args}' if command.args else ''} - {command.help}"


_NAMED: Final = {command.name: command for command in COMMANDS}
ANSWERS: Final[Mapping[str, Answer]] = {
    "help": _help,
    "commands": _commands,
    "status": session_commands.status,
    "whoami": session_commands.whoami,
    "context": session_commands.context,
    "export-session": session_commands.export,
    "compact": session_commands.compact,
    "stop": session_commands.stop,
    "restart": session_commands.restart,
    "model": model_commands.model,
    "models": model_commands.models,
    "think": setting_commands.think,
    "verbose": setting_commands.verbose,
    "reasoning": setting_commands.reasoning,
    "elevated": setting_commands.elevated,
    "usage": setting_commands.usage,
    "send": setting_commands.send,
    "activation": setting_commands.activation,
    "queue": setting_commands.set_queue,
}


def native_commands(rules: CommandRules) -> tuple[tuple[str, str], ...]:
    """Name and meaning of the commands for services that list them to people."""
    if rules.native is False:
        return ()
    built = {*ANSWERS, *_RESETS}
    return tuple((one.name, one.help) for one in COMMANDS if one.name in built)
