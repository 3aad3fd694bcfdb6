"""A chat service that records what it delivered and received, and decides what was lost or doubled.

It is a service with long polling, as Telegram is, and a process of its own: it keeps running when
the gateway is killed, and it alone decides what was lost and what was doubled.

    python -m tests.crash.ledger [--flavour plain|idempotent|lookup] [--text-limit N] [--port P]

prints its URL and serves until it is stopped. In a test, in the same process:

    async with LedgerServer("lookup") as ledger:
        message = ledger.offer(Offer(text="MOCK:echo {nonce}"))
        ... a channel at ledger.url ...
        assert ledger.records.verdict()["answered"] == [message.id]

The channel's side (used by scripted_channel.py), JSON both ways:

    GET  /about                        {"flavour", "textLimit"}
    GET  /updates?offset=N&waitS=&limit=
         {"updates": [{"id", "messageId", "chat", "sender", "text"}]}, waiting for one if there is
         none. Updates below the offset are acknowledged; the others are delivered again each time.
    POST /send {"key", "chat", "text"} {"messageId"}
    GET  /look?key=K                   {"messageId"}, "" when nothing was sent under that key

A plain service accepts every send; an idempotent one accepts a key once, and returns the same id
for it again; one with lookup accepts every send and can be queried.

The test's side:

    POST /offer {"text", "chat", "sender", "id", "nonce", "marks", "copies"}
         A person writes; the answer is {"id", "nonce", "marks"}. Only the text is required.
         `{nonce}` in the text and the marks is filled in. `marks` is what the reply must hold, each
         once, by default the nonce; no mark may be a part of another. `copies` is how often the
         message is delivered; an `id` that was offered before is delivered again, with this text.
    POST /trouble {"sends": [{"taken", "status", "waitS", "afterS", "times"}, ...]}
         Faults of the next sends, in order: whether the service accepts the message (default yes),
         how long it waits then, and what it answers (200); status 0 disconnects. 429 asks to retry
         after `afterS`. {"taken": true, "status": 0} is a lost answer,
         {"taken": false, "status": 0} a lost request.
    GET  /ledger                       {"messages": [...], "sends": [...], "attempts": [...]}
    GET  /verdict?withinS=S            {"offered", "answered", "reported", "waiting", "lost",
                                        "doubled", "worstS"}

The verdict names every message once (ids), by the messages in its chat:

    answered   each mark occurs in exactly one send
    doubled    a mark occurs in more than one
    reported   no mark occurs anywhere, and the chat was sent something that is no other answer
    waiting    not acknowledged yet, or acknowledged less than `withinS` seconds ago
    lost       anything else: acknowledged, and a mark is missing

`worstS` is the longest time from an offer to the last part of its answer.
"""

import argparse
import asyncio
import json
import secrets
import time
from collections import defaultdict, deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, field
from typing import Literal, TypeAlias
from urllib.parse import parse_qsl, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.testing.model_server.body_stream import ConnectionEnded, read_request, write_whole
from homarus.testing.stream_server import StreamServer, serve

Flavour: TypeAlias = Literal["plain", "idempotent", "lookup"]
FLAVOURS: tuple[Flavour, ...] = ("plain", "idempotent", "lookup")
HttpAnswer: TypeAlias = tuple[int, Json]

_BATCH = 100
_MAX_WAIT_S = 60.0


class _Body(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, alias_generator=to_camel, populate_by_name=True
    )


class Offer(_Body):
    """A message that a person writes."""

    text: str
    chat: str = "chat"
    sender: str = ""  # "": the chat is one person's
    id: str = ""
    nonce: str = ""
    marks: tuple[str, ...] = ("{nonce}",)
    copies: int = Field(default=1, ge=1)


class SendFault(_Body):
    """A fault of a send; see the module."""

    taken: bool = True
    status: int = 200
    wait_s: float = 0.0
    after_s: float = 0.0
    times: int = Field(default=1, ge=1)


class _SendFaults(_Body):
    sends: tuple[SendFault, ...]


class _SendBody(_Body):
    key: str
    chat: str
    text: str


@dataclass(slots=True)
class Offered:
    """A message a person wrote. Times are wall-clock seconds, 0 before it happened."""

    id: str
    nonce: str
    marks: tuple[str, ...]
    chat: str
    text: str
    offered_s: float
    handed: int = 0
    acked_s: float = 0.0


@dataclass(slots=True)
class Send:
    """A message the service accepted. `repeats` counts how often its key was sent again."""

    key: str
    chat: str
    text: str
    at_s: float
    message_id: str
    repeats: int = 0


