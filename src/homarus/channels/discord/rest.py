"""Call Discord's REST API. Nothing is retried here; errors say what is known.

A refusal (SendError) had no effect; after any other error the outcome is unknown.
"""

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final
from urllib.parse import urlencode

from homarus import __version__
from homarus.channels.base import BeforeWrite
from homarus.channels.service_client import ServiceClient, ServiceResponse, UploadFile
from homarus.core.errors import ChannelAuthError, ChannelError, SendError
from homarus.core.message import Json
from homarus.core.text import one_line

# The form that Discord demands; others may be refused.
USER_AGENT: Final = f"DiscordBot (https://github.com/homarus/homarus, {__version__})"
TIMEOUT_S: Final = 30.0
UPLOAD_TIMEOUT_S: Final = 240.0
_MAX_REASON_CHARS: Final = 300
THREAD_EXISTS: Final = 160_004  # the message has a thread already


class DiscordRefusedError(SendError):
    """Discord refused a request for good; `number` is its own code for the reason."""

    def __init__(self, message: str, status: int, number: int) -> None:
        super().__init__(message, retryable=False)
        self.status, self.number = status, number


class DiscordRest:
    """The REST API with the token of one bot."""

    def __init__(self, api_root: str, token: str, *, proxy: str = "") -> None:
        headers = {"Authorization": f"Bot {token}", "User-Agent": USER_AGENT}
        self._api = ServiceClient("Discord", api_root, headers, proxy=proxy)

    def in_use(self) -> AbstractAsyncContextManager[None]:
        """Keep connections open while the block lasts."""
        return self._api.in_use()

    async def get(self, path: str, **query: str | int) -> Json:
        """Return what a GET request answers."""
        return await self.call("GET", f"{path}?{urlencode(query)}" if query else path)

    async def call(
        self,
        method: str,
        path: str,
        data: Json = None,
        *,
        before_write: BeforeWrite | None = None,
        reason: str = "",
    ) -> Json:
        """Return the answer of a request. `reason` is for the audit log of a server."""
        headers = {"X-Audit-Log-Reason": _header(reason)} if reason else {}
        async with self.in_use():
            if data is None:
                answer = await self._api.request(
                    method, path, b"", headers, timeout_s=TIMEOUT_S, before_write=before_write
                )
            else:
                answer = await self._api.send_json(
                    method, path, data, timeout_s=TIMEOUT_S, before_write=before_write
                )
        return _result(answer)

    async def upload(
        self,
        path: str,
        payload: str,
        files: Mapping[str, UploadFile],
        before_write: BeforeWrite | None = None,
    ) -> Json:
        """Send a message with files; `payload` is its JSON."""
        async with self.in_use():
            answer = await self._api.send_form(
                path,
                {"payload_json": payload},
                files,
                timeout_s=UPLOAD_TIMEOUT_S,
                before_write=before_write,
            )
        return _result(answer)


def _result(answer: ServiceResponse) -> Json:
    if 200 <= answer.status < 300:
        return answer.data
    told = answer.data if isinstance(answer.data, dict) else {}
    number, reason = told.get("code"), told.get("message")
    shown = one_line(reason, _MAX_REASON_CHARS) if isinstance(reason, str) else ""
    if detail := _first_detail(told.get("errors")):
        shown = f"{shown}: {detail}"
    if answer.status == 401:
        raise ChannelAuthError(
            "Discord does not know this bot: its token was refused",
            fix="reset it in the developer portal; `homarus channels add discord --token -`",
        )
    if answer.status == 429:
        raise SendError(
            "Discord limits how fast we may write", retryable=True, after_s=_wait_s(answer, told)
        )
    if answer.status >= 500:
        raise ChannelError(f"Discord answered {answer.status} {shown}".rstrip())
    known = number if isinstance(number, int) else 0
    raise DiscordRefusedError(
        f"Discord refused it ({answer.status}): {shown or 'no reason given'}", answer.status, known
    )


def _wait_s(answer: ServiceResponse, told: Mapping[str, Json]) -> float | None:
    for value in (told.get("retry_after"), answer.headers.get("retry-after")):
        try:
            return float(str(value))
        except ValueError:
            continue
    return None


def _first_detail(errors: Json, depth: int = 0) -> str:
    """Return the first message of a tree of errors, as Discord gives them for a form."""
    if not isinstance(errors, dict) or depth > 8:
        return ""
    found = errors.get("_errors")
    if isinstance(found, list) and found and isinstance(found[0], dict):
        return one_line(str(found[0].get("message", "")), _MAX_REASON_CHARS)
    details = (_first_detail(each, depth + 1) for each in errors.values())
    return next((each for each in details if each), "")


def _header(text: str) -> str:
    from urllib.parse import quote  # the header is encoded like a URL

    return quote(one_line(text, 400), safe=" ")
