"""Fixtures of the contract suites: the servers that some backends need, and every journal."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from homarus.core.principal import OWNER
from homarus.store.journal import Journal
from tests.contract.channel_fixtures import stage, synapse_and_people  # noqa: F401 - fixtures
from tests.contract.journals import KINDS, Home, Run, home_of, postgres_server
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

    @asynccontextmanager
    async def go() -> AsyncIterator[Journal]:
        async with journal_home.open() as scopes:
            yield scopes(OWNER)

    return go


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    made = ForkServer()
    yield made
    made.close()
