"""A gateway is never open by default: other users of the machine lack the owner's token.

The first start creates the token, for the owner alone; the commands of the same home use it
without being told, and paired devices keep working with their own tokens. Only an explicit start
option or setting turns authentication off, and the start prints what that means.
"""

import json
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from homarus.config.load import load_config
from homarus.config.paths import Paths
from homarus.core.errors import HomarusError, InvalidRequestError, StoreError, UserError
from homarus.gateway.auth import SharedSecretAuth, resolve_auth
from homarus.gateway.client import GatewaySecret
from homarus.gateway.identity import DeviceIdentity
from homarus.gateway.owner_token import FILE, create_config_with_token, load_or_create_token
from tests.e2e.gateway import Gateway
from tests.e2e.program import Home

Start = Callable[..., Gateway]
COMMANDS = (
    "status", "health", "sessions", "channels status", "gateway probe", "gateway status", "logs",
    "gateway call config.get", "config set agents.defaults.maxConcurrent 3",
)  # fmt: skip


@pytest.fixture
def home(tmp_path: Path) -> Home:
    keep = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    return Home(tmp_path, {**keep, "HOME": str(tmp_path), "NO_PROXY": "127.0.0.1"})


@pytest.fixture
def start(home: Home) -> Iterator[Start]:
    started: list[Gateway] = []

    def begin(*args: str) -> Gateway:
        started.append(Gateway(home, *args))
        return started[-1].wait_ready(len(started))

    yield begin
    for gateway in started:
        gateway.close()


def stranger(home: Home, name: str = "stranger") -> DeviceIdentity:
    """Return a device key of another user of the machine."""
    return DeviceIdentity.load_or_create(home.path / f"{name}.json", 1)


async def error_of(gateway: Gateway, **profile: Any) -> str:
    try:
        async with gateway.connect(**profile):
            return ""
    except HomarusError as exc:
        return exc.message


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_first_start_creates_config_with_token_for_owner(home: Home, start: Start) -> None:
    gateway = start()
    config = home.state / "openclaw.json"
    auth = json.loads(config.read_text())["gateway"]["auth"]
    assert auth["mode"] == "token" and len(auth["token"]) >= 32
    assert mode_of(config) == 0o600
    assert "OpenClaw's clients find it in ~/.openclaw/openclaw.json" in gateway.output
    assert auth["token"] not in gateway.output, "what a service prints goes to a log"
    # Another user of the machine reaches the port, has a key of its own, and no token.
    assert "token missing" in await error_of(
        gateway, secret=GatewaySecret(), identity=stranger(home)
    )
    assert "token mismatch" in await error_of(
        gateway, secret=GatewaySecret("guess"), identity=stranger(home)
    )
    paired = home.state / "devices" / "paired.json"
    assert not paired.exists()
    async with gateway.connect(secret=GatewaySecret(auth["token"])) as client:
        assert await client.call("health")


def test_existing_config_is_kept_and_token_gets_own_file(home: Home, start: Start) -> None:
    home.configure({"agents": {"defaults": {"workspace": "~/w"}}})
    before = (home.state / "openclaw.json").read_bytes()
    gateway = start()
    file = home.state / FILE
    token = file.read_text().strip()
    assert mode_of(file) == 0o600 and len(token) >= 32
    assert (home.state / "openclaw.json").read_bytes() == before
    assert 'export OPENCLAW_GATEWAY_TOKEN="$(cat ~/.openclaw/gateway.token)"' in gateway.output
    for command in COMMANDS:
        done = home.run(*command.split())
        assert done.status == 0, (command, done.err)
    assert home.run("dashboard").out == f"http{gateway.url[2:]}/#token={token}\n"
    gateway.close()
    again = start()
    assert file.read_text().strip() == token, "a restart keeps it"
    assert home.run("gateway", "probe").status == 0
    again.close()


def test_setup_creates_config_with_token(home: Home) -> None:
    assert home.run("setup").status == 0
    auth = json.loads((home.state / "openclaw.json").read_text())["gateway"]["auth"]
    assert auth["mode"] == "token" and len(auth["token"]) >= 32