@dataclass(frozen=True, slots=True)
class Attempt:
    """One request to send and its answer; status 0: none."""

    key: str
    at_s: float
    taken: bool
    status: int


@dataclass(frozen=True, slots=True)
class _PolledUpdate:
    id: int
    message: Offered
    sender: str
    text: str

    def json(self) -> Json:
        return {
            "id": self.id,
            "messageId": self.message.id,
            "chat": self.message.chat,
            "sender": self.sender,
            "text": self.text,
        }


@dataclass(slots=True)
class LedgerRecords:
    """Everything that was offered and sent, and the verdict on it, without a wire."""

    flavour: Flavour = "plain"
    messages: dict[str, Offered] = field(default_factory=dict)
    sends: list[Send] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    faults: deque[SendFault] = field(default_factory=deque)
    _by_key: dict[str, Send] = field(default_factory=dict)
    _updates: deque[_PolledUpdate] = field(default_factory=deque)
    _next_update: int = 1

    def offer(self, offer: Offer) -> Offered:
        """Add an update with the message; a known message is delivered once more."""
        message = self.messages.get(offer.id)
        nonce = message.nonce if message else offer.nonce or secrets.token_hex(8)
        text = offer.text.replace("{nonce}", nonce)
        if message is None:
            marks = tuple(mark.replace("{nonce}", nonce) for mark in offer.marks)
            message_id = offer.id or f"m{len(self.messages) + 1}"
            message = Offered(message_id, nonce, marks, offer.chat, text, time.time())
            self.messages[message_id] = message
        for _ in range(offer.copies):
            sender = offer.sender or message.chat
            self._updates.append(_PolledUpdate(self._next_update, message, sender, text))
            self._next_update += 1
        return message

    def read(self, offset: int, limit: int) -> list[Json]:
        """Acknowledge the updates below the offset and return the others."""
        while self._updates and self._updates[0].id < offset:
            message = self._updates.popleft().message
            message.acked_s = message.acked_s or time.time()
        found = list(self._updates)[: max(0, limit)]
        for update in found:
            update.message.handed += 1
        return [update.json() for update in found]

    def record_send(self, key: str, chat: str, text: str) -> str:
        """Record a send and return the service's id for it."""
        if self.flavour == "idempotent" and (known := self._by_key.get(key)):
            known.repeats += 1
            return known.message_id
        send = Send(key, chat, text, time.time(), f"s{len(self.sends) + 1}")
        self.sends.append(send)
        self._by_key.setdefault(key, send)
        return send.message_id

    def lookup(self, key: str) -> str:
        """Return the service's id of what was sent under a key, "" for none."""
        return self._by_key[key].message_id if key in self._by_key else ""

    def next_fault(self) -> SendFault:
        if not self.faults:
            return SendFault()
        fault = self.faults.popleft()
        if fault.times > 1:
            self.faults.appendleft(fault.model_copy(update={"times": fault.times - 1}))
        return fault

    def verdict(self, within_s: float = 0.0) -> dict[str, Json]:
        """Return the verdict; see the module."""
        found: dict[str, list[str]] = {
            name: [] for name in ("answered", "reported", "waiting", "lost", "doubled")
        }
        chats: defaultdict[str, _ChatLog] = defaultdict(_ChatLog)
        for message in self.messages.values():
            chats[message.chat].marks.update(message.marks)
        for send in self.sends:
            chats[send.chat].sends.append(send)
        worst_s = 0.0
        for message in self.messages.values():
            kind = chats[message.chat].judge(message, within_s)
            found[kind].append(message.id)
            if kind == "answered":
                worst_s = max(worst_s, chats[message.chat].answer_s(message))
        return {"offered": len(self.messages), **found, "worstS": worst_s}


@dataclass(slots=True)
class _ChatLog:
    """The messages of one chat."""

    marks: set[str] = field(default_factory=set)
    sends: list[Send] = field(default_factory=list)

    def judge(self, message: Offered, within_s: float) -> str:
        counts = [sum(mark in send.text for send in self.sends) for mark in message.marks]
        if any(count > 1 for count in counts):
            return "doubled"
        if all(count == 1 for count in counts):
            return "answered"
        if not message.acked_s or time.time() - message.acked_s < within_s:
            return "waiting"
        return "reported" if not any(counts) and self._was_told(message) else "lost"

    def answer_s(self, message: Offered) -> float:
        """Return how long its answer took, up to the last part."""
        parts = (s for s in self.sends if any(mark in s.text for mark in message.marks))
        return max((send.at_s for send in parts), default=message.offered_s) - message.offered_s

    def _was_told(self, message: Offered) -> bool:
        """Return whether something was sent since that is no message's answer."""
        return any(
            send.at_s >= message.offered_s and not any(mark in send.text for mark in self.marks)
            for send in self.sends
        )


