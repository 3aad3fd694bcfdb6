"""The composition root: the only module that knows every other.

Strangers meet here, through function arguments: the runner is told where sessions live, how a
model is reached and who answers a question, and knows none of those by itself.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING

from homarus.agent.boot import boot
from homarus.agent.cast import Cast
from homarus.agent.commands.table import Commands, native_commands
from homarus.agent.prompt.hearing import hear
from homarus.agent.remembering import Remembering
from homarus.agent.run import Outcome
from homarus.agent.run_registry import RunRegistry
from homarus.agent.services import RunServices
from homarus.agent.spend import Spend
from homarus.agent.status import Status, status_of
from homarus.channels.base import Channel
from homarus.channels.front import Front
from homarus.channels.mail import Mailbox
from homarus.channels.roster import find_traits
from homarus.config.load import Loaded, load
from homarus.config.log import set_up
from homarus.config.paths import Paths
from homarus.config.resolve import agent_settings, agents, default_agent
from homarus.config.zone import day_in, zone_name
from homarus.core.bus import Bus
from homarus.core.channel_traits import FindTraits
from homarus.core.clock import Clock, SystemClock
from homarus.core.errors import HomarusError
from homarus.core.keys import agent_of, store_key
from homarus.core.lanes import Lanes
from homarus.core.message import Inbound, Outbound, StoppedBy
from homarus.core.tasks import task_group
from homarus.core.watchdog import Watchdog
from homarus.plugins.caller import Hooks
from homarus.providers.models import Models, Wish
from homarus.sessions.maintenance import Upkeep
from homarus.sessions.notices import Notices
from homarus.sessions.queue import pause_ms
from homarus.sessions.reception import Reception
from homarus.sessions.reset import is_fresh
from homarus.sessions.send_policy import is_mute
from homarus.sessions.session import Session, Sessions
from homarus.store.base import Store
from homarus.store.journal import Accepted
from homarus.store.sqlite import SqliteStore, open_store
from homarus.tools.tool import Ask, nobody

if TYPE_CHECKING:
    from homarus.agent.reply.builder import ReplyBuilder
    from homarus.gateway.serve import Ending


class App:
    """Everything that runs, put together. Open it with `open_app`."""

    def __init__(
        self,
        *,
        loaded: Loaded,
        paths: Paths,
        models: Models,
        store: Store,
        group: asyncio.TaskGroup,
        clock: Clock,
        ask: Ask,
        channels: Sequence[Channel] = (),
    ) -> None:
        self.loaded, self.paths, self.models = loaded, paths, models
        self._retired: list[Models] = []  # of an older config; live runs may still use them
        self.store, self.sessions = store, Sessions(store, clock)
        self.bus, self.notices, self.watchdog = Bus(), Notices(), Watchdog()
        self._group: asyncio.TaskGroup = group
        self.clock, self.hooks = clock, Hooks()
        self.find_traits: FindTraits = find_traits
        config, env = (lambda: self.loaded.config), (lambda: self.loaded.env)
        self.memories = Remembering(config, paths, env, store=store, group=group, clock=clock)
        self._cast = Cast(
            config, paths, reaches=lambda: not front.switchboard.is_empty, memory=self.memories.of
        )
        self.agent, self.tools = self._cast.agent, self._cast.tools
        self.lanes = Lanes({"main": loaded.config.agents.defaults.max_concurrent})
        self._channels: asyncio.Task[None] | None = None
        self.restart: Callable[[], None] | None = None  # set by what serves this program
        front = self.front = Front(
            config,
            store.journal,
            clock,
            group,
            state=paths.state,
            env=env,
            record=self.sessions.data,
            put=lambda key, row: self._reception.put(key, row),
            sent=self._sent,
            called=self._cast.called,
            given=channels,
            commands=lambda: native_commands(self.loaded.config.commands),
        )
        self.switchboard, delivery = front.switchboard, front.delivery
        self._runs = RunRegistry(self._make_run_services(ask))
        commands = Commands(self, pack=delivery.pack, posted=delivery.nudge)
        self._reception: Reception[Outcome] = Reception(
            store.journal,
            clock,
            group,
            start=self._runs.start,
            stop=self._runs.stop,
            rules=lambda: self.loaded.config.messages.queue,
            entry=self.sessions.entry,
            pack=delivery.pack,
            posted=delivery.nudge,
            hear=commands.hear,
            pause_ms=lambda row: pause_ms(self.loaded.config.messages.inbound, row),
            mute=self._is_mute,
        )
        self.accept, self.put = self._reception.accept, self._reception.put
        self.waiting, self.nudge = self._reception.waiting, delivery.nudge
        self.maintain = Upkeep(self).run  # keeps the sessions in order, until cancelled
        self.live_runs, self.compact = self._runs.active_ids, self._runs.compact_session

    def _make_run_services(self, ask: Ask) -> RunServices:
        now_ms, delivery = self.clock.now_ms, self.front.delivery
        config, state = (lambda: self.loaded.config), self.paths.state
        self.mail = Mailbox(
            delivery, self.store, self.clock, config=config, hooks=self.hooks, state=state
        )
        return RunServices(
            sessions=self.sessions,
            store=self.store,
            bus=self.bus,
            lanes=self.lanes,
            clock=self.clock,
            hooks=self.hooks,
            watchdog=self.watchdog,
            spend=Spend(
                self.store, lambda: self.loaded.config.agents.defaults.spend, now_ms, self.day
            ),
            get_agent=self.agent,
            get_tools=self.tools,
            connect=lambda wish: self.models.road(wish),
            get_approver=lambda _inbound: ask,
            pop_steering=lambda key: self._reception.take(key),
            format_message=self._words,
            make_builder=self._make_builder,
            build_reply=delivery.pack,
            on_enqueued=delivery.nudge,
            on_unsettled=lambda ids: self._reception.return_to(ids),
            get_config=config,
            start_live_reply=self.front.live.show,
            messenger=self.mail,
            find_traits=find_traits,
            is_fresh=lambda session, inbound: is_fresh(
                self.loaded.config.session, session.record, inbound.address.channel, now_ms()
            ),
        )

    def key(self, asked: str | None = None, agent: str | None = None) -> str:
        """The session a person means: the one they name, else the main one of an agent."""
        config = self.loaded.config
        who = agent_settings(config, self.paths, agent or default_agent(config)).id
        return store_key(asked, who, agents=agents(config))

    async def warm(self) -> None:
        """Do aside what the first run would otherwise wait for; a failure waits for that run."""
        with suppress(HomarusError):
            agent = self.agent(default_agent(self.loaded.config))
            self.tools(agent.id)
            await self.models.warm(Wish(agent.id, agent.model))

    async def ask(self, key: str, inbound: Inbound) -> Outcome:
        """Take a message in, and wait for the run that answers it."""
        return await self.put(key, (await self.accept(key, inbound)).row)

    async def recover(self) -> list[tuple[Accepted, asyncio.Future[Outcome]]]:
        """Go on with what was accepted before this program began; then open the channels."""
        begun = await self._reception.recover()
        self._channels = self._group.create_task(self.switchboard.run(), name="channels")
        return begun

    async def boot(self) -> None:
        """Have every agent do what its BOOT.md says."""
        every = (self.agent(each) for each in agents(self.loaded.config))
        await boot(every, self.accept, self.put, self.clock.now_ms())

    def stop(self) -> None:
        """Begin nothing more: what is accepted from now on waits for the next start."""
        self._reception.close()
        if self._channels:
            self._channels.cancel()
        self.memories.rest()

    def abort(
        self, key: str, run_id: str | None = None, *, by: StoppedBy | None = None
    ) -> tuple[str, ...]:
        """Stop what a session is doing; the ids of the runs that were stopped."""
        if by:
            self._runs.mark_stopped_by(key, run_id, by)
        return self._reception.abort(key, run_id)

    def _make_builder(
        self, session: Session, inbound: Inbound, thinking: str, new_session_id: str
    ) -> "ReplyBuilder | None":
        """Return the reply builder for the sender's chat; None where a run has events only."""
        if self.front.delivery.capabilities(inbound.address) is None:
            return None
        from homarus.agent.reply.builder import make_reply_builder  # only to answer a chat

        given = {"thinking": thinking, "new_session_id": new_session_id}
        return make_reply_builder(self.loaded.config, session, inbound, **given)

    def _is_mute(self, key: str, inbound: Inbound) -> bool:
        """Whether a chat is told nothing; a session that was not at hand says nothing itself."""
        rules = self.loaded.config.session.send_policy
        return is_mute(rules, key, self.sessions.entry(key), inbound)

    def _sent(self, message: Outbound, error: str) -> None:
        self._group.create_task(self.hooks.message_sent(message, error), name="message sent")

    def _words(self, key: str, inbound: Inbound) -> str:
        """A message as the model reads it: when it came, what to know first."""
        agent, last_ms = self.agent(agent_of(key)), self.sessions.last_ms(key)
        if last_ms is None:  # a conversation begins
            self.memories.touch(agent)
        text = hear(agent, key, inbound, last_ms, find_traits)
        return text if inbound.address.channel == "cli" else self.notices.take_before(key, text)

    async def session(self, key: str) -> Session:
        """A session, whether it was used before or not."""
        agent = self.agent(agent_of(key))
        return await self.sessions.load(key, agent.id, cwd=str(agent.workspace))

    async def reload(self, loaded: Loaded) -> None:
        """Go on with another config: runs that are live end by the old one, the next use this."""
        if not self.live_runs():
            await self._close_retired()
        self._retired.append(self.models)
        self.models = Models(loaded.config, loaded.env, self.paths, self.clock)
        self.loaded = loaded
        self._cast.dismiss()
        await self.memories.reload()
        self.lanes.resize("main", loaded.config.agents.defaults.max_concurrent)
        set_up(loaded.config)
        await self.switchboard.reload()

    async def close(self) -> None:
        """Hang up on every model, and let go of memory."""
        await self.memories.close()
        self._retired.append(self.models)
        await self._close_retired()

    async def _close_retired(self) -> None:
        while self._retired:
            await self._retired.pop().close()

    def day(self, at_ms: int) -> str:
        """The person's date."""
        return day_in(zone_name(self.loaded.config.agents.defaults.user_timezone), at_ms)

    async def status(self, key: str) -> Status:
        """What a session is and what would answer it."""
        return await status_of(await self.session(key), self.agent(agent_of(key)), self.models)


