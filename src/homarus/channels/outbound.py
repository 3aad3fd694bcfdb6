"""Turn a text into outbox records, each one message of the service.

A record is in the service's dialect and within its limit. Files go with as many others as a message
of the service has; the text goes with them where the service has captions and it fits, else before
them. What the service does not have is written in the text: a file that cannot be sent is a line,
so that the reader does not wait for it, and choices without buttons are a numbered list.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from homarus.channels.base import TTL_MS, Capabilities
from homarus.channels.chunk import ChunkMode
from homarus.channels.markup import RenderedPart, parts
from homarus.channels.registry import find_traits
from homarus.core.approval_button import is_approval_button
from homarus.core.message import NO_EXTRAS, Address, Button, Extras, Inbound, Media
from homarus.core.text import one_line
from homarus.store.journal import OutboxRecord
from homarus.store.journal_codec import to_storable

if TYPE_CHECKING:  # not imported without channels
    from homarus.config.channels import AccountSettings

_MB: Final = 1_000_000
_MAX_NAME_CHARS: Final = 80
_MAX_SUBJECT_CHARS: Final = 1_000
_NO_TEXT: Final = RenderedPart("")


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

    The first record has `reply_to`, `replaces`, `thread_on` and `subject`, the last that can have
    buttons has them. Where a send creates a thread, the first one does, and the others go there.
    """
    files, notes = _split_sendable(extras.media, capabilities, settings)
    if extras.subject and not capabilities.has_subject:
        text = f"**{one_line(extras.subject, _MAX_SUBJECT_CHARS)}**\n\n{text}"
        extras = replace(extras, subject="")
    can_go_with_file = capabilities.has_file_buttons
    has_place = can_go_with_file or not files or bool(text.strip() or notes)
    if extras.buttons and not (has_place and shows_buttons(extras.buttons, to, capabilities)):
        notes += _numbered_choices(extras.buttons)
        extras = replace(extras, buttons=())
    body = "\n\n".join([text, *notes]) if text.strip() else "\n\n".join(notes)
    has_caption = not extras.replaces and (can_go_with_file or not extras.buttons)
    bodies = _bodies(body, files, capabilities, settings, caption=has_caption)
    with_buttons = [index for index, (_, one) in enumerate(bodies) if can_go_with_file or not one]
    may_open_thread = extras.thread_title or (capabilities.has_new_threads and not to.thread)
    thread_from = f"{run}:{first}" if may_open_thread else ""
    ids = (f"{run}:{number}" for number in range(first, first + len(bodies)))
    expires_ms = at_ms + TTL_MS
    return [
        OutboxRecord(
            record_id, run, to, part.text, at_ms, expires_ms,
            extras=Extras(
                reply_to=extras.reply_to if not index or settings.reply_to_mode == "all" else "",
                replaces=extras.replaces if not index and not attached else "",
                media=attached,
                as_voice=extras.as_voice and bool(attached),
                buttons=extras.buttons if index in with_buttons[-1:] else (),
                silent=extras.silent,
                recipient=extras.recipient,
                styles=part.styles,
                subject=extras.subject if not index else "",
                thread_title=extras.thread_title if not index else "",
                thread_from=thread_from if index else "",
                thread_on=extras.thread_on if not index else "",
            ),
        )
        for index, (record_id, (part, attached)) in enumerate(zip(ids, bodies, strict=True))
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
) -> list[RenderedPart]:
    """Return a text in the dialect, split; `limit` is one below the account's own."""
    max_size = min(capabilities.text_limit, settings.text_chunk_limit or capabilities.text_limit)
    rendered = parts(
        to_storable(text),
        capabilities,
        tables=settings.markdown.tables,
        limit=min(limit or max_size, max_size),
        mode=mode or settings.chunk_mode,
    )
    return [part for part in rendered if part.text.strip()]


def _bodies(
    body: str,
    files: Sequence[Media],
    capabilities: Capabilities,
    settings: "AccountSettings",
    *,
    caption: bool,
) -> list[tuple[RenderedPart, tuple[Media, ...]]]:
    """Return the messages to make: text, text with files, or files."""
    limit, size = capabilities.caption_limit, max(1, capabilities.max_files)
    groups = [tuple(files[start : start + size]) for start in range(0, len(files), size)]
    if groups and caption and limit and body.strip():
        caption_parts = render_parts(body, capabilities, settings, limit=limit, mode="length")
        if len(caption_parts) == 1:
            return [(caption_parts[0], groups[0]), *((_NO_TEXT, group) for group in groups[1:])]
    text_parts = render_parts(body, capabilities, settings) if body.strip() else []
    return [*((part, ()) for part in text_parts), *((_NO_TEXT, group) for group in groups)]


def shows_buttons(
    rows: Sequence[Sequence[Button]], to: Address, capabilities: Capabilities
) -> bool:
    """Return whether a message to this chat can have all of these buttons."""
    if sum(map(len, rows)) > capabilities.max_buttons:
        return False
    if capabilities.button_chats == "all":
        return True
    is_group = find_traits(to.channel).is_group_id(to.chat)
    return is_group == (capabilities.button_chats == "group")


def _numbered_choices(rows: Sequence[Sequence[Button]]) -> list[str]:
    """Return the labels as a numbered list; the prompt for an approval has its commands already."""
    labels = [button.label for row in rows for button in row if not is_approval_button(button.data)]
    return ["\n".join(f"{number}. {label}" for number, label in enumerate(labels, 1))] * bool(
        labels
    )


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
