"""Connect jobs, isolated turns and internal jobs with the other parts of the program.

A part of the composition root, like `app_services.py`. What a program without jobs never needs is
imported by the function that makes it.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Final

from homarus.config.agent_settings import default_agent_id, resolve_agent_settings
from homarus.config.paths import Paths, expand
from homarus.config.timezone import zone_name
from homarus.core.errors import ToolError, UnknownNameError, UserError
from homarus.core.text import closest_names
from homarus.core.units import parse_duration_ms
from homarus.schedule.heartbeat_request import HeartbeatRequest
from homarus.schedule.internal_jobs import InternalJob, InternalJobs
from homarus.schedule.loader import ScheduleLoader, ScheduleSources

if TYPE_CHECKING:
    from homarus.app import App
    from homarus.config.schema import Config
    from homarus.core.message import Message
    from homarus.schedule.cron_service import CronServices
    from homarus.schedule.job import Misfire
    from homarus.schedule.tool_actions import CronActions
    from homarus.schedule.turn import Delivery
    from homarus.schedule.turn_service import TurnService, TurnServices
    from homarus.schedule.webhook_sender import WebhookSettings
    from homarus.sessions.notices import WakeMode

_DAY_S: Final = 86_400.0
_HOUR_S: Final = 3_600.0


def make_schedule_loader(app: "App") -> ScheduleLoader:
    """Return the loader of jobs and turns."""
    return ScheduleLoader(
        ScheduleSources(
            store=app.store,
            clock=app.clock,
            spawn=app.spawn,
            get_jobs_path=lambda: jobs_path(app.get_config(), app.paths),
            make_turn_services=lambda: _make_turn_services(app),
            make_cron_services=lambda turns: _make_cron_services(app, turns),
            prune_sessions=lambda: _prune_sessions(app),
        )
    )


def register_internal_jobs(app: "App", jobs: InternalJobs) -> None:
    """Register what the program does at intervals."""
    jobs.register(
        InternalJob(
            "session-maintenance",
            "prune old sessions, archived transcripts, the journal and the trash",
            app.maintenance.run_once,
            lambda: _DAY_S,
            waits_after_clock_step=True,
        )
    )
    jobs.register(
        InternalJob(
            "cron-retention",
            "delete old sessions of jobs and webhooks, and run records",
            app.schedules.prune,
            lambda: _HOUR_S,
            first_delay_s=300.0,
            waits_after_clock_step=True,
        )
    )
    jobs.register(
        InternalJob(
            "memory-sync",
            "update the memory indexes of agents with sync.intervalMinutes",
            app.memory.sync_due,
            app.memory.sync_interval_s,
        )
    )
    jobs.register(
        InternalJob(
            "subagent-archive",
            "archive the sessions of sub-agents that have ended",
            app.subagents.sweep,
            app.subagents.sweep_interval_s,
            first_delay_s=0.0,
        )
    )


def jobs_path(config: "Config", paths: Paths) -> Path:
    """Return the path of `jobs.json`: `cron.store`, or the default."""
    store = config.cron.store
    return expand(store, paths.home) if store else paths.state / "cron" / "jobs.json"


def _make_turn_services(app: "App") -> "TurnServices":
    from homarus.schedule.turn_service import TurnServices

    return TurnServices(
        store=app.store,
        clock=app.clock,
        notices=app.notices,
        submit=app.control.submit,
        spawn=app.spawn,
        resolve_target=lambda delivery, agent: _resolve_target(app, delivery, agent),
        get_main_key=lambda agent: app.control.resolve_key(None, agent),
        clean_reply=_clean_reply,
        check_model=lambda name: app.models.check_typed(name).ref,
        request_heartbeat=lambda request: app.heartbeats.request(request),
    )


def _make_cron_services(app: "App", turns: "TurnService") -> "CronServices":
    from homarus.schedule.cron_runner import RunnerServices
    from homarus.schedule.cron_service import CronServices
    from homarus.schedule.webhook_sender import WebhookSender, WebhookServices

    async def report_failed(run_id: str, reason: str) -> None:
        key = app.control.resolve_key(None, None)
        text = f"The webhook of cron run {run_id} could not be delivered: {reason}"
        await app.notices.save(app.store, key, text, app.clock.now_ms(), source="cron-webhook")

    webhooks = WebhookSender(
        WebhookServices(
            app.store, app.clock, lambda: _webhook_settings(app), app.spawn, report_failed
        )
    )

    async def stop_run(key: str) -> None:
        await app.control.stop(key)

    def user_zone() -> tuple[str, bool]:
        defaults = app.get_config().agents.defaults
        return zone_name(defaults.user_timezone), defaults.time_format == "12"

    runner = RunnerServices(
        store=app.store,
        clock=app.clock,
        notices=app.notices,
        turns=turns,
        webhooks=webhooks,
        resolve_agent=lambda name: _resolve_agent(app, name),
        resolve_key=lambda name, agent: app.control.resolve_key(name or None, agent),
        stop_run=stop_run,
        get_misfire=lambda: _misfire(app),
        get_webhook=lambda: app.get_config().cron.webhook or "",
        get_zone=user_zone,
        request_heartbeat=lambda request: app.heartbeats.request(request),
        on_event=app.schedules.publish,
    )
    return CronServices(
        runner,
        is_enabled=lambda: app.get_config().cron.enabled,
        get_path=lambda: jobs_path(app.get_config(), app.paths),
        spawn=app.spawn,
        check_model=lambda name: app.models.check_typed(name),
        check_channel=_check_channel,
        wake=app.schedules.timer.wake,
        internal_jobs=app.schedules.internal.statuses,
        is_closed=lambda: app.control.is_closed,
    )


def make_cron_actions(app: "App") -> "CronActions":
    """Return what the `cron` tool calls."""
    from homarus.schedule.tool_actions import CronActions

    def main_key(agent: str) -> str:
        return app.control.resolve_key(None, agent)

    async def wake(agent: str, text: str, mode: "WakeMode") -> None:
        key, at_ms = main_key(agent), app.clock.now_ms()
        await app.notices.save(app.store, key, text, at_ms, source="wake", wake_mode=mode)
        if mode == "now":
            app.heartbeats.request(HeartbeatRequest("wake", agent, key))

    return CronActions(
        get_cron=app.schedules,
        store=app.store,
        wake=wake,
        main_key=main_key,
        get_default_agent=lambda: default_agent_id(app.get_config()),
        get_zone=lambda: zone_name(app.get_config().agents.defaults.user_timezone),
        get_rules=lambda: app.get_config().tools.message,
        get_channels=lambda: app.get_config().channels,
    )


def _resolve_agent(app: "App", name: str) -> str:
    config = app.get_config()
    return resolve_agent_settings(config, app.paths, name or default_agent_id(config)).id


def _check_channel(name: str) -> None:
    """Raise UnknownNameError for a channel that no chat service has, whether it runs or not."""
    from homarus.channels.registry import available_channels, find_traits, services_without_channel
    from homarus.core.channel_traits import UNKNOWN_CHANNEL

    if find_traits(name) is UNKNOWN_CHANNEL:
        known = (*available_channels(), *services_without_channel())
        raise UnknownNameError("channel", name, closest_names(name, known))


def _misfire(app: "App") -> "Misfire":
    from homarus.schedule.job import Misfire

    settings = app.get_config().cron.misfire
    return Misfire(settings.policy, settings.max_age_minutes)


def _webhook_settings(app: "App") -> "WebhookSettings":
    from homarus.config.network_policy import resolve_network_policy
    from homarus.schedule.webhook_sender import WebhookSettings

    config = app.get_config()
    return WebhookSettings(
        config.cron.webhook or "",
        config.cron.webhook_token or "",
        resolve_network_policy(config.tools.web.fetch),
    )


def _clean_reply(reply: "Message") -> str:
    """Return what people read of an answer; "" for one that says nothing."""
    from homarus.agent.reply.reply_cleaner import clean_message
    from homarus.core.silent_reply import strip_heartbeat_ack

    cleaned = clean_message(reply)
    if cleaned.silent:
        return ""
    ack = strip_heartbeat_ack(cleaned.text, heartbeat=False)
    return "" if ack.skip else ack.text


async def _resolve_target(
    app: "App", delivery: "Delivery", agent: str
) -> tuple[str, str, str, str]:
    """Return the chat that an answer is announced to. Raises UserError when there is none."""
    from homarus.channels.messenger import resolve_address
    from homarus.config.channels import accounts_in
    from homarus.sessions.last_route import last_chat

    config = app.get_config()
    configured = (
        (name, account) for name, tree in config.channels.items() for account in accounts_in(tree)
    )
    accounts = {*app.messenger.accounts(), *configured}
    record = await app.store.session(app.control.resolve_key(None, agent))
    last = last_chat(record.data) if record else None
    if last is not None and (not last.chat or (last.channel, last.account) not in accounts):
        last = None
    channel = "" if delivery.channel == "last" else delivery.channel
    if not delivery.to and last is None:
        raise UserError(
            "the answer cannot be announced: the main session has no last chat",
            fix="set delivery.channel and delivery.to (--channel, --to), or bestEffort",
        )
    try:
        to = resolve_address(
            delivery.to,
            sorted(accounts),
            channel=channel,
            account=delivery.account,
            thread=delivery.thread,
            here=last,
        )
    except ToolError as exc:
        raise UserError(f"the answer cannot be announced: {exc.message}", fix=exc.fix) from exc
    return to.channel, to.chat, to.account, to.thread or ""


async def _prune_sessions(app: "App") -> None:
    from homarus.schedule.session_retention import RetentionServices, prune_run_sessions

    def retention_ms() -> int | None:
        given = app.get_config().cron.session_retention
        return None if given is False else parse_duration_ms(given, "h")

    await prune_run_sessions(
        RetentionServices(
            app.store, app.sessions, app.clock, app.lanes, app.control.is_busy, retention_ms
        )
    )
