"""Build the content of events.

Our messages mention no one by accident: `m.mentions` is always present, and empty.
"""

import hashlib
import json
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from typing import Final
from uuid import uuid4

from homarus.channels.matrix.api import Object
from homarus.core.errors import SendError
from homarus.core.message import Json, Media, MediaKind

# An event is at most 65,536 bytes, with what the servers add to it.
MAX_BYTES: Final = 60_000
_KINDS: Final[Mapping[MediaKind, str]] = {
    "image": "m.image",
    "sticker": "m.image",
    "audio": "m.audio",
    "voice": "m.audio",
    "video": "m.video",
    "document": "m.file",
}


def transaction(key: str, part: str = "") -> str:
    """Return the transaction id of a request, which makes it idempotent."""
    digest = hashlib.sha256(f"{key or uuid4().hex}\0{part}".encode("utf-8", "replace"))
    return urlsafe_b64encode(digest.digest()[:24]).decode()


def text_content(html: str, plain: str, *, reply_to: str = "", thread: str | None = None) -> Object:
    """Return a text message, with markup only if there is any."""
    content = _words(html, plain) | {"msgtype": "m.text"}
    return _fitting(_related(content, reply_to, thread))


def edit_content(html: str, plain: str, replaces: str) -> Object:
    """Return an edit; clients without edits show the new text with a star."""
    new = _words(html, plain) | {"msgtype": "m.text"}
    content = {
        "msgtype": "m.text",
        "body": f"* {plain}",
        "m.mentions": {},
        "m.new_content": new,
        "m.relates_to": {"rel_type": "m.replace", "event_id": replaces},
    }
    return _fitting(content)


def media_content(
    media: Media,
    url: str,
    size: int,
    *,
    html: str = "",
    plain: str = "",
    as_voice: bool = False,
    reply_to: str = "",
    thread: str | None = None,
) -> Object:
    """Return a message with an uploaded file, and its caption."""
    content: dict[str, Json] = _words(html, plain) if plain else {"m.mentions": {}}
    content["msgtype"] = _KINDS[media.kind]
    content["url"], content["info"] = url, {"size": size}
    if media.mime:
        content["info"]["mimetype"] = media.mime
    name = media.name or media.kind
    content["filename"] = name
    content.setdefault("body", name)
    if content["msgtype"] == "m.audio" and (as_voice or media.kind == "voice"):
        content["org.matrix.msc3245.voice"] = {}
    return _fitting(_related(content, reply_to, thread))


def encrypted_media_content(
    media: Media,
    file: Object,
    size: int,
    *,
    html: str = "",
    plain: str = "",
    as_voice: bool = False,
    reply_to: str = "",
    thread: str | None = None,
) -> Object:
    """Return a message with a file that is encrypted; `file` holds its address and its key."""
    content = media_content(
        media, "", size, html=html, plain=plain, as_voice=as_voice, reply_to=reply_to, thread=thread
    )
    return {**{key: value for key, value in content.items() if key != "url"}, "file": dict(file)}


def reaction_content(message_id: str, emoji: str) -> Object:
    """Return a reaction."""
    return {
        "m.relates_to": {"rel_type": "m.annotation", "event_id": message_id, "key": emoji},
    }


def _words(html: str, plain: str) -> dict[str, Json]:
    content: dict[str, Json] = {"body": plain, "m.mentions": {}}
    if html != plain:
        content |= {"format": "org.matrix.custom.html", "formatted_body": html}
    return content


def _related(content: dict[str, Json], reply_to: str, thread: str | None) -> dict[str, Json]:
    if thread:
        content["m.relates_to"] = {
            "rel_type": "m.thread",
            "event_id": thread,
            # Clients without threads show a reply, to the thread's root if to nothing else.
            "m.in_reply_to": {"event_id": reply_to or thread},
            "is_falling_back": not reply_to,
        }
    elif reply_to:
        content["m.relates_to"] = {"m.in_reply_to": {"event_id": reply_to}}
    return content


def _fitting(content: dict[str, Json]) -> Object:
    return fit_content(content, MAX_BYTES)


def fit_content(content: dict[str, Json], max_bytes: int) -> Object:
    """Return content that fits an event, without markup if necessary."""
    if _size(content) <= max_bytes:
        return content
    inner = content.get("m.new_content", content)
    inner.pop("formatted_body", None)
    inner.pop("format", None)
    if "m.new_content" in content:
        content["body"] = "* …"
    if (size := _size(content)) > max_bytes:
        raise SendError(
            f"the message has {size} bytes, and an event of Matrix holds {max_bytes}",
            retryable=False,
            fix="set textChunkLimit lower",
        )
    return content


def _size(content: Object) -> int:
    return len(json.dumps(content, ensure_ascii=False).encode("utf-8", "replace"))
