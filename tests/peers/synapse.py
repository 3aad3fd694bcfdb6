"""A real Synapse, from PyPI, with users of matrix-nio: both are independent programs.

Both are in one environment (requirements/synapse.lock). Synapse runs as a process, matrix-nio as
another (nio_people.py), controlled by lines.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen
from uuid import uuid4

from tests.peers.install import venv

READY_S = 120.0
WAIT_S = 60.0
SERVER = "localhost"
SECRET = "for-tests"
MAX_UPLOAD_BYTES = 1024 * 1024
LOCK = Path(__file__).parents[2] / "requirements" / "synapse.lock"
PEOPLE = Path(__file__).parent / "nio_people.py"
FAST = {"per_second": 10_000, "burst_count": 10_000}


class Synapse:
    """A homeserver in a folder; it can be stopped and started again."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self._folder, self._python = folder, venv(LOCK)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port: int = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None
        self._config = folder / "homeserver.yaml"
        self._config.write_text(json.dumps(self._settings() | settings), encoding="utf-8")
        (folder / "log.yaml").write_text(json.dumps(self._log_settings()), encoding="utf-8")
        seed = base64.b64encode(os.urandom(32)).decode().rstrip("=")
        (folder / "signing.key").write_text(f"ed25519 a_test {seed}\n", encoding="utf-8")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        command = [str(self._python), "-m", "synapse.app.homeserver", "-c", str(self._config)]
        with (self._folder / "out.log").open("ab") as out:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=self._folder
            )
        deadline_s = time.monotonic() + READY_S
        while True:
            try:
                with urlopen(f"{self.url}/_matrix/client/versions", timeout=5):
                    return
            except (URLError, OSError):
                said = (self._folder / "out.log").read_text(encoding="utf-8")
                assert self._process.poll() is None, f"Synapse ended: {said}"
                assert time.monotonic() < deadline_s, f"Synapse did not start: {said}"
                time.sleep(0.1)

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            try:
                self._process.wait(timeout=30)
            finally:
                self._process.kill()
                self._process.wait()
            self._process = None

    def register(self, name: str, password: str, *, display: str = "") -> str:
        """Register an account and return its token."""
        place = "/_synapse/admin/v1/register"
        nonce = self.ask("GET", place)["nonce"]
        parts = [nonce, name, password, "notadmin"]
        mac = hmac.new(SECRET.encode(), b"\0".join(p.encode() for p in parts), hashlib.sha1)
        data = {"nonce": nonce, "username": name, "password": password, "admin": False}
        data |= {"mac": mac.hexdigest(), "displayname": display or name}
        return str(self.ask("POST", place, data)["access_token"])

    def ask(
        self, method: str, path: str, data: Mapping[str, Any] | None = None, token: str = ""
    ) -> Any:
        """Send a request of the test's own."""
        body = None if data is None else json.dumps(data).encode()
        headers = {"Content-Type": "application/json"}
        if token:
            headers["Authorization"] = f"Bearer {token}"
        request = Request(f"{self.url}{path}", body, headers, method=method)
        try:
            with urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except HTTPError as exc:
            raise AssertionError(f"{method} {path}: {exc.code} {exc.read()!r}") from exc

    def _settings(self) -> dict[str, Any]:
        names = [{"names": ["client"], "compress": False}]
        listener = {"port": self._port, "type": "http", "bind_addresses": ["127.0.0.1"]}
        return {
            "server_name": SERVER,
            "listeners": [{**listener, "resources": names}],
            "database": {"name": "sqlite3", "args": {"database": str(self._folder / "hs.db")}},
            "log_config": str(self._folder / "log.yaml"),
            "media_store_path": str(self._folder / "media"),
            "signing_key_path": str(self._folder / "signing.key"),
            "registration_shared_secret": SECRET,
            "report_stats": False,
            "trusted_key_servers": [],
            "bcrypt_rounds": 4,
            "max_upload_size": MAX_UPLOAD_BYTES,
            "presence": {"enabled": False},
            "rc_message": FAST,
            "rc_registration": FAST,
            "rc_login": {"address": FAST, "account": FAST, "failed_attempts": FAST},
            "rc_joins": {"local": FAST, "remote": FAST},
            "rc_joins_per_room": FAST,
            "rc_invites": {"per_room": FAST, "per_user": FAST, "per_issuer": FAST},
            "rc_room_creation": FAST,
            "rc_media_create": FAST,
        }

    def _log_settings(self) -> dict[str, Any]:
        file = {"class": "logging.FileHandler", "filename": str(self._folder / "synapse.log")}
        return {
            "version": 1,
            "handlers": {"file": file},
            "root": {"level": "WARNING", "handlers": ["file"]},
            "disable_existing_loggers": False,
        }