class LedgerServer(StreamServer):
    """`async with LedgerServer() as ledger`: the service, answering at `ledger.url`."""

    def __init__(
        self,
        flavour: Flavour = "plain",
        *,
        text_limit: int = 4_000,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        super().__init__(self._talk, host, port)
        self.records = LedgerRecords(flavour)
        self._text_limit = text_limit
        self._news = asyncio.Event()

    def offer(self, offer: Offer) -> Offered:
        """Offer a message and wake the waiting poll."""
        message = self.records.offer(offer)
        self._news.set()
        return message

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle the requests of one connection in sequence."""
        # A client that disconnected, does not speak HTTP or is cut off gets no orderly end.
        with suppress(ConnectionError, asyncio.IncompleteReadError, ValueError, ConnectionEnded):
            while (request := await read_request(reader)) is not None:
                method, path, _, body = request
                status, answer = await self._answer(method, path, body)
                await write_whole(writer, status, json.dumps(answer).encode())
            writer.close()
            await writer.wait_closed()

    async def _answer(self, method: str, target: str, body: bytes) -> HttpAnswer:
        parts = urlsplit(target)
        asked = dict(parse_qsl(parts.query))
        try:
            match method, parts.path:
                case "GET", "/updates":
                    return 200, {"updates": await self._updates(asked)}
                case "POST", "/send":
                    return await self._send(_SendBody.model_validate_json(body))
                case "POST", "/trouble":
                    faults = _SendFaults.model_validate_json(body)
                    self.records.faults.extend(faults.sends)
                    return 200, {}
                case "POST", "/offer":
                    message = self.offer(Offer.model_validate_json(body))
                    told = {"id": message.id, "nonce": message.nonce, "marks": message.marks}
                    return 200, told
                case "GET", path:
                    return self._get(path, asked)
        except (ValidationError, ValueError) as exc:
            return 400, {"error": str(exc)}
        return 404, {"error": f"no route {method} {parts.path}"}

    def _get(self, path: str, asked: Mapping[str, str]) -> HttpAnswer:
        records = self.records
        match path:
            case "/about":
                return 200, {"flavour": records.flavour, "textLimit": self._text_limit}
            case "/ledger":
                return 200, {
                    "messages": _listed(records.messages.values()),
                    "sends": _listed(records.sends),
                    "attempts": _listed(records.attempts),
                }
            case "/verdict":
                return 200, records.verdict(float(asked.get("withinS", "0")))
            case "/look" if records.flavour == "lookup":
                return 200, {"messageId": records.lookup(asked.get("key", ""))}
        return 404, {"error": f"no route GET {path}"}

    async def _updates(self, asked: Mapping[str, str]) -> list[Json]:
        offset, limit = int(asked.get("offset", "0")), int(asked.get("limit", _BATCH))
        wait_s = min(float(asked.get("waitS", "0")), _MAX_WAIT_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while not (found := self.records.read(offset, limit)) and limit:
                    self._news.clear()
                    await self._news.wait()
                return found
        return self.records.read(offset, limit)

    async def _send(self, sent: _SendBody) -> HttpAnswer:
        fault = self.records.next_fault()
        message_id = self.records.record_send(sent.key, sent.chat, sent.text) if fault.taken else ""
        self.records.attempts.append(Attempt(sent.key, time.time(), fault.taken, fault.status))
        if fault.wait_s:
            await asyncio.sleep(fault.wait_s)
        if not fault.status:
            raise ConnectionEnded
        if fault.status == 200:
            return 200, {"messageId": message_id}
        return fault.status, {"error": "as it was told", "afterS": fault.after_s}


def _listed(rows: Iterable[Offered | Send | Attempt]) -> list[dict[str, Json]]:
    return [{to_camel(name): value for name, value in asdict(row).items()} for row in rows]


def main() -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.ledger")
    parser.add_argument("--flavour", choices=FLAVOURS, default="plain")
    parser.add_argument("--text-limit", type=int, default=4_000)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    options = parser.parse_args()
    host, port, limit = options.host, options.port, options.text_limit
    serve(LedgerServer(options.flavour, text_limit=limit, host=host, port=port))


if __name__ == "__main__":
    main()
