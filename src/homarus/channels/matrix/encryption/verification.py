"""Verify devices by comparing short strings: an operator sees ours and answers in a terminal.

A verification is begun by the operator, or by another device; the operator then accepts it. Nothing
is verified without the operator's answer.
"""

import logging
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeAlias
from uuid import uuid4

from nio.crypto import OlmDevice
from nio.event_builders import ToDeviceMessage

from homarus.channels.matrix.api import Object, get_int, get_str
from homarus.channels.matrix.encryption.machine import OlmMachine
from homarus.channels.matrix.encryption.sas import METHOD, Party, SasError, SasExchange
from homarus.core.clock import Clock
from homarus.core.errors import ChannelError, SendError
from homarus.core.message import Json

log = logging.getLogger(__name__)

LIFETIME_MS: Final = 600_000
READY_WAIT_S: Final = 8.0  # then the other device may know no requests, and gets the start itself
MAX_PENDING: Final = 20
State: TypeAlias = Literal[
    "requested", "offered", "waiting", "comparing", "confirmed", "done", "cancelled"
]
_KIND: Final = "m.key.verification."
_ENDED: Final = frozenset({"done", "cancelled"})
_IDLE: Final = _ENDED | {"offered"}


class Verification:
    """One verification. `offered`: another device began it and the operator has not accepted."""

    def __init__(self, id_: str, device: OlmDevice, exchange: SasExchange, at_ms: int) -> None:
        self.id, self.device, self.exchange, self.at_ms = id_, device, exchange, at_ms
        self.state: State = "requested"
        self.problem = ""
        self.start: Object = {}  # of the other device, until it is accepted
        self.has_request = False  # whether it began with a request, which ends with "done"
        self.is_proven = False  # their proof arrived and is right

    def describe(self) -> dict[str, Json]:
        """Return the verification as clients get it."""
        described: dict[str, Json] = {
            "id": self.id,
            "userId": self.device.user_id,
            "deviceId": self.device.id,
            "deviceName": self.device.display_name or "",
            "state": self.state,
            "problem": self.problem,
        }
        if self.state == "comparing":
            emoji = [{"symbol": symbol, "name": name} for symbol, name in self.exchange.emoji()]
            described |= {"emoji": emoji, "decimals": self.exchange.decimals()}
        return described


