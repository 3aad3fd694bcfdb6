"""Parse the parameters of a call: JSON, a form, or a form with files."""

import json
import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json

# In a form everything is text; these are JSON in it.
_STRUCTURES: Final = {
    "allowed_updates",
    "caption_entities",
    "commands",
    "entities",
    "link_preview_options",
    "reaction",
    "reply_markup",
    "reply_parameters",
}
_PARAMETER: Final = re.compile(rb'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True)
class Upload:
    """A file in a form."""

    name: str
    mime: str
    content: bytes


def read_params(headers: Mapping[str, str], query: str, body: bytes) -> dict[str, Json]:
    """Return the parameters. Raises ValueError when they cannot be parsed."""
    params: dict[str, Json] = _read(dict(parse_qsl(query)))
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if not body:
        return params
    if kind == "application/json":
        told = json.loads(body)
        if not isinstance(told, dict):
            raise ValueError("not an object")
        return params | told
    if kind == "application/x-www-form-urlencoded":
        return params | _read(dict(parse_qsl(body.decode())))
    if kind == "multipart/form-data":
        return params | _multipart(headers["content-type"], body)
    raise ValueError(f"no parameters can be read from {kind!r}")


def _read(fields: Mapping[str, str]) -> dict[str, Json]:
    return {
        name: json.loads(text) if name in _STRUCTURES else text for name, text in fields.items()
    }


def _multipart(kind: str, body: bytes) -> dict[str, Json]:
    mark = kind.partition("boundary=")[2].strip().strip('"').encode()
    pieces = (b"\r\n" + body).split(b"\r\n--" + mark)
    if not mark or len(pieces) < 2 or not pieces[-1].startswith(b"--"):
        raise ValueError("a form without its end")
    fields: dict[str, str] = {}
    files: dict[str, Upload] = {}
    for piece in pieces[1:-1]:
        head, gap, content = piece.partition(b"\r\n\r\n")
        said = dict(_PARAMETER.findall(head))
        if not gap or b"name" not in said:
            raise ValueError("a part without a name")
        name = said[b"name"].decode()
        if b"filename" in said:
            mime = re.search(rb"(?i)content-type:\s*([^\s;]+)", head)
            told = mime[1].decode() if mime else "application/octet-stream"
            files[name] = Upload(said[b"filename"].decode(), told, content)
        else:
            fields[name] = content.decode()
    return _read(fields) | files
