"""Our IRC account on a newer server: it sends times and ids, and authenticates accounts."""

import asyncio
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from homarus.channels.base import ChannelContext
from homarus.channels.irc.adapter import IrcChannel
from homarus.channels.irc.settings import IrcSettings
from homarus.core.clock import SystemClock
from homarus.core.errors import SendError
from homarus.core.message import Address, Outbound
from tests.peers.install import debian
from tests.peers.ircd import READY_S, free_port, person
from tests.unit.channels.irc_server import Desk

pytestmark = [pytest.mark.peers, pytest.mark.timeout(300)]

CONFIG = """
<server name="irc.test" description="a server for tests" network="Test">
<admin name="nobody" nick="nobody" email="nobody@example.org">
<bind address="127.0.0.1" port="{port}" type="clients">
<connect allow="*" timeout="60" threshold="100" localmax="100" globalmax="100"
  resolvehostnames="no" useident="no">
<pid file="{folder}/inspircd.pid">
<log method="file" type="*" level="default" target="{folder}/inspircd.log">
<module name="cap"> <module name="ircv3_servertime"> <module name="ircv3_msgid">
<module name="ircv3_ctctags"> <module name="ircv3_accounttag"> <module name="services_account">
"""


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    debian(inspircd="inspircd")
    folder, port = tmp_path_factory.mktemp("inspircd"), free_port()
    (folder / "inspircd.conf").write_text(CONFIG.format(port=port, folder=folder), encoding="utf-8")
    config = str(folder / "inspircd.conf")
    with (folder / "out").open("wb") as out:
        process = subprocess.Popen(
            ["inspircd", "--nofork", "--runasroot", "--config", config],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        _wait_for(port, process, folder)
        yield port
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def _wait_for(port: int, process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline_s = time.monotonic() + READY_S
    while True:
        said = (folder / "out").read_text(errors="replace")
        assert process.poll() is None and time.monotonic() < deadline_s, said
        try:
            socket.create_connection(("127.0.0.1", port), READY_S).close()
        except OSError:
            time.sleep(0.05)
        else:
            return


async def test_inspircd_gives_time_and_id_and_bare_nick_is_no_id(
    port: int,
) -> None:
    with person(port, "Ann[x]") as ann:
        given = {"host": "127.0.0.1", "port": port, "tls": False, "nick": "homarus"}
        given |= {"channels": ["#den"], "allowFrom": ["Ann[x]"], "dmPolicy": "allowlist"}
        place = ChannelContext("irc", "default", SystemClock())
        account, desk = IrcChannel(place, IrcSettings.read(given)), Desk()
        before_ms = SystemClock().now_ms()
        async with asyncio.timeout(120), asyncio.TaskGroup() as group:
            task = group.create_task(account.run(desk))
            await account.send(Outbound(Address("irc", "#den"), "hello", "k"))
            await asyncio.to_thread(ann.join, "#den")
            ann.say("homarus", "hello")
            ann.say("@#den", "homarus: to the operators")
            ann.say("#DEN", "Homarus, hello")
            direct, room = (await desk.received(2))[:2]
            with pytest.raises(SendError, match="401"):
                await account.send(Outbound(Address("irc", "nobody"), "hello", "k"))
            await account.send(Outbound(Address("irc", direct.address.chat), "answer", "k"))
            await asyncio.to_thread(ann.wait, ann.messages)
            task.cancel()
        assert direct.address.chat == "ann{x}" and room.address.chat == "#den"
        # The server authenticates accounts, and this nick is logged in to none.
        assert direct.sender.startswith("ann{x}!") and direct.sender.endswith("@127.0.0.1")
        assert direct.at_ms >= before_ms - 60_000 and "~" in direct.id
        assert room.metadata.mentioned and room.metadata.kind == "group"
