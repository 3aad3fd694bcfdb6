"""A test server with a task for each connection, all of which end with it."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Self, TypeAlias

Talk: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]


class StreamServer:
    """An async context manager; `talk` handles a connection, which is closed afterwards."""

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
        await self.disconnect_all()
        # Without the test's own exception, which would come back wrapped in a group.
        await self._group.__aexit__(None, None, None)
        await _turn()  # the last sockets are closed

    async def listen(self) -> None:
        """Accept clients, on the previous port if there was one."""
        self._server = await asyncio.start_server(
            self._accept, self._host, self._port, limit=1 << 20
        )
        self._port = self._server.sockets[0].getsockname()[1]

    async def disconnect_all(self) -> None:
        """Stop accepting and cut all connections, as if the service was down."""
        if self._server is not None:
            self._server.close()
        await _turn()  # a connection accepted a moment ago gets its task
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
    """Let the loop run the callbacks that are scheduled."""
    for _ in range(5):
        await asyncio.sleep(0)


def serve(server: StreamServer) -> None:
    """Print the URL, from which a parent process learns the port; serve until stopped."""

    async def live() -> None:
        async with server:
            sys.stdout.write(f"{server.url}\n")
            sys.stdout.flush()
            await asyncio.Event().wait()

    with suppress(KeyboardInterrupt):
        asyncio.run(live())
