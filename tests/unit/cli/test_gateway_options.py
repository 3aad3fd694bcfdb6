"""Which certificate a command accepts of a gateway: its own, a named one, or a trusted one."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from homarus.cli.gateway_options import GatewayOptions, find_fingerprint, find_own_gateway
from homarus.config.paths import Paths
from homarus.core.errors import UserError
from homarus.store.lock import StateLock

OWN, OTHER = "ab" * 32, "cd" * 32
URL = "wss://gw.example:18789"


def configure(home: Path, **gateway: Any) -> Paths:
    (home / ".openclaw" / "openclaw.json").write_text(json.dumps({"gateway": gateway}))
    return Paths.find(os.environ)


def test_fingerprint_of_own_gateway_is_the_published_one(home: Path) -> None:
    paths = configure(home, tls={"enabled": True}, port=18999)
    assert find_own_gateway(paths, GatewayOptions())[0] == "wss://127.0.0.1:18999"
    assert find_fingerprint(paths, GatewayOptions(), "wss://127.0.0.1:18999") == ""
    lock = StateLock(paths.state)
    try:
        fields = {"pid": os.getpid(), "url": "wss://127.0.0.1:1", "tlsFingerprint": OWN}
        paths.gateway_file.write_text(json.dumps(fields))
        assert find_own_gateway(paths, GatewayOptions())[0] == "wss://127.0.0.1:1"
        assert find_fingerprint(paths, GatewayOptions(), "wss://127.0.0.1:1") == OWN
        assert find_fingerprint(paths, GatewayOptions(), "ws://127.0.0.1:1") == ""
        # Another machine's gateway is never recognised by the fingerprint of our own.
        assert find_fingerprint(paths, GatewayOptions(url=URL), URL) == ""
    finally:
        lock.release()


@pytest.mark.parametrize(
    ("remote", "option", "expected"),
    [
        ({}, None, ""),
        ({"tlsFingerprint": OWN}, None, OWN),
        ({"tlsFingerprint": f"sha256:{OWN.upper()}", "url": URL}, None, OWN),
        ({"tlsFingerprint": OWN, "url": "wss://another.example"}, None, ""),
        ({"tlsFingerprint": OWN}, OTHER, OTHER),
    ],
)
def test_fingerprint_of_another_gateway_is_option_then_config(
    remote: dict[str, str], option: str | None, expected: str, home: Path
) -> None:
    paths = configure(home, remote=remote)
    options = GatewayOptions(url=URL, tls_fingerprint=option)
    assert find_fingerprint(paths, options, URL) == expected


@pytest.mark.parametrize("where", ["--tls-fingerprint", "gateway.remote.tlsFingerprint"])
def test_fingerprint_that_is_none_is_refused_and_named(where: str, home: Path) -> None:
    is_option = where.startswith("--")
    paths = configure(home, remote={} if is_option else {"tlsFingerprint": "abc"})
    options = GatewayOptions(url=URL, tls_fingerprint="abc" if is_option else None)
    with pytest.raises(UserError, match=where):
        find_fingerprint(paths, options, URL)
