"""Carry out hook actions: store a notice or start a turn, once for each delivery.

A request is answered when what it causes is on disk. The text of a hook has no authority: commands
in it are not parsed, and the turn is tainted.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, TypeAlias
from uuid import UUID, uuid4, uuid5

from homarus.config.agent_settings import agent_ids, default_agent_id
from homarus.config.schema import Config
from homarus.core.clock import Clock
from homarus.core.errors import HomarusError, InvalidRequestError, StoreError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.faults import fault_point
from homarus.core.message import Json
from homarus.core.session_keys import normalize_agent_id
from homarus.core.text import one_line
from homarus.gateway.hook_requests import (
    MAX_NAME_CHARS,
    AgentRequest,
    check_key_owner,
    hook_session_key,
    is_agent_allowed,
)
from homarus.gateway.hooks.actions import (
    TAINT_KIND,
    AgentAction,
    HookAction,
    WakeAction,
    format_text,
)
from homarus.gateway.hooks.delivery_log import DeliveryLog
from homarus.gateway.hooks.payload import DeliveryId
from homarus.gateway.hooks.refusal import HookRefusedError
from homarus.gateway.hooks.settings import HookSettings
from homarus.gateway.hooks.templates import RenderedText
from homarus.schedule.heartbeat_request import HeartbeatRequest, RequestHeartbeat
from homarus.schedule.turn import Delivery, StartTurn, TurnRequest
from homarus.sessions.levels import think_level
from homarus.sessions.notices import MAX_NOTICE_CHARS, Notices
from homarus.store.base import Store, Transaction

WriteRecord: TypeAlias = Callable[[Transaction], None]
RETRY_AFTER_S: Final = 5
_RUN_IDS: Final = UUID("6f0d9d0e-6a6c-4c53-9d0b-0f9a5e1c7a44")  # of deliveries with an id
_MAX_WAKE_CHARS: Final = MAX_NOTICE_CHARS - 400  # the markers need some


@dataclass(frozen=True, slots=True)
class HookServices:
    """What hooks are given from outside.

    `resolve_key` returns the stored key of a session by its name and agent; `check_model` raises
    UserError for a model that may not be used.
    """

    store: Store
    notices: Notices
    clock: Clock
    get_config: Callable[[], Config]
    resolve_key: Callable[[str | None, str | None], str]
    check_model: Callable[[str], object]
    start_turn: StartTurn
    request_heartbeat: RequestHeartbeat


@dataclass(frozen=True, slots=True)
class HookResponse:
    """The answer to a hook request."""

    status: int
    body: Mapping[str, Json] | None = None
    is_duplicate: bool = False


@dataclass(frozen=True, slots=True)
class _PlannedAction:
    """An action that is allowed: its answer, and what stores it in one transaction."""

    response: HookResponse
    store: Callable[[WriteRecord], Awaitable[None]]


class WebhookDispatcher:
    """Stores what hook requests cause."""

    def __init__(self, services: HookServices) -> None:
        self._services = services
        self._log = DeliveryLog(services.store, services.clock)
        # Two requests of one delivery may come at the same time: the second finds the record.
        self._lock = asyncio.Lock()

    async def dispatch(
        self, action: HookAction, settings: HookSettings, delivery: DeliveryId
    ) -> HookResponse:
        """Carry out an action; raises HookRefusedError, 503 when it could not be stored."""
        if isinstance(action, WakeAction):
            planned = self._plan_wake(action, settings)
        else:
            planned = self._plan_turn(action, settings, delivery)
        answer = planned.response.body or {}
        try:
            async with self._lock:
                if found := await self._log.find(delivery):
                    return HookResponse(planned.response.status, found, is_duplicate=True)
                await self._log.prepare()
                fault_point("hook.read")
                await planned.store(partial(self._log.write, delivery=delivery, answer=answer))
        except StoreError as exc:
            message = f"the delivery was not stored: {exc.message}"
            raise HookRefusedError(503, "store", message, after_s=RETRY_AFTER_S) from exc
        except UserError as exc:
            raise HookRefusedError(400, "target", exc.message, fix=exc.fix) from exc
        fault_point("hook.stored")
        return planned.response

    def _plan_wake(self, action: WakeAction, settings: HookSettings) -> _PlannedAction:
        services = self._services
        agent = self._resolve_agent(action.agent, settings)
        name = one_line(action.name, MAX_NAME_CHARS) or "wake"
        key = services.resolve_key(None, agent)
        notice = services.notices.plan(
            key,
            _format_notice(action, name),
            services.clock.now_ms(),
            source=f"hook:{name}",
            wake_mode=action.mode,
        )

        async def store(write_record: WriteRecord) -> None:
            async with services.store.transaction() as transaction:
                notice.write(transaction)
                write_record(transaction)
            notice.publish()
            if action.mode == "now":
                services.request_heartbeat(HeartbeatRequest(f"hook:{name}", agent, key))

        return _PlannedAction(HookResponse(200, {"ok": True, "mode": action.mode}), store)

    def _plan_turn(
        self, action: AgentAction, settings: HookSettings, delivery: DeliveryId
    ) -> _PlannedAction:
        services, request = self._services, action.request
        agent = self._resolve_agent(request.agent, settings)
        run_id = str(uuid5(_RUN_IDS, delivery.keys[0]) if delivery.keys else uuid4())
        turn = TurnRequest(
            id=run_id,
            source="hook",
            name=request.name,
            agent=agent,
            session_key=self._resolve_session(action, agent, settings),
            text=format_text(action.text, request.name, is_trusted=action.is_trusted),
            at_ms=services.clock.now_ms(),
            model=self._check_model(request.model),
            thinking=_check_thinking(request.thinking),
            timeout_s=request.timeout_s,
            delivery=_make_delivery(request),
            wake_mode=request.wake_mode,
            taint=((TAINT_KIND, request.name),),
        )

        async def store(write_record: WriteRecord) -> None:
            await services.start_turn(turn, write_record)

        return _PlannedAction(HookResponse(202, {"ok": True, "runId": run_id}), store)

    def _resolve_agent(self, requested: str, settings: HookSettings) -> str:
        """Return the agent that works on a hook; an unknown one means the default agent."""
        config = self._services.get_config()
        known, default = agent_ids(config), default_agent_id(config)
        if not is_agent_allowed(settings.allowed_agents, requested, known, default):
            raise HookRefusedError(400, "agent", "agentId is not allowed by hooks.allowedAgentIds")
        agent = normalize_agent_id(requested) if requested else default
        return agent if agent in known else default

    def _resolve_session(self, action: AgentAction, agent: str, settings: HookSettings) -> str:
        """Return the stored key of the session that a hook's run is in."""
        rules, requested = settings.key_rules, action.request.session_key
        try:
            key = hook_session_key(rules, action.key_source, requested)
            check_key_owner(key, agent)
            return self._services.resolve_key(key, agent)
        except (InvalidRequestError, UserError) as exc:
            raise HookRefusedError(400, "session-key", exc.message, fix=exc.fix) from exc

    def _check_model(self, model: str) -> str:
        if model:
            try:
                self._services.check_model(model)
            except HomarusError as exc:
                raise HookRefusedError(400, "target", exc.message, fix=exc.fix) from exc
        return model


def _check_thinking(level: str) -> str:
    if level and think_level(level) is None:
        raise HookRefusedError(400, "target", f"unknown thinking level {one_line(level, 40)!r}")
    return level


def _make_delivery(request: AgentRequest) -> Delivery:
    if not request.delivers:
        return Delivery()
    # A chat that a request names must exist; without one, there may be no last chat yet.
    is_named = request.channel != "last" or bool(request.to)
    return Delivery("announce", request.channel, request.to, best_effort=not is_named)


def _format_notice(action: WakeAction, name: str) -> str:
    text = action.text
    cut = RenderedText(
        one_line(text.lead, _MAX_WAKE_CHARS // 2), one_line(text.body, _MAX_WAKE_CHARS // 2)
    )
    if not text.lead:
        cut = RenderedText("", one_line(text.body, _MAX_WAKE_CHARS))
    return format_text(cut, name, is_trusted=action.is_trusted)
