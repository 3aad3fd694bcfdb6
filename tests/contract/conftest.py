"""What the contract suites share: the servers that some backends need."""

from collections.abc import Iterator

import pytest

from tests.contract.journals import postgres_server


@pytest.fixture(scope="session")
def postgres_uri() -> Iterator[str]:
    """Only the tests marked `peers` ask for it."""
    with postgres_server() as uri:
        yield uri
