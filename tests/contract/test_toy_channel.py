"""A channel of another package: installed, found by its entry point, and passing the shipped suite.

The package is built and installed by pip into a folder of its own. No file of the program is
touched.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "homarus-toy"
version = "1.0"

[project.entry-points."homarus.channels"]
toy = "homarus_toy"

[tool.hatch.build.targets.wheel]
only-include = ["homarus_toy.py"]
"""

CHANNEL = '''
"""Toy: messages are files in a folder."""

import asyncio
import json
from pathlib import Path

from homarus.channels.base import Capabilities, Receipt
from homarus.config.channels import ChannelSettings
from homarus.core.channel_traits import ChannelTraits
from homarus.core.message import Address, Inbound

LABEL = "Toy"
TRAITS = ChannelTraits("Toy", "plain")


class Settings(ChannelSettings):
    """One account: the folder of the service."""

    path: str


def create(context, settings):
    return ToyChannel(context.channel, context.account, Path(settings.path))


class ToyChannel:
    capabilities = Capabilities(text_limit=10_000, dialect="plain", idempotent=True)

    def __init__(self, name, account, folder):
        self.name, self.account, self.folder = name, account, folder

    async def run(self, receive):
        receive.mark_connected()
        number = (await receive.load_cursor() or {}).get("number", 0)
        while True:
            path = self.folder / f"in-{number}"
            if not path.exists():
                await asyncio.sleep(0.01)
                continue
            id_, chat, text = json.loads(path.read_text(encoding="utf-8"))
            number += 1
            address = Address(self.name, chat, self.account)
            await receive(Inbound(id_, address, "person", text), {"number": number})

    async def send(self, message):
        keys = sorted(self.folder.glob("out-*"), key=lambda path: int(path.name[4:]))
        sent = [json.loads(path.read_text(encoding="utf-8")) for path in keys]
        known = [key for key, _, _ in sent]
        if message.key not in known:
            row = [message.key, message.address.chat, message.text]
            (self.folder / f"out-{len(sent)}").write_text(json.dumps(row), encoding="utf-8")
            known.append(message.key)
        return Receipt(f"m{known.index(message.key)}")
'''

SUITE = """
import json
from contextlib import asynccontextmanager

import pytest

from homarus.channels.base import ChannelContext
from homarus.channels.registry import load_channel
from homarus.core.clock import SystemClock
from homarus.testing.channel_contract import ChannelContract


class ToyPeer:
    def __init__(self, folder):
        self.folder, self.count = folder, 0
        module = load_channel("toy")
        settings = module.Settings.read({"path": str(folder)})
        self.channel = module.create(ChannelContext("toy", "default", SystemClock()), settings)

    def write(self, text, message_id, *, chat="chat"):
        row = json.dumps([message_id, chat, text])
        (self.folder / f"in-{self.count}").write_text(row, encoding="utf-8")
        self.count += 1

    def shown(self):
        paths = sorted(self.folder.glob("out-*"), key=lambda path: int(path.name[4:]))
        return [tuple(json.loads(path.read_text(encoding="utf-8"))[1:]) for path in paths]


class TestToyChannel(ChannelContract):
    @pytest.fixture
    def open_peer(self, tmp_path):
        @asynccontextmanager
        async def open_toy():
            yield ToyPeer(tmp_path)

        return open_toy
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return the folder into which pip installed the package."""
    project, target = tmp_path / "project", tmp_path / "site"
    project.mkdir()
    (project / "pyproject.toml").write_text(PROJECT, encoding="utf-8")
    (project / "homarus_toy.py").write_text(CHANNEL, encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--no-index"]
    offline = ["--no-deps", "--no-build-isolation", "--quiet", "--target", str(target)]
    subprocess.run([*pip, *offline, str(project)], check=True, timeout=100)
    return target


@pytest.mark.slow
def test_toy_channel_of_a_package_passes_the_shipped_suite(installed: Path, tmp_path: Path) -> None:
    suite = tmp_path / "suite"
    suite.mkdir()
    (suite / "test_toy.py").write_text(SUITE, encoding="utf-8")
    env = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-m", "pytest", "-q", "-o", "asyncio_mode=auto", "-p", "no:xdist"]
    done = subprocess.run(
        [*command, str(suite)],
        check=False,
        cwd=suite,
        env=env,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "7 passed" in done.stdout


@pytest.mark.slow
def test_toy_channel_of_a_package_is_configured_by_command(installed: Path, tmp_path: Path) -> None:
    folder, home = tmp_path / "chats", tmp_path / "home"
    folder.mkdir()
    env = {**os.environ, "PYTHONPATH": str(installed), "HOME": str(home)}
    env.pop("OPENCLAW_STATE_DIR", None)

    def homarus(*words: str) -> str:
        command = [sys.executable, "-m", "homarus", *words]
        done = subprocess.run(
            command, check=False, env=env, capture_output=True, text=True, timeout=100
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    homarus("config", "set", "channels.toy.path", str(folder))
    assert "toy" in homarus("channels", "list")
