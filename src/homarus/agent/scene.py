"""One run at work: its conversation, its tools and its books, joined for the loop.

The loop is begun again after a compaction, and once, unseen, before one that is near: so that
what should outlast it is written down (flush.py).
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from homarus.agent.books import Books
from homarus.agent.context import flush
from homarus.agent.context.compact import MAX_PER_TURN, Compaction, room_in
from homarus.agent.context.conversation import Conversation
from homarus.agent.loop import Turn, run_loop
from homarus.agent.repeats import Repeats
from homarus.core.errors import ContextOverflow, HomarusError, LeaseLost
from homarus.core.event import CompactionEnded, CompactionStarted, Fact, ToolProgressed
from homarus.core.faults import fault
from homarus.core.message import Inbound, Message, Origin, Text, ToolCall, ToolReturn, user
from homarus.core.value import dataclass
from homarus.plugins.caller import Hooks
from homarus.plugins.values import Refusal, Where
from homarus.policy.decide import Rules, Verdict, decide
from homarus.providers.base import Provider, Request
from homarus.sessions.session import Also
from homarus.sessions.transcript import interrupted
from homarus.tools.call import call as call_tool
from homarus.tools.registry import Registry
from homarus.tools.tool import Ask, Mail, Tool, ToolContext

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Scene:
    """What a run has found out before its loop begins.

    `cut_off` names calls of a run before this one, whose outcome is not known. `rules` are those
    of the chat, which may grow: somebody else there may begin to speak.
    """

    talk: Conversation
    provider: Provider
    tools: Registry
    rules: Callable[[], tuple[Rules, ...]]
    books: Books
    cut_off: frozenset[str]
    repeats: Repeats
    ask: Ask
    steering: Callable[[], list[Message]]
    tell: Callable[[Fact], None]
    sign: Callable[[Message], Message]
    now_ms: Callable[[], int]
    today: Callable[[], str]
    hooks: Hooks
    where: Where
    inbound: Inbound
    mail: Mail | None = None

    async def play(self) -> Message:
        """Talk until there is an answer; make room when there is none left."""
        session, turn = self.talk.session, self._turn()
        await self._flush_if_due()
        for _ in range(MAX_PER_TURN):
            try:
                return await run_loop(turn, list(session.messages))
            except ContextOverflow:
                if not self.talk.agent.compaction.enabled:
                    raise
                await self._compact()
        return await run_loop(turn, list(session.messages))

    async def _compact(self) -> None:
        self.tell(CompactionStarted())
        await compact(self.talk, self.hooks, self.where, self.books.hold)
        self.tell(CompactionEnded(will_retry=True))

    def _turn(self) -> Turn:
        model, books, session = self.talk.model, self.books, self.talk.session

        async def save(messages: Sequence[Message]) -> None:
            await books.save(session, [self.sign(message) for message in messages])

        return Turn(
            provider=self.provider,
            request=self._request,
            origin=Origin(self.provider.api, model.provider, model.id),
            call=self._call,
            alone=self.tools.alone,
            steering=self.steering,
            emit=self.tell,
            save=save,
            finish=lambda reply: books.finish(session, reply),
            now_ms=self.now_ms,
        )

    def _request(self, messages: tuple[Message, ...]) -> Request:
        self.repeats.check()
        return self.talk.request(messages)

    async def _call(self, asked: ToolCall) -> ToolReturn:
        """Run one call, once: what must not run twice is written down before it begins."""
        if asked.id in self.cut_off:
            return interrupted(asked)
        if self.repeats.stopped:
            return self.repeats.refuse(asked)
        started_ms = self.now_ms()
        allowed = await self.hooks.before_tool_call(self.where, asked)
        if isinstance(allowed, Refusal):
            return ToolReturn(asked.id, asked.name, (Text(allowed.reason),), is_error=True)
        result = await self._run(allowed)
        fault("tool.ended")
        await self.hooks.after_tool_call(self.where, allowed, result, self.now_ms() - started_ms)
        told = self.repeats.note(allowed, result)
        return replace(result, content=(*result.content, Text(told))) if told else result

    async def _run(self, asked: ToolCall) -> ToolReturn:
        async def begin(tool: Tool) -> None:
            fault("tool.asked")
            if not tool.idempotent:
                await self.books.start_call(asked.id)

        async def judge(call: ToolCall) -> Verdict:
            return decide(call.name, *agent.rules, *self.rules())

        agent, session = self.talk.agent, self.talk.session
        ctx = ToolContext(
            session.key,
            agent.id,
            agent.workspace,
            self.ask,
            lambda text: self.tell(ToolProgressed(asked, text)),
            here=self.inbound.address,
            message_id=self.inbound.id,
            run_id=self.where.run_id,
            call_id=asked.id,
            mail=self.mail,
        )
        return await call_tool(self.tools, ctx, asked, judge, begin=begin)

    async def _flush_if_due(self) -> None:
        """Before history becomes a summary, have the agent write down what should last."""
        session, rules = self.talk.session, self.talk.agent.compaction
        *before, last = session.messages
        if not self.talk.tools or not before or last.role != "user" or self.talk.is_roomy:
            return
        view = self.talk.look(session.messages)
        room = room_in(rules, view)
        if not flush.is_due(rules, session.record.data, room, view.tokens):
            return
        try:
            await self._flush()
        except LeaseLost:
            raise
        except HomarusError as exc:  # a compaction without notes is better than no answer
            log.warning("%s: the memory flush failed: %s", session.key, exc)
        await session.update(**flush.fields(session.record.data, self.now_ms()))

    async def _flush(self) -> None:
        """A turn that nobody sees and no transcript keeps; only what its tools do stays."""
        from homarus.memory.view import audience_of, folder_of  # with the first that is due

        rules, talk = self.talk.agent.compaction, self.talk
        by_tool = any(spec.name == flush.TOOL for spec in talk.tools)
        folder = folder_of(audience_of(talk.session.key))
        words = flush.prompt(rules, self.today(), by_tool=by_tool, folder=folder)
        asked = user(words, at_ms=self.now_ms())
        unseen = replace(
            self._turn(),
            request=lambda messages: replace(
                talk.request(messages), system=f"{talk.system}\n\n{flush.system(rules)}"
            ),
            steering=list,
            emit=_unseen,
            save=_unkept,
            finish=_unkept,
        )
        await run_loop(unseen, [*talk.session.messages[:-1], asked])


async def compact(
    talk: Conversation,
    hooks: Hooks,
    where: Where,
    also: Also,
    *,
    instructions: str = "",
    wanted: bool = False,
) -> Compaction:
    """Put the old part of a conversation away; hooks are told before and after."""
    messages = talk.session.messages  # the same list afterwards, with what is left
    await hooks.before_compaction(where, len(messages), talk.look(messages).tokens)
    done = await talk.compact(also, instructions=instructions, wanted=wanted)
    await hooks.after_compaction(where, len(messages), done.tokens_after)
    return done


def _unseen(_fact: Fact) -> None:
    """Nobody is shown this."""


async def _unkept(_messages: Sequence[Message] | Message) -> None:
    """Nothing is kept of this."""
