"""A fork server for each worker, and rigs that are closed after their test."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.contract.channel_fixtures import stage, synapse_and_people  # noqa: F401 - fixtures
from tests.crash.harness import ForkServer, Launch, Rig

MakeRig: TypeAlias = Callable[..., Rig]


@pytest.fixture(scope="session")
def fork_server() -> Iterator[ForkServer]:
    made = ForkServer()
    yield made
    made.close()


@pytest.fixture
def launch(fork_server: ForkServer) -> Launch:
    return fork_server.fork


@pytest.fixture
def make_rig(launch: Launch, tmp_path: Path) -> Iterator[MakeRig]:
    made: list[Rig] = []

    def make(**options: Any) -> Rig:
        made.append(Rig(launch, tmp_path / f"rig-{len(made)}", **options))
        return made[-1]

    yield make
    for rig in made:
        rig.close()
