"""Fixtures of the channel suites; a conftest imports them."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from homarus.testing.model_server import ModelServer
from tests.contract.channel_peers import (
    Hosted,
    LedgerPeer,
    TelegramPeer,
    TerminalPeer,
    WebchatPeer,
)
from tests.contract.channel_peers_slack import SlackPeer
from tests.contract.channel_stage import Harness, Peer
from tests.crash.harness import ForkServer

if TYPE_CHECKING:
    from tests.peers.synapse import People, Synapse


@pytest.fixture
def stage(
    request: pytest.FixtureRequest, tmp_path: Path, fork_server: ForkServer
) -> Iterator[Harness]:
    """Return a gateway to be started, with the channel under test."""
    model = Hosted(ModelServer)
    made = Harness(tmp_path / "home", make_peer(request, tmp_path), model.server, fork_server.fork)
    yield made
    made.close()
    model.close()


def make_peer(request: pytest.FixtureRequest, folder: Path) -> Peer:
    """Return the peer of a channel; those of the peers tier are imported when needed."""
    match request.param:
        case "telegram":
            return TelegramPeer()
        case "discord":
            from tests.contract.channel_peers_discord import DiscordPeer

            return DiscordPeer()
        case "slack":
            return SlackPeer()
        case "scripted":
            return LedgerPeer()
        case "webchat":
            return WebchatPeer()
        case "terminal":
            return TerminalPeer()
        case "irc":
            from tests.peers.chat_servers import IrcPeer

            return IrcPeer(folder)
    from tests.peers.chat_servers import MatrixPeer

    return MatrixPeer(*request.getfixturevalue("synapse_and_people"))


@pytest.fixture(scope="session")
def synapse_and_people(
    tmp_path_factory: pytest.TempPathFactory,
) -> "Iterator[tuple[Synapse, People]]":
    from tests.peers.synapse import People, running_synapse

    with running_synapse(tmp_path_factory.mktemp("synapse")) as server:
        people = People(server)
        yield server, people
        people.close()
