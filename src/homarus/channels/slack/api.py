"""Call Slack's Web API, and classify its errors.

Calls are forms, which every method of Slack accepts. Nothing is retried here: a call that Slack
refused had no effect, and the error class says whether a retry is useful. A token is sent to the
API's own address and, for files, to hosts of Slack alone.
"""

import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final
from urllib.parse import urlencode, urlsplit

from homarus.channels.base import BeforeWrite
from homarus.channels.service_client import (
    CONNECT_TIMEOUT_S,
    RESPONSE_TIMEOUT_S,
    ServiceClient,
    ServiceResponse,
)
from homarus.channels.slack.fields import as_object, get_object, get_str
from homarus.channels.slack.settings import API_ROOT
from homarus.core.errors import ChannelAuthError, ChannelError, SendError
from homarus.core.message import Json
from homarus.core.text import one_line, repair_surrogates

UPLOAD_TIMEOUT_S: Final = 120.0
_FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}
_AUTH: Final = frozenset(
    {
        "account_inactive", "invalid_auth", "not_allowed_token_type", "not_authed",
        "org_login_required", "token_expired", "token_revoked",
    }
)  # fmt: skip
_TEMPORARY: Final = frozenset(
    {"rate_limited", "ratelimited", "request_timeout", "service_unavailable", "team_added_to_org"}
)
_UNCLEAR: Final = frozenset({"fatal_error", "internal_error"})  # it may have had its effect
_INVITE: Final = "invite the bot: write /invite @bot in the channel"
_FIXES: Final = {
    "channel_not_found": f"check the id, or {_INVITE}",
    "not_in_channel": _INVITE,
    "is_archived": "unarchive the channel, or use another",
    "restricted_action": "a setting of the workspace forbids it: ask its administrator",
    "msg_too_long": "send less text",
    "user_not_found": "check the person's id, U…",
    "users_not_found": "check the person's id, U…",
    "cannot_dm_bot": "a bot cannot write to another bot",
    "user_disabled": "the person's account is gone",
    "message_not_found": "the message is gone",
    "cant_update_message": "only messages of the bot can be edited",
    "cant_delete_message": "only messages of the bot can be deleted",
    "edit_window_closed": "the workspace allows edits for a time only",
    "invalid_name": "Slack has no emoji of that name",
    "no_reaction": "there is no such reaction",
}


class SlackRefusedError(SendError):
    """Slack refused permanently; `error` is its code."""

    def __init__(self, method: str, error: str, *, fix: str = "") -> None:
        super().__init__(f"Slack refused {method}: {error}", retryable=False, fix=fix)
        self.error = error


