"""One run: from a message to an answer that is saved. Lane, load, loop, save."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal, TypeAlias

from homarus.agent.agent import Agent
from homarus.agent.books import Books, Stranded
from homarus.agent.context.compact import Compaction
from homarus.agent.context.conversation import Conversation, Views
from homarus.agent.context.render import turn_limit
from homarus.agent.letters import Pack, Show, Telling
from homarus.agent.prompt.chat import NO_CHAT, Chat, chat_of, with_memory
from homarus.agent.prompt.composer import Composer
from homarus.agent.prompt.injection import kind_of
from homarus.agent.prompt.report import Place
from homarus.agent.repeats import Repeats
from homarus.agent.reply.excuse import excuse
from homarus.agent.scene import Scene, compact
from homarus.agent.spend import Spend, metered
from homarus.agent.tally import Call, Tallied, spent
from homarus.config.schema import Config
from homarus.config.zone import day_in
from homarus.core.bus import Bus
from homarus.core.channel_traits import FindTraits
from homarus.core.clock import Clock
from homarus.core.errors import (
    HomarusError,
    ProviderTimeout,
    RunBroke,
    Unavailable,
    UnknownName,
)
from homarus.core.event import (
    AttemptFailed,
    Emitter,
    Fact,
    RunEnded,
    RunStarted,
)
from homarus.core.faults import fault
from homarus.core.keys import agent_of
from homarus.core.lanes import Lanes
from homarus.core.message import (
    Inbound,
    Message,
    Stopped,
    StoppedBy,
    Text,
    Usage,
    user,
)
from homarus.core.tasks import contain
from homarus.core.value import dataclass
from homarus.core.watchdog import GRACE_S, Watchdog
from homarus.plugins.caller import Hooks
from homarus.plugins.values import Where
from homarus.providers.base import Provider, ThinkLevel
from homarus.providers.catalog import Model
from homarus.providers.models import Wish
from homarus.sessions.last_route import last_chat
from homarus.sessions.levels import think_level, think_levels
from homarus.sessions.send_policy import is_mute
from homarus.sessions.session import Session, Sessions
from homarus.store.base import Entry, Store, Unit
from homarus.store.journal import Accepted
from homarus.tools.registry import Registry
from homarus.tools.tool import Ask, Mail

if TYPE_CHECKING:  # for who is answered in a chat
    from homarus.agent.reply.shaping import Shape

SEVERAL = "several people"  # no service has such an id
BROKE_OFF = "the run broke off"  # the program is ending: no outcome says more

Connect: TypeAlias = Callable[[Wish], Awaitable[tuple[Provider, Model]]]
Steering: TypeAlias = Callable[[str], Sequence[Accepted]]
# How a session's run is told to its sender's chat; None where the run's events are all there is.
MakeShape: TypeAlias = "Callable[[Session, Inbound, str, str], Shape | None]"
Words: TypeAlias = Callable[[str, Inbound], str]  # a message as the model of a session reads it
# Begins to show a run to the chat of the messages it answers: what it has to say so far, and how
# often the typing sign is given. None where nothing can be shown.
Present: TypeAlias = Callable[[Sequence[Inbound], str, Callable[[], str], float], Show | None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended. Every run has exactly one."""

    run_id: str
    session_key: str
    status: Literal["answered", "failed", "aborted"]
    text: str = ""
    model: str = ""
    session_id: str = ""
    usage: Usage = field(default_factory=Usage)
    attempts: tuple[AttemptFailed, ...] = ()
    duration_ms: int = 0
    error: HomarusError | None = None


