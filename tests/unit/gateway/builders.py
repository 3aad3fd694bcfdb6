"""Fake channel control and outbox without channels, and an account with a webhook."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from homarus.channels.base import ServeWebhook, SupportsWebhook, WebhookRequest, WebhookResponse
from homarus.channels.messenger import resolve_address
from homarus.channels.signatures import verify_telegram
from homarus.core.chat_action import ChatAction
from homarus.core.errors import ChannelError, StoreError, ToolError
from homarus.core.message import Address, Extras, Json, Media, Poll
from homarus.policy.workspace_access import WorkspaceAccess
from homarus.store.base import Store
from homarus.store.journal import OutboxRecord
from homarus.tools.tool import SendResult

if TYPE_CHECKING:
    from homarus.channels.controller import AccountStatus

PATH = "/hook/test"
SECRET = "hook-secret"


class Ear:
    """An account with a webhook; while `open` is cleared it is slow to store messages."""

    def __init__(self, path: str = PATH) -> None:
        self.path = path
        self.heard: list[bytes] = []
        self.requests: list[WebhookRequest] = []
        self.admitted: list[Mapping[str, str]] = []
        self.open = asyncio.Event()
        self.open.set()
        self.status = 200
        self.response: WebhookResponse | None = None
        self.failure: Exception | None = None

    def verify_request(self, request: WebhookRequest) -> bool:
        self.admitted.append(request.headers)
        return verify_telegram(request.headers, SECRET)

    async def handle_webhook(self, request: WebhookRequest) -> WebhookResponse:
        await self.open.wait()
        if self.failure:
            raise self.failure
        try:
            json.loads(request.body or "null")
        except ValueError:
            return WebhookResponse(400)
        self.heard.append(request.body)
        self.requests.append(request)
        return self.response or WebhookResponse(self.status)


class FullDiskError(StoreError):
    """A disk on which nothing can be stored."""


class FakeChannelControl:
    """Channel control with the accounts that a test adds."""

    def __init__(self) -> None:
        self.lines: tuple[AccountStatus, ...] = ()
        self.ears: dict[str, SupportsWebhook] = {}
        self.probes: dict[tuple[str, str], str | ChannelError] = {}
        self.stopped: list[tuple[str, str]] = []
        self.key_actions: list[tuple[str, str, str, Mapping[str, Json]]] = []
        self.key_error: Exception | None = None

    async def run_key_action(
        self, channel: str, account: str, name: str, params: Mapping[str, Json]
    ) -> dict[str, Json]:
        self.key_actions.append((channel, account, name, params))
        if self.key_error:
            raise self.key_error
        return {"did": name}

    def listen(self, ear: Ear) -> Ear:
        self.ears[ear.path] = ear
        return ear

    def status(self) -> "tuple[AccountStatus, ...]":
        return self.lines

    async def probe(self, channel: str, account: str) -> str:
        found = self.probes[channel, account]
        if isinstance(found, ChannelError):
            raise found
        return found

    async def start(self, channel: str, account: str) -> None:
        self.stopped.append((f"start {channel}", account))

    async def stop(self, channel: str, account: str) -> None:
        self.stopped.append((channel, account))

    def find_webhook(self, path: str) -> SupportsWebhook | None:
        return self.ears.get(path)

    def set_webhook_server(self, serve: ServeWebhook) -> None:
        self.serve_webhook = serve


class FakeMessenger:
    """Accepts messages into the outbox; `outcome` is their fate."""

    def __init__(self, store: Store, board: FakeChannelControl) -> None:
        self._store, self._board = store, board
        self.outcome = SendResult("sent", "m0")
        self.posted: list[tuple[Address, str, Extras, str]] = []
        self.polls: list[tuple[Address, Poll, str]] = []
        self.actions: list[tuple[Address, ChatAction]] = []

    def accounts(self) -> Sequence[tuple[str, str]]:
        return [(line.channel, line.account) for line in self._board.lines]

    def resolve_address(
        self,
        target: str,
        *,
        channel: str = "",
        account: str = "",
        thread: str = "",
        here: Address | None = None,
    ) -> Address:
        return resolve_address(
            target, self.accounts(), channel=channel, account=account, thread=thread, here=here
        )

    async def is_known_chat(self, agent: str, to: Address) -> bool:
        return True

    async def attach(
        self, names: Sequence[str], workspace: Path, access: WorkspaceAccess
    ) -> tuple[Media, ...]:
        there = {name for name in names if (workspace / name).is_file()}
        return tuple(
            Media(name=name, problem="" if name in there else "there is no such file")
            for name in names
        )

    async def send(self, to: Address, text: str, extras: Extras, key: str) -> SendResult:
        async with self._store.journal.transaction() as unit:
            unit.enqueue(OutboxRecord(f"{key}:0", key, to, text, 1, 2))
        self.posted.append((to, text, extras, key))
        return self.outcome

    async def send_poll(self, to: Address, poll: Poll, extras: Extras, key: str) -> SendResult:
        self.polls.append((to, poll, key))
        return self.outcome

    async def react(self, to: Address, message_id: str, emoji: str) -> None:
        raise ToolError("there is nothing to react to")

    async def run_chat_action(self, to: Address, action: ChatAction) -> dict[str, Json]:
        if to.channel != "telegram":
            raise ToolError(f"{to.channel} has no {action.name}", fix="telegram can")
        self.actions.append((to, action))
        return {"messageId": action.message_id}

    async def edit(self, to: Address, message_id: str, text: str) -> None:
        raise ToolError("there is nothing to edit")

    async def delete(self, to: Address, message_id: str) -> None:
        raise ToolError("there is nothing to delete")
