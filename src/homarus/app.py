"""The composition root: it makes every part of the program, and starts, reloads and stops them.

Packages get what they need of each other as functions, in `…Services` dataclasses that
`app_services` builds; no module of theirs is given the `App` itself.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from homarus.agent.approval_loader import ApprovalLoader
from homarus.agent.boot import run_boot_prompts
from homarus.agent.commands.dispatcher import CommandDispatcher
from homarus.agent.exchange.loader import ExchangeLoader
from homarus.agent.internal_hooks.loader import InternalHookLoader
from homarus.agent.memory_registry import MemoryRegistry
from homarus.agent.run import RunOutcome
from homarus.agent.run_registry import RunRegistry
from homarus.agent.skills.ports import SkillPorts
from homarus.agent.subagents.loader import SubagentLoader
from homarus.app_schedule import (
    make_cron_actions,
    make_schedule_loader,
    register_internal_jobs,
)
from homarus.app_services import (
    make_agents,
    make_approval_sources,
    make_channel_runtime,
    make_command_services,
    make_diagnostics_loader,
    make_gateway_services,
    make_heartbeat_services,
    make_internal_hook_services,
    make_maintenance_services,
    make_preview_services,
    make_run_services,
    make_session_services,
    make_subagent_services,
)
from homarus.channels.base import Channel
from homarus.channels.messenger import ChannelMessenger
from homarus.channels.registry import find_traits
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
from homarus.core.diagnostics import Diagnostics
from homarus.core.errors import HomarusError, StoreError
from homarus.core.lanes import Lanes
from homarus.core.session_keys import agent_id_of
from homarus.core.watchdog import Watchdog
from homarus.plugins.hook_runner import Hooks
from homarus.providers.model_router import ModelRouter, ModelSelection
from homarus.schedule.heartbeat_request import HeartbeatRequest
from homarus.schedule.heartbeat_scheduler import HeartbeatScheduler
from homarus.sessions.control import SessionControl
from homarus.sessions.maintenance import SessionMaintenance
from homarus.sessions.notices import Notices
from homarus.sessions.run_end import combine_run_ends
from homarus.sessions.session import SessionRepository
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

if TYPE_CHECKING:
    from homarus.gateway.config_watch import ConfigWatcher
    from homarus.gateway.services import GatewayServices


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
        self.config_watcher: ConfigWatcher | None = None  # set by the gateway process
        # The routers of earlier configs; active runs may still use them.
        self._retired: list[ModelRouter] = []
        self.store, self.sessions = store, SessionRepository(store, clock)
        self.audit = AuditLog(store, lambda: self.start_task(save_anchor(store, paths.state)))
        set_config_secrets(loaded.raw, loaded.env)
        self.bus, self.notices, self.watchdog = Bus(), Notices(), Watchdog()
        self.diagnostics = Diagnostics(clock.now_ms)
        self.group: asyncio.TaskGroup = group
        self.clock, self.hooks = clock, Hooks()
        self.lanes = Lanes(lane_widths(loaded.config), diagnostics=self.diagnostics)
        self._channel_task: asyncio.Task[None] | None = None
        self.processes = ProcessTableLoader(group, clock.now_ms, self._add_exec_notice)
        self.sandboxes = SandboxLoader(self.get_config, paths, clock.now_ms)
        self.mcp = McpLoader(group, self.get_config, lambda: self.loaded.env, paths.state)
        self.browsers = BrowserLoader(self.get_config, paths.state, self.spawn)
        self.skills = SkillLoader(lambda: self.loaded, paths)
        self.skill_ports = SkillPorts(
            self.skills, self.get_config, lambda agent: self.agent(agent), find_traits
        )
        self.skill_actions = SkillActionLoader(
            self.skill_ports.load, self.skill_ports.get_recent, paths.state
        )
        self.restart: Callable[[], None] | None = None  # set by the gateway process
        self.memory = MemoryRegistry(
            self.get_config,
            paths,
            lambda: self.loaded.env,
            store=store,
            group=group,
            clock=clock,
            diagnostics=self.diagnostics,
        )
        self.subagents = SubagentLoader(store, lambda: make_subagent_services(self))
        self.schedules = make_schedule_loader(self)
        self.get_cron_actions = partial(make_cron_actions, self)
        self.on_run_end = combine_run_ends(self.subagents.settling, self.schedules.settling)
        self.agents = make_agents(self)
        self.agent, self.tools = self.agents.get, self.agents.tools
        self.channel_runtime = make_channel_runtime(self, channels)
        self.channels = self.channel_runtime.controller
        self.supervisor = self.channel_runtime.supervisor
        self.messenger = ChannelMessenger(
            self.supervisor,
            store,
            clock,
            config=self.get_config,
            hooks=self.hooks,
            state=paths.state,
        )
        loader = self.approval_loader = ApprovalLoader(make_approval_sources(self))
        self.approvals, self.approval_ports = loader.service, loader.ports
        self.control = SessionControl(make_session_services(self))
        self.runs = RunRegistry(make_run_services(self))
        self.preview = make_preview_services(self)
        services = make_command_services(self)
        self.commands = CommandDispatcher(services)
        self.exchanges = ExchangeLoader(lambda: services, self.messenger.accounts, self.spawn)
        self.maintenance = SessionMaintenance(make_maintenance_services(self))
        register_internal_jobs(self, self.schedules.internal)
        self.internal_hooks = InternalHookLoader(make_internal_hook_services(self))
        self.internal_hooks.start()
        self.heartbeats = HeartbeatScheduler(make_heartbeat_services(self))
        self.diagnostics_loader = make_diagnostics_loader(self)

    def get_config(self) -> Config:
        """Return the config as it is now."""
        return self.loaded.config

    def get_models(self) -> ModelRouter:
        """Return the models of the current config."""
        return self.models

    def start_task(self, work: Coroutine[None, None, None]) -> None:
        """Start work of hooks, unless the program is ending."""
        self.spawn(work, "hooks")

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None] | None:
        """Start a task; None when the program is ending."""
        try:
            return self.group.create_task(work, name=name)
        except RuntimeError:
            work.close()
            return None

    def gateway_services(self) -> "GatewayServices":
        """Return the ports of this program that a gateway works with."""
        return make_gateway_services(self)

    def set_config_watcher(self, watcher: "ConfigWatcher") -> None:
        """Set what reloads the config when its file changes."""
        self.config_watcher = watcher

    def set_restart(self, restart: Callable[[], None]) -> None:
        """Set what restarts the process of this program."""
        self.restart = restart

    async def preload(self) -> None:
        """Do in advance what the first run would wait for; errors are left to that run."""
        with suppress(HomarusError):
            folders = [self.agent(each).workspace for each in agent_ids(self.get_config())]
            await asyncio.to_thread(remove_leftovers, [*folders, self.paths.state / "agents"])
            await self.sandboxes.clean()
            agent = self.agent(default_agent_id(self.get_config()))
            self.tools(agent.id).specs()  # building their schemas is half of a first turn
            import_module("homarus.agent.reply.reply_cleaner")
            await self.models.preload(ModelSelection(agent.id, agent.model))
        await self.skill_actions.discover(default_agent_id(self.get_config()))  # takes the longest

    async def recover(self) -> list[tuple[InboxRecord, asyncio.Future[RunOutcome]]]:
        """Resume what an earlier process left unsettled; then start the channels."""
        await self.notices.load(self.store)  # before a run takes those of its session
        if await self.store.journal.approvals("pending", limit=1):
            await self.approvals().start()
        await self.schedules.load_turns()
        resumed = await self.control.recover()
        await self.notices.release_settled(self.store)
        for record, outcome in resumed:
            self.heartbeats.follow(record, outcome)
        await self.subagents.recover()
        await self.exchanges.recover()
        self._channel_task = self.group.create_task(self.channels.run(), name="channels")
        if await self.store.record("restart", "note"):
            self.start_task(self._send_restart_note())
        await self.schedules.recover()
        return resumed

    async def _send_restart_note(self) -> None:
        from homarus.agent.restart_note import RestartNotePorts, send_restart_note

        reply, wake = self.supervisor.build_reply, self.supervisor.wake_workers
        outbox = self.messenger.accounts, reply, wake
        await send_restart_note(RestartNotePorts(self.store, self.clock, *outbox, self.notices.add))

    def _add_exec_notice(self, key: str, text: str, at_ms: int) -> None:
        """Leave a notice that a background command has ended, and have the agent read it."""
        self.notices.add(key, text, at_ms, source="exec")
        self.heartbeats.request(HeartbeatRequest("exec-event", agent_id_of(key), key))

    async def run_boot(self) -> None:
        """Run the BOOT.md of every agent."""
        every = (self.agent(each) for each in agent_ids(self.get_config()))
        await run_boot_prompts(every, self.control.accept, self.control.submit, self.clock.now_ms())

    def stop(self) -> None:
        """Start nothing more: what is accepted from now on waits for the next start."""
        self.control.close()
        self.approval_loader.close()
        if self._channel_task:
            self._channel_task.cancel()
        self.processes.stop()
        self.mcp.stop()
        self.browsers.stop()
        self.internal_hooks.stop()
        self.diagnostics_loader.stop()
        self.memory.stop_watching()

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
        self.agents.clear()
        self.skill_ports.clear()
        self.mcp.reload()
        self.internal_hooks.reload()
        await self.memory.reload()
        for lane, width in lane_widths(loaded.config).items():
            self.lanes.resize(lane, width)
        configure_logging(loaded.config, self.paths.logs)
        self.diagnostics_loader.reload()
        log_list_problems(loaded.config)
        await record_reload(
            self.audit, self.store, self.paths.state, (before, loaded), self.clock.now_ms()
        )
        await self.channels.reconcile()
        self.schedules.timer.wake()
        self.heartbeats.wake()

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
        return local_date(zone_name(self.get_config().agents.defaults.user_timezone), at_ms)
