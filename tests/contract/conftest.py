"""Fixtures of the contract suites: the servers that some backends need, and every journal."""

import asyncio
from collections.abc import Iterator

import pytest

from homarus.core.principal import OWNER
from tests.contract.channel_fixtures import stage, synapse_and_people  # noqa: F401 - fixtures
from tests.contract.journals import KINDS, Body, Home, Run, home_of, postgres_server
from tests.crash.harness import ForkServer


@pytest.fixture(scope="session")
def postgres_uri() -> Iterator[str]:
    """Only tests marked `peers` request it."""
    with postgres_server() as uri:
        yield uri


@pytest.fixture(params=KINDS)
def journal_home(request: pytest.FixtureRequest) -> Home:
    return home_of(request.param, request)


@pytest.fixture
def run_journal(journal_home: Home) -> Run:
    """Run a body on the journal; a second body finds what the first left on disk."""

    async def go(body: Body) -> None:
        async with journal_home.open() as scopes:
            await body(scopes(OWNER))

    return lambda body: asyncio.run(go(body))


@pytest.fixture(scope="session")
def zygote() -> Iterator[ForkServer]:
    made = ForkServer()
    yield made
    made.close()
