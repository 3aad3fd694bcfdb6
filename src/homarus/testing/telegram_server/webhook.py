"""Push updates to a bot's webhook in sequence, each until it is answered with success."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Final
from urllib.parse import urlsplit

from homarus.core.fast_dataclass import dataclass
from homarus.testing.telegram_server.state import Object

AGAIN_S: Final = 0.05  # the real one backs off
ANSWER_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Push:
    """A request to the bot and its answer; status 0: none."""

    update_id: int
    status: int


class Webhook:
    """One webhook. `hosts` maps addresses to real ones; each request is recorded in `pushes`."""

    def __init__(
        self,
        url: str,
        secret: str,
        hosts: Mapping[str, str],
        pushes: list[Push],
        changed: Callable[[], None],
    ) -> None:
        self.url = url
        self._secret, self._hosts = secret, hosts
        self._pushes, self._changed = pushes, changed

    async def push(self, pending: list[Object], news: asyncio.Event) -> None:
        """Push pending updates, forever."""
        while True:
            while not pending:
                news.clear()
                await news.wait()
            update = pending[0]
            status = await self._call(update)
            self._pushes.append(Push(update["update_id"], status))
            taken = 200 <= status < 300
            if taken:
                pending.remove(update)
            self._changed()
            if not taken:
                await asyncio.sleep(AGAIN_S)

    async def _call(self, update: Object) -> int:
        parts = urlsplit(self.url)
        real = urlsplit(self._hosts.get(f"{parts.scheme}://{parts.netloc}", self.url))
        body = json.dumps(update).encode()
        head = [
            f"POST {parts.path or '/'} HTTP/1.1",
            f"Host: {parts.netloc}",
            "Content-Type: application/json",
            f"Content-Length: {len(body)}",
            "Connection: close",
            *([f"X-Telegram-Bot-Api-Secret-Token: {self._secret}"] if self._secret else []),
        ]
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_connection(real.hostname, real.port or 80)
                try:
                    writer.write("\r\n".join([*head, "", ""]).encode() + body)
                    await writer.drain()
                    words = (await reader.readline()).split()
                    return int(words[1]) if len(words) > 1 else 0
                finally:
                    writer.transport.abort()
        except (OSError, TimeoutError, ValueError):
            return 0
