"""What every lease guarantees, of a store or of a journal alone."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TypeAlias

from homarus.store.journal import Lease

Leases: TypeAlias = Callable[[str], AbstractAsyncContextManager[Lease]]


async def check_that_one_holds(lease: Leases) -> list[int]:
    """Let ten tasks take one lease and then two take others; return all tokens in order."""
    holders, tokens = 0, list[int]()

    async def hold() -> None:
        nonlocal holders
        async with lease("session:x") as held:
            holders += 1
            assert holders == 1
            await asyncio.sleep(0)
            tokens.append(held.token)
            assert held.name == "session:x"
            holders -= 1

    async with asyncio.TaskGroup() as group:
        for _ in range(10):
            group.create_task(hold())
    async with lease("a") as first, lease("b") as second:
        assert second.token > first.token > tokens[-1]
        tokens += [first.token, second.token]
    assert tokens == sorted(set(tokens)) and len(tokens) == 12
    return tokens


async def check_cancelled_holder_releases(lease: Leases, within_s: float) -> None:
    held = asyncio.Event()

    async def hold() -> None:
        async with lease("x"):
            held.set()
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as group:
        task = group.create_task(hold())
        await held.wait()
        waiting = group.create_task(hold())
        await asyncio.sleep(0)
        waiting.cancel()
        task.cancel()
    async with asyncio.timeout(within_s), lease("x"):
        pass
