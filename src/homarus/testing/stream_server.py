"""A server of a test: a task for each connection, and none of them left when it ends."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Self, TypeAlias

Talk: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


class StreamServer:
    """`async with` it; `talk` is what it does with a connection, which is cut off afterwards."""

    def __init__(self, talk: Talk, host: str, port: int) -> None:
        self._talk_to, self._host, self._port = talk, host, port
        self._group = asyncio.TaskGroup()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def url(self) -> str:
        return f"http://{self._host}:{self._port}"

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        await self.listen()
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self.hang_up()
        # Not told of the test's own exception: it would come back wrapped in a group.
        await self._group.__aexit__(None, None, None)
        await _turn()  # the last sockets are closed

    async def listen(self) -> None:
        """Let clients in, on the port there was, if there was one."""
        self._server = await asyncio.start_server(
            self._accept, self._host, self._port, limit=1 << 20
        )
        self._port = self._server.sockets[0].getsockname()[1]

    async def hang_up(self) -> None:
        """Let nobody in, and cut off who is there: as if the service was down."""
        if self._server is not None:
            self._server.close()
        await _turn()  # who was let in a moment ago gets a task
        for task in self._tasks:
            task.cancel()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._group.create_task(self._talk_to(reader, writer))
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            writer.transport.abort()  # also when it was cancelled before it began

        task.add_done_callback(done)


async def _turn() -> None:
    """Let the loop come round, so that what was asked of it is done."""
    for _ in range(5):
        await asyncio.sleep(0)


def serve(server: StreamServer) -> None:
    """Print the URL, by which a parent process learns the port; serve until stopped."""

    async def live() -> None:
        async with server:
            sys.stdout.write(f"{server.url}\n")
            sys.stdout.flush()
            await asyncio.Event().wait()

    with suppress(KeyboardInterrupt):
        asyncio.run(live())
