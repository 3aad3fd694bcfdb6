"""The composition root: the only module that knows every other.

Packages get what they need of each other as functions, in `…Services` dataclasses that are built
here; no module is given the `App` itself.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from homarus.agent.agent_registry import AgentRegistry
from homarus.agent.approval_loader import ApprovalLoader, ApprovalSources
from homarus.agent.boot import run_boot_prompts
from homarus.agent.commands.catalog import has_control_command
from homarus.agent.commands.context import CommandServices
from homarus.agent.commands.dispatcher import CommandDispatcher
from homarus.agent.commands.listing import native_commands
from homarus.agent.exchange.loader import ExchangeLoader
from homarus.agent.memory_registry import MemoryRegistry
from homarus.agent.prompt.preview import PreviewServices, preview_prompt
from homarus.agent.prompt.user_message import format_user_message
from homarus.agent.run import RunOutcome
from homarus.agent.run_registry import RunRegistry
from homarus.agent.services import RunServices
from homarus.agent.skills.ports import SkillPorts
from homarus.agent.spend_limit import SpendLimiter
from homarus.agent.subagents.loader import SubagentLoader
from homarus.channels.base import Channel
from homarus.channels.messenger import ChannelMessenger
from homarus.channels.registry import find_traits, has_ability
from homarus.channels.runtime import ChannelRuntime
from homarus.config.agent_settings import agent_ids, default_agent_id, lane_widths
from homarus.config.load import LoadedConfig
from homarus.config.log_setup import configure_logging
from homarus.config.overrides import ConfigOverrides
from homarus.config.paths import Paths
from homarus.config.redaction import set_config_secrets
from homarus.config.schema import Config
from homarus.config.timezone import local_date, zone_name
from homarus.core.atomic_file import remove_leftovers
from homarus.core.bus import Bus
from homarus.core.clock import Clock
from homarus.core.errors import HomarusError, StoreError
from homarus.core.lanes import Lanes
from homarus.core.message import Inbound, Json
from homarus.core.session_keys import agent_id_of
from homarus.core.watchdog import Watchdog
from homarus.plugins.hook_runner import Hooks
from homarus.providers.model_router import ModelRouter, ModelSelection
from homarus.sessions.control import SessionControl, SessionServices
from homarus.sessions.maintenance import MaintenanceServices, SessionMaintenance
from homarus.sessions.notices import Notices
from homarus.sessions.reset import is_fresh
from homarus.sessions.session import Session, SessionRepository
from homarus.skills.action_loader import SkillActionLoader
from homarus.skills.loader import SkillLoader
from homarus.store.audit import AuditLog
from homarus.store.audit_anchor import save_anchor
from homarus.store.audit_changes import record_reload
from homarus.store.base import Store
from homarus.store.journal import InboxRecord
from homarus.tools.browser.loader import BrowserLoader
from homarus.tools.catalog import log_list_problems
from homarus.tools.exec.process_table_loader import ProcessTableLoader
from homarus.tools.mcp.loader import McpLoader
from homarus.tools.sandbox.loader import SandboxLoader
from homarus.tools.sources import ToolSources

if TYPE_CHECKING:
    from homarus.agent.reply.builder import ReplyBuilder
    from homarus.agent.subagents.subagent_service import SubagentServices
    from homarus.channels.pairing import PairingStore
    from homarus.gateway.chat_changes import ChatConfigEdits
    from homarus.gateway.config_watch import ConfigWatcher
    from homarus.gateway.services import GatewayServices
    from homarus.gateway.tool_actions import GatewayActions


class App:
    """The parts of the program, connected to each other. `process.open_app` opens it."""

    def __init__(
        self,
        *,
        loaded: LoadedConfig,
        paths: Paths,
        models: ModelRouter,
        store: Store,
        clock: Clock,
        group: asyncio.TaskGroup,
        channels: Sequence[Channel] = (),
    ) -> None:
        self.loaded, self.paths, self.models = loaded, paths, models
        self.overrides = ConfigOverrides(paths, loaded)
        self._config_watcher: ConfigWatcher | None = None  # set by the gateway process
        # The routers of earlier configs; active runs may still use them.
        self._retired: list[ModelRouter] = []
        self.store, self.sessions = store, SessionRepository(store, clock)
        self.audit = AuditLog(store, lambda: self._start_task(save_anchor(store, paths.state)))
        set_config_secrets(loaded.raw, loaded.env)
        self.bus, self.notices, self.watchdog = Bus(), Notices(), Watchdog()
        self._group: asyncio.TaskGroup = group
        self.clock, self.hooks = clock, Hooks()
        self.lanes = Lanes(lane_widths(loaded.config))
        self._channel_task: asyncio.Task[None] | None = None
        self.processes = ProcessTableLoader(group, clock.now_ms, self.notices.add)
        self.sandboxes = SandboxLoader(self._config, paths, clock.now_ms)
        self.mcp = McpLoader(group, self._config, lambda: self.loaded.env, paths.state)
        self.browsers = BrowserLoader(self._config, paths.state, self._spawn)
        self.skills = SkillLoader(lambda: self.loaded, paths)
        self.skill_ports = SkillPorts(
            self.skills, self._config, lambda agent: self.agent(agent), find_traits
        )
        self.skill_actions = SkillActionLoader(
            self.skill_ports.load, self.skill_ports.get_recent, paths.state
        )
        self._restart: Callable[[], None] | None = None  # set by the gateway process
        self.memory = MemoryRegistry(
            self._config, paths, lambda: self.loaded.env, store=store, group=group, clock=clock
        )
        self.subagents = SubagentLoader(store, self._subagent_services)
        self._agents = self._make_agents()
        self.agent, self.tools = self._agents.get, self._agents.tools
        self._channel_runtime = self._make_channel_runtime(channels)
        self.channels = self._channel_runtime.controller
        self._supervisor = self._channel_runtime.supervisor
        self.messenger = ChannelMessenger(
            self._supervisor,
            store,
            clock,
            config=self._config,
            hooks=self.hooks,
            state=paths.state,
        )
        loader = self._approval_loader = ApprovalLoader(self._approval_sources())
        self.approvals, self.approval_ports = loader.service, loader.ports
        self.control = SessionControl(self._session_services())
        self._runs = RunRegistry(self._run_services())
        self.preview = PreviewServices(
            get_config=self._config,
            get_models=self._models,
            get_agent=self.agent,
            get_tools=self.tools,
            load_session=self.control.load,
            find_traits=find_traits,
            clock=clock,
            hooks=self.hooks,
            skills=self.skill_ports,
        )
        services = self._command_services()
        self.commands = CommandDispatcher(services)
        self._exchanges = ExchangeLoader(lambda: services, self.messenger.accounts, self._spawn)
        self._maintenance = self._make_maintenance()

    def _make_maintenance(self) -> SessionMaintenance:
        return SessionMaintenance(
            MaintenanceServices(
                get_config=self._config,
                paths=self.paths,
                store=self.store,
                repository=self.sessions,
                clock=self.clock,
                lanes=self.lanes,
                is_busy=self.control.is_busy,
                prune_sandboxes=self.sandboxes.prune,
            )
        )

    def _make_agents(self) -> AgentRegistry:
        return AgentRegistry(
            self._config,
            self.paths,
            reaches=lambda: not self.channels.is_empty,
            memory=self.memory.get,
            get_processes=self.processes,
            get_browsers=self.browsers,
            env=lambda: self.loaded.env,
            find_image_model=lambda ref: self.models.find_image_model(ref),
            sources=ToolSources((self.mcp, self.skill_actions)),
            get_commands=lambda: self.commands,
            get_exchanges=lambda: self._exchanges(),
            get_gateway=self._get_gateway_actions,
            get_subagents=self.subagents,
            has_polls=lambda: has_ability("poll", self._config().channels),
        )

    def _make_channel_runtime(self, channels: Sequence[Channel]) -> ChannelRuntime:
        return ChannelRuntime(
            self._config,
            self.store.journal,
            self.clock,
            self._group,
            state=self.paths.state,
            given=channels,
            env=lambda: self.loaded.env,
            find_record=self.sessions.data,
            find_name=self._agents.display_name,
            submit=lambda key, record: self.control.submit(key, record),
            is_command=has_control_command,
            on_sent=lambda *sent: self._start_task(self.hooks.message_sent(*sent)),
            commands=lambda: native_commands(self._config().commands),
            skill_commands=self.skill_ports.native_commands,
            on_chat_moved=self._move_group_settings,
        )

    def _move_group_settings(self, channel: str, account: str, old: str, new: str) -> None:
        from homarus.config.group_migration import run_move  # rarely needed

        move = run_move(self.paths, self.loaded, (channel, account), (old, new), self.clock)
        self._group.create_task(move, name="group moved")

    def _approval_sources(self) -> ApprovalSources:
        return ApprovalSources(
            journal=self.store.journal,
            bus=self.bus,
            clock=self.clock,
            audit=self.audit,
            messenger=self.messenger,
            get_config=self._config,
            spawn=self._spawn,
            build_reply=self._supervisor.build_reply,
            build_notice=lambda *given: self.control.build_notice(*given),
            can_edit=self._supervisor.can_edit,
            on_enqueued=self._supervisor.wake_workers,
            resume_run=lambda *given: self.control.resume_suspended(*given),
        )

    def _command_services(self) -> CommandServices:
        return CommandServices(
            get_approvals=self.approvals,
            get_approval_prompts=self._approval_loader.prompts,
            get_config=self._config,
            get_models=self._models,
            get_agent=self.agent,
            get_restart=lambda: self._restart,
            control=self.control,
            store=self.store,
            bus=self.bus,
            clock=self.clock,
            hooks=self.hooks,
            compact=self._runs.compact_session,
            preview=partial(preview_prompt, self.preview),
            build_reply=self._supervisor.build_reply,
            on_enqueued=self._supervisor.wake_workers,
            find_traits=find_traits,
            read_exec_rules=self._read_exec_rules,
            get_config_edits=self._get_config_edits,
            get_overrides=lambda: self.overrides.values,
            get_pairings=self._get_pairings,
            get_tools=self.tools,
            get_processes=self.processes,
            audit=self.audit,
            open_questions=self._approval_loader.open_questions,
            open_sandbox=self.sandboxes.open,
            find_sandbox_report=self.sandboxes.find_report,
            skills=self.skill_ports,
            subagents=self.subagents,
        )

    def _config(self) -> Config:
        return self.loaded.config

    def _models(self) -> ModelRouter:
        return self.models

    def _session_services(self) -> SessionServices[RunOutcome]:
        """Connect sessions with runs and commands, which are made after them."""
        return SessionServices(
            repository=self.sessions,
            store=self.store,
            paths=self.paths,
            clock=self.clock,
            group=self._group,
            lanes=self.lanes,
            hooks=self.hooks,
            get_config=self._config,
            get_models=self._models,
            get_agent=self.agent,
            start_run=lambda key, rows, text: self._runs.start(key, rows, text),
            stop_run=lambda key, run_id: self._runs.stop(key, run_id),
            mark_stopped_by=lambda key, run_id, by: self._runs.mark_stopped_by(key, run_id, by),
            active_ids=lambda key: self._runs.active_ids(key),
            build_reply=self._supervisor.build_reply,
            on_enqueued=self._supervisor.wake_workers,
            interpret=lambda key, row: self.commands.interpret(key, row),
            is_suspended=lambda outcome: outcome.status == "suspended",
            on_suspended=lambda outcome: self.approvals().on_suspended(
                outcome.session_key, outcome.run_id, outcome.approvals
            ),
            on_suspended_stopped=self._approval_loader.on_runs_cancelled,
            on_unanswered=self.subagents.settling_unanswered,
            stop_children=self.subagents.stop_children,
            on_parked=self.subagents.recover,
        )

    def _subagent_services(self) -> "SubagentServices":
        # With the first sub-agent.
        from homarus.agent.subagents.subagent_service import SubagentServices

        return SubagentServices(
            store=self.store,
            repository=self.sessions,
            control=self.control,
            clock=self.clock,
            lanes=self.lanes,
            paths=self.paths,
            get_config=self._config,
            check_model=lambda name: self.models.check_typed(name).ref,
            spawn=self._spawn,
            on_runs_cancelled=self._approval_loader.on_runs_cancelled,
        )

    def _run_services(self) -> RunServices:
        now_ms = self.clock.now_ms
        return RunServices(
            sessions=self.sessions,
            store=self.store,
            bus=self.bus,
            lanes=self.lanes,
            clock=self.clock,
            hooks=self.hooks,
            watchdog=self.watchdog,
            spend_limiter=SpendLimiter(
                self.store, lambda: self._config().agents.defaults.spend, now_ms, self.local_date
            ),
            get_agent=self.agent,
            get_tools=self.tools,
            connect=lambda wish: self.models.connect(wish),
            get_approvals=self.approvals,
            pop_steering=self.control.take_steering,
            format_message=self._format_message,
            make_builder=self._make_builder,
            build_reply=self._supervisor.build_reply,
            on_enqueued=self._supervisor.wake_workers,
            on_unsettled=self.control.retry_unsettled,
            find_traits=find_traits,
            get_config=self._config,
            start_live_reply=self._channel_runtime.live.start,
            messenger=self.messenger,
            start_task=self._start_task,
            read_exec_rules=self._read_exec_rules,
            is_fresh=lambda session, inbound: (
                self.control.has_suspended(session.key)
                or is_fresh(
                    self._config().session, session.record, inbound.address.channel, now_ms()
                )
            ),
            is_shutting_down=lambda: self.control.is_shutting_down,
            open_sandbox=self.sandboxes.open,
            find_image_model=lambda ref: self.models.find_image_model(ref),
            resolve_connection=lambda *given: self.models.resolve_connection(*given),
            audit=self.audit,
            discover_tools=self._agents.sources.discover,
            skills=self.skill_ports,
            on_run_end=self.subagents.settling,
        )

    def _read_exec_rules(self) -> Sequence[Mapping[str, Json]]:
        from homarus.tools.exec.exec_rules import read_exec_rules  # with the first command

        return read_exec_rules(self.paths.state)

    def _start_task(self, work: Coroutine[None, None, None]) -> None:
        """Start work of hooks, unless the program is ending."""
        self._spawn(work, "hooks")

    def _spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None] | None:
        """Start a task; None when the program is ending."""
        try:
            return self._group.create_task(work, name=name)
        except RuntimeError:
            work.close()
            return None

    def gateway_services(self) -> "GatewayServices":
        """Return the ports of this program that a gateway works with."""
        from homarus.gateway.services import GatewayServices  # not needed without a gateway

        return GatewayServices(
            get_loaded=lambda: self.loaded,
            get_models=self._models,
            paths=self.paths,
            store=self.store,
            sessions=self.sessions,
            control=self.control,
            bus=self.bus,
            clock=self.clock,
            notices=self.notices,
            lanes=self.lanes,
            hooks=self.hooks,
            channels=self.channels,
            messenger=self.messenger,
            memory=self.memory,
            agent=self.agent,
            preview=self.preview,
            recover=self.recover,
            run_maintenance=self._maintenance.run,
            run_boot=self.run_boot,
            preload=self.preload,
            reload=self.reload,
            wake_workers=self._supervisor.wake_workers,
            set_restart=self.set_restart,
            get_approvals=self.approvals,
            approval_ports=self.approval_ports,
            audit=self.audit,
            open_sandbox=self.sandboxes.open,
            set_config_watcher=self._set_config_watcher,
            find_sandbox_report=self.sandboxes.find_report,
            get_browsers=self.browsers,
            get_skills=self.skills,
            skill_ports=self.skill_ports,
            subagents=self.subagents,
        )

    def _set_config_watcher(self, watcher: "ConfigWatcher") -> None:
        self._config_watcher = watcher

    def _get_config_edits(self) -> "ChatConfigEdits":
        from homarus.gateway.chat_changes import ChatConfigEdits  # for commands that are rare

        ports = self.gateway_services(), self._config_watcher, self.overrides
        return ChatConfigEdits(*ports, self._start_task)

    def _get_gateway_actions(self) -> "GatewayActions":
        from homarus.gateway.tool_actions import GatewayActions  # for a tool that is rare

        ports = self.gateway_services(), self._get_config_edits(), lambda: self._restart
        return GatewayActions(*ports, self._start_task)

    def _get_pairings(self) -> "PairingStore":
        from homarus.channels.pairing import PairingStore  # for a command that is rare

        return PairingStore(self.paths.state, self.clock)

    def set_restart(self, restart: Callable[[], None]) -> None:
        """Set what restarts the process of this program."""
        self._restart = restart

    async def preload(self) -> None:
        """Do in advance what the first run would wait for; errors are left to that run."""
        with suppress(HomarusError):
            folders = [self.agent(each).workspace for each in agent_ids(self._config())]
            await asyncio.to_thread(remove_leftovers, [*folders, self.paths.state / "agents"])
            await self.sandboxes.clean()
            agent = self.agent(default_agent_id(self._config()))
            self.tools(agent.id).specs()  # building their schemas is half of a first turn
            import_module("homarus.agent.reply.reply_cleaner")
            await self.models.preload(ModelSelection(agent.id, agent.model))
        await self.skill_actions.discover(default_agent_id(self._config()))  # takes the longest

    async def recover(self) -> list[tuple[InboxRecord, asyncio.Future[RunOutcome]]]:
        """Resume what an earlier process left unsettled; then start the channels."""
        if await self.store.journal.approvals("pending", limit=1):
            await self.approvals().start()
        resumed = await self.control.recover()
        await self.subagents.recover()
        await self._exchanges.recover()
        self._channel_task = self._group.create_task(self.channels.run(), name="channels")
        if await self.store.record("restart", "note"):
            self._start_task(self._send_restart_note())
        return resumed

    async def _send_restart_note(self) -> None:
        from homarus.agent.restart_note import RestartNotePorts, send_restart_note

        reply, wake = self._supervisor.build_reply, self._supervisor.wake_workers
        outbox = self.messenger.accounts, reply, wake
        await send_restart_note(RestartNotePorts(self.store, self.clock, *outbox, self.notices.add))

    async def run_boot(self) -> None:
        """Run the BOOT.md of every agent."""
        every = (self.agent(each) for each in agent_ids(self._config()))
        await run_boot_prompts(every, self.control.accept, self.control.submit, self.clock.now_ms())

    def stop(self) -> None:
        """Start nothing more: what is accepted from now on waits for the next start."""
        self.control.close()
        self._approval_loader.close()
        if self._channel_task:
            self._channel_task.cancel()
        self.processes.stop()
        self.mcp.stop()
        self.browsers.stop()
        self.subagents.stop()
        self.memory.stop_watching()

    def _make_builder(
        self, session: Session, inbound: Inbound, thinking: str, new_session_id: str
    ) -> "ReplyBuilder | None":
        """Return the reply builder for the sender's chat; None where a run has events only."""
        if self._supervisor.capabilities(inbound.address) is None:
            return None
        from homarus.agent.reply.builder import make_reply_builder  # only to answer a chat

        given = {"thinking": thinking, "new_session_id": new_session_id}
        return make_reply_builder(self._config(), session, inbound, **given)

    def _format_message(self, key: str, inbound: Inbound) -> str:
        """Return a message as the model reads it: with its time, and after pending notices."""
        agent, last_ms = self.agent(agent_id_of(key)), self.sessions.last_ms(key)
        if last_ms is None:  # the first message of a session
            self.memory.sync_on_session_start(agent)
        prefix = self._config().messages.message_prefix or ""
        text = format_user_message(agent, key, inbound, last_ms, find_traits, prefix=prefix)
        return self.notices.prepend_to(key, text)

    async def reload(self, loaded: LoadedConfig) -> None:
        """Use another config: active runs end by the old one, the next use this.

        The overrides of `/debug` stay; raises ConfigError if they do not fit it.
        """
        if not self.control.active_runs():
            await self._close_retired()
        loaded = self.overrides.apply(loaded)
        self._retired.append(self.models)
        self.models = ModelRouter(loaded.config, loaded.env, self.paths, self.clock)
        before, self.loaded = self.loaded, loaded
        set_config_secrets(loaded.raw, loaded.env)
        self._agents.clear()
        self.skill_ports.clear()
        self.mcp.reload()
        await self.memory.reload()
        for lane, width in lane_widths(loaded.config).items():
            self.lanes.resize(lane, width)
        configure_logging(loaded.config, self.paths.logs)
        log_list_problems(loaded.config)
        await record_reload(
            self.audit, self.store, self.paths.state, (before, loaded), self.clock.now_ms()
        )
        await self.channels.reconcile()

    async def close(self) -> None:
        """Close the connections to models, and memory."""
        with suppress(StoreError):
            await self.audit.write()
            await save_anchor(self.store, self.paths.state)
        await self.memory.close()
        self._retired.append(self.models)
        await self._close_retired()

    async def _close_retired(self) -> None:
        while self._retired:
            await self._retired.pop().close()

    def local_date(self, at_ms: int) -> str:
        """Return the local date of the person."""
        return local_date(zone_name(self._config().agents.defaults.user_timezone), at_ms)
