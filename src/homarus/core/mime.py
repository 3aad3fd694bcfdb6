"""Detect the MIME type of a file from its first bytes; its name may be wrong."""

from typing import Final

HEAD_BYTES: Final = 16  # enough for every signature below

_STARTS: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"OggS", "audio/ogg"),
    (b"ID3", "audio/mpeg"),
    (b"\xff\xfb", "audio/mpeg"),
    (b"fLaC", "audio/flac"),
    (b"\x1aE\xdf\xa3", "video/webm"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b", "application/gzip"),
)
_RIFF: Final = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
_EXTENSIONS: Final = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "application/pdf": ".pdf",
    "audio/ogg": ".ogg",
    "audio/mpeg": ".mp3",
    "audio/flac": ".flac",
    "audio/wav": ".wav",
    "audio/mp4": ".m4a",
    "video/mp4": ".mp4",
    "video/webm": ".webm",
    "video/x-msvideo": ".avi",
    "application/zip": ".zip",
    "application/gzip": ".gz",
    "text/plain": ".txt",
}


def sniff_mime(head: bytes) -> str:
    """Return the MIME type of a file that starts with these bytes; "" if it is unknown."""
    if head[:4] == b"RIFF":
        return _RIFF.get(head[8:12], "")
    if head[4:8] == b"ftyp":
        return "audio/mp4" if head[8:11] == b"M4A" else "video/mp4"
    return next((mime for start, mime in _STARTS if head.startswith(start)), "")


def sniff_image_mime(head: bytes) -> str:
    """Return the MIME type of an image that a model accepts; "" for any other file."""
    mime = sniff_mime(head)
    return mime if mime.startswith("image/") else ""


def extension_for(mime: str) -> str:
    """Return the file name extension for a MIME type; "" if it is unknown."""
    return _EXTENSIONS.get(mime, "")
