"""Compact a session: with the hooks around it, and on a person's request."""

from collections.abc import Sequence

from homarus.agent.context.compaction import CompactionResult
from homarus.agent.context.model_context import ModelContext
from homarus.agent.lane_release import LaneReleasingProvider
from homarus.agent.prompt.chat_context import session_chat_context
from homarus.agent.run_setup import make_model_context, resolve_model
from homarus.agent.services import RunServices
from homarus.agent.spend_limit import with_spend_limit
from homarus.agent.usage_recorder import ProviderCall, UsageRecordingProvider, to_usage_record
from homarus.core.session_keys import agent_id_of
from homarus.plugins.hook_runner import Hooks
from homarus.plugins.values import HookContext
from homarus.sessions.session import ExtraWrites
from homarus.store.base import Transaction, TranscriptEntry


async def compact_with_hooks(
    context: ModelContext,
    hooks: Hooks,
    where: HookContext,
    extra_writes: ExtraWrites,
    *,
    instructions: str = "",
    is_requested: bool = False,
) -> CompactionResult:
    """Summarise the old turns of a session, between the two compaction hooks."""
    messages = context.session.messages  # the same list afterwards, with what is left
    await hooks.before_compaction(where, len(messages), context.render(messages).tokens)
    result = await context.compact(
        extra_writes, instructions=instructions, is_requested=is_requested
    )
    await hooks.after_compaction(where, len(messages), result.tokens_after)
    return result


async def compact_session(
    services: RunServices, key: str, instructions: str = ""
) -> CompactionResult:
    """Summarise the old turns of a session in its lane, on a person's request."""
    agent, clock = services.get_agent(agent_id_of(key)), services.clock
    lanes = services.lanes
    async with lanes.enter(f"session:{key}"), lanes.open_place("main") as place:
        await place.acquire(resumes=False)
        session = await services.sessions.load(key, agent.id, cwd=str(agent.workspace))
        provider, model = await services.connect(resolve_model(agent, session))
        run, calls = f"compact:{key}", list[ProviderCall]()
        provider = with_spend_limit(provider, services.spend_limiter, model, run)
        provider = UsageRecordingProvider(provider, model.ref, calls.append)
        provider = LaneReleasingProvider(provider, place)
        chat = session_chat_context(
            services.get_config(), session, find_traits=services.find_traits
        ).with_model(model.provider, model.id)
        tools = chat.tools(services.get_tools(agent.id), agent.rules)
        context = await make_model_context(
            services, session, agent, provider, model, thinking="off", chat=chat, tools=tools,
            skills=services.skills.open_run(agent, session, lambda: chat),
        )  # fmt: skip
        context.check_window()

        def extra_writes(transaction: Transaction, _entries: Sequence[TranscriptEntry]) -> None:
            at_ms = clock.now_ms()
            transaction.add_usage(
                *(to_usage_record(call, run, key, at_ms, purpose="compaction") for call in calls)
            )

        where = HookContext(agent.id, key, "", str(agent.workspace))
        try:
            return await compact_with_hooks(
                context,
                services.hooks,
                where,
                extra_writes,
                instructions=instructions,
                is_requested=True,
            )
        finally:
            services.spend_limiter.end(run)
