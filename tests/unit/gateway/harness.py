"""A gateway without sockets: real handshake and methods, clients that are queues."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from homarus.agent.agent import Agent
from homarus.agent.approval_ports import ApprovalPorts
from homarus.agent.memory_registry import MemoryRegistry
from homarus.agent.prompt.preview import PreviewServices
from homarus.agent.run import RunOutcome
from homarus.channels.registry import find_traits
from homarus.config.gateway_schema import GatewayConfig as GatewaySettings
from homarus.config.load import LoadedConfig, load_config
from homarus.config.paths import Paths
from homarus.core.bus import Bus
from homarus.core.clock import Clock, SystemClock
from homarus.core.lanes import Lanes
from homarus.core.message import Json
from homarus.gateway.auth import SharedSecretAuth
from homarus.gateway.client import ClientProfile, GatewaySecret
from homarus.gateway.connection import Connection
from homarus.gateway.handshake import ConnectionAuthenticator
from homarus.gateway.identity import DeviceIdentity
from homarus.gateway.method import Method, MethodCall, NoParams, Params, find_methods, method
from homarus.gateway.server import Gateway
from homarus.gateway.services import GatewayServices
from homarus.plugins.hook_runner import Hooks
from homarus.providers.model_router import ModelRouter
from homarus.schedule.heartbeat_request import HeartbeatRequest
from homarus.schedule.heartbeat_scheduler import HeartbeatScheduler, HeartbeatServices
from homarus.schedule.turn import TurnRequest
from homarus.sessions.control import SessionControl, SessionServices
from homarus.sessions.notices import Notices
from homarus.sessions.session import SessionRepository
from homarus.store.base import Store, Transaction
from homarus.store.journal import InboxRecord
from homarus.testing.memory_store import MemoryStore
from homarus.tools.registry import ToolRegistry
from tests.approval_harness import make_approval_service
from tests.unit.gateway.builders import FakeChannelControl, FakeMessenger
from tests.waiting import settle

TOKEN = "right-token"
PORT = 18789
SCOPE: Mapping[str, Any] = {
    "type": "websocket",
    "client": ("127.0.0.1", 50_000),
    "server": ("127.0.0.1", PORT),
    "headers": [(b"host", f"127.0.0.1:{PORT}".encode())],
    "query_string": b"",
}


class FakeProgram:
    """The services behind the gateway, without content."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        env = {"HOME": str(folder), "OPENCLAW_STATE_DIR": str(folder / "state")}
        self.paths = Paths.find(env)
        self.loaded: LoadedConfig = load_config(self.paths, env)
        self.clock, self.bus, self.notices = clock, Bus(), Notices()
        self.lanes = Lanes()
        self.hooks = Hooks()
        self.channels = FakeChannelControl()
        self.store: Store = MemoryStore()
        self.messenger = FakeMessenger(self.store, self.channels)
        self.sessions = SessionRepository(self.store, clock)
        self.approval_ports = ApprovalPorts()
        self.approvals = make_approval_service(
            self.store.journal, clock, ports=self.approval_ports, bus=self.bus
        )
        self.models = ModelRouter(self.loaded.config, {}, self.paths, clock)
        self.runs: dict[str, str] = {}  # run id → session key
        self.aborted: list[str] = []
        self.turns: dict[str, TurnRequest] = {}  # of webhooks, by their run id
        self.turn_failure: Exception | None = None
        self.heartbeats: list[HeartbeatRequest] = []
        self.memories = MemoryRegistry(
            lambda: self.loaded.config,
            self.paths,
            lambda: self.loaded.env,
            store=self.store,
            clock=clock,
        )

    def services(self, group: asyncio.TaskGroup) -> GatewayServices:
        """Return the ports that a gateway is given."""
        control: SessionControl[RunOutcome] = SessionControl(
            SessionServices(
                repository=self.sessions,
                store=self.store,
                paths=self.paths,
                clock=self.clock,
                group=group,
                lanes=self.lanes,
                hooks=self.hooks,
                get_config=lambda: self.loaded.config,
                get_models=lambda: self.models,
                get_agent=self.agent,
                start_run=self._start,
                stop_run=self._stop,
                mark_stopped_by=lambda _key, _run_id, _by: None,
                active_ids=self._active,
                build_reply=lambda _inbound, _run, _text: (),
                on_enqueued=lambda: None,
            )
        )
        heartbeats = HeartbeatScheduler(
            HeartbeatServices(
                store=self.store,
                clock=self.clock,
                control=control,
                notices=self.notices,
                lanes=self.lanes,
                paths=self.paths,
                get_config=lambda: self.loaded.config,
                get_accounts=tuple,
                find_traits=find_traits,
                spawn=lambda work, name: group.create_task(work, name=name),
            )
        )
        return GatewayServices(
            get_loaded=lambda: self.loaded,
            get_models=lambda: self.models,
            paths=self.paths,
            store=self.store,
            sessions=self.sessions,
            control=control,
            bus=self.bus,
            clock=self.clock,
            notices=self.notices,
            lanes=self.lanes,
            hooks=self.hooks,
            channels=self.channels,
            messenger=self.messenger,
            memory=self.memories,
            agent=self.agent,
            preview=PreviewServices(
                get_config=lambda: self.loaded.config,
                get_models=lambda: self.models,
                get_agent=self.agent,
                get_tools=lambda _agent: ToolRegistry([]),
                load_session=control.load,
                find_traits=find_traits,
                clock=self.clock,
                hooks=self.hooks,
            ),
            recover=control.recover,
            run_schedule=self._nothing,
            run_boot=self._nothing,
            preload=self._nothing,
            reload=self._reload,
            wake_workers=lambda: None,
            set_restart=lambda _restart: None,
            get_approvals=lambda: self.approvals,
            approval_ports=self.approval_ports,
            start_turn=self._start_turn,
            request_heartbeat=self.heartbeats.append,
            heartbeats=heartbeats,
        )

    async def _start_turn(
        self, request: TurnRequest, extra_writes: Callable[[Transaction], None]
    ) -> str:
        async with self.store.transaction() as transaction:
            if self.turn_failure:
                raise self.turn_failure
            extra_writes(transaction)
        assert request.id not in self.turns, "a turn is started once"
        self.turns[request.id] = request
        return request.id

    def agent(self, agent_id: str) -> Agent:
        return Agent(agent_id, agent_id, self.paths.state / "workspace")

    async def _nothing(self) -> None:
        """Stand for what this program does not do."""

    async def _start(self, key: str, rows: Sequence[InboxRecord], _text: str) -> RunOutcome:
        raise AssertionError(f"no run answers {rows} in {key}")

    def _stop(self, key: str, run_id: str | None) -> tuple[str, ...]:
        stopped = [run for run in self._active(key) if run_id in (None, run)]
        for run in stopped:
            del self.runs[run]
        self.aborted += stopped
        return tuple(stopped)

    def _active(self, key: str | None) -> tuple[str, ...]:
        return tuple(run for run, at in self.runs.items() if key in (None, at))

    async def _reload(self, loaded: LoadedConfig) -> None:
        self.loaded = loaded