async def test_environment_token_is_used_and_no_file_created(home: Home, start: Start) -> None:
    home.env["OPENCLAW_GATEWAY_TOKEN"] = "from-the-environment"
    gateway = start()
    assert not (home.state / FILE).exists() and not (home.state / "openclaw.json").exists()
    async with gateway.connect(secret=GatewaySecret("from-the-environment")) as client:
        assert await client.call("health")
    assert home.run("gateway", "probe").status == 0
    del home.env["OPENCLAW_GATEWAY_TOKEN"]
    done = home.run("gateway", "probe")
    assert done.status == 2 and "OPENCLAW_GATEWAY_TOKEN" in done.err


async def test_paired_device_keeps_working_without_the_token(home: Home, start: Start) -> None:
    gateway = start()
    token = json.loads((home.state / "openclaw.json").read_text())["gateway"]["auth"]["token"]
    async with gateway.connect(secret=GatewaySecret(token)) as client:
        own = client.hello["auth"]["deviceToken"]
    async with gateway.connect(secret=GatewaySecret(own)) as client:
        assert await client.call("health")
    assert "mismatch" in await error_of(gateway, secret=GatewaySecret(own), identity=stranger(home))


@pytest.mark.parametrize("by_config", [True, False])
async def test_auth_none_is_explicit_and_prints_its_meaning(
    home: Home, start: Start, by_config: bool
) -> None:
    if by_config:
        home.configure({"gateway": {"auth": {"mode": "none"}}})
    gateway = start() if by_config else start("--auth", "none")
    assert "every user and every program of this machine can use this gateway" in gateway.output
    assert not (home.state / FILE).exists()
    async with gateway.connect(secret=GatewaySecret()) as client:
        assert await client.call("health")
    assert home.run("gateway", "probe").status == 0


def test_auth_none_with_bind_beyond_this_machine_is_refused(home: Home) -> None:
    done = home.run("gateway", "run", "--port", "0", "--auth", "none", "--bind", "lan")
    assert done.status == 2 and "refusing to listen" in done.err


def test_token_file_created_for_loopback_does_not_open_the_network(home: Home) -> None:
    home.configure({"gateway": {"bind": "lan"}})
    done = home.run("gateway", "run", "--port", "0")
    assert done.status == 2 and "refusing to listen" in done.err


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_token_file_open_to_others_is_refused(tmp_path: Path, mode: int) -> None:
    load_or_create_token(tmp_path)
    (tmp_path / FILE).chmod(mode)
    with pytest.raises(UserError, match="other users"):
        load_or_create_token(tmp_path)


def test_token_file_that_is_a_link_or_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("0123456789abcdef0123")
    (tmp_path / FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="cannot be read"):
        load_or_create_token(tmp_path)
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).touch(0o600)
    with pytest.raises(UserError, match="holds no token"):
        load_or_create_token(tmp_path)


def test_config_that_cannot_be_created_leaves_the_token_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object) -> None:
        raise StoreError("the folder is read-only")

    monkeypatch.setattr("homarus.config.write.write_config", refuse)
    env = {"HOME": str(tmp_path)}
    paths = Paths.find(env)
    loaded = create_config_with_token(paths, env, load_config(paths, env))
    assert not loaded.exists
    auth = resolve_auth(
        loaded.config.gateway, env, get_token=lambda: load_or_create_token(paths.state)
    )
    assert (auth.mode, auth.source) == ("token", "file")


def test_auth_without_any_secret_is_an_error_not_none(tmp_path: Path) -> None:
    paths = Paths.find({"HOME": str(tmp_path)})
    gateway = load_config(paths, {}).config.gateway
    with pytest.raises(UserError, match="no token is set"):
        resolve_auth(gateway, {})
    assert resolve_auth(gateway, {}, mode="none") == SharedSecretAuth()


def test_unauthorized_command_names_the_fix(home: Home, start: Start) -> None:
    gateway = start()
    done = home.run("gateway", "probe", "--url", gateway.url)
    assert done.status == InvalidRequestError.exit_status and "--token" in done.err
