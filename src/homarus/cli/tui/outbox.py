"""Messages on their way: each keeps its idempotency key until the gateway has it.

One that is sent again after a lost connection has the same key, so that it is not accepted twice.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Literal
from uuid import uuid4

from homarus.cli.gateway_approver import CallMethod
from homarus.core.errors import (
    ForbiddenError,
    HomarusError,
    InvalidRequestError,
    NotPairedError,
    UnavailableError,
)
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json

_FINAL = (InvalidRequestError, ForbiddenError, NotPairedError)


@dataclass(frozen=True, slots=True)
class OutgoingFile:
    """A file that is sent with a message."""

    name: str
    mime: str
    content: str = field(repr=False)  # in base64
    size: int = 0


@dataclass(slots=True)
class OutgoingMessage:
    """A message that the history does not have yet."""

    run_id: str
    session_key: str
    text: str
    files: Sequence[OutgoingFile] = ()
    state: Literal["waiting", "sending", "sent", "refused"] = "waiting"
    error: str = ""
    added_s: float = field(default_factory=time.monotonic)


class Outbox:
    """Sends messages one after another, so that their order stays."""

    def __init__(self, call: CallMethod, on_change: Callable[[str], None]) -> None:
        self._call, self._on_change = call, on_change
        self.messages: list[OutgoingMessage] = []
        self.extra: dict[str, Json] = {}  # further params of every message
        self._is_sending = False

    def add(self, session_key: str, text: str, files: Sequence[OutgoingFile]) -> OutgoingMessage:
        """Add a message; `send_waiting` sends it."""
        message = OutgoingMessage(str(uuid4()), session_key, text, files)
        self.messages.append(message)
        self._on_change(session_key)
        return message

    def discard(self, run_id: str) -> None:
        """Forget a message that the history has, or that was refused."""
        self.messages = [each for each in self.messages if each.run_id != run_id]

    def of_session(self, session_key: str) -> list[OutgoingMessage]:
        return [each for each in self.messages if each.session_key == session_key]

    def on_disconnected(self) -> None:
        """Have what was being sent sent again: it may have arrived, and its key says so."""
        for each in self.messages:
            if each.state == "sending":
                each.state = "waiting"

    async def send_waiting(self) -> None:
        """Send the queued messages; return at the first that must be sent again later."""
        if self._is_sending:
            return
        self._is_sending = True
        try:
            while message := next((m for m in self.messages if m.state == "waiting"), None):
                if not await self._send(message):
                    return
        finally:
            self._is_sending = False

    async def _send(self, message: OutgoingMessage) -> bool:
        message.state = "sending"
        files: list[Json] = [
            {
                "type": "image" if each.mime.startswith("image/") else "file",
                "mimeType": each.mime,
                "fileName": each.name,
                "content": each.content,
            }
            for each in message.files
        ]
        params: dict[str, Json] = {
            "sessionKey": message.session_key,
            "message": message.text,
            "idempotencyKey": message.run_id,
            **self.extra,
            **({"attachments": files} if files else {}),
        }
        try:
            result = await self._call("chat.send", params)
        except _FINAL as exc:
            message.state, message.error = "refused", str(exc)
        except HomarusError as exc:
            is_lost = isinstance(exc, UnavailableError)
            message.state, message.error = ("waiting" if is_lost else "refused"), str(exc)
            if is_lost:
                return False
        else:
            message.state = "sent"
            if isinstance(result, dict) and "aborted" in result:  # a word that stops
                self.discard(message.run_id)
        self._on_change(message.session_key)
        return True
