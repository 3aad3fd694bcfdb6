"""One homeserver, asked by its client-server API: what it says, or the error that says why not.

What it refuses for good is `Refused`, with the code it gave; what it refuses for now is
`SendFailed` with the time it asks for. Anything that is not its own JSON, as of a proxy before
it, leaves open what happened: `ChannelError`.
"""

import re
from collections.abc import Mapping
from typing import Final, TypeAlias
from urllib.parse import urlencode

from homarus.channels.http import ANSWER_S, Answer, Api, path_of
from homarus.core.errors import ChannelAuthFailed, ChannelError, SendFailed
from homarus.core.message import Json
from homarus.core.text import one_line

Object: TypeAlias = Mapping[str, Json]

CLIENT: Final = "/_matrix/client/v3"
CLIENT_V1: Final = "/_matrix/client/v1"  # what is younger
MEDIA: Final = ("/_matrix/client/v1/media", "/_matrix/media/v3")  # today's place, then the old one
LOGGED_OUT: Final = frozenset(
    {"M_UNKNOWN_TOKEN", "M_MISSING_TOKEN", "M_USER_DEACTIVATED", "M_USER_LOCKED"}
)
_FILE: Final = re.compile(r"mxc://([A-Za-z0-9\[][A-Za-z0-9.:\[\]-]*)/([A-Za-z0-9_-]+)")
UPLOAD_S: Final = 4 * ANSWER_S


class Refused(SendFailed):
    """The homeserver said no, and will again; `errcode` is its own word for why."""

    def __init__(self, message: str, errcode: str) -> None:
        super().__init__(message, retryable=False)
        self.errcode = errcode


class Homeserver:
    """One account's requests. `renewable`: a token that is refused can be had anew."""

    def __init__(
        self, base_url: str, token: str = "", *, proxy: str = "", renewable: bool = False
    ) -> None:
        headers = {"Authorization": f"Bearer {token}"} if token else None
        self._api = Api("Matrix", base_url, headers, proxy=proxy)
        self._renewable = renewable

    async def get(
        self,
        *steps: str,
        query: Mapping[str, str | int] | None = None,
        base: str = CLIENT,
        answer_s: float = ANSWER_S,
    ) -> Object:
        """Ask for something."""
        path = f"{base}{path_of(*steps)}"
        target = f"{path}?{urlencode(query)}" if query else path
        return self._said(await self._api.ask("GET", target, answer_s=answer_s))

    async def put(self, *steps: str, data: Object) -> Object:
        """Set something, or do it once however often it is asked."""
        return self._said(await self._api.send_json("PUT", f"{CLIENT}{path_of(*steps)}", data))

    async def post(self, *steps: str, data: Object, answer_s: float = ANSWER_S) -> Object:
        """Do something."""
        path = f"{CLIENT}{path_of(*steps)}"
        return self._said(await self._api.send_json("POST", path, data, answer_s=answer_s))

    async def upload(self, content: bytes, mime: str, name: str) -> str:
        """Leave a file there; how it is called."""
        path = f"/_matrix/media/v3/upload?filename={path_of(name)[1:]}"
        kind = {"Content-Type": mime or "application/octet-stream"}
        answer = await self._api.ask("POST", path, content, kind, answer_s=UPLOAD_S)
        url = text_of(self._said(answer), "content_uri")
        if not url:
            raise ChannelError("Matrix took a file and did not say what it is called")
        return url

    async def download(self, mxc: str, max_bytes: int) -> bytes:
        """A file by its mxc:// name. MediaTooLarge as soon as that is known."""
        found = _FILE.fullmatch(mxc)
        if not found:
            raise ChannelError("the file's name is not one of Matrix (mxc://server/id)")
        for place in MEDIA:
            path = f"{place}{path_of('download', *found.groups())}"
            answer = await self._api.download(path, max_bytes)
            if answer.status == 200:
                return answer.body
            if answer.status != 404:
                break
        self._said(answer)
        raise ChannelError(f"Matrix answered {answer.status} for a file")

    async def upload_max_bytes(self) -> int:
        """The largest file it takes; 0 when it does not say."""
        for place in MEDIA:
            answer = await self._api.get(f"{place}/config")
            if answer.status == 200:
                return number_of(self._said(answer), "m.upload.size")
        return 0

    async def close(self) -> None:
        """Hang up."""
        await self._api.close()

    def _said(self, answer: Answer) -> Object:
        if 200 <= answer.status < 300 and isinstance(answer.data, dict):
            return answer.data
        said: Object = answer.data if isinstance(answer.data, dict) else {}
        errcode = text_of(said, "errcode")
        if not errcode and answer.status == 413:  # of a proxy before it, as large files often meet
            raise SendFailed("Matrix takes nothing so large", retryable=False)
        if not errcode or answer.status >= 500:
            raise ChannelError(f"Matrix answered {answer.status}, which says nothing")
        told = f"Matrix refused it ({errcode}): {one_line(text_of(said, 'error'), 200)}"
        if errcode in LOGGED_OUT:
            if self._renewable:
                raise ChannelError(f"{told}; it will be signed in again")
            raise ChannelAuthFailed(told, fix="give it a new accessToken")
        if answer.status == 429 or errcode == "M_LIMIT_EXCEEDED":
            raise SendFailed(told, retryable=True, after_s=_after_s(said, answer))
        raise Refused(told, errcode)


def _after_s(said: Object, answer: Answer) -> float | None:
    if after_ms := number_of(said, "retry_after_ms"):
        return after_ms / 1000
    header = answer.headers.get("retry-after", "")
    return float(header) if header.isdecimal() else None


# What anybody on any server may have written: of any shape, or none.


def text_of(data: Object, key: str) -> str:
    """A text, fit to be written down; "" when it is none."""
    found = data.get(key)
    if not isinstance(found, str):
        return ""
    return found if found.isascii() else found.encode("utf-8", "replace").decode("utf-8")


def number_of(data: Object, key: str) -> int:
    """A whole number, not negative; 0 when it is none."""
    found = data.get(key)
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else 0


def object_of(data: Object, *keys: str) -> Object:
    """An object inside others; an empty one when it is none."""
    for key in keys:
        found = data.get(key)
        data = found if isinstance(found, dict) else {}
    return data


def objects_of(data: Object, key: str) -> list[Object]:
    """The objects of a list."""
    found = data.get(key)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
