"""The list of allowed hosts: how entries are written, and what they match."""

import pytest

from homarus.core.errors import BlockedUrlError
from homarus.net.host_allowlist import HostAllowlist, parse_allowed_host


@pytest.mark.parametrize(
    ("entry", "host", "port", "is_match"),
    [
        ("example.org", "example.org", 443, True),
        ("example.org", "example.org", 80, True),
        ("example.org", "example.org", 8443, False),
        ("example.org", "a.example.org", 443, False),
        ("example.org", "notexample.org", 443, False),
        ("example.org", "example.org.evil.test", 443, False),
        ("EXAMPLE.org.", "example.org", 443, True),
        ("example.org:8443", "example.org", 8443, True),
        ("example.org:8443", "example.org", 443, False),
        ("*.example.org", "a.example.org", 443, True),
        ("*.example.org", "a.b.example.org", 80, True),
        ("*.example.org", "example.org", 443, False),
        ("*.example.org", "evilexample.org", 443, False),
        ("*.example.org:8080", "a.example.org", 8080, True),
        ("*.example.org:8080", "a.example.org", 80, False),
        ("bücher.example", "xn--bcher-kva.example", 443, True),
        ("XN--BCHER-KVA.example", "xn--bcher-kva.example", 443, True),
        ("ｅxample.org", "example.org", 443, True),
        ("93.184.216.34", "93.184.216.34", 80, True),
        ("0x5db8d822", "93.184.216.34", 80, True),
        ("2606:4700::1111", "2606:4700::1111", 443, True),
        ("[2606:4700::1111]:8443", "2606:4700::1111", 8443, True),
        ("[2606:4700::1111]:8443", "2606:4700::1111", 443, False),
        ("::ffff:93.184.216.34", "93.184.216.34", 443, True),
    ],
)
def test_entry_matches_only_its_own_hosts_and_ports(
    entry: str, host: str, port: int, is_match: bool
) -> None:
    found = HostAllowlist([entry]).find(host, port)
    assert (found is not None) is is_match


@pytest.mark.parametrize(
    "text",
    [
        "", "*", "*.", "*.*.org", "a.*.org", "http://example.org", "example.org/path", "a b",
        "user@example.org", "example.org:", "example.org:0", "example.org:65536", "example.org:x",
        "example.org:" + "9" * 5000, "[::1", "[::1]x", "[::1]:", "a..b", "*.10.1.2", "fe80::1%eth0",
        "straße.example", "a:80:90",
    ],
)  # fmt: skip
def test_entry_that_is_no_host_is_refused(text: str) -> None:
    with pytest.raises(BlockedUrlError):
        parse_allowed_host(text)


def test_entry_with_the_port_is_preferred_to_one_without() -> None:
    allowed = HostAllowlist(["example.org", "*.org:80"])
    found = allowed.find("example.org", 80)
    assert found is not None
    assert found.port == 80
    assert allowed.has_host("example.org")
    assert not allowed.has_host("example.net")


@pytest.mark.parametrize("text", ["example.org", "*.a.test:8080", "[2606:4700::1]:443", "1.1.1.1"])
def test_entry_as_text_is_read_again_as_the_same_entry(text: str) -> None:
    entry = parse_allowed_host(text)
    assert parse_allowed_host(str(entry)) == entry
    assert str(entry) == text