class EchoParams(Params):
    value: Json = None


class Doors:
    """Methods for tests; setting `open` releases those that wait."""

    def __init__(self) -> None:
        self.open = asyncio.Event()

        @method("echo", scope="read", params=EchoParams)
        async def echo(_call: MethodCall, params: EchoParams) -> Json:
            return params.value

        @method("wait", scope="read", params=NoParams)
        async def wait(call: MethodCall, _params: NoParams) -> Json:
            call.accept({"status": "accepted"})
            await self.open.wait()
            return {"status": "ok"}

        @method("break", scope="read", params=NoParams)
        async def fail(_call: MethodCall, _params: NoParams) -> Json:
            raise ZeroDivisionError("secret-in-a-bug")

        @method("boss", scope="admin", params=NoParams, advertised=False)
        async def boss(_call: MethodCall, _params: NoParams) -> Json:
            return "yes"

        self.methods = find_methods(_Module(echo, wait, fail, boss))


class _Module:
    def __init__(self, *methods: Method) -> None:
        for each in methods:
            setattr(self, each.name, each)


class Peer:
    """A client: the frames it received, and a way to send."""

    def __init__(self) -> None:
        self.frames: list[dict[str, Any]] = []
        self.closed: tuple[int, str] | None = None
        self.gone = asyncio.Event()
        self.max_bytes = 0
        self.reads = asyncio.Event()  # cleared: the client does not read
        self.reads.set()
        self._in: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._in.put_nowait({"type": "websocket.connect"})

    # the transport below the connection

    async def write(self, texts: Sequence[str]) -> None:
        await self.reads.wait()
        if self.closed:
            raise OSError("gone")
        self.frames += [json.loads(text) for text in texts]

    def allow(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes

    def close_now(self, code: int, reason: str) -> None:
        self._close(code, reason)

    async def receive(self) -> dict[str, Any]:
        return await self._in.get()

    async def send(self, message: Any) -> None:
        if message["type"] == "websocket.close":
            self._close(message["code"], message["reason"])

    def _close(self, code: int, reason: str) -> None:
        self.closed = self.closed or (code, reason)
        self.gone.set()
        self.reads.set()
        self._in.put_nowait({"type": "websocket.disconnect", "code": code})

    # the client's side

    def say(self, frame: object) -> None:
        text = frame if isinstance(frame, str) else json.dumps(frame)
        self._in.put_nowait({"type": "websocket.receive", "text": text})

    def ask(self, request_id: str, name: str, params: Json = None) -> None:
        frame: dict[str, Json] = {"type": "req", "id": request_id, "method": name}
        self.say(frame if params is None else {**frame, "params": params})

    def leave(self) -> None:
        self._in.put_nowait({"type": "websocket.disconnect", "code": 1005})

    def answers(self, request_id: str) -> list[dict[str, Any]]:
        return [f for f in self.frames if f["type"] == "res" and f["id"] == request_id]

    def events(self, name: str) -> list[dict[str, Any]]:
        return [f for f in self.frames if f["type"] == "event" and f["event"] == name]


class Harness:
    """A gateway with fake services."""

    def __init__(self, folder: Path, group: asyncio.TaskGroup, clock: Clock) -> None:
        self._folder = folder
        self._group: asyncio.TaskGroup = group
        self.program, self.doors = FakeProgram(folder, clock), Doors()
        settings = GatewaySettings.model_validate({})
        self.authenticator = ConnectionAuthenticator.from_config(
            settings, SharedSecretAuth("token", TOKEN), PORT, folder / "state", clock
        )
        unimplemented = {"cron.list": "schedules are not built yet"}
        self.gateway = Gateway(
            authenticator=self.authenticator,
            methods=self.doors.methods,
            unimplemented=unimplemented,
            clock=clock,
        )

    async def settle(self) -> None:
        await settle()

    def knock(self, scope: Mapping[str, Any] = SCOPE) -> Peer:
        """Return a connection that has not sent anything."""
        peer = Peer()
        connection = Connection(self.gateway, peer, peer.receive, peer.send, scope)
        self._group.create_task(connection.serve())
        return peer

    async def enter(self, name: str = "device", *, protocol: int = 3, **guest: Any) -> Peer:
        """Return an authenticated client."""
        peer = self.knock()
        await self.settle()
        self.greet(peer, name, protocol=protocol, **guest)
        await self.settle()
        assert peer.answers("hello")[0]["ok"], peer.frames
        return peer

    def greet(self, peer: Peer, name: str = "device", *, protocol: int = 3, **guest: Any) -> None:
        challenge = peer.events("connect.challenge")[0]["payload"]
        identity = DeviceIdentity.load_or_create(self._folder / f"{name}.json", 1)
        who = ClientProfile(**{"secret": GatewaySecret(TOKEN), "identity": identity, **guest})
        params = who.connect_params(challenge["nonce"], challenge["ts"])
        peer.ask("hello", "connect", params | {"maxProtocol": protocol})


@asynccontextmanager
async def play(
    folder: Path, *, clock: Clock | None = None, ready: bool = True
) -> AsyncIterator[Harness]:
    """Run a scene with a serving gateway."""
    async with _stage(folder, clock or SystemClock(), ready=ready) as stage:
        yield stage


@asynccontextmanager
async def _stage(folder: Path, clock: Clock, *, ready: bool) -> AsyncIterator[Harness]:
    async with asyncio.TaskGroup() as group:
        stage = Harness(folder, group, clock)
        running = (
            group.create_task(stage.gateway.run(stage.program.services(group))) if ready else None
        )
        await stage.settle()
        yield stage
        stage.doors.open.set()
        for connection in stage.gateway.connections:
            connection.close(1012, "service restart")
        await stage.settle()
        if running:
            running.cancel()
