"""The text and the files of a Discord message, as the agent reads them."""

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from homarus.core.message import Media, MediaKind
from homarus.core.text import one_line

if TYPE_CHECKING:  # imported when an account starts
    import discord

_MENTION: Final = re.compile(r"<(@!?|@&|#)([0-9]{1,20})>")
_EMOJI: Final = re.compile(r"<a?(:[A-Za-z0-9_]{1,40}:)[0-9]{1,20}>")
_MAX_NAME_CHARS: Final = 100
_MAX_EMBEDS: Final = 10


def message_text(
    message: "discord.Message | discord.MessageSnapshot", names: Mapping[str, str]
) -> str:
    """Return the text; `names` are those of mentioned ids. Without one, that of a poll or embed."""
    if text := readable(message.content, names):
        return text
    if poll := getattr(message, "poll", None):
        options = "\n".join(f"- {answer.text}" for answer in poll.answers)
        return f"Poll: {poll.question}\n{options}"
    return "\n\n".join(_embed_text(each) for each in message.embeds[:_MAX_EMBEDS]).strip()


def readable(content: str, names: Mapping[str, str]) -> str:
    """Return a text with names for the ids of people, roles, channels and emoji."""

    def name(found: re.Match[str]) -> str:
        sign = "#" if found[1] == "#" else "@"
        return f"{sign}{one_line(names.get(found[2], found[2]), _MAX_NAME_CHARS)}"

    return _EMOJI.sub(r"\1", _MENTION.sub(name, content)).strip()


def mentioned_names(message: "discord.Message") -> dict[str, str]:
    """Return the names of the people, roles and channels that a message mentions."""
    people = {str(one.id): one.display_name for one in message.mentions}
    roles = {str(one.id): one.name for one in message.role_mentions}
    rooms = {str(one.id): str(getattr(one, "name", one.id)) for one in message.channel_mentions}
    return {**rooms, **roles, **people}


def message_media(message: "discord.Message | discord.MessageSnapshot") -> tuple[Media, ...]:
    """Return the files and stickers of a message; an id is the address of the file.

    Without its signature, which expires, and which is another when the message is read again.
    """
    files = (
        Media(
            _kind(one),
            (one.content_type or "").partition(";")[0].strip(),
            one.filename,
            one.size,
            one.url.partition("?")[0],
        )
        for one in message.attachments
    )
    return (*files, *_stickers(message.stickers))


def _stickers(stickers: "Iterable[discord.StickerItem]") -> Iterable[Media]:
    for one in stickers:
        mime = {"lottie": "application/json", "gif": "image/gif"}.get(one.format.name, "image/png")
        yield Media("sticker", mime, f"{one.name}.{one.format.file_extension}", 0, one.url)


def _kind(attachment: "discord.Attachment") -> MediaKind:
    if attachment.is_voice_message():
        return "voice"
    match (attachment.content_type or "").partition("/")[0]:
        case "image":
            return "image"
        case "audio":
            return "audio"
        case "video":
            return "video"
    return "document"


def _embed_text(embed: "discord.Embed") -> str:
    fields = (f"{one.name}: {one.value}" for one in embed.fields)
    return "\n".join(filter(None, (embed.title, embed.description, *fields)))
