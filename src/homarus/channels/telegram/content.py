"""Extract text and files of a Telegram message, and describe other content as text."""

from collections.abc import Iterator, Mapping
from typing import Final

from homarus.channels.telegram.fields import get_int, get_object, get_objects, get_str
from homarus.core.message import Json, Media, MediaKind

# By field. An animation comes as a document too, and a venue as a location.
_FILES: Final[dict[str, tuple[MediaKind, str]]] = {
    "animation": ("video", "video/mp4"),
    "document": ("document", ""),
    "audio": ("audio", "audio/mpeg"),
    "voice": ("voice", "audio/ogg"),
    "video": ("video", "video/mp4"),
    "video_note": ("video", "video/mp4"),
}


def message_text(message: Mapping[str, Json]) -> str:
    """Return the text, or a short description of other content."""
    return get_str(message, "text") or get_str(message, "caption") or _described(message)


def message_media(message: Mapping[str, Json]) -> tuple[Media, ...]:
    """Return the file of a message; of an image, the largest size."""
    if found := max(get_objects(message, "photo"), key=_area, default=None):
        return tuple(_file(found, "image", "image/jpeg"))
    if sticker := get_object(message, "sticker"):
        return tuple(_file(sticker, "sticker", _sticker_mime(sticker)))
    for name, (kind, mime) in _FILES.items():
        if found := get_object(message, name):
            file_type = get_str(found, "mime_type") or mime
            is_picture = name == "document" and file_type.startswith("image/")
            return tuple(_file(found, "image" if is_picture else kind, file_type))
    return ()


def _area(size: Mapping[str, Json]) -> int:
    return get_int(size, "width") * get_int(size, "height")


def _file(found: Mapping[str, Json], kind: MediaKind, mime: str) -> Iterator[Media]:
    if ref := get_str(found, "file_id"):
        name = get_str(found, "file_name")
        yield Media(kind, mime, name, max(0, get_int(found, "file_size")), ref)


def _sticker_mime(sticker: Mapping[str, Json]) -> str:
    if sticker.get("is_animated") is True:
        return "application/x-tgsticker"
    return "video/webm" if sticker.get("is_video") is True else "image/webp"


def _described(message: Mapping[str, Json]) -> str:
    for name, describe in _DESCRIBED.items():
        if found := get_object(message, name):
            return f"[{describe(found)}]"
    return ""


def _sticker(sticker: Mapping[str, Json]) -> str:
    return f"sticker {get_str(sticker, 'emoji')}".strip()


def _venue(venue: Mapping[str, Json]) -> str:
    lines = [
        get_str(venue, "title"),
        get_str(venue, "address"),
        _place(get_object(venue, "location")),
    ]
    return f"venue: {', '.join(one for one in lines if one)}"


def _place(location: Mapping[str, Json]) -> str:
    at = [location.get("latitude"), location.get("longitude")]
    if not all(isinstance(one, int | float) and abs(one) <= 180 for one in at):
        return ""
    return ", ".join(f"{one:.6f}" for one in at)


def _contact(contact: Mapping[str, Json]) -> str:
    name = f"{get_str(contact, 'first_name')} {get_str(contact, 'last_name')}".strip()
    lines = [name, get_str(contact, "phone_number")]
    return f"contact: {', '.join(one for one in lines if one)}"


def _poll(poll: Mapping[str, Json]) -> str:
    options = " / ".join(get_str(option, "text") for option in get_objects(poll, "options"))
    return f"poll: {get_str(poll, 'question')} {options}".strip()


def _dice(dice: Mapping[str, Json]) -> str:
    return f"dice {get_str(dice, 'emoji')}: {get_int(dice, 'value')}"


_DESCRIBED: Final = {
    "sticker": _sticker,
    "venue": _venue,
    "location": lambda location: f"location: {_place(location)}",
    "contact": _contact,
    "poll": _poll,
    "dice": _dice,
}
