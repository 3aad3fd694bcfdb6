"""The `…Services` of the packages: the functions by which each uses the others.

A part of the composition root: `App` makes the parts of the program and calls a function of this
module for each package that is connected with others. A new part of the program gets its own
`make_…_services` here, and its attribute in `App`. What is made after the part that uses it is
reached by a lambda; what a program may never need is imported by the function that makes it.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from homarus.agent.agent_registry import AgentRegistry
from homarus.agent.approval_loader import ApprovalSources
from homarus.agent.commands.catalog import has_control_command
from homarus.agent.commands.context import CommandServices
from homarus.agent.commands.listing import native_commands
from homarus.agent.internal_hooks.loader import InternalHookServices
from homarus.agent.prompt.preview import PreviewServices, preview_prompt
from homarus.agent.prompt.user_message import format_user_message
from homarus.agent.run import RunOutcome
from homarus.agent.services import RunServices
from homarus.agent.spend_limit import SpendLimiter
from homarus.channels.base import Channel
from homarus.channels.registry import find_traits, has_ability
from homarus.channels.runtime import ChannelRuntime
from homarus.core.message import Inbound, Json
from homarus.core.session_keys import agent_id_of
from homarus.diagnostics.loader import DiagnosticsLoader
from homarus.schedule.heartbeat_scheduler import HeartbeatServices
from homarus.sessions.control import SessionServices
from homarus.sessions.maintenance import MaintenanceServices
from homarus.sessions.reset import is_fresh
from homarus.sessions.run_end import RunEnd
from homarus.sessions.session import Session
from homarus.tools.sources import ToolSources

if TYPE_CHECKING:
    from homarus.agent.direct_calls import DirectCalls
    from homarus.agent.reply.builder import ReplyBuilder
    from homarus.agent.subagents.subagent_service import SubagentServices
    from homarus.app import App
    from homarus.channels.pairing import PairingStore
    from homarus.diagnostics.runtime import DiagnosticsPorts
    from homarus.gateway.chat_changes import ChatConfigEdits
    from homarus.gateway.services import GatewayServices
    from homarus.gateway.tool_actions import GatewayActions


def make_agents(app: "App") -> AgentRegistry:
    """Return the registry of agents and their tools."""
    return AgentRegistry(
        app.get_config,
        app.paths,
        reaches=lambda: not app.channels.is_empty,
        memory=app.memory.get,
        get_processes=app.processes,
        get_browsers=app.browsers,
        env=lambda: app.loaded.env,
        find_image_model=lambda ref: app.models.find_image_model(ref),
        sources=ToolSources((app.mcp, app.skill_actions)),
        get_commands=lambda: app.commands,
        get_exchanges=lambda: app.exchanges(),
        get_gateway=partial(_get_gateway_actions, app),
        get_subagents=app.subagents,
        get_cron=app.get_cron_actions,
        has_polls=lambda: has_ability("poll", app.get_config().channels),
    )


def make_channel_runtime(app: "App", channels: Sequence[Channel]) -> ChannelRuntime:
    """Return the runtime of the configured channels, and of those that are given."""
    return ChannelRuntime(
        app.get_config,
        app.store,
        app.clock,
        app.group,
        state=app.paths.state,
        notices=app.notices,
        given=channels,
        env=lambda: app.loaded.env,
        find_record=app.sessions.data,
        find_name=app.agents.display_name,
        submit=lambda key, record: app.control.submit(key, record),
        is_command=has_control_command,
        on_sent=lambda *sent: app.start_task(app.hooks.message_sent(*sent)),
        commands=lambda: native_commands(app.get_config().commands),
        skill_commands=app.skill_ports.native_commands,
        on_chat_moved=partial(_move_group_settings, app),
        diagnostics=app.diagnostics,
    )


def make_approval_sources(app: "App") -> ApprovalSources:
    """Connect approvals with sessions and chats."""
    return ApprovalSources(
        journal=app.store.journal,
        bus=app.bus,
        clock=app.clock,
        audit=app.audit,
        messenger=app.messenger,
        get_config=app.get_config,
        spawn=app.spawn,
        build_reply=app.supervisor.build_reply,
        build_notice=lambda *given: app.control.build_notice(*given),
        can_edit=app.supervisor.can_edit,
        on_enqueued=app.supervisor.wake_workers,
        resume_run=lambda *given: app.control.resume_suspended(*given),
    )


def make_session_services(app: "App") -> SessionServices[RunOutcome]:
    """Connect sessions with runs and commands, which are made after them."""
    return SessionServices(
        repository=app.sessions,
        store=app.store,
        paths=app.paths,
        clock=app.clock,
        group=app.group,
        lanes=app.lanes,
        hooks=app.hooks,
        get_config=app.get_config,
        get_models=app.get_models,
        get_agent=app.agent,
        start_run=lambda key, rows, text: app.runs.start(key, rows, text),
        stop_run=lambda key, run_id: app.runs.stop(key, run_id),
        mark_stopped_by=lambda key, run_id, by: app.runs.mark_stopped_by(key, run_id, by),
        active_ids=lambda key: app.runs.active_ids(key),
        build_reply=app.supervisor.build_reply,
        on_enqueued=app.supervisor.wake_workers,
        interpret=lambda key, row: app.commands.interpret(key, row),
        is_suspended=lambda outcome: outcome.status == "suspended",
        on_suspended=lambda outcome: app.approvals().on_suspended(
            outcome.session_key, outcome.run_id, outcome.approvals
        ),
        on_suspended_stopped=app.approval_loader.on_runs_cancelled,
        on_unanswered=lambda key, ids, reason: app.on_run_end(RunEnd(key, ids, reason=reason)),
        stop_children=app.subagents.stop_children,
        on_parked=partial(_recover_parked, app),
        release_notices=app.notices.release,
        complete_files=app.channel_runtime.downloads.complete,
        diagnostics=app.diagnostics,
    )


def make_run_services(app: "App") -> RunServices:
    """Connect runs with sessions, models, tools and chats."""
    now_ms = app.clock.now_ms
    return RunServices(
        sessions=app.sessions,
        store=app.store,
        bus=app.bus,
        lanes=app.lanes,
        clock=app.clock,
        hooks=app.hooks,
        watchdog=app.watchdog,
        spend_limiter=SpendLimiter(
            app.store, lambda: app.get_config().agents.defaults.spend, now_ms, app.local_date
        ),
        get_agent=app.agent,
        get_tools=app.tools,
        connect=lambda wish: app.models.connect(wish),
        get_approvals=app.approvals,
        pop_steering=app.control.take_steering,
        format_message=partial(_format_message, app),
        make_builder=partial(_make_builder, app),
        build_reply=app.supervisor.build_reply,
        on_enqueued=app.supervisor.wake_workers,
        on_unsettled=app.control.retry_unsettled,
        find_traits=find_traits,
        get_config=app.get_config,
        start_live_reply=app.channel_runtime.live.start,
        messenger=app.messenger,
        start_task=app.start_task,
        read_exec_rules=partial(_read_exec_rules, app),
        is_fresh=lambda session, inbound: (
            app.control.has_suspended(session.key)
            or _is_heartbeat_of_others(inbound)
            or is_fresh(app.get_config().session, session.record, inbound.address.channel, now_ms())
        ),
        is_shutting_down=lambda: app.control.is_shutting_down,
        open_sandbox=app.sandboxes.open,
        find_image_model=lambda ref: app.models.find_image_model(ref),
        resolve_connection=lambda *given: app.models.resolve_connection(*given),
        audit=app.audit,
        discover_tools=app.agents.sources.discover,
        skills=app.skill_ports,
        on_run_end=app.on_run_end,
        get_queue_place=app.control.active_place,
        get_queue_depth=app.control.queue_depth,
        diagnostics=app.diagnostics,
        notices=app.notices,
    )


def make_preview_services(app: "App") -> PreviewServices:
    """Connect the preview of a prompt with what a run would use."""
    return PreviewServices(
        get_config=app.get_config,
        get_models=app.get_models,
        get_agent=app.agent,
        get_tools=app.tools,
        load_session=app.control.load,
        find_traits=find_traits,
        clock=app.clock,
        hooks=app.hooks,
        skills=app.skill_ports,
    )


def make_command_services(app: "App") -> CommandServices:
    """Connect chat commands with everything that they show or change."""
    return CommandServices(
        get_approvals=app.approvals,
        get_approval_prompts=app.approval_loader.prompts,
        get_config=app.get_config,
        get_models=app.get_models,
        get_agent=app.agent,
        get_restart=lambda: app.restart,
        control=app.control,
        store=app.store,
        bus=app.bus,
        clock=app.clock,
        hooks=app.hooks,
        compact=app.runs.compact_session,
        preview=partial(preview_prompt, app.preview),
        build_reply=app.supervisor.build_reply,
        on_enqueued=app.supervisor.wake_workers,
        find_traits=find_traits,
        read_exec_rules=partial(_read_exec_rules, app),
        get_config_edits=partial(_get_config_edits, app),
        get_overrides=lambda: app.overrides.values,
        get_pairings=partial(_get_pairings, app),
        get_tools=app.tools,
        get_processes=app.processes,
        audit=app.audit,
        open_questions=app.approval_loader.open_questions,
        open_sandbox=app.sandboxes.open,
        find_sandbox_report=app.sandboxes.find_report,
        skills=app.skill_ports,
        subagents=app.subagents,
    )


def make_subagent_services(app: "App") -> "SubagentServices":
    """Connect sub-agents with sessions; called for the first sub-agent."""
    from homarus.agent.subagents.subagent_service import SubagentServices

    return SubagentServices(
        store=app.store,
        repository=app.sessions,
        control=app.control,
        clock=app.clock,
        lanes=app.lanes,
        paths=app.paths,
        get_config=app.get_config,
        check_model=lambda name: app.models.check_typed(name).ref,
        spawn=app.spawn,
        on_runs_cancelled=app.approval_loader.on_runs_cancelled,
    )


def make_diagnostics_loader(app: "App") -> DiagnosticsLoader:
    """Connect diagnostics with plugins."""

    def make_ports() -> "DiagnosticsPorts":
        from homarus.diagnostics.runtime import DiagnosticsPorts  # where they are on

        return DiagnosticsPorts(
            diagnostics=app.diagnostics,
            clock=app.clock,
            env=lambda: app.loaded.env,
            has_hook=lambda: app.hooks.has("diagnostic_event"),
            call_hook=app.hooks.diagnostic_event,
            start_task=app.start_task,
        )

    return DiagnosticsLoader(lambda: app.get_config().diagnostics, make_ports, app.spawn)


def make_heartbeat_services(app: "App") -> HeartbeatServices:
    """Connect heartbeats with sessions and chats."""
    return HeartbeatServices(
        store=app.store,
        clock=app.clock,
        control=app.control,
        notices=app.notices,
        lanes=app.lanes,
        paths=app.paths,
        get_config=app.get_config,
        get_accounts=app.messenger.accounts,
        find_traits=find_traits,
        spawn=app.spawn,
    )


def make_maintenance_services(app: "App") -> MaintenanceServices:
    """Connect the maintenance of sessions with what is in use."""
    return MaintenanceServices(
        get_config=app.get_config,
        paths=app.paths,
        store=app.store,
        repository=app.sessions,
        clock=app.clock,
        lanes=app.lanes,
        is_busy=app.control.is_busy,
        prune_sandboxes=app.sandboxes.prune,
    )


def make_gateway_services(app: "App") -> "GatewayServices":
    """Connect the gateway with the parts of the program."""
    from homarus.gateway.services import GatewayServices  # not needed without a gateway

    return GatewayServices(
        get_loaded=lambda: app.loaded,
        get_models=app.get_models,
        paths=app.paths,
        store=app.store,
        sessions=app.sessions,
        control=app.control,
        bus=app.bus,
        clock=app.clock,
        notices=app.notices,
        lanes=app.lanes,
        hooks=app.hooks,
        channels=app.channels,
        messenger=app.messenger,
        memory=app.memory,
        agent=app.agent,
        preview=app.preview,
        recover=app.recover,
        run_schedule=app.schedules.run,
        run_boot=app.internal_hooks.run_boot,
        preload=app.preload,
        reload=app.reload,
        wake_workers=app.supervisor.wake_workers,
        set_restart=app.set_restart,
        get_approvals=app.approvals,
        approval_ports=app.approval_ports,
        audit=app.audit,
        open_sandbox=app.sandboxes.open,
        set_config_watcher=app.set_config_watcher,
        find_sandbox_report=app.sandboxes.find_report,
        get_browsers=app.browsers,
        get_skills=app.skills,
        skill_ports=app.skill_ports,
        subagents=app.subagents,
        schedules=app.schedules,
        heartbeats=app.heartbeats,
        find_live_trace=app.runs.live_trace,
        start_diagnostics=app.diagnostics_loader.start,
        get_event_metrics=lambda: app.diagnostics_loader.metrics,
        diagnostics=app.diagnostics,
        start_turn=lambda request, write: app.schedules.turns().start(request, write),
        request_heartbeat=lambda request: app.heartbeats.request(request),
        get_direct_calls=partial(_get_direct_calls, app),
    )


async def _recover_parked(app: "App") -> None:
    """End the sub-agents and turns whose messages were parked."""
    await app.subagents.recover()
    await app.schedules.recover_turns()


def make_internal_hook_services(app: "App") -> InternalHookServices:
    """Connect internal hooks with what the bundled ones use."""
    return InternalHookServices(
        hooks=app.hooks,
        paths=app.paths,
        clock=app.clock,
        get_loaded=lambda: app.loaded,
        spawn=app.spawn,
        load_session=app.control.load,
        get_agent=app.agent,
        run_boot=app.run_boot,
        local_date=app.local_date,
    )


def _make_builder(
    app: "App", session: Session, inbound: Inbound, thinking: str, new_session_id: str
) -> "ReplyBuilder | None":
    """Return the reply builder for the sender's chat; None where a run has events only."""
    capabilities = app.supervisor.capabilities(inbound.address)
    if capabilities is None:
        return None
    from homarus.agent.reply.builder import make_reply_builder  # only to answer a chat

    return make_reply_builder(
        app.get_config(),
        session,
        inbound,
        thinking=thinking,
        new_session_id=new_session_id,
        find_traits=find_traits,
        text_limit=capabilities.text_limit,
    )


