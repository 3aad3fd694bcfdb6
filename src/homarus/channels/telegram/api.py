"""Call the Bot API, and classify its errors.

The token is part of every URL, so no URL is logged. A call that Telegram refused had no effect; the
error class says whether a retry is useful.
"""

import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final

from homarus.channels.base import BeforeWrite
from homarus.channels.service_client import (
    CONNECT_TIMEOUT_S,
    ServiceClient,
    ServiceResponse,
    UploadFile,
    quote_path,
)
from homarus.channels.telegram.fields import get_int
from homarus.core.errors import ChannelAuthError, ChannelError, SendError
from homarus.core.message import Json

UPLOAD_TIMEOUT_S: Final = 120.0
# A timeout while connecting has sent nothing, and must be known as such: it ends first.
MIN_RESPONSE_S: Final = CONNECT_TIMEOUT_S + 5
_NEW_TOKEN: Final = "copy the token anew from @BotFather, `homarus channels add telegram --token -`"  # noqa: S105 - words
# Telegram's messages, in lower case, and what to do.
_FIXES: Final = (
    ("bot was blocked by the user", "they must unblock the bot in Telegram"),
    ("can't initiate conversation", "they must write to the bot first"),
    ("can't send messages to bots", "a bot cannot write to another bot"),
    ("user is deactivated", "the account is gone"),
    ("bot was kicked", "add the bot to the chat again"),
    ("bot is not a member", "add the bot to the chat"),
    ("chat not found", "check the chat's id; a person must have written to the bot first"),
    ("message thread not found", "the topic is gone: take another"),
    ("topic_closed", "the topic is closed: open it, or let the bot manage topics"),
    ("not enough rights", "give the bot the right to do this in the chat's settings"),
    ("have no rights", "give the bot the right to do this in the chat's settings"),
    ("bad webhook", "webhookUrl must be https, on port 443, 80, 88 or 8443, for all to reach"),
    ("reaction_invalid", "Telegram has a list of its own of emoji to react with"),
)


class TelegramRefusedError(SendError):
    """Telegram refused permanently; `moved_to` is the new id of a migrated group."""

    def __init__(self, message: str, reason: str, *, status: int, moved_to: str, fix: str) -> None:
        super().__init__(message, retryable=False, fix=fix)
        self.reason, self.status, self.moved_to = reason.lower(), status, moved_to

    @property
    def is_unknown_method(self) -> bool:
        return self.status == 404


class BotApiClient:
    """The calls of one bot."""

    def __init__(
        self,
        root: str,
        token: str,
        *,
        timeout_s: float,
        proxy: str = "",
        tries_in_parallel: bool = True,
    ) -> None:
        self._api = ServiceClient(
            "Telegram", root, proxy=proxy, tries_in_parallel=tries_in_parallel
        )
        self._calls, self._files = f"/bot{token}/", f"/file/bot{token}"
        self._timeout_s = max(timeout_s, MIN_RESPONSE_S)

    def in_use(self) -> AbstractAsyncContextManager[None]:
        """Keep connections open while the block lasts."""
        return self._api.in_use()

    async def call(
        self,
        method: str,
        params: Mapping[str, Json] | None = None,
        *,
        wait_s: float = 0.0,
        before_write: BeforeWrite | None = None,
    ) -> Json:
        """Return the result of a call; `wait_s` is its long-poll time."""
        async with self.in_use():
            answer = await self._api.send_json(
                "POST",
                self._calls + method,
                params or {},
                timeout_s=self._timeout_s + wait_s,
                before_write=before_write,
            )
        return _result(method, answer)

    async def upload(
        self,
        method: str,
        params: Mapping[str, Json],
        field: str,
        file: UploadFile,
        before_write: BeforeWrite | None = None,
    ) -> Json:
        """Call a method with a file."""
        fields = {
            name: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            for name, value in params.items()
        }
        upload_timeout_s = max(self._timeout_s, UPLOAD_TIMEOUT_S)
        async with self.in_use():
            answer = await self._api.send_form(
                self._calls + method,
                fields,
                {field: file},
                timeout_s=upload_timeout_s,
                before_write=before_write,
            )
        return _result(method, answer)

    async def download(self, file_path: str, max_bytes: int) -> bytes:
        """Return a file that `getFile` named."""
        async with self.in_use():
            path = self._files + quote_path(*file_path.split("/"))
            answer = await self._api.download(path, max_bytes)
        if answer.status != 200:
            raise ChannelError(f"Telegram did not give the file: it answered {answer.status}")
        return answer.body


def _result(method: str, answer: ServiceResponse) -> Json:
    payload = answer.data
    if not isinstance(payload, dict) or not isinstance(payload.get("ok"), bool):
        raise _stranger(method, answer.status)
    if payload["ok"]:
        return payload.get("result")
    code = payload.get("error_code")
    status = code if isinstance(code, int) and code >= 400 else answer.status
    reason = str(payload.get("description") or "no reason given")[:500]
    parameters = payload.get("parameters")
    raise _refusal(method, status, reason, parameters if isinstance(parameters, dict) else {})


def _stranger(method: str, status: int) -> ChannelError:
    """Return the error for a response that is not the Bot API's, such as a proxy's."""
    message = f"{method}: {status} came back, and not from the Bot API"
    if status == 413:
        return SendError(message, retryable=False, fix="the file is too large")
    if 400 <= status < 500:
        return SendError(message, retryable=True)  # whoever refused it, Telegram did not see it
    return ChannelError(message)


def _refusal(method: str, status: int, reason: str, parameters: Mapping[str, Json]) -> ChannelError:
    message = f"Telegram refused {method}: {reason}"
    lowered = reason.lower()
    if status == 401 or (status == 404 and method == "getMe"):
        return ChannelAuthError(f"Telegram does not know this bot: {reason}", fix=_NEW_TOKEN)
    if status == 409:
        return _conflict(lowered, message)
    if status == 429:
        after_s = float(max(0, get_int(parameters, "retry_after"))) or None
        return SendError(message, retryable=True, after_s=after_s)
    if status >= 500:
        return ChannelError(message)  # it may have had its effect
    moved = parameters.get("migrate_to_chat_id")
    fix = next((help_ for sign, help_ in _FIXES if sign in lowered), "")
    return TelegramRefusedError(message, reason, status=status, moved_to=str(moved or ""), fix=fix)


def _conflict(lowered: str, message: str) -> ChannelError:
    if "webhook" in lowered:
        return ChannelError(message, fix="another program set a webhook for this bot: stop it")
    return ChannelError(
        "another program polls with this token: Telegram gives each message to one of them",
        fix="stop the other one, or give one of them a bot of its own",
    )