class SlackClient:
    """The calls of one account."""

    def __init__(self, root: str, token: str) -> None:
        self._root = urlsplit(root)
        self._api = ServiceClient("Slack", root, {"Authorization": f"Bearer {token}"})
        self._token = token
        self.scopes = ""  # of the token, by Slack's last response

    def in_use(self) -> AbstractAsyncContextManager[None]:
        """Keep connections open while the block lasts."""
        return self._api.in_use()

    async def call(
        self,
        method: str,
        params: Mapping[str, Json] | None = None,
        *,
        token: str = "",
        before_write: BeforeWrite | None = None,
    ) -> Mapping[str, Json]:
        """Return the response of a method; `token` is another than the bot's."""
        headers = _FORM | ({"Authorization": f"Bearer {token}"} if token else {})
        async with self.in_use():
            response = await self._api.request(
                "POST",
                f"/{method}",
                _encode(params or {}),
                headers,
                timeout_s=max(RESPONSE_TIMEOUT_S, CONNECT_TIMEOUT_S + 5),
                before_write=before_write,
            )
        if not token:
            self.scopes = response.headers.get("x-oauth-scopes", self.scopes)
        return _result(method, response)

    async def upload(self, url: str, content: bytes) -> None:
        """Upload a file to an address that Slack gave for it, which needs no token."""
        client, target = self._file_client(url, with_token=False)
        try:
            kind = {"Content-Type": "application/octet-stream"}
            response = await client.request(
                "POST", target, content, kind, timeout_s=UPLOAD_TIMEOUT_S
            )
        except ChannelError as exc:  # no one sees a file that was not completed
            raise SendError(f"the upload to Slack failed: {exc}", retryable=True) from exc
        finally:
            await client.close()
        if response.status != 200:
            raise SendError(f"Slack refused an upload: {response.status}", retryable=True)

    async def download(self, url: str, max_bytes: int) -> bytes:
        """Return a file. Raises MediaTooLargeError and ChannelError."""
        client, target = self._file_client(url, with_token=True)
        try:
            response = await client.download(target, max_bytes)
        finally:
            await client.close()
        if response.status != 200 or _is_login_page(url, response):
            raise ChannelError(
                f"Slack does not give the file: {response.status}",
                fix="give the app the scope files:read, and install it again",
            )
        return response.body

    def is_trusted(self, url: str, scheme: str = "https") -> bool:
        """Return whether an address is one of Slack, or of the configured server."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname or "", parts.port
        except ValueError:
            return False
        if self._root.geturl() != API_ROOT:
            # A server of the config serves everything itself.
            own = self._root.scheme.replace("http", "ws") if scheme == "wss" else self._root.scheme
            return (parts.scheme, parts.netloc) == (own, self._root.netloc)
        is_slack = host == "slack.com" or host.endswith(".slack.com")
        return parts.scheme == scheme and is_slack and port in {None, 443} and not parts.username

    def _file_client(self, url: str, *, with_token: bool) -> tuple[ServiceClient, str]:
        if not self.is_trusted(url):
            raise SendError("Slack named an address that is not its own", retryable=False)
        parts = urlsplit(url)
        headers = {"Authorization": f"Bearer {self._token}"} if with_token else {}
        target = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
        return ServiceClient("Slack", f"{parts.scheme}://{parts.netloc}", headers), target


def _encode(params: Mapping[str, Json]) -> bytes:
    fields = {name: _field(value) for name, value in params.items() if value is not None}
    return urlencode(fields).encode("ascii")


def _field(value: Json) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list | tuple):
        return repair_surrogates(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
    return repair_surrogates(str(value))


def _is_login_page(url: str, response: ServiceResponse) -> bool:
    """Return whether a page came instead of the file: Slack asks a browser to log in."""
    is_page = response.headers.get("content-type", "").startswith("text/html")
    return is_page and not urlsplit(url).path.lower().endswith((".html", ".htm"))


def _result(method: str, response: ServiceResponse) -> Mapping[str, Json]:
    if response.status == 429:
        raise _rate_limit(method, response)
    payload = as_object(response.data)
    if not isinstance(payload.get("ok"), bool):
        raise _foreign(method, response.status)
    if response.status >= 500:
        raise ChannelError(f"{method}: Slack failed with {response.status}")
    if payload["ok"]:
        return payload
    error = one_line(get_str(payload, "error") or "no reason given", 100)
    if error in _AUTH:
        raise ChannelAuthError(
            f"Slack refused the token: {error}",
            fix="copy the token from api.slack.com/apps, `homarus channels add slack --token -`",
        )
    if error in _TEMPORARY:
        raise _rate_limit(method, response, error)
    if error in _UNCLEAR:
        raise ChannelError(f"{method}: Slack failed: {error}")
    raise SlackRefusedError(method, error, fix=_fix(error, payload))


def _fix(error: str, payload: Mapping[str, Json]) -> str:
    if error == "missing_scope":
        needed = get_str(payload, "needed") or "it names"
        return f"give the app the scope {needed} (OAuth & Permissions), and install it again"
    messages = get_object(payload, "response_metadata").get("messages")
    detail = one_line(str(messages[0]), 200) if isinstance(messages, list) and messages else ""
    return _FIXES.get(error, detail)


def _rate_limit(method: str, response: ServiceResponse, error: str = "ratelimited") -> SendError:
    given = response.headers.get("retry-after", "")
    after_s = float(given) if given.isdigit() and len(given) < 7 else None
    return SendError(f"Slack refused {method}: {error}", retryable=True, after_s=after_s)


def _foreign(method: str, status: int) -> ChannelError:
    """Return the error for a response that is not Slack's, such as a proxy's."""
    message = f"{method}: {status} came back, and not from Slack's API"
    if 400 <= status < 500:
        return SendError(message, retryable=True)  # Slack did not see it
    return ChannelError(message)
