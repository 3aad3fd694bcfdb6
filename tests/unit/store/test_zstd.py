"""Zstandard frames, compressed by the reference implementation."""

import base64
import hashlib

import pytest

from homarus.store.zstd import decompress
from tests.openclaw_databases import PACKED, PACKED_SHA256, zstd_frame

# 2023 bytes of words at level 1: Huffman literals with a table, FSE-coded sequences.
WORDS = base64.b64decode(
    "KLUv/WTnBkUTAOKNIRaQpWkD0HgKNNoWTcrbrhX+/z9ef8wBSQZpudVvZCQZebv6uG53q6kM+ubb1QvC9dulCz2u27io"
    "mMqtfqP6uJKQG+oO+kZJ9d6uHD4iLLQM2lD3NuhBj6sBQwKCtW8F4Hw06SUg544LqSBIlIEkg7TcOuhStgSro6ZSqlOS"
    "gYLergXha92OgRaoAUuRpIwkrQERSBQLk+wGEXTFVrRpDDK3oPxR5pLIWbcq6YFqhvrzLgUQc3HF5baVpr9qG6irOYsV"
    "7nQNaFz0Q2oJQU3UreLFHKsaJGhwhEhG5xFV8580G9AZ/yqTGLpGB8lS93gGodP+RwtDTQ6XITXoppxnvsyBDRGgSPpw"
    "dAUUAg4VYLrITEcEGDwwm3bVsGBGDFiu+tqFt8idcboW+K0rTqlECM7YmrUnaJtwIBwe4M65Wcp6LyaWpClfMYDltJbE"
    "9NcCHS6z1RgqfHL78uWvQhycIYG0M11cd6R8IeRLBZ9PUPNM3R6QzVcmIWLkeqlhDnnVTN1tf28J0MQXYRGp/yADZLem"
    "eLrtr4nCiecqCrv3TbL6n9RqXMJgDmxphT1WBnyS+sxqk4jLh/XjUa1TYAaSpq4y9Nn5ZAUbDc+7Aw5rirR4tgGGvcqw"
    "MfMqSigzCXeOCqb+jFTOuoFWK3VJNdZ/+aguAuUfsWk7pbaoVynAMZP8vPGs/uY3KMaG2LGbMISuf3eaBgZdcB12tBo/"
    "nbaz7okkiwFPl4qmaWlXA7t9gTzmcYzMswHBxgmgf3CsHvz3I2APplxFBvMuHflCrwGpG5PD6N6Qmg66deAketAGCkCl"
    "6OfAqgKs9HzG"
)
WORDS_SHA256 = "2cb1e355a106df57e0e317e1322405d2f3118c597e3967c0423498d8d4e5f648"
RUNS = base64.b64decode("KLUv/WDAEXUAABhhYmMCALRzfTFwv8MC")  # "ab" * 900 + "c" * 3000
MAX_BYTES = 1 << 20


@pytest.mark.parametrize(("data", "digest"), [(WORDS, WORDS_SHA256), (PACKED, PACKED_SHA256)])
def test_decompress_text_returns_its_bytes(data: bytes, digest: str) -> None:
    assert hashlib.sha256(decompress(data, MAX_BYTES)).hexdigest() == digest


def test_decompress_runs_and_several_frames_returns_all() -> None:
    runs = b"ab" * 900 + b"c" * 3000
    assert decompress(RUNS, MAX_BYTES) == runs
    skipped = b"\x50\x2a\x4d\x18\x03\0\0\0xyz"
    assert decompress(RUNS + skipped + zstd_frame(b"end"), MAX_BYTES) == runs + b"end"
    assert decompress(b"", MAX_BYTES) == b""


@pytest.mark.parametrize("data", [RUNS, WORDS, zstd_frame(b"x" * 5000)])
def test_decompress_too_long_content_raises(data: bytes) -> None:
    with pytest.raises(ValueError, match="longer than 1000 bytes"):
        decompress(data, 1000)


@pytest.mark.parametrize(
    "data", [b"plain", b"\x28\xb5\x2f\xfd", WORDS[:300], WORDS[:-200], PACKED[:1] + PACKED[2:]]
)
def test_decompress_invalid_data_raises_value_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        decompress(data, MAX_BYTES)


def test_decompress_every_changed_byte_raises_only_value_error() -> None:
    for place in range(0, len(WORDS), 7):
        changed = bytearray(WORDS)
        changed[place] ^= 0x55
        try:
            decompress(bytes(changed), MAX_BYTES)
        except ValueError:
            continue