@dataclass(slots=True)
class _Live:
    """A run under way, and what can be done to it from outside."""

    run_id: str
    key: str
    emit: Callable[[Fact], None]
    attempts: list[AttemptFailed] = field(default_factory=list)
    scope: asyncio.Timeout | None = None  # while it can be stopped: in its lane, at work
    aborted: bool = False
    stopped_by: StoppedBy | None = None  # when a person did it
    shape: "Shape | None" = None
    show: Show | None = None
    where: Where = Where()
    session: Session | None = None  # once it is loaded
    chat: Chat = NO_CHAT

    def tell(self, fact: Fact) -> None:
        if isinstance(fact, AttemptFailed):
            self.attempts.append(fact)
        if self.shape:
            step = self.shape.feed(fact)
            if self.show:
                self.show.note(typing=step.typing)
        self.emit(fact)

    def sign(self, message: Message) -> Message:
        """An answer that a person cut short says who and how."""
        origin = message.origin
        if origin is None or origin.stop != "aborted" or self.stopped_by is None:
            return message
        return replace(
            message, origin=replace(origin, stopped=Stopped(self.run_id, self.stopped_by))
        )

    def abort(self) -> None:
        self.aborted = True
        if self.scope and not self.scope.expired():  # else it has not begun, or is ending
            self.scope.reschedule(0)


