"""Fingerprints of certificates: how they are written, and what a pinned connection accepts."""

import ssl

import pytest

from homarus.net.pinned_tls import (
    PinnedTlsContext,
    certificate_fingerprint,
    format_fingerprint,
    parse_fingerprint,
)

DIGITS = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    "text",
    [
        DIGITS,
        DIGITS.upper(),
        f"sha256:{DIGITS}",
        f"SHA-256 {DIGITS}",
        f"sha256 Fingerprint={format_fingerprint(DIGITS)}".replace(" Fingerprint", ""),
        format_fingerprint(DIGITS),
        f"  {format_fingerprint(DIGITS).replace(':', ' ')}\n",
    ],
)
def test_fingerprint_is_read_in_every_usual_form(text: str) -> None:
    assert parse_fingerprint(text) == DIGITS


@pytest.mark.parametrize("text", ["", "sha256:", DIGITS[:-1], DIGITS + "0", "g" * 64, "٠" * 64])
def test_text_that_is_no_fingerprint_is_refused(text: str) -> None:
    assert parse_fingerprint(text) == ""
    with pytest.raises(ValueError, match="64 digits"):
        PinnedTlsContext(parse_fingerprint(text))


def test_fingerprint_is_shown_in_pairs() -> None:
    assert format_fingerprint(certificate_fingerprint(b"")).startswith("E3:B0:C4:42:98")


def test_pinned_context_refuses_sockets_it_cannot_check() -> None:
    context = PinnedTlsContext(DIGITS)
    assert context.verify_mode is ssl.CERT_NONE
    with pytest.raises(TypeError):
        context.wrap_socket(None)
