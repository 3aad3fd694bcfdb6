"""Call the client-server API of one homeserver, and classify its errors.

A permanent refusal is MatrixRefusedError, with its error code; a temporary one is SendError
with the time to wait. A response that is not the homeserver's JSON, such as a proxy's, leaves the
outcome unknown: ChannelError.
"""

import re
from collections.abc import Mapping
from typing import Final, TypeAlias
from urllib.parse import urlencode

from homarus.channels.base import BeforeWrite
from homarus.channels.service_client import (
    RESPONSE_TIMEOUT_S,
    ServiceClient,
    ServiceResponse,
    quote_path,
)
from homarus.core.errors import ChannelAuthError, ChannelError, SendError
from homarus.core.message import Json
from homarus.core.text import one_line

Object: TypeAlias = Mapping[str, Json]

CLIENT: Final = "/_matrix/client/v3"
CLIENT_V1: Final = "/_matrix/client/v1"  # newer versions of the API
MEDIA: Final = ("/_matrix/client/v1/media", "/_matrix/media/v3")  # current and old path
LOGGED_OUT: Final = frozenset(
    {"M_UNKNOWN_TOKEN", "M_MISSING_TOKEN", "M_USER_DEACTIVATED", "M_USER_LOCKED"}
)
_FILE: Final = re.compile(r"mxc://([A-Za-z0-9\[][A-Za-z0-9.:\[\]-]*)/([A-Za-z0-9_-]+)")
UPLOAD_TIMEOUT_S: Final = 4 * RESPONSE_TIMEOUT_S


class MatrixRefusedError(SendError):
    """The homeserver refused permanently; `errcode` is its reason."""

    def __init__(self, message: str, errcode: str) -> None:
        super().__init__(message, retryable=False)
        self.errcode = errcode


class HomeserverClient:
    """The requests of one account. `renewable`: a refused token can be replaced by login."""

    def __init__(
        self, base_url: str, token: str = "", *, proxy: str = "", renewable: bool = False
    ) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else None
        self._api = ServiceClient("Matrix", base_url, headers, proxy=proxy)
        self._renewable = renewable

    async def get(
        self,
        *steps: str,
        query: Mapping[str, str | int] | None = None,
        base: str = CLIENT,
        timeout_s: float = RESPONSE_TIMEOUT_S,
    ) -> Object:
        """Send a GET request."""
        path = f"{base}{quote_path(*steps)}"
        target = f"{path}?{urlencode(query)}" if query else path
        return self._check_response(await self._api.request("GET", target, timeout_s=timeout_s))

    async def put(
        self, *steps: str, data: Object, before_write: BeforeWrite | None = None
    ) -> Object:
        """Send a PUT request: idempotent by its path."""
        path = f"{CLIENT}{quote_path(*steps)}"
        return self._check_response(
            await self._api.send_json("PUT", path, data, before_write=before_write)
        )

    async def post(
        self,
        *steps: str,
        data: Object,
        query: Mapping[str, str | int] | None = None,
        timeout_s: float = RESPONSE_TIMEOUT_S,
    ) -> Object:
        """Send a POST request."""
        path = f"{CLIENT}{quote_path(*steps)}"
        path = f"{path}?{urlencode(query)}" if query else path
        return self._check_response(
            await self._api.send_json("POST", path, data, timeout_s=timeout_s)
        )

    async def upload(self, content: bytes, mime: str, name: str) -> str:
        """Upload a file and return its mxc:// URI."""
        path = f"/_matrix/media/v3/upload?filename={quote_path(name)[1:]}"
        kind = {"Content-Type": mime or "application/octet-stream"}
        answer = await self._api.request("POST", path, content, kind, timeout_s=UPLOAD_TIMEOUT_S)
        url = get_str(self._check_response(answer), "content_uri")
        if not url:
            raise ChannelError("Matrix took a file and did not say what it is called")
        return url

    async def download(self, mxc: str, max_bytes: int) -> bytes:
        """Return a file by its mxc:// URI. Raises MediaTooLargeError early."""
        found = _FILE.fullmatch(mxc)
        if not found:
            raise ChannelError("the file's name is not one of Matrix (mxc://server/id)")
        for place in MEDIA:
            path = f"{place}{quote_path('download', *found.groups())}"
            answer = await self._api.download(path, max_bytes)
            if answer.status == 200:
                return answer.body
            if answer.status != 404:
                break
        self._check_response(answer)
        raise ChannelError(f"Matrix answered {answer.status} for a file")

    async def upload_max_bytes(self) -> int:
        """Return the maximum size of a file; 0 when the homeserver has none."""
        for place in MEDIA:
            answer = await self._api.get(f"{place}/config")
            if answer.status == 200:
                return get_int(self._check_response(answer), "m.upload.size")
        return 0

    async def close(self) -> None:
        """Close all connections."""
        await self._api.close()

    def _check_response(self, answer: ServiceResponse) -> Object:
        if 200 <= answer.status < 300 and isinstance(answer.data, dict):
            return answer.data
        body: Object = answer.data if isinstance(answer.data, dict) else {}
        errcode = get_str(body, "errcode")
        if not errcode and answer.status == 413:  # of a proxy, as often for large files
            raise SendError("Matrix takes nothing so large", retryable=False)
        if not errcode or answer.status >= 500:
            raise ChannelError(f"Matrix answered {answer.status}, which says nothing")
        told = f"Matrix refused it ({errcode}): {one_line(get_str(body, 'error'), 200)}"
        if errcode in LOGGED_OUT:
            if self._renewable:
                raise ChannelError(f"{told}; it will be signed in again")
            raise ChannelAuthError(told, fix="give it a new accessToken")
        if answer.status == 429 or errcode == "M_LIMIT_EXCEEDED":
            raise SendError(told, retryable=True, after_s=_after_s(body, answer))
        raise MatrixRefusedError(told, errcode)


def _after_s(body: Object, answer: ServiceResponse) -> float | None:
    if after_ms := get_int(body, "retry_after_ms"):
        return after_ms / 1000
    header = answer.headers.get("retry-after", "")
    return float(header) if header.isdecimal() else None


# Any user of any server may have written these: of any shape.


def get_str(data: Object, key: str) -> str:
    """Return a storable text; "" if the value is none."""
    found = data.get(key)
    if not isinstance(found, str):
        return ""
    return found if found.isascii() else found.encode("utf-8", "replace").decode("utf-8")


def get_int(data: Object, key: str) -> int:
    """Return a non-negative integer; 0 if the value is none."""
    found = data.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


def get_object(data: Object, *keys: str) -> Object:
    """Return a nested object; an empty one if it is none."""
    for key in keys:
        found = data.get(key)
        data = found if isinstance(found, dict) else {}
    return data


def get_objects(data: Object, key: str) -> list[Object]:
    """Return the objects of a list."""
    found = data.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
