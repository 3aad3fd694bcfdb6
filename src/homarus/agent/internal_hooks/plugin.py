"""The plugin that makes events of internal hooks out of the hooks of plugins."""

from collections.abc import Mapping

from homarus.agent.internal_hooks.dispatcher import HookDispatcher
from homarus.agent.internal_hooks.event import HookEvent
from homarus.core.clock import Clock
from homarus.core.faults import fault_point
from homarus.core.message import Inbound, Json, Outbound
from homarus.plugins.hooks import hook
from homarus.plugins.values import HookContext


class InternalHooksPlugin:
    """Dispatches events. Those whose result matters are waited for, within a time limit."""

    def __init__(self, dispatcher: HookDispatcher, clock: Clock) -> None:
        self._dispatcher, self._clock = dispatcher, clock

    @hook
    async def command(self, where: HookContext, name: str, text: str) -> str | None:
        event = self._make("command", name, where, {"command": name, "text": text})
        result = await self._dispatcher.dispatch(event)
        fault_point("hook.called")
        return "\n".join(result.messages) or None

    @hook
    async def agent_bootstrap(
        self, where: HookContext, files: Mapping[str, str]
    ) -> Mapping[str, str] | None:
        event = self._make("agent", "bootstrap", where, {"files": dict(files)})
        return (await self._dispatcher.dispatch(event)).files

    @hook
    async def gateway_startup(self) -> None:
        self._dispatcher.post(self._make("gateway", "startup", HookContext(), {}))

    @hook
    async def session_start(self, where: HookContext, session_id: str, resumed_from: str) -> None:
        ids: dict[str, Json] = {"session_id": session_id, "resumed_from": resumed_from}
        self._dispatcher.post(self._make("session", "start", where, ids))

    @hook
    async def session_end(self, where: HookContext, session_id: str, messages: int) -> None:
        ended: dict[str, Json] = {"session_id": session_id, "message_count": messages}
        self._dispatcher.post(self._make("session", "end", where, ended))

    @hook
    async def message_received(self, where: HookContext, inbound: Inbound) -> None:
        address = inbound.address
        context: dict[str, Json] = {
            "from": inbound.sender,
            "content": inbound.text,
            "message_id": inbound.id,
            "account": address.account,
            "chat": address.chat,
            "thread": address.thread,
        }
        self._dispatcher.post(self._make("message", "received", where, context))

    @hook
    async def message_sent(self, outbound: Outbound, error: str) -> None:
        address = outbound.address
        context: dict[str, Json] = {
            "to": address.chat,
            "content": outbound.text,
            "success": not error,
            "error": error,
            "account": address.account,
            "thread": address.thread,
        }
        where = HookContext(channel=address.channel)
        self._dispatcher.post(self._make("message", "sent", where, context))

    def _make(
        self, kind: str, action: str, where: HookContext, context: Mapping[str, Json]
    ) -> HookEvent:
        known: dict[str, Json] = {
            "agent": where.agent,
            "run_id": where.run_id,
            "workspace": where.workspace,
            "channel": where.channel,
        }
        at_ms = self._clock.now_ms()
        return HookEvent(kind, action, where.session_key, {**known, **context}, at_ms)
