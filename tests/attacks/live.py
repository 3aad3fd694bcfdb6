"""A gateway process, and a client that can violate the protocol: raw bytes over a socket."""

import base64
import json
import os
import re
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from homarus.gateway.identity import DeviceIdentity

TOKEN = "attack-token-0123456789abcdef"
WAIT_S = 20.0
TEXT, BINARY, CLOSE, CONTINUED = 1, 2, 8, 0
ALL_SCOPES = ("operator.admin", "operator.approvals", "operator.pairing")


@dataclass(frozen=True, slots=True)
class Live:
    """A running gateway."""

    port: int
    pid: int
    home: Path

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def identity(self, name: str = "device") -> DeviceIdentity:
        return DeviceIdentity.load_or_create(self.home / "clients" / f"{name}.json", 1)

    def http(self, head: bytes, body: bytes = b"") -> int:
        """Send a raw request; return the status of the response, 0 if there is none."""
        with socket.create_connection(("127.0.0.1", self.port), WAIT_S) as sock:
            try:
                sock.sendall(head + b"\r\n\r\n" + body)
                return _status(_read_head(sock))
            except ConnectionError:
                return 0

    def memory_bytes(self) -> int:
        pages = Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1]
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def gateway(module: str = "", **settings: object) -> Iterator[Live]:
    """Run the real program, or a module of the tests, with a home directory of its own.

    `settings` are added to the config's section `gateway`.
    """
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        log = str(home / ".openclaw" / "gateway.log")
        section = {"auth": {"token": TOKEN}, **settings}
        configure(home, {"gateway": section, "logging": {"file": log}})
        named = [module] if module else ["homarus", "gateway", "run", "--port", "0"]
        command = [sys.executable, "-m", *named]
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment(home),
            cwd=home,
        ) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                found = re.search(r"ws://127\.0\.0\.1:(\d+)", line)
                assert found, f"the gateway said {line!r}"
                yield Live(int(found[1]), process.pid, home)
            finally:
                process.terminate()


def configure(home: Path, config: object) -> None:
    (home / ".openclaw").mkdir(mode=0o700, exist_ok=True)
    (home / ".openclaw" / "openclaw.json").write_text(json.dumps(config))


def environment(home: Path) -> dict[str, str]:
    keep = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    root = str(Path(__file__).parents[2])  # so that modules of the tests can be imported
    return {**keep, "HOME": str(home), "NO_PROXY": "127.0.0.1", "PYTHONPATH": root}


class Caller:
    """One raw WebSocket. `status` is 101 if the upgrade was accepted."""

    def __init__(
        self,
        live: Live,
        *,
        host: str | None = None,
        origin: str | None = None,
        extra: tuple[str, ...] = (),
        path: str = "/",
    ) -> None:
        self.live = live
        self._sock = socket.create_connection(("127.0.0.1", live.port), WAIT_S)
        self._data = b""
        self._asked = 0
        lines = [f"GET {path} HTTP/1.1"]
        if host != "":
            lines.append(f"Host: {live.host if host is None else host}")
        lines += ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"]
        lines.append(f"Sec-WebSocket-Key: {base64.b64encode(os.urandom(16)).decode()}")
        if origin is not None:
            lines.append(f"Origin: {origin}")
        self._sock.sendall(("\r\n".join([*lines, *extra]) + "\r\n\r\n").encode("latin-1"))
        self.head = _read_head(self._sock)
        self.status = _status(self.head)
        self._data = self.head.partition(b"\r\n\r\n")[2]

    def __enter__(self) -> "Caller":
        return self

    def __exit__(self, *_exc: object) -> None:
        self._sock.close()

    @property
    def sock(self) -> socket.socket:
        return self._sock

    def send(self, data: bytes | str, opcode: int = TEXT, *, fin: bool = True) -> None:
        """Send a raw frame; `read` reports a gateway that closed the connection meanwhile."""
        payload = data.encode() if isinstance(data, str) else data
        with suppress(ConnectionError):
            self._sock.sendall(frame(payload, opcode, fin=fin))

    def read(self) -> tuple[int, bytes]:
        """Return the opcode and payload of the next frame; a close at the end."""
        head = self._take(2)
        if len(head) < 2:
            return CLOSE, struct.pack(">H", 1006)
        length = head[1] & 0x7F
        if length > 125:
            wide = self._take(2 if length == 126 else 8)
            length = int.from_bytes(wide, "big")
        return head[0] & 0x0F, self._take(length)

    def json(self) -> Any:
        """Return the next text frame; a close as `{"close": code, "reason": …}`."""
        kind, payload = self.read()
        while kind not in {TEXT, CLOSE}:
            kind, payload = self.read()
        if kind == CLOSE:
            code = int.from_bytes(payload[:2], "big") if len(payload) >= 2 else 1005
            return {"close": code, "reason": payload[2:].decode()}
        return json.loads(payload)

    def close_code(self) -> int:
        """Read until the gateway closes the connection."""
        while "close" not in (found := self.json()):
            pass
        return int(found["close"])

    def ask(self, method: str, params: Any = None, **fields: Any) -> Any:
        """Send a request and return its response."""
        self._asked += 1
        request = {"type": "req", "id": str(self._asked), "method": method, "params": params}
        self.send(json.dumps(request | fields))
        while True:
            found = self.json()
            if "close" in found or (found["type"] == "res" and found["id"] == str(self._asked)):
                return found

    def connect(
        self,
        token: Any = TOKEN,
        *,
        identity: DeviceIdentity | None = None,
        scopes: tuple[str, ...] = ALL_SCOPES,
        with_nonce: bool = True,
        client: str = "cli",
        **changes: Any,
    ) -> Any:
        """Do the handshake; return the response to `connect`."""
        nonce = self.json()["payload"]["nonce"]
        params: dict[str, Any] = {
            "minProtocol": 3,
            "maxProtocol": 3,
            "client": {"id": client, "version": "1", "platform": "linux", "mode": "cli"},
            "role": "operator",
            "scopes": list(scopes),
            "auth": {"token": token},
        }
        if identity:
            params["device"] = identity.device_params(
                client_id=client,
                client_mode="cli",
                role="operator",
                scopes=scopes,
                signed_at_ms=time.time_ns() // 1_000_000,
                token=token if isinstance(token, str) else None,
                nonce=nonce if with_nonce else None,
            )
        return self.ask("connect", params | changes)

    def _take(self, size: int) -> bytes:
        while len(self._data) < size:
            try:
                more = self._sock.recv(1 << 20)
            except ConnectionError:
                more = b""
            if not more:
                break
            self._data += more
        taken, self._data = self._data[:size], self._data[size:]
        return taken


def frame(payload: bytes, opcode: int = TEXT, *, fin: bool = True) -> bytes:
    """Encode a client's frame, masked with zeros, which is valid."""
    first = (0x80 if fin else 0) | opcode
    size = len(payload)
    if size < 126:
        head = struct.pack(">BB", first, 0x80 | size)
    elif size < 65_536:
        head = struct.pack(">BBH", first, 0x80 | 126, size)
    else:
        head = struct.pack(">BBQ", first, 0x80 | 127, size)
    return head + b"\0\0\0\0" + payload


def _read_head(sock: socket.socket) -> bytes:
    data = b""
    while b"\r\n\r\n" not in data:
        more = sock.recv(65_536)
        if not more:
            break
        data += more
    return data


def _status(head: bytes) -> int:
    found = re.match(rb"HTTP/1\.1 (\d{3})", head)
    return int(found[1]) if found else 0
