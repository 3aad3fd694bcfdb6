"""Fixtures of the peers tier: a scripted model, a gateway, a browser, OpenClaw's client."""

import os
from collections.abc import Iterator

import pytest

from homarus.testing.model_server import ModelServer
from tests.peers.browser import Browser, Page, chromium
from tests.peers.chat_page import new_session, sign_in
from tests.peers.gateway import Running, model_server, new_home, running_gateway
from tests.peers.install import NEWEST, Original, debian, original_client
from tests.peers.synapse import People, Synapse, running_synapse


@pytest.fixture(scope="module")
def model() -> Iterator[ModelServer]:
    with model_server() as server:
        yield server


@pytest.fixture(scope="module")
def gateway(model: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Run one gateway for a module, in its own home."""
    kept = {name: os.environ[name] for name in ("PATH", "LANG", "TZ") if name in os.environ}
    home = new_home(tmp_path_factory.mktemp("gateway"), kept, model)
    with running_gateway(home) as gateway:
        yield gateway


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    debian(chromium="chromium")
    with chromium(tmp_path_factory.mktemp("chromium")) as browser:
        yield browser


@pytest.fixture
def page(browser: Browser, gateway: Running) -> Page:
    """Return the chat page, logged in, in its own session."""
    return new_session(sign_in(browser, gateway))


@pytest.fixture(scope="session")
def original() -> Original:
    return original_client()


@pytest.fixture(scope="session")
def newest() -> Original:
    return original_client(NEWEST)


@pytest.fixture(scope="session")
def synapse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Synapse]:
    """Run one homeserver for all tests; a test that stops one has its own."""
    with running_synapse(tmp_path_factory.mktemp("synapse")) as server:
        yield server


@pytest.fixture(scope="session")
def people(synapse: Synapse) -> Iterator[People]:
    """Run the users of matrix-nio there."""
    people = People(synapse)
    yield people
    people.close()
