"""Run one heartbeat: accept its message, submit it, and report what came of it.

The message is accepted into the journal under an id of its own, in one transaction with the time of
the agent's last heartbeat, and answered by a run like any other. What came of it is read from the
inbox record, so that a heartbeat which a restart interrupted is reported too.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final
from uuid import uuid4

from homarus.config.heartbeat_settings import (
    HeartbeatSettings,
    HeartbeatVisibility,
    resolve_visibility,
)
from homarus.core.fast_dataclass import dataclass
from homarus.core.faults import fault_point
from homarus.core.lanes import HEARTBEAT_LANE
from homarus.core.message import (
    DIRECT,
    HEARTBEAT_CHANNEL,
    Address,
    HeartbeatOptions,
    Inbound,
    InboundMetadata,
    InputProvenance,
    Json,
    Message,
    RunOptions,
)
from homarus.core.text import one_line
from homarus.schedule.heartbeat_prompt import make_heartbeat_prompt
from homarus.schedule.heartbeat_scheduler import RECORD_KIND, HeartbeatServices, run_session
from homarus.schedule.heartbeat_target import HeartbeatTarget, resolve_target
from homarus.sessions.last_route import is_group_key
from homarus.sessions.run_queue import PREEMPTED
from homarus.sessions.session import Session
from homarus.store.journal import InboxRecord

DUPLICATE_MS: Final = 86_400_000
_MAX_PREVIEW_CHARS: Final = 200
STOPPED: Final = "aborted"  # by a person, who does not want it again
LAST_TEXT: Final = "lastHeartbeatText"
LAST_SENT_AT: Final = "lastHeartbeatSentAt"


@dataclass(frozen=True, slots=True)
class _Heartbeat:
    """A heartbeat under way."""

    id: str
    session: str  # that it is about
    started_s: float
    target: HeartbeatTarget
    visibility: HeartbeatVisibility


class HeartbeatRunner:
    """Runs heartbeats. `is_busy` says whether a session works on something else.

    `on_end` is called with the session of each heartbeat that ended, and whether it failed.
    """

    def __init__(
        self,
        services: HeartbeatServices,
        publish: Callable[[Mapping[str, Json]], None],
        is_busy: Callable[[HeartbeatSettings, str], bool],
        on_end: Callable[[str, bool], None],
    ) -> None:
        self._services, self._publish, self._is_busy = services, publish, is_busy
        self._on_end = on_end

    async def start(self, settings: HeartbeatSettings, key: str, *, is_interval: bool) -> str:
        """Start a heartbeat about a session; return the reason why there is none, else ""."""
        services = self._services
        session = await services.control.load(key)
        config = services.get_config()
        target = resolve_target(
            settings, session.record.data, self._accounts(), services.find_traits
        )
        if target.reason == "unknown-account":
            return target.reason
        to = target.address
        visibility = resolve_visibility(config, to.channel if to else "", to.account if to else "")
        if visibility.is_hidden:
            return "alerts-disabled"
        inbound = await self._make_inbound(settings, session, target, visibility)
        if self._is_busy(settings, key):  # a message came while the session was loaded
            return "requests-in-flight"
        agent = settings.agent if is_interval else ""
        record = await self._accept(run_session(settings, key), inbound, agent)
        outcome = services.control.submit(record.session, record)
        now_s = services.clock.monotonic()
        self._follow(_Heartbeat(record.id, key, now_s, target, visibility), outcome)
        return ""

    def follow(self, record: InboxRecord, outcome: "asyncio.Future[Any]") -> None:
        """Report the end of a heartbeat that an earlier process started."""
        options = record.inbound.options if record.inbound else RunOptions()
        own = options.heartbeat or HeartbeatOptions()
        to = options.deliver_to
        address = Address(to[0], to[1], to[2], to[3] or None) if to else None
        visibility = resolve_visibility(
            self._services.get_config(), to[0] if to else "", to[2] if to else ""
        )
        visibility = HeartbeatVisibility(own.shows_ok, own.shows_alerts, visibility.uses_indicator)
        now_s = self._services.clock.monotonic()
        target = HeartbeatTarget(address, "" if address else "no-target")
        key = own.session or record.session
        self._follow(_Heartbeat(record.id, key, now_s, target, visibility), outcome)

    async def _make_inbound(
        self,
        settings: HeartbeatSettings,
        session: Session,
        target: HeartbeatTarget,
        visibility: HeartbeatVisibility,
    ) -> Inbound:
        services, key = self._services, session.key
        now_ms, config = services.clock.now_ms(), services.get_config()
        zone = config.agents.defaults.user_timezone
        text = make_heartbeat_prompt(settings, services.notices.pending(key), zone, now_ms)
        own_key = run_session(settings, key)
        id_ = f"{HEARTBEAT_CHANNEL}:{settings.agent}:{now_ms}:{uuid4().hex[:8]}"
        options = RunOptions(
            model=settings.model or None,
            reasoning="on" if settings.includes_reasoning else None,
            deliver_to=target.deliver_to,
            provenance=InputProvenance("internal_system", tool=HEARTBEAT_CHANNEL),
            lane=HEARTBEAT_LANE,
            heartbeat=HeartbeatOptions(
                settings.ack_max_chars,
                visibility.shows_ok,
                visibility.shows_alerts,
                last_alert=await self._find_last_alert(session, own_key, now_ms),
                session=key if settings.is_isolated else "",
                is_light=settings.is_light,
                suppresses_tool_errors=settings.suppresses_tool_errors,
            ),
        )
        # In a group, others have written what the run reads: it has not the owner's rights.
        metadata = InboundMetadata(is_limited=True) if is_group_key(key) else DIRECT
        address = Address(HEARTBEAT_CHANNEL, own_key)
        return Inbound(
            id_, address, "owner", text, at_ms=now_ms, options=options, run_id=id_,
            metadata=metadata,
        )  # fmt: skip

    async def _find_last_alert(self, session: Session, own_key: str, now_ms: int) -> str:
        """Return the last alert, if it is from the last day and no person has written since."""
        own = session if own_key == session.key else await self._services.control.load(own_key)
        text, sent_ms = own.record.data.get(LAST_TEXT), own.record.data.get(LAST_SENT_AT)
        if not isinstance(text, str) or not isinstance(sent_ms, int):
            return ""
        is_recent = 0 <= now_ms - sent_ms < DUPLICATE_MS
        is_answered = any(_is_by_person(m) and m.at_ms > sent_ms for m in session.messages)
        return text if is_recent and not is_answered else ""

    def _accounts(self) -> set[tuple[str, str]]:
        """Return the accounts that run, and those of the config, which may be connecting."""
        config, accounts = self._services.get_config(), set(self._services.get_accounts())
        if config.channels:
            from homarus.config.channels import account_names, channel_names

            for channel in channel_names(config):
                accounts |= {(channel, account) for account in account_names(config, channel)}
        return accounts

    async def _accept(self, key: str, inbound: Inbound, agent: str) -> InboxRecord:
        """Accept a message; for the interval of an agent, store its time with it."""
        services, now_ms = self._services, self._services.clock.now_ms()
        async with services.store.transaction() as transaction:
            transaction.accept(key, inbound, at_ms=now_ms)
            if agent:
                transaction.put_record(RECORD_KIND, agent, {"at": now_ms})
        fault_point("heartbeat.accepted")
        record = await services.store.journal.inbox_record(inbound.run_id)
        assert record is not None  # noqa: S101 - it was accepted just now
        return record

    # The end of a heartbeat

    def _follow(self, beat: _Heartbeat, outcome: "asyncio.Future[Any]") -> None:
        self._services.spawn(self._report(beat, outcome), f"heartbeat {beat.id}")

    async def _report(self, beat: _Heartbeat, outcome: "asyncio.Future[Any]") -> None:
        await asyncio.wait([outcome])
        record = await self._services.store.journal.inbox_record(beat.id)
        if record is None or record.state not in {"answered", "silent", "reported"}:
            return  # the program ends: the next start continues
        done = not outcome.cancelled() and outcome.exception() is None
        self._publish(self._payload(beat, record, outcome.result() if done else None))
        self._on_end(beat.session, record.state == "reported" and record.why != STOPPED)

    def _payload(self, beat: _Heartbeat, record: InboxRecord, outcome: Any) -> dict[str, Json]:
        """Return the payload of the `heartbeat` event."""
        services, to = self._services, beat.target.address
        payload: dict[str, Json] = {
            "ts": services.clock.now_ms(),
            "durationMs": round((services.clock.monotonic() - beat.started_s) * 1000),
        }
        if to:
            payload |= {"channel": to.channel, "to": to.chat, "accountId": to.account}
        status, indicator = "sent", "alert"
        if record.state == "reported":
            status, indicator = "failed", "error"
            payload["reason"] = record.why
        elif record.why in {"ok-token", "ok-empty"}:
            status, indicator = record.why, "ok"
            payload["silent"] = not beat.visibility.shows_ok
        elif record.why:
            is_blocked = record.why == "no-target"
            status, indicator = "skipped", "" if record.why == PREEMPTED else "alert"
            payload["reason"] = (beat.target.reason or record.why) if is_blocked else record.why
        if outcome is not None and outcome.text and indicator == "alert":
            payload["preview"] = one_line(outcome.text, _MAX_PREVIEW_CHARS)
            payload["hasMedia"] = bool(outcome.media)
        if indicator and beat.visibility.uses_indicator:
            payload["indicatorType"] = indicator
        return {"ts": payload.pop("ts"), "status": status, **payload}


def _is_by_person(message: Message) -> bool:
    source = message.provenance
    return message.role == "user" and (source is None or source.kind == "external_user")