class Verifications:
    """All verifications of an account."""

    def __init__(
        self,
        machine: OlmMachine,
        clock: Clock,
        send: Callable[[ToDeviceMessage], Awaitable[None]],
    ) -> None:
        self._machine, self._clock, self._send_message = machine, clock, send
        self._all: dict[str, Verification] = {}
        self.on_verified: Callable[[], None] = lambda: None

    # What the operator does

    async def begin(self, device: OlmDevice) -> Verification:
        """Ask a device to verify us."""
        found = self._new(uuid4().hex, device)
        found.has_request = True
        content = {
            "from_device": self._machine.device_id,
            "methods": [METHOD],
            "timestamp": self._clock.now_ms(),
        }
        await self._send(found, "request", content)
        return found

    async def accept(self, id_: str) -> Verification:
        """Accept a verification that another device began."""
        found = self.find(id_)
        if found.state == "offered":
            found.state = "waiting"
            if found.start:
                await self._accept_start(found, found.start)
            else:
                content = {"from_device": self._machine.device_id, "methods": [METHOD]}
                await self._send(found, "ready", content)
        return found

    async def confirm(self, id_: str, *, is_match: bool) -> Verification:
        """Take the operator's answer whether the strings match."""
        found = self.find(id_)
        if found.state != "comparing":
            raise SendError(f"there is nothing to compare: it is {found.state}", retryable=False)
        if not is_match:
            await self._cancel(found, "m.mismatched_sas", "the strings do not match")
            return found
        found.state = "confirmed"
        await self._send(found, "mac", found.exchange.mac())
        await self._finish(found)
        return found

    async def cancel(self, id_: str) -> Verification:
        found = self.find(id_)
        await self._cancel(found, "m.user", "the operator cancelled it")
        return found

    async def start_without_answer(self, id_: str) -> None:
        """Start if the other device knows no requests: older ones begin at once."""
        found = self._all.get(id_)
        is_due = found and self._clock.now_ms() - found.at_ms >= READY_WAIT_S * 1000
        if found and is_due and found.state == "requested":
            await self._start(found)

    def find(self, id_: str) -> Verification:
        self._expire()
        found = self._all.get(id_)
        if found is None:
            raise SendError(
                "there is no such verification", retryable=False,
                fix="homarus matrix verify lists those that wait",
            )  # fmt: skip
        return found

    def pending(self) -> list[Verification]:
        """Return the verifications that have not ended."""
        self._expire()
        return [one for one in self._all.values() if one.state not in _ENDED]

    # What other devices send

    async def receive(self, event: Object) -> None:
        """Handle one message; a malformed one ends its verification and no other."""
        content = event.get("content")
        sender, kind = get_str(event, "sender"), get_str(event, "type").removeprefix(_KIND)
        if not isinstance(content, dict):
            return
        self._expire()
        id_ = get_str(content, "transaction_id")
        found = self._all.get(id_)
        try:
            if found is None:
                if id_ and kind in {"request", "start"}:
                    self._offer(id_, sender, kind, content)
            elif found.device.user_id != sender or found.state in _ENDED:
                return
            else:
                await self._advance(found, kind, content)
        except ChannelError as exc:
            log.warning("a verification with %s cannot go on: %s", sender, exc)

    def _offer(self, id_: str, sender: str, kind: str, content: Object) -> None:
        device = self._machine.device(sender, get_str(content, "from_device"))
        if device is None or device.deleted:
            log.warning("a device of %s that is not known wants to verify", sender)
            return
        age_ms = self._clock.now_ms() - get_int(content, "timestamp")
        if kind == "request" and age_ms > LIFETIME_MS:
            return
        for one in [*self._all.values()]:  # a user has one offer, so that others keep theirs
            if one.state == "offered" and one.device.user_id == sender:
                del self._all[one.id]
        found = self._new(id_, device)
        found.state, found.has_request = "offered", kind == "request"
        found.start = content if kind == "start" else {}
        log.info("device %s of %s wants to verify: homarus matrix verify", device.id, sender)

    async def _advance(self, found: Verification, kind: str, content: Object) -> None:
        try:
            await self._apply(found, kind, content)
        except SasError as exc:
            await self._cancel(found, exc.reason, exc.message)

    async def _apply(self, found: Verification, kind: str, content: Object) -> None:
        match kind:
            case "ready" if found.has_request and not found.exchange.is_agreed:
                await self._start(found)  # also again: before it was ready, it took no start
            case "start":
                await self._on_start(found, content)
            case "accept":
                found.exchange.on_accepted(content)
                await self._send(found, "key", {"key": found.exchange.public_key})
            case "key":
                await self._on_key(found, content)
            case "mac":
                found.exchange.check_mac(content)
                found.is_proven = True
                await self._finish(found)
            case "cancel":
                found.state = "cancelled"
                found.problem = f"the other device cancelled it ({get_str(content, 'reason')})"

    async def _start(self, found: Verification) -> None:
        found.state = "waiting"
        await self._send(found, "start", found.exchange.start())

    async def _on_start(self, found: Verification, content: Object) -> None:
        ours = (self._machine.user_id, self._machine.device_id)
        theirs = (found.device.user_id, found.device.id)
        if found.state == "offered":
            found.start = content
        elif not (found.exchange.started_by_us and ours < theirs):  # both began: one gives way
            found.state = "waiting"
            await self._accept_start(found, content)

    async def _accept_start(self, found: Verification, start: Object) -> None:
        try:
            await self._send(found, "accept", found.exchange.accept(start))
        except SasError as exc:
            await self._cancel(found, exc.reason, exc.message)

    async def _on_key(self, found: Verification, content: Object) -> None:
        found.exchange.on_key(content)
        if not found.exchange.started_by_us:
            await self._send(found, "key", {"key": found.exchange.public_key})
        found.state = "comparing"

    async def _finish(self, found: Verification) -> None:
        """Verify the device once the operator confirmed and its proof is right."""
        if found.state != "confirmed" or not found.is_proven:
            return
        self._machine.verify_device(found.device)
        found.state = "done"
        log.info("device %s of %s is verified", found.device.id, found.device.user_id)
        self.on_verified()
        if found.has_request:
            await self._send(found, "done", {})

    async def _cancel(self, found: Verification, code: str, reason: str) -> None:
        if found.state in _ENDED:
            return
        found.state, found.problem = "cancelled", reason
        await self._send(found, "cancel", {"code": code, "reason": reason})

    async def _send(self, found: Verification, kind: str, content: Object) -> None:
        body = {**content, "transaction_id": found.id}
        device = found.device
        await self._send_message(ToDeviceMessage(_KIND + kind, device.user_id, device.id, body))

    def _new(self, id_: str, device: OlmDevice) -> Verification:
        self._expire()
        while len(self._all) >= MAX_PENDING:  # what the operator has begun is the last to go
            del self._all[min(self._all, key=lambda one: self._all[one].state not in _IDLE)]
        machine = self._machine
        mine = Party(machine.user_id, machine.device_id, machine.ed25519)
        theirs = Party(device.user_id, device.id, device.ed25519)
        exchange = SasExchange(mine, theirs, id_)
        found = self._all[id_] = Verification(id_, device, exchange, self._clock.now_ms())
        return found

    def _expire(self) -> None:
        oldest_ms = self._clock.now_ms() - LIFETIME_MS
        self._all = {id_: one for id_, one in self._all.items() if one.at_ms >= oldest_ms}
