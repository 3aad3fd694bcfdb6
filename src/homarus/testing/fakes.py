"""Fakes of the provider and channel seams, for our tests and for plugin authors."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace

from homarus.channels.base import Acknowledge, Capabilities, InboundHandler, Receipt
from homarus.core.channel_event import ButtonPressed, ChatEvent, InboundEvent
from homarus.core.errors import ProviderError
from homarus.core.message import (
    Inbound,
    Json,
    Message,
    Origin,
    Outbound,
    Part,
    StopReason,
    Text,
    Thinking,
)
from homarus.providers.base import Delta, ModelRequest, TextDelta, ThinkingDelta

GUARD_S = 60.0  # the timeout of every wait in a test


def assistant_message(*parts: Part | str) -> Message:
    """Return an assistant message as a scripted model gives it."""
    made = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    return Message("assistant", made, origin=Origin("scripted", "scripted", "scripted-1"))


class Hang:
    """A step of a script: the model does not answer until it is cancelled."""


class ScriptedProvider:
    """A Provider that answers from a script of messages, errors and Hangs, line by line."""

    name = "scripted"
    api = "scripted"

    def __init__(self, script: Iterable[Message | ProviderError | Hang]) -> None:
        self._script = iter(script)
        self.requests: list[ModelRequest] = []
        self.closed = False

    async def stream(self, request: ModelRequest) -> AsyncIterator[Delta | Message]:
        self.requests.append(request)
        step = next(self._script, None)
        if step is None:
            raise AssertionError(f"the script has no answer {len(self.requests)}")
        if isinstance(step, ProviderError):
            raise step
        if isinstance(step, Hang):
            yield TextDelta("I was saying")
            await asyncio.Event().wait()
            return
        for part in step.parts:
            if isinstance(part, Thinking):
                yield ThinkingDelta(part.text)
            elif isinstance(part, Text):
                for word in part.text.splitlines(keepends=True):
                    yield TextDelta(word)
        stop: StopReason = "toolUse" if step.calls else "stop"
        origin = step.origin or Origin("scripted", "scripted", request.model)
        yield replace(step, origin=replace(origin, stop=stop))

    async def close(self) -> None:
        self.closed = True


class ListChannel:
    """A Channel that receives from one list and appends to another, once for each key."""

    name = "list"
    account = "default"
    capabilities = Capabilities(idempotent=True)

    def __init__(self, inbound: Iterable[Inbound] = ()) -> None:
        self._inbound = inbound
        self.sent: list[Outbound] = []

    async def run(self, receive: InboundHandler) -> None:
        for message in self._inbound:
            await receive(message)

    async def send(self, message: Outbound) -> Receipt:
        keys = [sent.key for sent in self.sent]
        if message.key not in keys:
            keys.append(message.key)
            self.sent.append(message)
        return Receipt(str(keys.index(message.key) + 1))


class RecordingHandler:
    """An InboundHandler that records every message and event. `failures` are raised first.

    A press is recorded as the message that it stands for. `kept` is the channel's cursor. With
    `leaves`, messages are ignored, as those of unknown senders are, and not acknowledged.
    """

    def __init__(
        self,
        *failures: Exception,
        kept: Mapping[str, Json] | None = None,
        leaves: bool = False,
    ) -> None:
        self.failures, self.kept, self.leaves = list(failures), kept, leaves
        self.got: list[Inbound] = []
        self.events: list[ChatEvent] = []  # edits, reactions and the like
        self.cursors: list[Mapping[str, Json] | None] = []  # one for each
        self._news = asyncio.Event()

    @property
    def ids(self) -> list[str]:
        return [one.id for one in self.got]

    @property
    def texts(self) -> list[str]:
        return [one.text for one in self.got]

    async def __call__(
        self,
        event: InboundEvent,
        cursor: Mapping[str, Json] | None = None,
        acknowledge: Acknowledge | None = None,
    ) -> None:
        if self.failures:
            raise self.failures.pop(0)
        self.kept = self.kept if cursor is None else cursor
        if acknowledge and not self.leaves:
            await acknowledge()
        event = event.to_message() if isinstance(event, ButtonPressed) else event
        if isinstance(event, Inbound):
            self.got.append(event)
        else:
            self.events.append(event)
        self.cursors.append(cursor)
        self._news.set()

    def mark_connected(self) -> None:
        pass

    async def load_cursor(self) -> Mapping[str, Json] | None:
        return self.kept

    async def save_cursor(self, cursor: Mapping[str, Json]) -> None:
        self.kept = cursor

    async def events_received(self, count: int = 1) -> list[ChatEvent]:
        """Wait until so many edits, reactions and the like have come; return them."""
        async with asyncio.timeout(GUARD_S):
            while len(self.events) < count:
                self._news.clear()
                await self._news.wait()
        return self.events

    async def received(self, count: int = 1) -> list[Inbound]:
        """Wait for `count` messages and return all."""
        async with asyncio.timeout(GUARD_S):
            while len(self.got) < count:
                self._news.clear()
                await self._news.wait()
        return self.got