def _format_message(app: "App", key: str, inbound: Inbound) -> str:
    """Return a message as the model reads it: with its sender and time."""
    agent, last_ms = app.agent(agent_id_of(key)), app.sessions.last_ms(key)
    if last_ms is None:  # the first message of a session
        app.memory.sync_on_session_start(agent)
    prefix = app.get_config().messages.message_prefix or ""
    return format_user_message(agent, key, inbound, last_ms, find_traits, prefix=prefix)


def _is_heartbeat_of_others(inbound: Inbound) -> bool:
    """Return whether a heartbeat runs in a session of people, which it never resets."""
    own = inbound.options.heartbeat
    return own is not None and not own.session


def _read_exec_rules(app: "App") -> Sequence[Mapping[str, Json]]:
    from homarus.tools.exec.exec_rules import read_exec_rules  # with the first command

    return read_exec_rules(app.paths.state)


def _move_group_settings(app: "App", channel: str, account: str, old: str, new: str) -> None:
    from homarus.config.group_migration import run_move  # rarely needed

    move = run_move(app.paths, app.loaded, (channel, account), (old, new), app.clock)
    app.spawn(move, "group moved")


def _get_config_edits(app: "App") -> "ChatConfigEdits":
    from homarus.gateway.chat_changes import ChatConfigEdits  # for commands that are rare

    ports = make_gateway_services(app), app.config_watcher, app.overrides
    return ChatConfigEdits(*ports, app.start_task)


def _get_gateway_actions(app: "App") -> "GatewayActions":
    from homarus.gateway.tool_actions import GatewayActions  # for a tool that is rare

    ports = make_gateway_services(app), _get_config_edits(app), lambda: app.restart
    return GatewayActions(*ports, app.start_task)


def _get_direct_calls(app: "App") -> "DirectCalls":
    from homarus.agent.direct_calls import DirectCalls  # for clients that call tools themselves

    return DirectCalls(make_run_services(app))


def _get_pairings(app: "App") -> "PairingStore":
    from homarus.channels.pairing import PairingStore  # for a command that is rare

    return PairingStore(app.paths.state, app.clock)
