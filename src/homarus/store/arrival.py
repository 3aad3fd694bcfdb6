"""A message as a journal keeps it: its JSON, its digest, and the columns of its row.

Every journal makes its rows here, so that they agree on what the same message is. Text that UTF-8
or a database cannot hold (half a surrogate pair, NUL) becomes U+FFFD outside the JSON.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

from homarus.core.errors import Corrupt
from homarus.core.message import (
    DIRECT,
    NO_EXTRAS,
    Address,
    Button,
    Extras,
    Image,
    Inbound,
    Json,
    Media,
    Occasion,
    Wishes,
)
from homarus.core.text import one_line
from homarus.core.value import dataclass
from homarus.store.journal import PREVIEW_CHARS, Accepted, Parcel
from homarus.store.line import dump, load

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_MARK_CHARS: Final = (8, 64)
# Stored keys by attribute. The keys are stored data: renaming an attribute must not change them.
_OPTION_KEYS: Final = {
    "model": "model",
    "thinking": "thinking",
    "timeout_s": "timeout",
    "verbose": "verbose",
    "reasoning": "reasoning",
}
_METADATA_KEYS: Final = {
    "kind": "kind",
    "title": "title",
    "name": "name",
    "handle": "handle",
    "is_bot": "is_bot",
    "is_edit": "is_edit",
    "mentioned": "mentioned",
    "elsewhere": "elsewhere",
    "detects": "detects",
    "reply_to": "reply_to",
    "answers_us": "answers_us",
    "quoted": "quoted",
    "forwarded": "forwarded",
    "parent": "parent",
    "album": "album",
    "guild": "guild",
    "team": "team",
    "roles": "roles",
}
_MEDIA_KEYS: Final = {
    "kind": "kind",
    "mime": "mime",
    "name": "name",
    "size": "size",
    "ref": "ref",
    "path": "path",
    "problem": "problem",
}
_EXTRAS_KEYS: Final = {
    "reply_to": "reply_to",
    "replaces": "replaces",
    "media": "media",
    "as_voice": "as_voice",
    "buttons": "buttons",
    "silent": "silent",
}
# In the order of the fields of Accepted and Parcel.
ACCEPTED: Final = (
    "SELECT id, session, channel, account, message_id, sender, preview, at_ms, state, body,"
    " run, session_id, entry, reply, why, attempts, duplicates, settled_ms, place FROM accepted"
)
PARCELS: Final = (
    "SELECT id, run, channel, chat, account, thread, text, at_ms, expires_ms, state, receipt, why,"
    " attempts, not_before_ms, place, extras FROM parcels"
)
_NO_MEDIA: Final = Media()
_NO_WISHES: Final = Wishes()
_BODY: Final = 9  # where the message stands among the fields of Accepted


def inbound_json(inbound: Inbound) -> dict[str, Json]:
    """A message as a JSON object; what it does not say is left out."""
    address, wishes = inbound.address, inbound.wishes
    data: dict[str, Json] = {
        "id": inbound.id,
        "channel": address.channel,
        "account": address.account,
        "chat": address.chat,
        "sender": inbound.sender,
        "text": inbound.text,
        "at": inbound.at_ms,
    }
    if address.thread is not None:
        data["thread"] = address.thread
    if inbound.images:
        data["images"] = [{"mime": image.mime, "data": image.data} for image in inbound.images]
    if options := _encode_fields(wishes, _NO_WISHES, _OPTION_KEYS):
        data["wishes"] = options
    if inbound.run_id:
        data["run"] = inbound.run_id
    if inbound.authority:
        data["authority"] = inbound.authority
    if inbound.occasion != DIRECT:
        data["occasion"] = _encode_fields(inbound.occasion, DIRECT, _METADATA_KEYS)
    if inbound.media:
        data["media"] = [_encode_fields(media, _NO_MEDIA, _MEDIA_KEYS) for media in inbound.media]
    if inbound.before:
        data["before"] = inbound.before
    if inbound.copy_for:
        data["copyFor"] = inbound.copy_for
    return data


def read_inbound(data: Json) -> Inbound:
    """The message that `inbound_json` wrote; Corrupt when it did not write this."""
    try:
        return Inbound(
            id=data["id"],
            address=Address(data["channel"], data["chat"], data["account"], data.get("thread")),
            sender=data["sender"],
            text=data["text"],
            images=tuple(Image(image["data"], image["mime"]) for image in data.get("images", ())),
            at_ms=data["at"],
            wishes=Wishes(**_decode_fields(data.get("wishes", {}), _OPTION_KEYS)),
            run_id=data.get("run", ""),
            authority=data.get("authority", ""),
            occasion=_read_occasion(data.get("occasion")),
            media=_decode_media(data.get("media", ())),
            before=data.get("before", ""),
            copy_for=data.get("copyFor", ""),
        )
    except (AttributeError, KeyError, TypeError) as exc:
        raise Corrupt("a kept message cannot be read", fix="run `homarus doctor`") from exc


def digest_of(session: str, inbound: Inbound) -> str:
    """What makes a message the same one: where it belongs and what it says, not when it came.

    A file counts by what its service calls it: whether it could be had may change.
    """
    images = [[media.kind, media.ref] for media in inbound.media] or [
        [image.mime, image.data] for image in inbound.images
    ]
    options = _encode_fields(inbound.wishes, _NO_WISHES, _OPTION_KEYS)
    said = [session, inbound.address.chat, inbound.text, images, options]
    return hashlib.sha256(dump(said).encode()).hexdigest()


def preview_of(text: str) -> str:
    """The start of a message, in one line."""
    # More than is shown, since blanks are folded; not all of it, which may be a book.
    return storable(one_line(text.lstrip()[: 2 * PREVIEW_CHARS], PREVIEW_CHARS))


def storable(text: str) -> str:
    """The text as every database can hold it."""
    if text.isascii() and "\0" not in text:
        return text
    return _UNSTORABLE.sub("\ufffd", text)


def storable_ids(ids: Iterable[str]) -> tuple[str, ...]:
    """The same for ids, each of them once."""
    return tuple(dict.fromkeys(map(storable, ids)))


def _encode_fields(value: object, default: object, keys: Mapping[str, str]) -> dict[str, Json]:
    """Return the attributes that differ from the default, under their stored keys."""
    pairs = ((key, getattr(value, name), getattr(default, name)) for name, key in keys.items())
    return {key: given for key, given, unset in pairs if given != unset}


def _decode_fields(data: Mapping[str, Json], keys: Mapping[str, str]) -> dict[str, Any]:
    """Return keyword arguments from stored data. Raises KeyError for an unknown key."""
    names = {key: name for name, key in keys.items()}
    return {names[key]: value for key, value in data.items()}


def _decode_media(rows: Iterable[Mapping[str, Json]]) -> tuple[Media, ...]:
    return tuple(Media(**_decode_fields(row, _MEDIA_KEYS)) for row in rows)


def _read_occasion(data: Mapping[str, Json] | None) -> Occasion:
    if data is None:
        return DIRECT
    given = {**data, "roles": tuple(data.get("roles", ()))}
    return Occasion(**_decode_fields(given, _METADATA_KEYS))


@dataclass(frozen=True, slots=True)
class Arrival:
    """The row a message will be, if it is new; with what is kept beside its fields."""

    row: Accepted
    digest: str
    body: str

    def columns(self) -> tuple[str | int, ...]:
        """What the row is made with; the rest is as the tables say."""
        row = self.row
        return (
            row.id, row.session, row.channel, row.account, row.message_id, row.sender,
            row.preview, row.at_ms, row.state, row.why, row.settled_ms, self.digest, self.body,
        )  # fmt: skip

    def at(self, place: int) -> Accepted:
        """The row that was made of it."""
        return replace(self.row, place=place)

    def others(self) -> Iterator["Arrival"]:
        """What it is kept as when its id is taken: parked, under an id with a mark.

        The first has no mark: then it is only the run's id that is taken.
        """
        known = self.row.message_id
        yield self._parked(known, f"run {self.row.id} is of another message")
        for size in _MARK_CHARS:
            why = f"message {known} was accepted before, with other words"
            yield self._parked(f"{known}#{self.digest[:size]}", why)

    def _parked(self, message_id: str, why: str) -> "Arrival":
        row, new_id = self.row, str(uuid4())
        parked = replace(
            row, id=new_id, message_id=message_id, state="parked", why=why, settled_ms=row.at_ms
        )
        return replace(self, row=parked)


def arrive(session: str, inbound: Inbound, at_ms: int) -> Arrival:
    """Make ready to keep a message. One without an id of its own is like no other."""
    row_id = storable(inbound.run_id) or str(uuid4())
    known = f"{inbound.id}@{inbound.copy_for}" if inbound.copy_for and inbound.id else inbound.id
    row = Accepted(
        id=row_id,
        session=storable(session),
        channel=storable(inbound.address.channel),
        account=storable(inbound.address.account),
        message_id=storable(known) or row_id,
        sender=storable(inbound.sender),
        preview=preview_of(inbound.text),
        at_ms=at_ms,
        inbound=inbound,
    )
    return Arrival(row, digest_of(session, inbound), dump(inbound_json(inbound)))


def pack(parcel: Parcel) -> Parcel:
    """The parcel as it enters an outbox: not tried yet, in text every database can hold."""
    address = parcel.address
    return Parcel(
        id=storable(parcel.id),
        run=storable(parcel.run),
        address=Address(
            storable(address.channel),
            storable(address.chat),
            storable(address.account),
            None if address.thread is None else storable(address.thread),
        ),
        text=storable(parcel.text),
        at_ms=parcel.at_ms,
        expires_ms=parcel.expires_ms,
        not_before_ms=parcel.not_before_ms,
        extras=parcel.extras,
    )


def extras_text(extras: Extras) -> str:
    """What a parcel carries beside its words, as its column holds it; "" for nothing."""
    if extras == NO_EXTRAS:
        return ""
    data = _encode_fields(extras, NO_EXTRAS, _EXTRAS_KEYS)
    if extras.media:
        data["media"] = [_encode_fields(media, _NO_MEDIA, _MEDIA_KEYS) for media in extras.media]
    if extras.buttons:
        data["buttons"] = [[[one.label, one.data] for one in row] for row in extras.buttons]
    return dump(data)


def read_extras(text: str) -> Extras:
    """What `extras_text` wrote; Corrupt when it did not write this."""
    if not text:
        return NO_EXTRAS
    try:
        data = load(text)
        media = _decode_media(data.pop("media", ()))
        rows = data.pop("buttons", ())
        buttons = tuple(tuple(Button(*one) for one in row) for row in rows)
        return Extras(**_decode_fields(data, _EXTRAS_KEYS), media=media, buttons=buttons)
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise Corrupt("a parcel cannot be read", fix="run `homarus doctor`") from exc


def read_accepted(row: Sequence[Any]) -> Accepted:
    """A message from its columns, which are in the order of the fields."""
    fields = [*row]
    fields[_BODY] = read_body(row[_BODY])
    return Accepted(*fields)


def read_parcel(row: Sequence[Any]) -> Parcel:
    """A parcel from its columns, which are in the order of the fields."""
    parcel_id, run, channel, chat, account, thread, *rest, extras = row
    address = Address(channel, chat, account, thread)
    fields = (parcel_id, run, address, *rest, read_extras(extras))
    return Parcel(*fields)


def read_body(body: str | None) -> Inbound | None:
    """The message of a row; None when it was let go, or cannot be read any more."""
    try:
        return None if body is None else read_inbound(load(body))
    except (Corrupt, ValueError):
        return None
