"""Compact a session: with the hooks around it, and on a person's request."""

from collections.abc import Sequence

from homarus.agent.context.compact import Compaction
from homarus.agent.context.conversation import Conversation
from homarus.agent.prompt.chat import session_chat_context
from homarus.agent.run_setup import make_model_context, resolve_model
from homarus.agent.services import RunServices
from homarus.agent.spend import metered
from homarus.agent.tally import Call, Tallied, spent
from homarus.core.keys import agent_of
from homarus.plugins.caller import Hooks
from homarus.plugins.values import Where
from homarus.sessions.session import Also
from homarus.store.base import Entry, Unit


async def compact_with_hooks(
    context: Conversation,
    hooks: Hooks,
    where: Where,
    also: Also,
    *,
    instructions: str = "",
    is_requested: bool = False,
) -> Compaction:
    """Summarise the old turns of a session, between the two compaction hooks."""
    messages = context.session.messages  # the same list afterwards, with what is left
    await hooks.before_compaction(where, len(messages), context.look(messages).tokens)
    result = await context.compact(also, instructions=instructions, is_requested=is_requested)
    await hooks.after_compaction(where, len(messages), result.tokens_after)
    return result


async def compact_session(services: RunServices, key: str, instructions: str = "") -> Compaction:
    """Summarise the old turns of a session in its lane, on a person's request."""
    agent, clock = services.get_agent(agent_of(key)), services.clock
    async with services.lanes.enter(f"session:{key}", "main"):
        session = await services.sessions.load(key, agent.id, cwd=str(agent.workspace))
        provider, model = await services.connect(resolve_model(agent, session))
        run, calls = f"compact:{key}", list[Call]()
        provider = metered(provider, services.spend, model, run)
        provider = Tallied(provider, model.ref, calls.append)
        chat = session_chat_context(
            services.get_config(), session, find_traits=services.find_traits
        )
        tools = chat.tools(services.get_tools(agent.id))
        context = await make_model_context(
            services, session, agent, provider, model, thinking="off", chat=chat, tools=tools
        )

        def also(unit: Unit, _entries: Sequence[Entry]) -> None:
            at_ms = clock.now_ms()
            unit.add_spent(*(spent(call, run, key, at_ms) for call in calls))

        where = Where(agent.id, key, "", str(agent.workspace))
        try:
            return await compact_with_hooks(
                context, services.hooks, where, also, instructions=instructions, is_requested=True
            )
        finally:
            services.spend.end(run)