@contextmanager
def running_synapse(folder: Path, **settings: Any) -> Iterator[Synapse]:
    """Run a homeserver, with its own settings if necessary."""
    server = Synapse(folder, **settings)
    try:
        server.start()
        yield server
    finally:
        server.stop()


class People:
    """The users of matrix-nio, in their process."""

    def __init__(self, server: Synapse) -> None:
        self._server = server
        self._process = subprocess.Popen(
            [venv(LOCK), PEOPLE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            encoding="utf-8",
        )
        self._turn = threading.Lock()

    def new(self, name: str = "person") -> "Person":
        """Return a new user."""
        local = f"{name}-{uuid4().hex[:8]}"
        self._server.register(local, "secret", display=name.title())
        person = Person(self, f"@{local}:{SERVER}")
        self.do("login", who=person.id, homeserver=self._server.url, password="secret")
        return person

    def do(self, what: str, **args: Any) -> Any:
        """Run an action and return its result."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        with self._turn:
            stdin.write(json.dumps({"do": what, **args}) + "\n")
            stdin.flush()
            line = stdout.readline()
        assert line, "the people's process ended"
        answer = json.loads(line)
        assert "error" not in answer, f"{what}: {answer.get('error')}"
        return answer["ok"]

    def close(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        finally:
            self._process.kill()
            self._process.wait()
            self._process.stdout.close()


class Person:
    """One of the users."""

    def __init__(self, people: People, id_: str) -> None:
        self._people, self.id = people, id_

    async def do(self, what: str, **args: Any) -> Any:
        return await asyncio.to_thread(self._people.do, what, who=self.id, **args)

    async def say(self, room: str, text: str, **content: Any) -> str:
        """Send a text, with further content; return the event's id."""
        return await self.send(room, {"msgtype": "m.text", "body": text, **content})

    async def send(
        self, room: str, content: Mapping[str, Any], kind: str = "m.room.message"
    ) -> str:
        return str(await self.do("send", room=room, kind=kind, content=content))

    async def dm(self, user: str) -> str:
        """Open a direct room with a user."""
        return str(await self.do("create", direct=True, invite=[user]))

    async def create(self, name: str, *invite: str, **options: Any) -> str:
        return str(await self.do("create", name=name, invite=list(invite), **options))

    async def invitation(self) -> str:
        """Wait for an invite; return its room."""
        async with asyncio.timeout(WAIT_S):
            while True:
                rooms: list[str] = await self.do("invited")
                if rooms:
                    return rooms[0]
                await asyncio.sleep(0.02)

    async def shown(self, room: str) -> list[dict[str, Any]]:
        """Return every event of a room, as matrix-nio parsed it."""
        found: list[dict[str, Any]] = await self.do("shown", room=room)
        return found

    async def sees(
        self, room: str, holds: Callable[[dict[str, Any]], bool], count: int = 1
    ) -> list[dict[str, Any]]:
        """Wait for events."""
        async with asyncio.timeout(WAIT_S):
            while True:
                found = [event for event in await self.shown(room) if holds(event)]
                if len(found) >= count:
                    return found
                await asyncio.sleep(0.02)
