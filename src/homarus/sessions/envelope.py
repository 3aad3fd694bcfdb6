r"""Format a message for the model: sender, channel, time, text and attachments. Pure.

    [Telegram Ann id:42 +2m Tue 2026-02-17 13:34 GMT+1] Are you there?
    [media attached: /home/me/.openclaw/media/inbound/cat.png (image/png)]

In a group the header names the group, the text starts with its sender, and the messages since our
last answer come first. What changes from message to message is here and not in the system prompt,
so that the prompt stays the same. Histories for people remove it (`strip_envelope`).

Names, titles, file names and quotes are untrusted: they cannot start a line of their own. A line
of the message that looks like a header, or like the message of another person in the group, gets a
`\` before it.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from typing import Final

from homarus.config.timezone import load_zone
from homarus.core.channel_traits import FindTraits, channel_title, no_traits
from homarus.core.envelope import (
    BEFORE,
    CURRENT,
    DATED,
    NOTES,
    NOTES_END,
    WEEKDAYS,
    escape_header_lines,
)
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Inbound, InboundMetadata, Media
from homarus.core.text import clip_middle, one_line
from homarus.core.untrusted import neutralize_name, wrap_untrusted
from homarus.policy.taint import HOOK_CHANNEL, is_foreign_quote

_KNOWS_TIME = "Current time:"
_GATEWAY_CHANNELS = frozenset({"boot", "wake", "webchat", "agent"})
_MAX_PART = 80
_MAX_QUOTED_CHARS: Final = 1_000
# The zones that English has short names for, by their offset in hours: Asia's CST is GMT+8.
_NAMED_OFFSETS: Final = {
    "UTC": 0, "GMT": 0, "AST": -4, "ADT": -3, "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7,
    "MDT": -6, "PST": -8, "PDT": -7, "AKST": -9, "AKDT": -8, "HST": -10,
}  # fmt: skip
MULTIPLE_SENDERS: Final = "several people"  # of merged messages; no service has such an id


@dataclass(frozen=True, slots=True)
class EnvelopeOptions:
    """What the header shows of time, and in which zone; None is local time.

    `own_zone` is for messages of the gateway: the person's.
    """

    zone: tzinfo | None = None
    own_zone: tzinfo | None = None
    timestamp: bool = True
    elapsed: bool = True
    uses_12_hours: bool = False


NO_RULES: Final = EnvelopeOptions()


def resolve_envelope_zone(name: str | None, own_zone: tzinfo | None = None) -> tzinfo | None:
    """Return the zone of headers by its configured name; None for local time.

    A name is `local`, `utc`, `gmt`, `user` (the person's zone) or a zone's; an unknown one is UTC.
    """
    named = (name or "").strip()
    match named.lower():
        case "" | "local":
            return None
        case "utc" | "gmt":
            return UTC
        case "user":
            return own_zone
        case _:
            return load_zone(named) or UTC


def format_envelope(
    inbound: Inbound,
    rules: EnvelopeOptions = NO_RULES,
    *,
    find_traits: FindTraits = no_traits,
    previous_ms: int = 0,
    group: bool = False,
    prefix: str = "",
) -> str:
    """Return a message as the model reads it; `previous_ms` is the time of the one before.

    In a group the header names the group, and the text starts with its sender. `prefix` stands
    before the text of a chat service's message; it is the owner's and not escaped.
    """
    address = inbound.address
    if address.channel == "cli" or inbound.is_internal:
        return inbound.text
    if address.channel == HOOK_CHANNEL:
        return with_timestamp(
            wrap_untrusted(inbound.text, "hook", inbound.sender), inbound.at_ms, rules.own_zone,
            uses_12_hours=rules.uses_12_hours,
        )  # fmt: skip
    if address.channel in _GATEWAY_CHANNELS:
        return with_timestamp(
            "\n".join([inbound.text, *map(_file, inbound.media)]),
            inbound.at_ms,
            rules.own_zone,
            uses_12_hours=rules.uses_12_hours,
        )
    line = header(
        channel_title(address.channel, find_traits(address.channel)),
        _describe_group(inbound) if group else _describe_sender(inbound, "{} id:{}"),
        origin=_describe_origin(inbound.metadata),
        at_ms=inbound.at_ms,
        previous_ms=previous_ms,
        rules=rules,
    )
    lead = prefix if not prefix or prefix[-1].isspace() else f"{prefix} "
    text = f"{line} {lead}{message_body(inbound, group=group)}"
    if not inbound.group_history:
        return text
    history = wrap_untrusted(escape_header_lines(inbound.group_history), "group")
    return f"{BEFORE}\n{history}\n\n{CURRENT}\n{text}"


def message_body(inbound: Inbound, *, group: bool) -> str:
    """Return text and attachments of a message; in a group the sender too."""
    label = f"{sender_label(inbound)}: " if group else ""
    # Merged messages of several senders have each their label, and indented lines.
    senders = inbound.sender != MULTIPLE_SENDERS
    escaped = escape_header_lines(f"{label}{inbound.text}", senders=senders)
    if inbound.text and (source := _author(inbound.metadata)):
        start = len(label) + (not escaped.startswith(label))
        escaped = escaped[:start] + wrap_untrusted(escaped[start:], "forward", source)
    return "\n".join([escaped, *_attachments(inbound)])


def attributed_text(inbound: Inbound) -> str:
    """Return the text of a message; one that its sender did not write is wrapped."""
    source = _author(inbound.metadata) if inbound.text else ""
    return wrap_untrusted(inbound.text, "forward", source) if source else inbound.text


def _author(metadata: InboundMetadata) -> str:
    """Return who wrote the text instead of its sender, "" if the sender did."""
    return metadata.forwarded or (f"bot {metadata.via_bot}" if metadata.via_bot else "")


def sender_label(inbound: Inbound) -> str:
    """Return the sender as `Ann (42)`."""
    return _describe_sender(inbound, "{} ({})")


def indent(text: str) -> str:
    """Indent all lines but the first, for a text that follows a name."""
    return "\n  ".join(text.splitlines())


def _describe_sender(inbound: Inbound, form: str) -> str:
    name, sender = _name(inbound.metadata.name), _part(inbound.sender)
    return form.format(name, sender) if name and name != sender else sender


def _describe_origin(metadata: InboundMetadata) -> str:
    """Return where a text comes from that its sender did not write."""
    if metadata.is_press:
        return "pressed a button"
    via = f"by the bot {_part(metadata.via_bot)}" if metadata.via_bot else ""
    return f"forwarded from {_part(metadata.forwarded)}" if metadata.forwarded else via


def _describe_group(inbound: Inbound) -> str:
    title, chat = _name(inbound.metadata.title), _part(inbound.address.chat)
    topic = _part(inbound.address.thread or "")
    named = f"{title} id:{chat}" if title and title != chat else chat
    return f"{named} topic:{topic}" if topic else named


def _attachments(inbound: Inbound) -> Iterator[str]:
    """Yield the files of a message and the message it replies to."""
    yield from map(_file, inbound.media)
    metadata = inbound.metadata
    if metadata.quoted:
        is_ours = metadata.replies_to_us and not metadata.quotes_others
        target = "you" if is_ours else "a message"
        named = f" id:{_part(metadata.reply_to)}" if metadata.reply_to else ""
        quoted = clip_middle(metadata.quoted.strip(), _MAX_QUOTED_CHARS)
        escaped = escape_header_lines(f"\n{quoted}", senders=True)
        if is_foreign_quote(metadata):
            escaped = "\n" + wrap_untrusted(escaped.lstrip("\n"), "quote", metadata.reply_to)
        yield f"[Replying to {target}{named}]{escaped}\n[/Replying]"


def _file(media: Media) -> str:
    kind = _part(media.mime) or media.kind
    if not media.path:
        name = _part(media.name) or f"a {media.kind}"
        reason = _part(media.problem, 200) or "it could not be had"
        return f"[media missing: {name} ({kind}): {reason}]"
    name = f", {_part(media.name)}" if media.name else ""
    return f"[media attached: {_part(media.path, 500)} ({kind}{name})]"


def header(
    channel: str,
    sender: str = "",
    *,
    host: str = "",
    ip: str = "",
    origin: str = "",
    at_ms: int = 0,
    previous_ms: int = 0,
    rules: EnvelopeOptions = NO_RULES,
) -> str:
    """Return the header: `[Channel sender host ip +elapsed weekday time]`."""
    parts = [_part(channel) or "Channel", _part(sender, 2 * _MAX_PART), _part(host), _part(ip)]
    parts.append(origin)
    if rules.elapsed and at_ms and previous_ms and at_ms >= previous_ms:
        parts.append(f"+{elapsed(at_ms - previous_ms)}")
    if rules.timestamp and at_ms:
        parts.append(timestamp(at_ms, rules.zone, uses_12_hours=rules.uses_12_hours))
    return f"[{' '.join(part for part in parts if part)}]"


def timestamp(at_ms: int, zone: tzinfo | None = None, *, uses_12_hours: bool = False) -> str:
    """Format a time as `Tue 2026-02-17 13:34 GMT+1`; in UTC in ISO form.

    `uses_12_hours` formats it as `Tue 2026-02-17 01:34 PM GMT+1`, in UTC too.
    """
    if zone is UTC and not uses_12_hours:
        at = datetime.fromtimestamp(at_ms / 1000, zone)
        return f"{WEEKDAYS[at.weekday()]} {at:%Y-%m-%dT%H:%MZ}"
    return _local_time(at_ms, zone, uses_12_hours=uses_12_hours)


def _local_time(at_ms: int, zone: tzinfo | None, *, uses_12_hours: bool) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, zone).astimezone(zone)
    half = "PM" if at.hour >= 12 else "AM"  # `%p` is empty in some locales
    clock = f"{at:%I:%M} {half}" if uses_12_hours else f"{at:%H:%M}"
    return f"{WEEKDAYS[at.weekday()]} {at:%Y-%m-%d} {clock} {_zone_label(at)}"


def _zone_label(at: datetime) -> str:
    """Return the zone as OpenClaw writes it: `EST`, `UTC`, else the offset, as `GMT+5:30`."""
    name, offset = at.tzname() or "", at.utcoffset()
    minutes = int(offset.total_seconds()) // 60 if offset else 0
    if _NAMED_OFFSETS.get(name, 99) * 60 == minutes:
        return name
    hours, rest = divmod(abs(minutes), 60)
    return f"GMT{'-' if minutes < 0 else '+'}{hours}" + (f":{rest:02}" if rest else "")


def elapsed(span_ms: int) -> str:
    """Format a duration in one unit: `40s`, `2m`, `3h`, `5d`."""
    seconds = span_ms // 1000
    for unit, size, count in (("s", 1, 60), ("m", 60, 60), ("h", 3_600, 48)):
        if seconds < size * count:
            return f"{seconds // size}{unit}"
    return f"{seconds // 86_400}d"


def _name(text: str) -> str:
    """Remove what would let a name imitate a sender label, as in `Bob (7): yes`."""
    return _part(text.translate(_NAMELY))


def _part(text: str, max_chars: int = _MAX_PART) -> str:
    """Return text that cannot end the header it is in."""
    plain = neutralize_name(one_line(text.translate(_PLAIN), 2 * max_chars))
    return one_line(plain, max_chars).strip()


_NAMELY: Final = str.maketrans(dict.fromkeys(":()[]\uff1a\uff08\uff09", " "))
_PLAIN: Final = str.maketrans({"[": "(", "]": ")", "\r": " ", "\n": " "})


def with_timestamp(
    text: str, at_ms: int, zone: tzinfo | None = None, *, uses_12_hours: bool = False
) -> str:
    """Prefix a text with the time, unless it has one; without `zone`, in local time."""
    if not text.strip() or DATED.match(text) or _KNOWS_TIME in text:
        return text
    return f"[{_local_time(at_ms, zone, uses_12_hours=uses_12_hours)}] {text}"


def prepend_notes(text: str, notes: str) -> str:
    """Return the first message of a session, after the notes of the last days."""
    if not notes.strip():
        return text
    escaped = notes.strip().replace(NOTES_END.strip(), "</recent_notes_>")
    return f"{NOTES}{escaped}{NOTES_END}{text}"
