"""Decompress Zstandard frames, with a limit for the size of their content.

Python's own library can do so from 3.14 on; before, its backport does. It is imported at first use.
"""

import sys


def decompress(data: bytes, max_bytes: int) -> bytes:
    """Return the content of all frames. Raises ValueError if it is invalid or longer."""
    if sys.version_info >= (3, 14):
        from compression import zstd
    else:
        from backports import zstd

    content = b""
    while data:
        frame = zstd.ZstdDecompressor()
        try:
            content += frame.decompress(data, max_length=max_bytes + 1 - len(content))
        except zstd.ZstdError as exc:
            raise ValueError(f"invalid Zstandard data: {exc}") from exc
        if len(content) > max_bytes:
            raise ValueError(f"the content is longer than {max_bytes} bytes")
        if not frame.eof:
            raise ValueError("invalid Zstandard data: it ends in the middle of a frame")
        data = frame.unused_data
    return content
