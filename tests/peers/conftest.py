"""Fixtures of the peers tier: a scripted model, a gateway, a browser, OpenClaw's client."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser as PlaywrightBrowser

from homarus.testing.model_server import ModelServer
from tests.peers.browser import Browser, Page, chromium
from tests.peers.chat_page import new_session, sign_in
from tests.peers.gateway import (
    Running,
    inherited_environment,
    model_server,
    new_home,
    running_gateway,
)
from tests.peers.install import NEWEST, Original, alone, debian, original_client
from tests.peers.synapse import People, Synapse, running_synapse
from tests.peers.ui import (
    UiPage,
    build_ui,
    ensure_node,
    install_web,
    new_page,
    playwright_browser,
)
from tests.peers.wheel import build, installed

_BROWSERS = frozenset({"browser", "ui_browser"})
_OTHERS = frozenset({"wheel", "original", "newest", "synapse"})  # each is installed or built once


@pytest.hookimpl(tryfirst=True)  # before the tests of a marker are selected
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a browser and no other peer."""
    for item in items:
        names = frozenset(getattr(item, "fixturenames", ()))
        if item.get_closest_marker("peers") and names & _BROWSERS and not names & _OTHERS:
            item.add_marker("browser")


@pytest.fixture(scope="module")
def model() -> Iterator[ModelServer]:
    with model_server() as server:
        yield server


@pytest.fixture(scope="module")
def gateway(model: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Run one gateway for a module, in its own home."""
    home = new_home(tmp_path_factory.mktemp("gateway"), inherited_environment(), model)
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
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the package once; the control UI is a part of it."""
    ensure_node()
    return build("wheel", tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="session")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package into an environment of its own; the folder of its programs."""
    return installed(wheel, tmp_path_factory.mktemp("program"))


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


@pytest.fixture(scope="session")
def ui_tools() -> None:
    """Install the packages of the control UI once, and build it."""
    with alone("web"):
        ensure_node()
        install_web()
        build_ui()


@pytest.fixture(scope="module")
def ui_gateway(
    ui_tools: None, model: ModelServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Running]:
    """Run one gateway that serves the control UI for a module."""
    home = new_home(tmp_path_factory.mktemp("ui"), inherited_environment(), model)
    with running_gateway(home, ui=True) as gateway:
        yield gateway


@pytest.fixture(scope="module")
def ui_browser() -> Iterator[PlaywrightBrowser]:
    """Run a browser for a module: while it runs, tests that are coroutines cannot."""
    debian(chromium="chromium")
    with playwright_browser() as browser:
        yield browser


@pytest.fixture
def ui(ui_browser: PlaywrightBrowser, ui_gateway: Running) -> Iterator[UiPage]:
    """Return the control UI, signed in; nothing on the page may have failed."""
    page = new_page(ui_browser).open(ui_gateway)
    yield page
    assert page.problems == []
    page.tab.context.close()