class Runner:
    """Runs agents. Built once, by app.py."""

    def __init__(
        self,
        *,
        sessions: Sessions,
        store: Store,
        bus: Bus,
        lanes: Lanes,
        clock: Clock,
        tools: Callable[[str], Registry],
        agent: Callable[[str], Agent],
        connect: Connect,
        ask: Callable[[Inbound], Ask],
        steering: Steering,
        words: Words,
        pack: Pack,
        posted: Callable[[], None],
        stranded: Stranded,
        watchdog: Watchdog,
        spend: Spend,
        hooks: Hooks,
        shape: MakeShape,
        find_traits: FindTraits,
        config: Callable[[], Config] = Config,
        present: Present = lambda _asked, _run, _look, _interval_s: None,
        mail: Mail | None = None,
        fresh: Callable[[Session, Inbound], bool] = lambda _session, _inbound: True,
        grace_s: float = GRACE_S,
    ) -> None:
        self._fresh, self._config, self._find_traits = fresh, config, find_traits
        self._present, self._mail = present, mail
        self._watchdog, self._grace_s, self._spend = watchdog, grace_s, spend
        self._views, self._hooks, self._shape = Views(), hooks, shape
        self._sessions, self._store, self._clock = sessions, store, clock
        self._bus, self._lanes = bus, lanes
        self._tools, self._agent, self._connect = tools, agent, connect
        self._ask, self._steering, self._words = ask, steering, words
        self._pack, self._posted, self._stranded = pack, posted, stranded
        self.composer = Composer()
        self._live: dict[str, _Live] = {}

    async def __call__(self, key: str, rows: Sequence[Accepted], text: str = "") -> Outcome:
        """Answer accepted messages as one; `text` stands for them when they were merged.

        Every failure is an outcome. A run that the end of the program cuts off has none: the
        next start goes on with it.
        """
        run_id = rows[0].id
        emit = Emitter(run_id, key, self._bus.publish, self._clock.now_ms)
        live = self._live[key] = _Live(run_id, key, emit)
        started = self._clock.monotonic()
        outcome = Outcome(run_id, key, "failed")
        lane = f"session:{key}"
        try:
            async with self._lanes.enter(lane), self._store.journal.lease(lane) as lease:
                books = Books(
                    self._store, rows, lease,
                    pack=self._pack, posted=self._posted, now_ms=self._clock.now_ms,
                    hooks=self._hooks, stranded=self._stranded,
                )  # fmt: skip
                outcome = await self._attempt(rows, text, books, live)
                if outcome.status == "aborted":
                    await books.report("aborted", "")
                elif outcome.error:
                    await books.report(str(outcome.error), excuse(outcome.error))
        finally:
            del self._live[key]
            self._spend.end(run_id)
            if live.show:
                live.show.close()
            outcome = replace(outcome, attempts=tuple(live.attempts))
            aborted = outcome.status == "aborted"
            error = str(outcome.error or (BROKE_OFF if outcome.status == "failed" else ""))
            emit(RunEnded(error=error, aborted=aborted, attempts=outcome.attempts))
        duration_ms = round((self._clock.monotonic() - started) * 1000)
        messages = live.session.messages if live.session else ()
        await self._hooks.agent_end(live.where, messages, error, duration_ms)
        return replace(outcome, duration_ms=duration_ms)

    def abort(self, key: str, run_id: str | None = None) -> tuple[str, ...]:
        """Stop the live run of a session; the ids of what was stopped."""
        live = self._live.get(key)
        if live is None or (run_id and live.run_id != run_id):
            return ()
        live.abort()
        return (live.run_id,)

    def sign_stop(self, key: str, run_id: str | None, by: StoppedBy) -> None:
        """A person is about to stop the live run of a session: what it has said is signed so."""
        live = self._live.get(key)
        if live and run_id in (None, live.run_id):
            live.stopped_by = by

    def live(self, key: str | None = None) -> tuple[str, ...]:
        """The ids of the runs under way, of one session or of all."""
        return tuple(run.run_id for at, run in self._live.items() if key in (None, at))

    async def _attempt(
        self, rows: Sequence[Accepted], text: str, books: Books, live: _Live
    ) -> Outcome:
        """Run until there is an outcome: an answer, a failure, the deadline or a person's stop."""
        outcome = Outcome(live.run_id, live.key, "failed")

        async def run() -> None:
            nonlocal outcome
            try:
                async with asyncio.timeout(0 if live.aborted else None) as scope:
                    live.scope = scope
                    async with self._lanes.enter("main"):
                        outcome = await self._watchdog.bounded(
                            f"run {live.key}",
                            lambda: self._answer(rows, text, books, live),
                            scope,
                            grace_s=self._grace_s,
                        )
            except TimeoutError:
                outcome = _stopped(outcome, live)
            except HomarusError as exc:
                outcome = replace(outcome, error=exc)
            finally:
                live.scope = None

        def broke(exc: Exception) -> None:
            nonlocal outcome
            told = f"the run met a bug and broke off ({type(exc).__name__})"
            outcome = replace(outcome, error=RunBroke(told, fix="homarus logs has the details"))

        await contain(f"run {live.key}", run, broke)
        return outcome

    async def _answer(
        self, rows: Sequence[Accepted], text: str, books: Books, live: _Live
    ) -> Outcome:
        inbound = _merged(rows, text)
        agent, wishes = self._agent(agent_of(live.key)), inbound.wishes
        if live.scope and not live.aborted:  # a run may be stopped before it begins
            limit_s = wishes.timeout_s or agent.timeout_s
            live.scope.reschedule(asyncio.get_running_loop().time() + limit_s)
        live.where = Where(
            agent.id, live.key, live.run_id, str(agent.workspace), inbound.address.channel
        )
        session = live.session = await self._open(rows[0], inbound, agent, live.where)
        rules = self._config().session.send_policy
        mute = is_mute(rules, session.key, session.record.data, inbound)
        books.letters.begin(Telling(mute=mute))  # also of what goes wrong before more is known
        provider, model = await self._connect(_wish(agent, session, wishes.model))
        thinking = _level(wishes.thinking or session.thinking or agent.thinking, model)
        anew = "" if session.is_used or rows[0].entry else session.session_id
        live.shape = self._shape(session, inbound, thinking, anew)
        if live.shape and not mute:
            live.show = self._show(rows, books, live.shape)
        attach = partial(self._mail.attach, workspace=agent.workspace) if self._mail else None
        books.letters.begin(Telling(live.shape, live.show, attach, mute))
        live.tell(RunStarted(provider=model.provider, model=model.id))
        provider = metered(provider, self._spend, model, live.run_id)
        provider = Tallied(provider, model.ref, books.note_call)
        live.chat = self._chat(session, [row.inbound for row in rows if row.inbound])
        tools = live.chat.tools(self._tools(agent.id))
        talk = await self._talk(
            session, agent, provider, model, thinking, chat=live.chat, tools=tools
        )
        cut_off = await self._go_on(session, books, rows, live)
        if cut_off is None:
            cut_off = frozenset()
            await self._begin(talk, inbound, books, live.where)
        fault("run.begun")
        scene = Scene(
            talk=talk,
            provider=provider,
            tools=tools,
            rules=lambda: live.chat.rules,
            books=books,
            cut_off=cut_off,
            repeats=Repeats(agent.loops),
            ask=self._ask(inbound),
            steering=lambda: self._steered(session, live, books),
            tell=live.tell,
            sign=live.sign,
            now_ms=self._clock.now_ms,
            today=lambda: day_in(agent.timezone, self._clock.now_ms()),
            hooks=self._hooks,
            where=live.where,
            inbound=inbound,
            mail=None if mute else self._mail,
        )
        reply = await scene.play()
        origin = reply.origin
        assert origin is not None  # noqa: S101 - a provider's Message says who wrote it
        return Outcome(
            live.run_id,
            live.key,
            "answered",
            text=reply.text,
            model=f"{origin.provider}/{origin.model}",
            session_id=session.session_id,
            usage=origin.usage,
        )

    def _show(self, rows: Sequence[Accepted], books: Books, shape: "Shape") -> Show | None:
        """Show the run to its chat: its words where no hook has a say in them."""
        asked = [row.inbound for row in rows if row.inbound]
        look = str if self._hooks.has("message_sending") else lambda: shape.preview
        # Under the name of an earlier attempt stands what was sent since: it is not shown anew.
        run = books.attempt if shape.posts and rows[0].entry else books.run
        return self._present(asked, run, look, shape.manner.typing_interval_s)

    async def _open(self, row: Accepted, inbound: Inbound, agent: Agent, where: Where) -> Session:
        """The session a message belongs to, begun anew when its time is over."""
        session = await self._sessions.load(where.session_key, agent.id, cwd=where.workspace)
        if row.entry:
            return session
        await self._hooks.message_received(where, inbound)
        before = ""
        if not self._fresh(session, inbound):
            before = session.session_id
            await self._hooks.session_end(where, before, len(session.messages))
            await session.reset()
        if not session.is_used:
            await self._hooks.session_start(where, session.session_id, before)
        return session

    async def _begin(
        self, talk: Conversation, inbound: Inbound, books: Books, where: Where
    ) -> None:
        """Save the question a run starts with."""
        session, model = talk.session, talk.model
        question = self._question(where.session_key, inbound)
        told = await self._hooks.before_agent_start(where, question.text, session.messages)
        if told:
            question = replace(question, parts=(Text(f"{told}\n\n"), *question.parts))
        place = Place(
            where.session_key, session.session_id, model.provider, model.id, self._clock.now_ms()
        )
        await session.begin(
            await talk.illustrate(question),
            provider=model.provider,
            model=model.id,
            thinking=talk.thinking,
            api=talk.api,
            window=model.window,
            came_by=inbound.address,
            also=books.begin(session),
            news=self.composer.news(place, session.record.data),
        )

    async def _go_on(
        self, session: Session, books: Books, rows: Sequence[Accepted], live: _Live
    ) -> frozenset[str] | None:
        """Take up where an earlier run broke off; the calls whose outcome nobody knows.

        None when there was none, or when a person has a message tried again that the
        conversation has left behind: then it is asked anew.
        """
        asked_by = [row.entry for row in rows if row.entry]
        if not asked_by:
            return None
        started = await books.open_calls()
        said = await session.go_on(asked_by, also=books.begin(session))
        if said is None and rows[0].attempts:
            raise Unavailable("the conversation went on without this message; send it again")
        if said is None:
            return None
        if live.shape:
            for message in said:
                live.shape.recall(message)
        return started

    def _question(self, key: str, inbound: Inbound) -> Message:
        at_ms = inbound.at_ms or self._clock.now_ms()
        return user(self._words(key, inbound), *inbound.images, at_ms=at_ms)

    def _steered(self, session: Session, live: _Live, books: Books) -> list[Message]:
        """What a person said meanwhile; this run answers for it from now on.

        It does for nobody what it may not do for one of them.
        """
        messages = list[Message]()
        for row in self._steering(live.key):
            if row.inbound:
                rules = (*live.chat.rules, *self._chat(session, [row.inbound]).rules)
                live.chat = replace(live.chat, rules=tuple(dict.fromkeys(rules)))
                messages.append(books.take(row, self._question(live.key, row.inbound)))
        return messages

    def _chat(self, session: Session, asked: Sequence[Inbound] = ()) -> Chat:
        """What the config says of the chat these came from, else where the session was last."""
        config, group = self._config(), kind_of(session.key) == "group"
        if not asked or asked[0].address.channel not in config.channels:
            here = last_chat(session.record.data)
            chat = chat_of(config, here, find_traits=self._find_traits, group=group)
            return with_memory(chat, config, session.key, here.channel, group=group)
        group = group or any(one.occasion.kind != "direct" for one in asked)
        senders, parent = [one.sender for one in asked], asked[0].occasion.parent
        here = asked[0].address
        chat = chat_of(
            config, here, senders, find_traits=self._find_traits, group=group, parent=parent
        )
        return with_memory(chat, config, session.key, here.channel, group=group)

    async def _talk(
        self,
        session: Session,
        agent: Agent,
        provider: Provider,
        model: Model,
        thinking: ThinkLevel,
        *,
        chat: Chat,
        tools: Registry,
    ) -> Conversation:
        """A session's conversation with a model, with the prompt it has now."""
        files = await self.composer.hooked_files(agent, session.key, self._hooks)
        prompt = self.composer.compose(
            agent, session.key, model, tools.specs(),
            files=files, entry=session.record.data, chat=chat,
        )  # fmt: skip
        return Conversation(
            session,
            agent,
            provider,
            model,
            system=prompt.text,
            tools=prompt.facts.tools,
            thinking=thinking,
            views=self._views,
            now_ms=self._clock.now_ms,
            max_turns=turn_limit(self._config().channels, session.key),
        )

    async def compact(self, key: str, instructions: str = "") -> Compaction:
        """Put the old part of a conversation away, because a person wants it."""
        agent, lane = self._agent(agent_of(key)), f"session:{key}"
        async with self._lanes.enter(lane, "main"):
            session = await self._sessions.load(key, agent.id, cwd=str(agent.workspace))
            provider, model = await self._connect(_wish(agent, session))
            run, calls = f"compact:{key}", list[Call]()
            provider = metered(provider, self._spend, model, run)
            provider = Tallied(provider, model.ref, calls.append)
            chat = self._chat(session)
            tools = chat.tools(self._tools(agent.id))
            talk = await self._talk(session, agent, provider, model, "off", chat=chat, tools=tools)

            def also(unit: Unit, _entries: Sequence[Entry]) -> None:
                at_ms = self._clock.now_ms()
                unit.add_spent(*(spent(call, run, key, at_ms) for call in calls))

            where = Where(agent.id, key, "", str(agent.workspace))
            try:
                return await compact(
                    talk, self._hooks, where, also, instructions=instructions, wanted=True
                )
            finally:
                self._spend.end(run)


