"""A gateway with a complete program, its own state directory and a scripted model."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from homarus.app import App
from homarus.channels.base import Channel
from homarus.config.load import LoadedConfig, load_config
from homarus.config.paths import Paths
from homarus.core.errors import ProviderError
from homarus.core.message import Json, Message, Origin, Part, Text, Usage
from homarus.gateway.auth import SharedSecretAuth
from homarus.gateway.handshake import ConnectionAuthenticator
from homarus.gateway.method import Caller, MethodCall
from homarus.gateway.methods import METHODS, UNIMPLEMENTED
from homarus.gateway.server import Gateway
from homarus.providers.base import Provider
from homarus.providers.catalog import ModelInfo
from homarus.providers.model_router import ModelRouter, ModelSelection
from homarus.store.sqlite import SqliteStore, open_store
from homarus.testing.clock import FakeClock
from homarus.testing.fakes import Hang, ScriptedProvider

ADMIN = frozenset({"operator.admin"})
CONFIG: dict[str, Any] = {
    "agents": {"defaults": {"model": {"primary": "mock/mock-1"}}},
    "models": {
        "providers": {
            "mock": {
                "baseUrl": "http://127.0.0.1:9/v1",
                "apiKey": "sk-very-secret-key",
                "api": "openai-completions",
                "models": [{"id": "mock-1", "name": "Mock 1", "contextWindow": 1_000_000}],
            }
        }
    },
}


def answer(*parts: Part | str, tokens: int = 100) -> Message:
    """Return an answer of the scripted model."""
    usage = Usage(input=tokens, output=3, cost=0.25)
    content = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    return Message(
        "assistant", content, origin=Origin("openai-completions", "mock", "mock-1", usage=usage)
    )


class ScriptedModels(ModelRouter):
    """The configured models, all answered by one script."""

    script: ScriptedProvider

    async def connect(self, wish: ModelSelection) -> tuple[Provider, ModelInfo]:
        return self.script, self.check(wish.ref or (await self.default_model()).ref)


class ScriptedApp(App):
    """The program, whose models stay scripted when the config changes."""

    async def reload(self, loaded: LoadedConfig) -> None:
        await super().reload(loaded)
        self.models = ScriptedModels(loaded.config, loaded.env, self.paths, self.clock)


class Recorder(Gateway):
    """A gateway that records its broadcasts, and the events that it sends to one client."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**named)
        self.broadcasts: list[tuple[str, Json]] = []
        self.sent: list[tuple[str, str, Json]] = []

    def send(
        self, conn_id: str, event: str, payload: Json, *, newest: Mapping[str, Json] | None = None
    ) -> None:
        self.sent.append((conn_id, event, payload))
        super().send(conn_id, event, payload, newest=newest)

    def broadcast(
        self,
        event: str,
        payload: Json,
        *,
        drop_if_slow: bool = False,
        newest: Mapping[str, Json] | None = None,
    ) -> None:
        self.broadcasts.append((event, payload))
        super().broadcast(event, payload, drop_if_slow=drop_if_slow, newest=newest)

    def chats(self, run_id: str) -> list[Json]:
        return [
            payload
            for name, payload in self.broadcasts
            if name == "chat" and payload["runId"] == run_id
        ]


class Harness:
    """What a test uses; `clock` and `store` have the types of the fakes."""

    def __init__(
        self,
        app: App,
        gateway: Recorder,
        model: ScriptedProvider,
        clock: FakeClock,
        store: SqliteStore,
    ) -> None:
        self.app, self.gateway, self.model = app, gateway, model
        self.services = app.gateway_services()
        self.clock, self.store = clock, store
        self.accepted: list[Json] = []

    def caller(
        self, *scopes: str, client: str = "openclaw-control-ui", version: str = ""
    ) -> Caller:
        return Caller(
            version=version,
            conn_id="conn-1",
            client_id=client,
            mode="cli" if client == "cli" else "webchat",
            device_id="d" * 64,
            scopes=frozenset(f"operator.{scope}" for scope in scopes) or ADMIN,
            caps=frozenset({"tool-events"}),
        )

    async def ask(
        self,
        method: str,
        params: Json = None,
        *scopes: str,
        client: str = "openclaw-control-ui",
        version: str = "",
        **named: Json,
    ) -> Json:
        """Call a method as `client`; `named` are params with their wire names."""
        caller = self.caller(*scopes, client=client, version=version)
        call = MethodCall(self.services, self.gateway, caller, "1", self.accepted.append)
        return await METHODS[method](call, params if params is not None else named)

    async def send(self, text: str, run_id: str = "run-1", key: str = "main", **more: Json) -> Json:
        """Send a message and wait for its end."""
        params = {"sessionKey": key, "message": text, "idempotencyKey": run_id, **more}
        said = await self.ask("chat.send", params)
        await self.ended(run_id)
        return said

    async def ended(self, run_id: str) -> None:
        """Wait for a run's last chat event."""
        await self._until(lambda: any(c["state"] != "delta" for c in self.gateway.chats(run_id)))

    async def live(self, run_id: str) -> None:
        """Wait until a run is active."""
        await self._until(lambda: run_id in self.app.control.active_runs())

    async def asked(self, times: int) -> None:
        """Wait until the model was called so often and started to answer."""
        await self._until(lambda: len(self.model.requests) >= times)
        await asyncio.sleep(0.001)

    async def _until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not true():  # noqa: ASYNC110 - nobody rings when this becomes true
                await asyncio.sleep(0.001)


@asynccontextmanager
async def world(
    folder: Path,
    script: Iterable[Message | ProviderError | Hang] = (),
    config: dict[str, Any] | None = None,
    channels: Sequence[Channel] = (),
) -> AsyncIterator[Harness]:
    """Open a World in `folder`, closed when the block ends."""
    state = folder / "state"
    state.mkdir(exist_ok=True)
    file = state / "openclaw.json"
    if not file.exists():
        written = {**CONFIG, **(config or {}), "logging": {"file": str(folder / "homarus.log")}}
        file.write_text(json.dumps(written), encoding="utf-8")
    env = {"HOME": str(folder), "OPENCLAW_STATE_DIR": str(state), "SECRET_NAME": "s3cret-value"}
    paths = Paths.find(env)
    loaded = load_config(paths, env)
    clock, model = FakeClock(), ScriptedProvider(script)
    models = ScriptedModels(loaded.config, loaded.env, paths, clock)
    ScriptedModels.script = model
    authenticator = ConnectionAuthenticator.from_config(
        loaded.config.gateway, SharedSecretAuth("token", "right"), 18789, state, clock
    )
    async with open_store(state) as store, asyncio.TaskGroup() as group:
        app = ScriptedApp(
            loaded=loaded,
            paths=paths,
            models=models,
            store=store,
            group=group,
            clock=clock,
            channels=channels,
        )
        gateway = Recorder(
            authenticator=authenticator, methods=METHODS, unimplemented=UNIMPLEMENTED, clock=clock
        )
        running = group.create_task(gateway.run(app.gateway_services()))
        await gateway.ready.wait()
        try:
            yield Harness(app, gateway, model, clock, store)
        finally:
            while going := tuple(gateway.runs._pending.values()):  # stop runs that hang
                for run in going:
                    app.control.stop_now(run.session_key)
                await asyncio.sleep(0.001)
            app.stop()
            running.cancel()


@asynccontextmanager
async def run(folder: Path, *script: Any, config: Any = None) -> AsyncIterator[Harness]:
    """Run `body(world)` in a new World."""
    async with world(folder, script, config) as it:
        yield it
