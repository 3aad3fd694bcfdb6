"""A home in which every text that a page can show is an attack on the page."""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from homarus.core.clock import SystemClock
from homarus.core.message import Json
from homarus.gateway.device_records import DevicePairingRequest
from homarus.gateway.devices import DeviceRegistry
from homarus.testing.model_server import CallTools, ModelServer, Say, ScriptedCall, Think
from tests.e2e.program import Home
from tests.peers.gateway import Running, call, new_home, running_gateway
from tests.peers.test_ui_subagents import spawn
from tests.peers.ui_state import fill_home

READY_S = 60.0
MARK = "onerror=alert(1)"  # in every attack, so that a test can see that it is shown
NAME = f"<img src=x {MARK}>\u202e"
TEXT = (
    f"<img src=x {MARK}><script>alert(2)</script><svg onload=alert(3)></svg>"
    "<iframe srcdoc='<script>alert(4)</script>'></iframe>"
    "<style>@import '//evil.example/x.css'</style>"
    " [link](javascript:alert(5)) ![picture](https://evil.example/p.png) <https://evil.example/>"
    " ![svg](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9ImFsZXJ0KDYpIi8+)\u202e"
)
SESSION = "agent:main:attack"
SKILL = {
    "name": "attack",
    "description": TEXT,
    "homepage": "javascript:alert(7)",
    "metadata": {"openclaw": {"emoji": NAME, "requires": {"bins": [NAME]}}},
}


@contextmanager
def refusing_irc_server() -> Iterator[int]:
    """Serve an IRC server that closes every connection with an attack; yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client:
                    client.sendall(f"ERROR :Closing link: {TEXT}\r\n".encode())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


@contextmanager
def hostile_gateway(folder: Path, model: ModelServer) -> Iterator[Running]:
    """Run a gateway whose agents, sessions, jobs, skills, notes, logs and errors are attacks."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    home = new_home(folder, kept, model)
    fill_home(home)
    with refusing_irc_server() as port:
        _write_files(home, port)
        with running_gateway(home, ui=True) as gateway:
            _fill(gateway, model)
            yield gateway
            call(gateway, "subagents.kill", target="all")  # so that it stops at once


def request_decisions(gateway: Running) -> None:
    """Have agents ask for an approval and an answer; a client has to be there to give them."""
    command = json.dumps({"command": f"touch '{NAME}'"})
    _chat(gateway, f"agent:main:{uuid4().hex[:8]}", f"MOCK:tool:exec:{command}§")
    question = json.dumps({"question": TEXT, "choices": [NAME, "No"]})
    _chat(gateway, f"agent:main:{uuid4().hex[:8]}", f"MOCK:tool:ask_user:{question}§")


def _write_files(home: Home, irc_port: int) -> None:
    file = home.state / "openclaw.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    config["channels"]["irc"]["port"] = irc_port
    identity = {"name": NAME, "theme": TEXT, "emoji": "🦞", "avatar": "https://evil.example/a.png"}
    config["agents"]["list"] = [
        {"id": "main", "default": True},
        {"id": "attack", "name": NAME, "identity": identity},
    ]
    home.configure(config)
    folder = home.state / "skills" / "attack"
    folder.mkdir(parents=True)
    head = "\n".join(f"{key}: {json.dumps(value)}" for key, value in SKILL.items())
    (folder / "SKILL.md").write_text(f"---\n{head}\n---\n{TEXT}\n", encoding="utf-8")
    home.workspace.mkdir(exist_ok=True)
    (home.workspace / "attack.txt").write_text(TEXT, encoding="utf-8")
    scopes = ("operator.read",)
    device = DevicePairingRequest(
        "a" * 64, "a" * 43, "operator", scopes, platform=NAME, display_name=NAME
    )
    DeviceRegistry(home.state / "devices", SystemClock()).request(device)


def _fill(gateway: Running, model: ModelServer) -> None:
    read = ScriptedCall("read", {"path": "attack.txt", NAME: TEXT})
    model.script([Think(TEXT), Say(TEXT), CallTools(read)], [Say(TEXT)])
    _chat(gateway, SESSION, TEXT)
    _wait_for(
        gateway, "chat.history", lambda found: len(found["messages"]) >= 4, sessionKey=SESSION
    )
    call(gateway, "sessions.patch", key=SESSION, label=NAME)
    call(gateway, "memory.write", text=f"- walnuts {TEXT}", path="memory/2026-02-03.md")
    payload: Json = {"kind": "agentTurn", "message": f"MOCK:say:{TEXT}§"}
    schedule: Json = {"kind": "every", "everyMs": 3_600_000}
    job = call(
        gateway, "cron.add", name=NAME, description=TEXT, payload=payload, schedule=schedule,
        sessionTarget="isolated", delivery={"mode": "none"},
    )  # fmt: skip
    call(gateway, "cron.run", id=job["id"])
    _wait_for(gateway, "cron.runs", lambda found: found["entries"], id=job["id"])
    _chat(gateway, "agent:main:parent", spawn(NAME, f"{TEXT} MOCK:hold"))
    _wait_for(gateway, "subagents.list", lambda found: found["active"])
    with (gateway.home.path / "gateway.log").open("a", encoding="utf-8") as log:
        line = {"time": "2026-01-02T10:00:00Z", "level": "error", "message": TEXT, "logger": NAME}
        log.write(f"{json.dumps(line)}\n{TEXT}\n")


def _chat(gateway: Running, session: str, text: str) -> None:
    key = uuid4().hex
    call(gateway, "chat.send", sessionKey=session, message=text, idempotencyKey=key)


def _wait_for(
    gateway: Running, method: str, is_done: Callable[[Json], object], **params: Json
) -> None:
    deadline_s = time.monotonic() + READY_S
    while not is_done(found := call(gateway, method, **params)):
        assert time.monotonic() < deadline_s, found
        time.sleep(0.02)
