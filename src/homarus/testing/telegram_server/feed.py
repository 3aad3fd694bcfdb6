"""Deliver updates to the bot: by one poll at a time, or by a webhook, never both."""

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from homarus.core.message import Json
from homarus.testing.telegram_server.methods import FakeBotError, bad
from homarus.testing.telegram_server.state import DEFAULT_KINDS, TelegramState
from homarus.testing.telegram_server.webhook import Push, Webhook

MAX_POLL_S: Final = 50.0
_POLLING: Final = {"offset", "limit", "timeout", "allowed_updates"}
_PUSHING: Final = {
    "url", "secret_token", "allowed_updates", "max_connections", "drop_pending_updates",
}  # fmt: skip
_TWO_POLLS: Final = (
    "Conflict: terminated by other getUpdates request; make sure that only one bot instance is"
    " running"
)
_WEBHOOK: Final = (
    "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete"
    " the webhook first"
)


class UpdateFeed:
    """The pending updates of the bot."""

    def __init__(
        self,
        state: TelegramState,
        pushes: list[Push],
        hosts: Mapping[str, str],
        changed: Callable[[], None],
    ) -> None:
        self._state, self._pushes, self._hosts, self._changed = state, pushes, hosts, changed
        self._news = asyncio.Event()
        self._over = asyncio.Event()
        self._poll_ended: asyncio.Event | None = None  # set to end the poll that waits
        self._webhook: Webhook | None = None
        self._pusher: asyncio.Task[None] | None = None

    def notify(self) -> None:
        """Notify the poll or webhook of an update."""
        self._news.set()

    def end_wait(self) -> None:
        """End the waiting poll without updates, as if it had timed out."""
        self._over.set()
        self._news.set()

    async def get_updates(self, params: Mapping[str, Json]) -> Json:
        """Return the unconfirmed updates; wait when there are none."""
        _check(params, _POLLING)
        if self._webhook:
            raise FakeBotError(409, _WEBHOOK)
        self._allow(params)
        self._end_poll()
        mine = self._poll_ended = asyncio.Event()
        self._confirm(int(params.get("offset", 0)))
        try:
            await self._something(min(float(params.get("timeout", 0)), MAX_POLL_S), mine)
        finally:
            if self._poll_ended is mine:
                self._poll_ended = None
        return self._state.pending[: max(1, min(int(params.get("limit", 100)), 100))]

    def set_webhook(self, params: Mapping[str, Json], group: asyncio.TaskGroup) -> Json:
        """Push updates to the bot from now on."""
        _check(params, _PUSHING)
        url, secret = str(params.get("url", "")), str(params.get("secret_token", ""))
        if not url:
            return self.delete_webhook({})
        if urlsplit(url).scheme != "https":
            raise bad("bad webhook: An HTTPS URL must be provided for webhook")
        if not re.fullmatch(r"[A-Za-z0-9_-]{0,256}", secret):
            raise bad("secret token contains unallowed characters")
        self._allow(params)
        self.stop_pushing()
        self._end_poll()
        self._webhook = Webhook(url, secret, self._hosts, self._pushes, self._changed)
        self._pusher = group.create_task(self._webhook.push(self._state.pending, self._news))
        return True

    def delete_webhook(self, params: Mapping[str, Json]) -> Json:
        """Stop pushing."""
        _check(params, {"drop_pending_updates"})
        if params.get("drop_pending_updates") in {True, "true"}:
            self._state.pending.clear()
        self.stop_pushing()
        return True

    def webhook_info(self) -> Json:
        """Return the state of the webhook."""
        info: dict[str, Json] = {"url": "", "has_custom_certificate": False}
        info["pending_update_count"] = len(self._state.pending)
        if self._webhook:
            info |= {"url": self._webhook.url, "allowed_updates": list(self._state.allowed)}
        return info

    def stop_pushing(self) -> None:
        """End the webhook, if there is one."""
        self._webhook = None
        if self._pusher:
            self._pusher.cancel()
            self._pusher = None

    def _allow(self, params: Mapping[str, Json]) -> None:
        kinds = params.get("allowed_updates")
        if kinds is not None:
            self._state.allowed = tuple(kinds) or DEFAULT_KINDS

    def _confirm(self, offset: int) -> None:
        """Confirm the updates below the offset; a negative offset keeps that many from the end."""
        pending = self._state.pending
        if offset < 0:
            del pending[:offset]
        else:
            pending[:] = [one for one in pending if one["update_id"] >= offset]
        self._changed()

    def _end_poll(self) -> None:
        if self._poll_ended:
            self._poll_ended.set()

    async def _something(self, wait_s: float, ended: asyncio.Event) -> None:
        """Wait for an update or the timeout; fail when another poll starts."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                self._over.clear()
                while not self._state.pending and not self._over.is_set():
                    self._news.clear()
                    async with asyncio.TaskGroup() as group:
                        waits = [group.create_task(one.wait()) for one in (self._news, ended)]
                        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                        for wait in waits:
                            wait.cancel()
                    if ended.is_set():
                        raise FakeBotError(409, _TWO_POLLS)


def _check(params: Mapping[str, Json], takes: set[str]) -> None:
    if unknown := set(params) - takes:
        raise bad(f"no parameter is called {sorted(unknown)} (the fake is strict here)")
