"""Control of sub-agents from outside of their runs: list, log, message, stop.

The `subagents` tool, the chat commands, the gateway and the command line use it. Who asks says
whose sub-agents they may name: a session its own, a program of the owner all.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from homarus.agent.subagents.messages import derive_id, make_steering
from homarus.agent.subagents.reader import SubagentReader
from homarus.agent.subagents.rows import shown_name, shown_status
from homarus.agent.subagents.targets import ALL
from homarus.agent.subagents.texts import context_text
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.store.subagents import SubagentRecord

if TYPE_CHECKING:
    from homarus.agent.subagents.subagent_service import SubagentService, SubagentServices

MAX_MESSAGE_CHARS: Final = 4_000
STEER_INTERVAL_S: Final = 2.0
DEFAULT_SEND_TIMEOUT_S: Final = 30.0


class SteerRateError(UserError):
    """A sub-agent was steered a moment ago."""

    code = "user.steer_rate"


@dataclass(frozen=True, slots=True)
class ControlResult:
    """What was done, as text for a person and as fields for a program."""

    text: str
    details: Mapping[str, Json]


class SubagentControl(SubagentReader):
    """Messages and stops sub-agents; `requester` None stands for all sessions."""

    def __init__(self, service: "SubagentService", services: "SubagentServices") -> None:
        super().__init__(services.store, services.clock)
        self._service, self._services = service, services
        self._steered_at_s: dict[str, float] = {}

    async def kill(self, requester: str | None, word: str) -> ControlResult:
        """Stop the named sub-agent and those that it started, or `all`. Raises UserError."""
        if word.strip().lower() in ALL:
            return await self._kill_all(requester)
        record = await self.find(requester, word)
        count = await self._service.kill(record.child_key)
        details = {"killed": count, **_identity(record)}
        if not count:
            text = f"{shown_name(record)} has ended already: {shown_status(record)}."
            return ControlResult(text, {"status": "done", **details})
        more = f", and {count - 1} that it started" if count > 1 else ""
        return ControlResult(f"Stopped {shown_name(record)}{more}.", {"status": "ok", **details})

    async def _kill_all(self, requester: str | None) -> ControlResult:
        roots = [requester] if requester else await self._requesters()
        count = sum([await self._service.kill_all(root) for root in roots])
        return ControlResult(
            f"Stopped {count_subagents(count)}." if count else "No sub-agent is active.",
            {"status": "ok", "killed": count},
        )

    async def _requesters(self) -> list[str]:
        active = (await self.find_all(None)).active
        return list(dict.fromkeys(one.requester_key for one in active))

    async def steer(
        self, requester: str | None, word: str, message: str, *, seed: str = ""
    ) -> ControlResult:
        """Have an active sub-agent go on with a message. Raises UserError, SteerRateError.

        The same `seed` steers once.
        """
        text, record = _check_message(message), await self.find(requester, word)
        if not record.is_active:
            raise UserError(
                f"{shown_name(record)} has ended: {shown_status(record)}",
                fix="/subagents send asks one that has ended",
            )
        self._check_rate(record)
        steered = await self._service.steer(record.child_key, text, message_id=_message_id(seed))
        details = {"status": "accepted", "mode": "restart", **_identity(steered)}
        return ControlResult(f"{shown_name(record)} goes on with your message.", details)

    def _check_rate(self, record: SubagentRecord) -> None:
        now_s, known = self._services.clock.monotonic(), self._steered_at_s
        self._steered_at_s = {
            key: at_s for key, at_s in known.items() if now_s - at_s < STEER_INTERVAL_S
        }
        if record.child_key in self._steered_at_s:
            raise SteerRateError(
                f"{shown_name(record)} was steered less than {STEER_INTERVAL_S:g} s ago",
                fix="wait, or say everything in one message",
            )
        self._steered_at_s[record.child_key] = now_s

    async def send(
        self,
        requester: str | None,
        word: str,
        message: str,
        *,
        timeout_s: float = DEFAULT_SEND_TIMEOUT_S,
        seed: str = "",
    ) -> ControlResult:
        """Ask a sub-agent something, after what it works on, and wait for the answer.

        One that has ended answers too, until it is archived; its result stays what it was. The
        same `seed` asks once. Raises UserError.
        """
        text, record = _check_message(message), await self.find(requester, word)
        key, control = record.child_key, self._services.control
        if await self._store.session(key) is None:
            raise UserError(
                f"the session of {shown_name(record)} is archived", fix="start another sub-agent"
            )
        message_id = _message_id(seed) or derive_id(f"{key}:{self._clock.now_ms()}:{text}")
        limit = self._services.get_config().agents.defaults.subagents.max_spawn_depth
        prompt = context_text(record, may_spawn=record.depth < limit)
        inbound = make_steering(record, message_id, text, prompt, self._clock.now_ms())
        accepted = await control.accept(key, inbound)
        details = {**_identity(record), "messageId": accepted.record.id}
        queued = ControlResult(
            f"{shown_name(record)} has your message; /subagents log shows the answer.",
            {"status": "accepted", **details},
        )
        if accepted.kind != "new":
            return queued
        answer = asyncio.shield(control.submit(key, accepted.record))
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                outcome = await answer
            if outcome.error is not None:
                reply = f"{shown_name(record)} could not answer: {outcome.error.message}"
                return ControlResult(reply, {"status": "error", **details, "error": reply})
            return ControlResult(
                outcome.text or "(no output)", {"status": "ok", **details, "reply": outcome.text}
            )
        return queued


def count_subagents(count: int) -> str:
    """Return a number of sub-agents in words: `1 sub-agent`, `2 sub-agents`."""
    return f"{count} sub-agent{'' if count == 1 else 's'}"


def _message_id(seed: str) -> str:
    return derive_id(f"control:{seed}") if seed else ""


def _check_message(message: str) -> str:
    text = message.strip()
    if not 1 <= len(text) <= MAX_MESSAGE_CHARS:
        raise UserError(
            f"a message has 1 to {MAX_MESSAGE_CHARS} characters, and this one {len(text)}",
            fix="shorten it" if text else "say what the sub-agent should do",
        )
    return text


def _identity(record: SubagentRecord) -> dict[str, Json]:
    return {
        "runId": record.run_id,
        "sessionKey": record.child_key,
        **({"label": record.label} if record.label else {}),
    }
