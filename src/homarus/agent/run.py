"""One run: from a message to an answer that is saved. Lane, load, loop, save."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias
from uuid import uuid4

from homarus.agent.agent import Agent
from homarus.agent.loop import Turn, run_loop
from homarus.agent.prompt import system_prompt
from homarus.agent.workspace import Reader
from homarus.core.bus import Bus
from homarus.core.clock import Clock
from homarus.core.errors import HomarusError, ProviderTimeout, UnknownName
from homarus.core.event import (
    AttemptFailed,
    Emitter,
    Fact,
    RunEnded,
    RunStarted,
    ToolProgressed,
)
from homarus.core.keys import parse_agent_key
from homarus.core.lanes import Lanes
from homarus.core.message import Inbound, Message, Origin, ToolCall, ToolReturn, Usage, user
from homarus.policy.decide import Verdict, decide
from homarus.providers.base import Provider, Request, ThinkLevel
from homarus.providers.catalog import Model
from homarus.providers.models import Wish
from homarus.sessions.levels import think_level, think_levels
from homarus.sessions.session import Session, Sessions
from homarus.tools.call import call as call_tool
from homarus.tools.registry import Registry
from homarus.tools.tool import Ask, ToolContext

BROKE_OFF = "the run broke off"  # a bug, or the program is ending: no outcome says more

Connect: TypeAlias = Callable[[Wish], Awaitable[tuple[Provider, Model]]]
Steering: TypeAlias = Callable[[str], list[Message]]


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
    """A run that can be stopped from outside."""

    run_id: str
    scope: asyncio.Timeout
    aborted: bool = False


class Runner:
    """Runs agents. Built once, by app.py."""

    def __init__(
        self,
        *,
        sessions: Sessions,
        bus: Bus,
        lanes: Lanes,
        clock: Clock,
        tools: Callable[[str], Registry],
        agent: Callable[[str], Agent],
        connect: Connect,
        ask: Callable[[Inbound], Ask],
        waiting: Steering,
    ) -> None:
        self._sessions, self._bus, self._lanes, self._clock = sessions, bus, lanes, clock
        self._tools, self._agent, self._connect = tools, agent, connect
        self._ask, self._waiting = ask, waiting
        self._reader = Reader()
        self._live: dict[str, _Live] = {}

    async def __call__(self, key: str, inbound: Inbound) -> Outcome:
        """Answer one message. A failure on purpose is an outcome; a bug is raised."""
        run_id = inbound.run_id or str(uuid4())
        emit = Emitter(run_id, key, self._bus.publish, self._clock.now_ms)
        started = self._clock.monotonic()
        outcome = Outcome(run_id, key, "failed")
        attempts: list[AttemptFailed] = []

        def tell(fact: Fact) -> None:
            if isinstance(fact, AttemptFailed):
                attempts.append(fact)
            emit(fact)

        try:
            async with asyncio.timeout(None) as scope:
                live = self._live[key] = _Live(run_id, scope)
                async with self._lanes.enter(f"session:{key}", "main"):
                    outcome = await self._answer(inbound, tell, outcome, live)
        except TimeoutError:
            outcome = self._stopped(outcome, live)
        except HomarusError as exc:
            outcome = replace(outcome, error=exc)
        finally:
            del self._live[key]
            outcome = replace(outcome, attempts=tuple(attempts))
            aborted = outcome.status == "aborted"
            error = str(outcome.error or (BROKE_OFF if outcome.status == "failed" else ""))
            emit(RunEnded(error=error, aborted=aborted, attempts=outcome.attempts))
        return replace(outcome, duration_ms=round((self._clock.monotonic() - started) * 1000))

    def abort(self, key: str, run_id: str | None = None) -> tuple[str, ...]:
        """Stop the live run of a session; the ids of what was stopped."""
        live = self._live.get(key)
        if live is None or (run_id and live.run_id != run_id):
            return ()
        live.aborted = True
        if not live.scope.expired():  # else it is ending already
            live.scope.reschedule(0)
        return (live.run_id,)

    def live(self, key: str | None = None) -> tuple[str, ...]:
        """The ids of the runs under way, of one session or of all."""
        return tuple(run.run_id for at, run in self._live.items() if key in (None, at))

    def _stopped(self, outcome: Outcome, live: _Live) -> Outcome:
        if live.aborted:
            return replace(outcome, status="aborted")
        late = ProviderTimeout(
            "the run took longer than its deadline",
            fix="raise agents.defaults.timeoutSeconds, or ask for less at once",
        )
        return replace(outcome, error=late)

    async def _answer(
        self,
        inbound: Inbound,
        emit: Callable[[Fact], None],
        outcome: Outcome,
        live: _Live,
    ) -> Outcome:
        key = outcome.session_key
        agent = self._agent(agent_of(key))
        wishes = inbound.wishes
        if not live.aborted:  # a run may be stopped before it begins
            limit_s = wishes.timeout_s or agent.timeout_s
            live.scope.reschedule(asyncio.get_running_loop().time() + limit_s)
        session = await self._sessions.load(key, agent.id, cwd=str(agent.workspace))
        provider, model = await self._connect(
            Wish(
                agent.id,
                wishes.model or session.model or agent.model,
                agent.fallbacks,
                session.profile,
                locked=session.profile_locked,
            )
        )
        emit(RunStarted(provider=model.provider, model=model.id))
        thinking = _level(wishes.thinking or session.thinking or agent.thinking, model)
        question = user(inbound.text, *inbound.images, at_ms=inbound.at_ms or self._clock.now_ms())
        await session.begin(
            question,
            provider=model.provider,
            model=model.id,
            thinking=thinking,
            api=provider.api,
            window=model.window,
        )
        turn = self._turn(
            session, agent, provider, model, thinking=thinking, emit=emit, ask=self._ask(inbound)
        )
        reply = await run_loop(turn, list(session.messages))
        origin = reply.origin
        assert origin is not None  # noqa: S101 - a provider's Message says who wrote it
        return replace(
            outcome,
            status="answered",
            text=reply.text,
            model=f"{origin.provider}/{origin.model}",
            session_id=session.session_id,
            usage=origin.usage,
        )

    def _turn(
        self,
        session: Session,
        agent: Agent,
        provider: Provider,
        model: Model,
        *,
        thinking: ThinkLevel,
        emit: Callable[[Fact], None],
        ask: Ask,
    ) -> Turn:
        tools = self._tools(agent.id)
        specs = tools.specs() if model.calls_tools else ()
        files = self._reader.load(agent.workspace, agent.max_file_chars, agent.max_total_chars)
        system = system_prompt(
            name=agent.name,
            workspace=str(agent.workspace),
            files=files,
            tools=specs,
            window=model.window,
        )

        async def judge(call: ToolCall) -> Verdict:
            return decide(call.name, *agent.rules)

        async def call(asked: ToolCall) -> ToolReturn:
            def progress(text: str) -> None:
                emit(ToolProgressed(asked, text))

            ctx = ToolContext(session.key, agent.id, agent.workspace, ask, progress)
            return await call_tool(tools, ctx, asked, judge)

        return Turn(
            provider=provider,
            request=lambda messages: Request(
                model.id, system, messages, specs, thinking=thinking, params=model.params
            ),
            origin=Origin(provider.api, model.provider, model.id),
            call=call,
            alone=tools.alone,
            steering=lambda: self._waiting(session.key),
            follow_up=list,
            emit=emit,
            save=session.append,
            now_ms=self._clock.now_ms,
        )


def agent_of(key: str) -> str:
    """The agent a session key names."""
    parsed = parse_agent_key(key)
    return parsed.agent if parsed else "main"


def _level(asked: str | None, model: Model) -> ThinkLevel:
    """How hard to think: as asked; when nobody asked, a little where the model can."""
    if asked is None:
        return "low" if model.reasoning else "off"
    level = think_level(asked)
    if level is None:
        raise UnknownName("thinking level", asked, think_levels(model.provider, model.id))
    return level
