"""Turn a text into outbox records, each one message of the service.

A record is in the service's dialect and within its limit. A file goes alone; the text goes with it
where the service has captions and it fits, else before it. A file that cannot be sent is replaced
by a line of text, so that the reader does not wait for it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from homarus.channels.base import TTL_MS, Capabilities
from homarus.channels.chunk import ChunkMode
from homarus.channels.markup import parts
from homarus.core.message import NO_EXTRAS, Address, Extras, Inbound, Media
from homarus.core.text import one_line
from homarus.store.journal import OutboxRecord
from homarus.store.journal_codec import to_storable

if TYPE_CHECKING:  # not imported without channels
    from homarus.config.channels import AccountSettings

_MB: Final = 1_000_000
_MAX_NAME_CHARS: Final = 80


def build_outbox_records(
    run: str,
    text: str,
    to: Address,
    capabilities: Capabilities,
    settings: "AccountSettings",
    *,
    at_ms: int,
    extras: Extras = NO_EXTRAS,
    first: int = 0,
) -> list[OutboxRecord]:
    """Return the records of a text and its extras; their numbers start at `first`.

    The first record has `reply_to` and `replaces`, the last one the buttons.
    """
    files, notes = _split_sendable(extras.media, capabilities, settings)
    body = "\n\n".join([text, *notes]) if text.strip() else "\n\n".join(notes)
    bodies = _bodies(body, files, capabilities, settings, caption=not extras.replaces)
    ids = (f"{run}:{number}" for number in range(first, first + len(bodies)))
    expires_ms = at_ms + TTL_MS
    return [
        OutboxRecord(
            record_id, run, to, part, at_ms, expires_ms,
            extras=Extras(
                reply_to=extras.reply_to if not index or settings.reply_to_mode == "all" else "",
                replaces=extras.replaces if not index and file is None else "",
                media=(file,) if file else (),
                as_voice=extras.as_voice and file is not None,
                buttons=extras.buttons if index == len(bodies) - 1 else (),
                silent=extras.silent,
                recipient=extras.recipient,
            ),
        )
        for index, (record_id, (part, file)) in enumerate(zip(ids, bodies, strict=True))
    ]  # fmt: skip


def with_reply_to(
    inbound: Inbound, extras: Extras, settings: "AccountSettings", first: int
) -> Extras:
    """Return a reply's extras, with its recipient, and `reply_to` by `replyToMode` if unset."""
    mode = settings.reply_to_mode
    if inbound.metadata.kind == "direct" and inbound.metadata.holder:
        extras = replace(extras, recipient=inbound.metadata.holder)
    if extras.reply_to or mode == "off" or (mode == "first" and first):
        return extras
    return replace(extras, reply_to=inbound.id)


def render_parts(
    text: str,
    capabilities: Capabilities,
    settings: "AccountSettings",
    *,
    limit: int = 0,
    mode: ChunkMode | None = None,
) -> list[str]:
    """Return a text in the dialect, split; `limit` is one below the account's own."""
    max_size = min(capabilities.text_limit, settings.text_chunk_limit or capabilities.text_limit)
    rendered = parts(
        to_storable(text),
        capabilities,
        tables=settings.markdown.tables,
        limit=min(limit or max_size, max_size),
        mode=mode or settings.chunk_mode,
    )
    return [part for part in rendered if part.strip()]


def _bodies(
    body: str,
    files: Sequence[Media],
    capabilities: Capabilities,
    settings: "AccountSettings",
    *,
    caption: bool,
) -> list[tuple[str, Media | None]]:
    """Yield the messages to make: text, text with a file, or a file."""
    limit = capabilities.caption_limit
    if files and caption and limit and body.strip():
        caption_parts = render_parts(body, capabilities, settings, limit=limit, mode="length")
        if len(caption_parts) == 1:
            return [(caption_parts[0], files[0]), *(("", file) for file in files[1:])]
    text_parts = render_parts(body, capabilities, settings) if body.strip() else []
    return [*((part, None) for part in text_parts), *(("", file) for file in files)]


def max_file_bytes(capabilities: Capabilities, settings: "AccountSettings") -> int:
    """Return the largest file that can be sent: the service's limit, or less by `mediaMaxMb`."""
    limit_mb = settings.media_max_mb
    max_bytes = capabilities.media_max_bytes
    return min(max_bytes, round(limit_mb * _MB)) if limit_mb else max_bytes


def _split_sendable(
    media: Sequence[Media], capabilities: Capabilities, settings: "AccountSettings"
) -> tuple[list[Media], list[str]]:
    """Return the files that can be sent, and a line of text for each that cannot."""
    max_size = max_file_bytes(capabilities, settings)
    files, notes = list[Media](), list[str]()
    for file in media:
        name = f"`{one_line(file.name or 'a file', _MAX_NAME_CHARS).replace('`', chr(39))}`"
        if file.problem:
            notes.append(f"({name} was not sent: {one_line(file.problem, 200)})")
        elif not max_size:
            notes.append(f"(a file that cannot be sent here: {name})")
        elif file.size > max_size:
            size, limit = f"{file.size / _MB:.1f} MB", f"{max_size / _MB:.1f} MB"
            notes.append(f"({name} was not sent: it has {size}, and {limit} is the limit here)")
        else:
            files.append(file)
    return files, notes