def _merged(rows: Sequence[Accepted], text: str) -> Inbound:
    """The messages of a run as one: the words given for them, the pictures and files of all.

    What several people said is nobody's in particular: the words say whose they are.
    """
    messages = [row.inbound for row in rows if row.inbound]
    first, senders = messages[0], {one.sender for one in messages if one.text or one.media}
    whole = replace(
        first,
        text=text or first.text,
        images=tuple(image for message in messages for image in message.images),
        media=tuple(media for message in messages for media in message.media),
        before="\n".join(message.before for message in messages if message.before),
    )
    if not text or len(senders) < 2:
        return whole
    return replace(whole, sender=SEVERAL, occasion=replace(first.occasion, name="", handle=""))


def _wish(agent: Agent, session: Session, model: str | None = None) -> Wish:
    """Who should answer: the model a message asks for, else the session's, else the agent's."""
    ref, locked = model or session.model or agent.model, session.profile_locked
    return Wish(agent.id, ref, agent.fallbacks, session.profile, locked=locked)


def _stopped(outcome: Outcome, live: _Live) -> Outcome:
    if live.aborted:
        return replace(outcome, status="aborted")
    late = ProviderTimeout(
        "the run took longer than its deadline",
        fix="raise agents.defaults.timeoutSeconds, or ask for less at once",
    )
    return replace(outcome, error=late)


def _level(asked: str | None, model: Model) -> ThinkLevel:
    """How hard to think: as asked; when nobody asked, a little where the model can."""
    if asked is None:
        return model.usual_thinking
    level = think_level(asked)
    if level is None:
        raise UnknownName("thinking level", asked, think_levels(model.provider, model.id))
    return level
