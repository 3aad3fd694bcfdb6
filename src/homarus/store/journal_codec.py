"""Encode and decode journal records: the message's JSON, its digest and the columns of its row.

Every journal uses this module, so that they agree on which messages are the same. Text that UTF-8
or a database cannot hold (half a surrogate pair, NUL) becomes U+FFFD outside the JSON.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final
from uuid import uuid4

from homarus.core.errors import CorruptDataError
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.message import (
    DIRECT,
    NO_EXTRAS,
    Address,
    Button,
    ClientOptions,
    ClientTool,
    Extras,
    HeartbeatOptions,
    Image,
    Inbound,
    InboundMetadata,
    InputProvenance,
    Json,
    Media,
    Poll,
    RunOptions,
    TextStyle,
)
from homarus.core.text import one_line, repair_json
from homarus.store.chat_records import ChatRecord, ChatRow
from homarus.store.journal import PREVIEW_CHARS, InboxRecord, OutboxRecord
from homarus.store.traces import DeliveryAttempt, TraceRecord, decode_attempts, encode_attempts
from homarus.store.transcript_codec import dump_json, load_json

_UNSTORABLE = re.compile("[\0\ud800-\udfff]")
_MARK_CHARS: Final = (8, 64)
# Stored keys by attribute. The keys are stored data: renaming an attribute must not change them.
_OPTION_KEYS: Final = {
    "model": "model",
    "thinking": "thinking",
    "timeout_s": "timeout",
    "verbose": "verbose",
    "reasoning": "reasoning",
    "deliver_to": "deliver_to",
    "extra_system_prompt": "extra_system_prompt",
    "provenance": "provenance",
    "exec_host": "exec_host",
    "exec_security": "exec_security",
    "exec_ask": "exec_ask",
    "elevated": "elevated",
    "skill": "skill",
    "skill_input": "skill_input",
    "taint": "taint",
    "lane": "lane",
    "heartbeat": "heartbeat",
    "client": "client",
}
_CLIENT_KEYS: Final = {
    "tools": "tools",
    "disables_tools": "disables_tools",
    "results": "results",
    "history": "history",
    "params": "params",
}
_HEARTBEAT_KEYS: Final = {
    "ack_max_chars": "ack_max_chars",
    "shows_ok": "shows_ok",
    "shows_alerts": "shows_alerts",
    "last_alert": "last_alert",
    "session": "session",
    "is_light": "is_light",
    "suppresses_tool_errors": "suppresses_tool_errors",
}
_PROVENANCE_KEYS: Final = {
    "kind": "kind",
    "session_key": "session_key",
    "channel": "channel",
    "tool": "tool",
}
_METADATA_KEYS: Final = {
    "kind": "kind",
    "title": "title",
    "name": "name",
    "handle": "handle",
    "is_bot": "is_bot",
    "mentioned": "mentioned",
    "mentions_others": "elsewhere",
    "detects_mentions": "detects",
    "reply_to": "reply_to",
    "replies_to_us": "answers_us",
    "quoted": "quoted",
    "forwarded": "forwarded",
    "parent": "parent",
    "album": "album",
    "guild": "guild",
    "team": "team",
    "roles": "roles",
    "via_bot": "via_bot",
    "is_press": "is_press",
    "holder": "holder",
    "approval": "approval",
    "is_limited": "is_limited",
    "guild_slug": "guild_slug",
    "slugs": "slugs",
    "quotes_others": "quotes_others",
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
    "recipient": "recipient",
    "poll": "poll",
    "styles": "styles",
    "subject": "subject",
    "thread_title": "thread_title",
    "thread_from": "thread_from",
    "thread_on": "thread_on",
}
# In the order of the fields of InboxRecord and OutboxRecord.
SELECT_INBOX: Final = (
    "SELECT id, session, channel, account, message_id, sender, preview, at_ms, state, body,"
    " run, session_id, entry, reply, why, attempts, duplicates, settled_ms, place FROM accepted"
)
SELECT_OUTBOX: Final = (
    "SELECT id, run, channel, chat, account, thread, text, at_ms, expires_ms, state, receipt, why,"
    " attempts, not_before_ms, place, extras, tries, started_ms FROM parcels"
)
SELECT_TRACES: Final = "SELECT run, session, attempt, at_ms, json FROM traces"
SELECT_CHAT_RECORDS: Final = "SELECT kind, chat, id, at_ms, json FROM chat_records"
_NO_MEDIA: Final = Media()
_NO_OPTIONS: Final = RunOptions()
_NO_HEARTBEAT: Final = HeartbeatOptions()
_NO_CLIENT: Final = ClientOptions()
_BODY: Final = 9  # index of the message among the fields of InboxRecord


def encode_inbound(inbound: Inbound) -> dict[str, Json]:
    """Return a message as a JSON object, without the fields that have their default value."""
    address = inbound.address
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
    if changed := _encode_options(inbound.options):
        data["wishes"] = changed
    if inbound.run_id:
        data["run"] = inbound.run_id
    if inbound.authority:
        data["authority"] = inbound.authority
    if inbound.metadata != DIRECT:
        data["occasion"] = _encode_fields(inbound.metadata, DIRECT, _METADATA_KEYS)
    if inbound.media:
        data["media"] = [_encode_fields(media, _NO_MEDIA, _MEDIA_KEYS) for media in inbound.media]
    added = {
        "before": inbound.group_history,
        "copyFor": inbound.copy_for,
        "matchedBy": inbound.matched_by,
    }
    return data | {key: text for key, text in added.items() if text}


def decode_inbound(data: Json) -> Inbound:
    """Return the message that `encode_inbound` wrote.

    Raises CorruptDataError for any other value.
    """
    try:
        return Inbound(
            id=data["id"],
            address=Address(data["channel"], data["chat"], data["account"], data.get("thread")),
            sender=data["sender"],
            text=data["text"],
            images=tuple(Image(image["data"], image["mime"]) for image in data.get("images", ())),
            at_ms=data["at"],
            options=_decode_options(data.get("wishes", {})),
            run_id=data.get("run", ""),
            authority=data.get("authority", ""),
            metadata=_decode_metadata(data.get("occasion")),
            media=_decode_media(data.get("media", ())),
            group_history=data.get("before", ""),
            copy_for=data.get("copyFor", ""),
            matched_by=data.get("matchedBy", ""),
        )
    except (AttributeError, KeyError, TypeError) as exc:
        raise CorruptDataError("a kept message cannot be read", fix="run `homarus doctor`") from exc


def digest_of(session: str, inbound: Inbound) -> str:
    """Return a hash of what identifies a message: its session, chat, text, files and options.

    The time is not part of it. A file counts by its id at the service, because whether it can be
    downloaded may change.
    """
    images = [[media.kind, media.ref] for media in inbound.media] or [
        [image.mime, image.data] for image in inbound.images
    ]
    identity = [
        session,
        inbound.address.chat,
        inbound.text,
        images,
        _encode_options(inbound.options),
    ]
    return hashlib.sha256(dump_json(identity).encode()).hexdigest()


def preview_of(text: str) -> str:
    """Return the start of a message in one line."""
    # Twice the limit, since blanks are folded, but not all of a text that may be very long.
    return to_storable(one_line(text.lstrip()[: 2 * PREVIEW_CHARS], PREVIEW_CHARS))


def to_storable(text: str) -> str:
    """Return the text with U+FFFD for every character that some database cannot store."""
    if text.isascii() and "\0" not in text:
        return text
    return _UNSTORABLE.sub("\ufffd", text)


def storable_ids(ids: Iterable[str]) -> tuple[str, ...]:
    """Return storable ids in order, each of them once."""
    return tuple(dict.fromkeys(map(to_storable, ids)))


def _encode_fields(value: object, default: object, keys: Mapping[str, str]) -> dict[str, Json]:
    """Return the attributes that differ from the default, under their stored keys."""
    pairs = ((key, getattr(value, name), getattr(default, name)) for name, key in keys.items())
    return {key: given for key, given, unset in pairs if given != unset}


def _decode_fields(data: Mapping[str, Json], keys: Mapping[str, str]) -> dict[str, Any]:
    """Return keyword arguments from stored data. Raises KeyError for an unknown key."""
    names = {key: name for name, key in keys.items()}
    return {names[key]: value for key, value in data.items()}


def _encode_options(options: RunOptions) -> dict[str, Json]:
    if options == _NO_OPTIONS:  # as those of most messages
        return {}
    data = _encode_fields(options, _NO_OPTIONS, _OPTION_KEYS)
    if source := options.provenance:
        named = {key: getattr(source, name) for name, key in _PROVENANCE_KEYS.items()}
        data["provenance"] = {key: value for key, value in named.items() if value}
    if heartbeat := options.heartbeat:
        data["heartbeat"] = _encode_fields(heartbeat, _NO_HEARTBEAT, _HEARTBEAT_KEYS)
    if client := options.client:
        data["client"] = _encode_client(client)
    return data


def _encode_client(client: ClientOptions) -> dict[str, Json]:
    data = _encode_fields(client, _NO_CLIENT, _CLIENT_KEYS)
    if client.tools:
        data["tools"] = [[each.name, each.description, each.parameters] for each in client.tools]
    return data


def _decode_options(data: Mapping[str, Json]) -> RunOptions:
    if "deliver_to" in data:
        data = {**data, "deliver_to": tuple(data["deliver_to"])}
    if "taint" in data:
        data = {**data, "taint": tuple((kind, origin) for kind, origin in data["taint"])}
    if "provenance" in data:
        source = InputProvenance(**_decode_fields(data["provenance"], _PROVENANCE_KEYS))
        data = {**data, "provenance": source}
    if "heartbeat" in data:
        heartbeat = HeartbeatOptions(**_decode_fields(data["heartbeat"], _HEARTBEAT_KEYS))
        data = {**data, "heartbeat": heartbeat}
    if "client" in data:
        data = {**data, "client": _decode_client(data["client"])}
    return RunOptions(**_decode_fields(data, _OPTION_KEYS))


def _decode_client(data: Mapping[str, Json]) -> ClientOptions:
    fields = _decode_fields(data, _CLIENT_KEYS)
    tools = tuple(ClientTool(*row) for row in data.get("tools", ()))
    messages = {name: tuple(data.get(name, ())) for name in ("results", "history")}
    return ClientOptions(**{**fields, **messages, "tools": tools})


def _decode_media(rows: Iterable[Mapping[str, Json]]) -> tuple[Media, ...]:
    return tuple(Media(**_decode_fields(row, _MEDIA_KEYS)) for row in rows)


def _decode_metadata(data: Mapping[str, Json] | None) -> InboundMetadata:
    if data is None:
        return DIRECT
    given = {**data, **{name: tuple(data.get(name, ())) for name in ("roles", "slugs")}}
    return InboundMetadata(**_decode_fields(given, _METADATA_KEYS))


@dataclass(frozen=True, slots=True)
class NewInboxRecord:
    """A message prepared for the journal: its record, its digest and its JSON text."""

    record: InboxRecord
    digest: str
    body: str

    def columns(self) -> tuple[str | int, ...]:
        """Return the values to insert; the other columns have their defaults."""
        record = self.record
        return (
            record.id, record.session, record.channel, record.account, record.message_id,
            record.sender, record.preview, record.at_ms, record.state, record.why,
            record.settled_ms, self.digest, self.body,
        )  # fmt: skip

    def at(self, place: int) -> InboxRecord:
        """Return the record with the position that the database gave it."""
        return replace(self.record, place=place)

    def as_conflict(self) -> Iterator["NewInboxRecord"]:
        """Yield the parked variants to try when the id is taken.

        The first keeps the message id: then only the id of the run is taken. The others append a
        part of the digest to it.
        """
        message_id = self.record.message_id
        yield self._parked(message_id, f"run {self.record.id} is of another message")
        for size in _MARK_CHARS:
            why = f"message {message_id} was accepted before, with other words"
            yield self._parked(f"{message_id}#{self.digest[:size]}", why)

    def _parked(self, message_id: str, why: str) -> "NewInboxRecord":
        record, new_id = self.record, str(uuid4())
        parked = replace(
            record,
            id=new_id,
            message_id=message_id,
            state="parked",
            why=why,
            settled_ms=record.at_ms,
        )
        return replace(self, record=parked)


def new_inbox_record(session: str, inbound: Inbound, at_ms: int) -> NewInboxRecord:
    """Return a message prepared for the journal; one without an id is never a duplicate."""
    data = encode_inbound(inbound)
    if (repaired := repair_json(data)) is not data:
        data, inbound = repaired, decode_inbound(repaired)
    record_id = to_storable(inbound.run_id) or str(uuid4())
    message_id = (
        f"{inbound.id}@{inbound.copy_for}" if inbound.copy_for and inbound.id else inbound.id
    )
    record = InboxRecord(
        id=record_id,
        session=to_storable(session),
        channel=to_storable(inbound.address.channel),
        account=to_storable(inbound.address.account),
        message_id=to_storable(message_id) or record_id,
        sender=to_storable(inbound.sender),
        preview=preview_of(inbound.text),
        at_ms=at_ms,
        inbound=inbound,
    )
    return NewInboxRecord(record, digest_of(session, inbound), dump_json(data))


def encode_body(inbound: Inbound) -> str:
    """Return a message as the column of its record holds it."""
    return dump_json(repair_json(encode_inbound(inbound)))


def encode_chat_records(records: Iterable[ChatRecord]) -> list[ChatRow]:
    """Return the columns of chat records."""
    return [
        (
            each.kind, to_storable(each.chat), to_storable(each.id), each.at_ms,
            None if each.data is None else dump_json(repair_json(each.data)),
        )
        for each in records
    ]  # fmt: skip


def decode_chat_record(row: Sequence[Any]) -> ChatRecord:
    """Return a chat record from its columns; one that cannot be read has no fields."""
    kind, chat, record_id, at_ms, text = row
    try:
        data = load_json(text)
    except ValueError:
        data = None
    return ChatRecord(kind, chat, record_id, at_ms, data if isinstance(data, dict) else {})


def new_outbox_record(record: OutboxRecord) -> OutboxRecord:
    """Return a new pending outbox record with text that every database can store."""
    address = record.address
    return OutboxRecord(
        id=to_storable(record.id),
        run=to_storable(record.run),
        address=Address(
            to_storable(address.channel),
            to_storable(address.chat),
            to_storable(address.account),
            None if address.thread is None else to_storable(address.thread),
        ),
        text=to_storable(record.text),
        at_ms=record.at_ms,
        expires_ms=record.expires_ms,
        not_before_ms=record.not_before_ms,
        extras=record.extras,
    )


def encode_extras(extras: Extras) -> str:
    """Return the extras of an outbox record as its column holds them, "" for none."""
    if extras == NO_EXTRAS:
        return ""
    data = _encode_fields(extras, NO_EXTRAS, _EXTRAS_KEYS)
    if extras.media:
        data["media"] = [_encode_fields(media, _NO_MEDIA, _MEDIA_KEYS) for media in extras.media]
    if extras.buttons:
        data["buttons"] = [[[one.label, one.data] for one in row] for row in extras.buttons]
    if extras.styles:
        data["styles"] = [[style.start, style.length, style.name] for style in extras.styles]
    if poll := extras.poll:
        data["poll"] = [poll.question, list(poll.options), poll.duration_s, poll.is_multiple]
    return dump_json(data)


def decode_extras(text: str) -> Extras:
    """Return the extras that `encode_extras` wrote. Raises CorruptDataError for any other text."""
    if not text:
        return NO_EXTRAS
    try:
        data = load_json(text)
        media = _decode_media(data.pop("media", ()))
        rows = data.pop("buttons", ())
        buttons = tuple(tuple(Button(*one) for one in row) for row in rows)
        poll = _decode_poll(data.pop("poll", None))
        styles = tuple(TextStyle(*style) for style in data.pop("styles", ()))
        fields = _decode_fields(data, _EXTRAS_KEYS)
        return Extras(**fields, media=media, buttons=buttons, poll=poll, styles=styles)
    except (AttributeError, KeyError, TypeError, ValueError) as exc:
        raise CorruptDataError("a parcel cannot be read", fix="run `homarus doctor`") from exc


def _decode_poll(data: Any) -> Poll | None:
    if data is None:
        return None
    question, options, duration_s, is_multiple = data
    return Poll(question, tuple(options), duration_s, is_multiple)


def decode_inbox_record(row: Sequence[Any]) -> InboxRecord:
    """Return an inbox record from its columns, which are in the order of the fields."""
    fields = [*row]
    fields[_BODY] = decode_body(row[_BODY])
    return InboxRecord(*fields)


def decode_outbox_record(row: Sequence[Any]) -> OutboxRecord:
    """Return an outbox record from its columns, which are in the order of the fields."""
    record_id, run, channel, chat, account, thread, *rest, extras, tries, started_ms = row
    address = Address(channel, chat, account, thread)
    added = decode_extras(extras), _decode_tries(tries), started_ms
    return OutboxRecord(*(record_id, run, address, *rest, *added))


def encode_tries(tries: Iterable[DeliveryAttempt]) -> str:
    """Return the attempts of an outbox record as its column holds them, "" for none."""
    encoded = encode_attempts(tries)
    return dump_json(encoded) if encoded else ""


def _decode_tries(text: str) -> tuple[DeliveryAttempt, ...]:
    try:
        return decode_attempts(load_json(text)) if text else ()
    except ValueError:  # only a trace shows them
        return ()


def decode_trace(row: Sequence[Any]) -> TraceRecord:
    """Return a trace from its columns; one that cannot be read has no data."""
    run, session, attempt, at_ms, text = row
    try:
        data = load_json(text)
    except ValueError:
        data = None
    return TraceRecord(run, session, attempt, at_ms, data if isinstance(data, dict) else {})


def run_range(run: str) -> tuple[str, str]:
    """Return the bounds of the ids of outbox records that start with a run's name and a colon."""
    name = to_storable(run)
    return f"{name}:", f"{name};"  # the character after the colon


def decode_body(body: str | None) -> Inbound | None:
    """Return the message of an inbox record, or None when it was deleted or is unreadable."""
    try:
        return None if body is None else decode_inbound(load_json(body))
    except (CorruptDataError, ValueError):
        return None
