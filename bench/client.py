"""A small client of protocol 3: connects as a paired device, sends requests, and times turns."""

import asyncio
import base64
import hashlib
import itertools
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from websockets.asyncio.client import ClientConnection, connect

from bench.process import TOKEN

SCOPES = ("operator.admin", "operator.read", "operator.write")
CLIENT = {"id": "cli", "mode": "cli", "version": "bench", "platform": "linux"}
DEADLINE_S = 120.0


class Device:
    """A key pair that signs challenges."""

    def __init__(self) -> None:
        self._key = Ed25519PrivateKey.generate()
        self._public = self._key.public_key().public_bytes_raw()
        self._id = hashlib.sha256(self._public).hexdigest()

    def sign(self, nonce: str, at_ms: int) -> dict[str, Any]:
        named = [self._id, CLIENT["id"], CLIENT["mode"], "operator", ",".join(SCOPES)]
        text = "|".join(["v2", *named, str(at_ms), TOKEN, nonce])
        signed = {"signature": _base64url(self._key.sign(text.encode())), "signedAt": at_ms}
        return {"id": self._id, "publicKey": _base64url(self._public), "nonce": nonce, **signed}


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


@dataclass(slots=True)
class Turn:
    """One answer, as its client saw it. Times are wall-clock seconds."""

    sent_s: float
    first_s: float = 0.0  # the first word of the answer
    end_s: float = 0.0
    deltas: int = 0
    state: str = ""


class Client:
    """One connection. Created by `open_client`."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._ids = itertools.count(1)
        self._asked: dict[str, asyncio.Future[Any]] = {}
        self._turns: dict[str, tuple[Turn, asyncio.Future[None]]] = {}

    async def greet(self, device: Device) -> Any:
        """Do the handshake; return the gateway's hello."""
        challenge = json.loads(await self._socket.recv())["payload"]
        params = {
            "minProtocol": 3,
            "maxProtocol": 3,
            "client": CLIENT,
            "role": "operator",
            "scopes": list(SCOPES),
            "auth": {"token": TOKEN},
            "device": device.sign(challenge["nonce"], challenge["ts"]),
        }
        await self._send("hello", "connect", params)
        answer = json.loads(await self._socket.recv())
        if not answer["ok"]:
            raise RuntimeError(answer["error"]["message"])
        return answer["payload"]

    async def call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        id_ = str(next(self._ids))
        answer = self._asked[id_] = asyncio.get_running_loop().create_future()
        await self._send(id_, method, params or {})
        async with asyncio.timeout(DEADLINE_S):
            return await answer

    async def turn(self, key: str, text: str) -> Turn:
        """Call chat.send and wait for its final event."""
        run_id = str(uuid4())
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        turn = Turn(time.time())
        self._turns[run_id] = turn, done
        await self.call("chat.send", {"sessionKey": key, "message": text, "idempotencyKey": run_id})
        async with asyncio.timeout(DEADLINE_S):
            await done
        if turn.state != "final":
            raise RuntimeError(f"a turn ended {turn.state}")
        return turn

    async def pump(self) -> None:
        """Dispatch frames until the connection ends."""
        async for text in self._socket:
            frame = json.loads(text)
            if frame["type"] == "res":
                self._answer(frame)
            elif frame["event"] in {"chat", "agent"}:
                self._note(frame["event"], frame["payload"], time.time())

    def _answer(self, frame: dict[str, Any]) -> None:
        answer = self._asked.pop(frame["id"], None)
        if answer is None or answer.done():
            return
        if frame["ok"]:
            answer.set_result(frame.get("payload"))
        else:
            answer.set_exception(RuntimeError(frame["error"]["message"]))

    def _note(self, event: str, payload: dict[str, Any], at_s: float) -> None:
        found = self._turns.get(payload["runId"])
        if found is None:
            return
        turn, done = found
        if event == "agent":
            if payload["stream"] == "assistant":
                turn.first_s = turn.first_s or at_s
        elif payload["state"] == "delta":
            turn.first_s = turn.first_s or at_s
            turn.deltas += 1
        else:
            turn.state, turn.end_s = payload["state"], at_s
            del self._turns[payload["runId"]]
            if not done.done():
                done.set_result(None)

    async def _send(self, id_: str, method: str, params: dict[str, Any]) -> None:
        frame = {"type": "req", "id": id_, "method": method, "params": params}
        await self._socket.send(json.dumps(frame))


@asynccontextmanager
async def open_client(url: str, device: Device) -> AsyncIterator[Client]:
    """Yield a connected client."""
    async with connect(url, max_size=None, compression=None, proxy=None) as socket:
        client = Client(socket)
        async with asyncio.timeout(DEADLINE_S):
            await client.greet(device)
        async with asyncio.TaskGroup() as group:
            pump = group.create_task(client.pump())
            yield client
            pump.cancel()
