"""The preparation of a run: from its accepted messages to the context of the model loop.

`prepare_run` loads the session, connects the model, configures the reply, and resumes an earlier
attempt or saves the question. What it finds is set in the `RunState` as soon as it is known.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from homarus.agent.agent import Agent
from homarus.agent.client_tools import ClientMessages, agent_tools, read_client_messages
from homarus.agent.lane_release import LaneReleasingProvider
from homarus.agent.loop import LoopContext, unanswered_calls
from homarus.agent.loop_detection import LoopDetector
from homarus.agent.prompt.chat_context import session_chat_context
from homarus.agent.prompt.report import ReportContext
from homarus.agent.run_setup import (
    make_model_context,
    merge_messages,
    resolve_model,
    resolve_thinking,
)
from homarus.agent.run_state import RunState
from homarus.agent.spend_limit import with_spend_limit
from homarus.agent.tool_runner import ToolRunner
from homarus.agent.usage_recorder import UsageRecordingProvider
from homarus.core.errors import UnavailableError
from homarus.core.event import RunStarted
from homarus.core.fast_dataclass import replace
from homarus.core.faults import fault_point
from homarus.core.message import Inbound, Message, Origin, Text, redirect_reply
from homarus.core.session_keys import agent_id_of
from homarus.plugins.values import HookContext
from homarus.policy.restrictions import check_run_allowed
from homarus.providers.base import ModelRequest, Provider
from homarus.sessions.chat_fields import session_name
from homarus.sessions.send_policy import is_muted
from homarus.sessions.session import Session
from homarus.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from homarus.agent.reply.blocks import BlockLimits
    from homarus.agent.reply.builder import ReplyBuilder


async def prepare_run(
    state: RunState,
    *,
    set_timeout: Callable[[float], None],
    annotate_stop: Callable[[Message], Message],
    settle: Callable[[Message], Awaitable[None]],
) -> LoopContext:
    """Load the session, connect the model, save the question; return what the loop needs.

    `set_timeout` starts the deadline of the run, `annotate_stop` adds to a message who cut it
    short, `settle` ends the run with its answer.
    """
    services, inbound = state.services, merge_messages(state.records, state.text)
    await services.discover_tools(agent_id_of(state.key))  # the agent's rules depend on them
    agent, options = services.get_agent(agent_id_of(state.key)), inbound.options
    all_tools = services.get_tools(agent.id)  # the first call imports them: before the deadline
    check_run_allowed(services.get_config(), agent.id, all_tools.known_groups)
    set_timeout(options.timeout_s or agent.timeout_s)
    state.where = HookContext(
        agent.id, state.key, state.id, str(agent.workspace), inbound.address.channel
    )
    session = state.session = await _open_session(state, inbound, agent)
    rules = services.get_config().session.send_policy
    muted = is_muted(rules, session.key, session.record.data, redirect_reply(inbound))
    state.journal.sender.configure(is_muted=muted)  # for errors before the builder is there
    provider, model = await services.connect(resolve_model(agent, session, options.model))
    state.provider = provider
    thinking = resolve_thinking(options.thinking or session.thinking or agent.thinking, model)
    await _configure_reply(state, session, inbound, agent, thinking, is_muted=muted)
    state.emit(RunStarted(model.provider, model.id, thinking))
    state.trace.set_fact(agent=agent.id, model=model.ref, thinking=thinking)
    provider = with_spend_limit(provider, services.spend_limiter, model, state.id)
    provider = UsageRecordingProvider(
        provider, model.ref, state.record_model_call, services.clock.monotonic
    )
    provider = LaneReleasingProvider(provider, state.place)
    state.chat = session_chat_context(
        services.get_config(), session, state.inbounds, find_traits=services.find_traits
    ).with_model(model.provider, model.id)
    state.groups = all_tools.known_groups
    state.chat = state.chat.with_prompt(options.extra_system_prompt).check_groups(state.groups)
    tools = agent_tools(state.chat.tools(all_tools, agent.rules), options.client)
    state.skills = services.skills.open_run(agent, session, lambda: state.chat, options)
    state.chat = state.chat.with_skills(state.skills.folders)
    state.context = await make_model_context(
        services,
        session,
        agent,
        provider,
        model,
        thinking=thinking,
        chat=state.chat,
        tools=tools,
        skills=state.skills,
        is_light=state.heartbeat is not None and state.heartbeat.is_light,
        client=options.client,
    )
    interrupted_calls = await _resume(state, session)
    if interrupted_calls is None:
        interrupted_calls = frozenset()
        await _save_question(state, inbound)
    await state.journal.announce_restart()
    fault_point("run.begun")
    runner = _make_tool_runner(state, agent, tools, inbound, interrupted_calls, is_muted=muted)
    provider = state.skills.wrap_provider(
        provider, options.skill_input, tools, run_id=state.id, ref=model.ref
    )
    state.trace.mark("prepared")
    return _make_loop_context(
        state, provider, tools, runner, annotate_stop=annotate_stop, settle=settle
    )


async def _open_session(state: RunState, inbound: Inbound, agent: Agent) -> Session:
    """Load the session of a message; reset it first when it is stale."""
    services, where = state.services, state.where
    session = await services.sessions.load(state.key, agent.id, cwd=where.workspace)
    if state.records[0].entry:
        return session
    await services.hooks.message_received(where, inbound)
    previous_id = ""
    if not services.is_fresh(session, inbound):
        previous_id = session.session_id
        await services.hooks.session_end(where, previous_id, len(session.messages))
        await session.reset()
    if not session.is_used:
        await services.hooks.session_start(where, session.session_id, previous_id)
    return session


async def _configure_reply(
    state: RunState,
    session: Session,
    inbound: Inbound,
    agent: Agent,
    thinking: str,
    *,
    is_muted: bool,
) -> None:
    services, is_resumed = state.services, bool(state.records[0].entry)
    new_session_id = "" if session.is_used or is_resumed else session.session_id
    inbound = redirect_reply(inbound)
    builder = services.make_builder(session, inbound, thinking, new_session_id)
    state.builder = builder
    if builder and is_resumed and not builder.sends_on_save and await state.journal.has_sent():
        builder.send_on_save()  # the setting was changed meanwhile
    if builder and not is_muted:
        if builder.settings.blocks:
            _stream_blocks(state, builder, builder.settings.blocks)
        # A hook may change or refuse the final text: then no preview may show it.
        # Text is shown once: streamed blocks replace the preview.
        has_no_preview = services.hooks.has("message_sending") or state.delivery is not None
        get_preview = str if has_no_preview else lambda: builder.preview
        # What an earlier attempt has sent stands under the run's name: it is not shown again.
        is_new_name = builder.sends_on_save and is_resumed
        name = state.journal.attempt if is_new_name else state.journal.run
        interval_s = builder.settings.typing_interval_s
        inbounds = [redirect_reply(each) for each in state.inbounds]
        state.live = services.start_live_reply(inbounds, name, get_preview, interval_s)
    attach = partial(state.attach_files, agent) if services.messenger else None
    state.journal.sender.configure(builder, state.live, attach, is_muted=is_muted)


def _stream_blocks(state: RunState, builder: "ReplyBuilder", limits: "BlockLimits") -> None:
    from homarus.agent.reply.block_delivery import BlockDelivery  # only where blocks are streamed
    from homarus.agent.reply.block_stream import BlockStream

    clock, journal = state.services.clock, state.journal
    stream = BlockStream(limits, clock.monotonic, builder.sent_texts.may_contain)
    builder.set_stream(stream)
    state.delivery = BlockDelivery(
        builder, stream, clock, make_records=journal.sender.make_records,
        enqueue=journal.enqueue_blocks,
    )  # fmt: skip
    journal.sender.set_delivery(state.delivery)


async def _resume(state: RunState, session: Session) -> frozenset[str] | None:
    """Resume an earlier attempt; return the tool calls it started that have no result.

    Returns None when the messages are new to the session, or when a person retries one that
    is not on the session's current path: then the question is saved again.
    """
    entries = [record.entry for record in state.records if record.entry]
    if not entries:
        return None
    open_calls = await state.journal.open_calls()
    extra_writes = state.journal.mark_running(session)
    saved: Sequence[Message] | None = await session.resume_turn(entries, extra_writes)
    if saved is not None:
        state.resumed_calls = unanswered_calls(session.messages)
    elif turn := await session.resume_suspended_turn(entries, state.journal.runs, extra_writes):
        saved, state.resumed_calls, state.is_late = turn.messages, turn.calls, True
    if state.records[0].state == "suspended":
        fault_point("approval.resumed")
    if saved is None and state.records[0].was_started:
        raise UnavailableError("the conversation went on without this message; send it again")
    if saved is None:
        return None
    if state.builder:
        for message in saved:
            state.builder.restore(message)
    return open_calls


async def _save_question(state: RunState, inbound: Inbound) -> None:
    """Save the user message that the run starts with, and mark its records as running."""
    services, context, where = state.services, state.context, state.where
    session, model = context.session, context.model
    brought = await read_client_messages(session, inbound)
    if not brought.has_question:
        await _save_results(state, inbound, brought)
        return
    claimed = state.claim_notices()
    question = state.make_question(inbound, claimed)
    if claimed.notices:  # given back if the question is not saved
        state.journal.add_claim(claimed)
    extra_writes = state.journal.mark_running(session, claimed)
    if inbound.images or inbound.media:
        media = state.get_media()
        question = await media.read_files(inbound, question, model)
        extra_writes = media.with_cleanup(extra_writes)
    added = await services.hooks.before_agent_start(where, question.text, session.messages)
    if added:
        question = replace(question, parts=(Text(f"{added}\n\n"), *question.parts))
    now_ms = services.clock.now_ms()
    report_context = ReportContext(state.key, session.session_id, model.provider, model.id, now_ms)
    await session.start_turn(
        await context.attach_images(question),
        provider=model.provider,
        model=model.id,
        thinking=context.thinking,
        api=context.api,
        window=model.window,
        inbound=inbound,
        extra_writes=extra_writes,
        extra_fields=services.composer.report_changes(report_context, session.record.data)
        | state.skills.changes,
        is_use=state.journal.is_use,
        earlier=brought.earlier,
    )
    state.journal.drop_claim(claimed)


async def _save_results(state: RunState, inbound: Inbound, brought: ClientMessages) -> None:
    """Save what a client brings instead of a question: the results of its calls."""
    context, extra_writes = state.context, state.journal.mark_running(state.context.session)
    if brought.resumes:
        await context.session.resume_turn([brought.resumes], extra_writes)
        return
    await context.session.start_turn(
        None,
        provider=context.model.provider,
        model=context.model.id,
        thinking=context.thinking,
        api=context.api,
        window=context.model.window,
        inbound=inbound,
        extra_writes=extra_writes,
        extra_fields=state.skills.changes,
        earlier=brought.earlier,
    )


def _make_tool_runner(
    state: RunState,
    agent: Agent,
    tools: ToolRegistry,
    inbound: Inbound,
    interrupted_calls: frozenset[str],
    *,
    is_muted: bool,
) -> ToolRunner:
    services = state.services
    return ToolRunner(
        agent=agent,
        tools=tools,
        inbound=inbound,
        where=state.where,
        journal=state.journal,
        repeats=LoopDetector(agent.loops),
        interrupted_calls=interrupted_calls,
        get_chat=lambda: state.chat,
        get_approvals=state.get_approvals,
        messenger=None if is_muted else services.messenger,
        sessions=services.store,
        hooks=services.hooks,
        emit=state.emit,
        now_ms=services.clock.now_ms,
        session_name=session_name(state.context.session.record.data, state.key),
        taint=state.taint,
        audit_log=services.audit,
        resolve_caller=partial(state.resolve_caller, inbound.options),
        open_sandbox=partial(services.open_sandbox, agent, state.key),
        describe_images=lambda question: state.get_media().describe_images(question),
        skills=state.skills,
        leave_lane=state.place.given_up,
        trace=state.trace,
    )


def _make_loop_context(
    state: RunState,
    provider: Provider,
    tools: ToolRegistry,
    runner: ToolRunner,
    *,
    annotate_stop: Callable[[Message], Message],
    settle: Callable[[Message], Awaitable[None]],
) -> LoopContext:
    context = state.context

    def request(messages: tuple[Message, ...]) -> ModelRequest:
        runner.repeats.check_limit()
        model_request = context.request(messages)
        state.trace.on_request(context.request_tokens)
        return model_request

    async def save(messages: Sequence[Message]) -> None:
        state.set_calling_model(messages)
        annotated = [annotate_stop(message) for message in messages]
        await state.journal.save(context.session, annotated)

    return LoopContext(
        provider=provider,
        request=request,
        origin=Origin(provider.api, context.model.provider, context.model.id),
        call=runner.run,
        must_run_alone=tools.must_run_alone,
        steering=state.pop_steering,
        emit=state.emit,
        save=save,
        finish=settle,
        now_ms=state.services.clock.now_ms,
        is_client_call=state.is_client_call,
    )