@asynccontextmanager
async def open_app(
    env: Mapping[str, str],
    *,
    ask: Ask = nobody,
    clock: Clock | None = None,
    warn: Callable[[str], None] = lambda _text: None,
    loaded: Loaded | None = None,
    channels: Sequence[Channel] = (),
) -> AsyncIterator[App]:
    """Config → App; everything is closed again when the block ends."""
    paths = Paths.find(env)
    if loaded is None:
        loaded = load(paths, env)
        set_up(loaded.config)
        for text in loaded.warnings:
            warn(text)
    clock = clock or SystemClock()
    models = Models(loaded.config, loaded.env, paths, clock)
    async with open_store(paths.state) as store, AsyncExitStack() as after, task_group() as group:
        app = App(
            loaded=loaded,
            paths=paths,
            models=models,
            store=store,
            group=group,
            clock=clock,
            ask=ask,
            channels=channels,
        )
        after.callback(app.watchdog.let_go)
        after.push_async_callback(app.close)  # once no run is left
        watching = group.create_task(_end_if_broken(store), name="store watch")
        try:
            yield app
        finally:
            app.stop()
            watching.cancel()


async def _end_if_broken(store: SqliteStore) -> None:
    """A disk that lost a write may lose the next: the program ends, and accepts nothing more."""
    raise await store.until_broken()


async def serve(
    env: Mapping[str, str],
    *,
    port: int | None = None,
    bind: str | None = None,
    ready: Callable[[str], None] = lambda _url: None,
    warn: Callable[[str], None] = lambda _text: None,
    channels: Callable[[], Sequence[Channel]] = tuple,
    ask: Ask = nobody,
) -> "Ending":
    """The gateway process, until it is told to end; how it should end is returned."""
    from homarus.gateway import serve as gateway
    from homarus.gateway.last_good import load_or_recall
    from homarus.gateway.methods import METHODS, UNBUILT

    paths, clock = Paths.find(env), SystemClock()
    loaded, problem = load_or_recall(paths, env)
    set_up(loaded.config)
    for text in loaded.warnings:
        warn(text)
    if problem:
        warn(f"starting with the last good config, because {problem}")
    plan = gateway.Plan(loaded, paths, env, clock, METHODS, UNBUILT, port, bind, problem)

    def open_program() -> AbstractAsyncContextManager[App]:
        return open_app(env, ask=ask, clock=clock, loaded=loaded, channels=channels())

    return await gateway.serve(plan, open_program, ready)
