"""Host, Origin and forwarding headers: who may knock, and from where."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.errors import ConfigError
from homarus.gateway.origin_policy import (
    OriginPolicy,
    RequestBlockedError,
    RequestInfo,
    parse_host,
    parse_origin,
)

PORT = 18789
HERE = f"127.0.0.1:{PORT}"
ENTRANCE = OriginPolicy.from_config(PORT)


def request(
    peer: str = "127.0.0.1", *, own: str = "", query: bytes = b"", **headers: Any
) -> RequestInfo:
    named = {"host": HERE, **headers}
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in named.items()]
    return RequestInfo.read(peer, raw, own=own, query=query)


def barred(knock: RequestInfo, entrance: OriginPolicy = ENTRANCE) -> int:
    try:
        entrance.check(knock)
    except RequestBlockedError as exc:
        return exc.status
    return 0


@pytest.mark.parametrize("host", [HERE, f"localhost:{PORT}", f"LOCALHOST:{PORT}", f"[::1]:{PORT}"])
def test_own_host_names_are_accepted(host: str) -> None:
    assert barred(request(host=host)) == 0
    assert barred(request(host=host, origin=f"http://{host}")) == 0


@pytest.mark.parametrize(
    "host",
    [
        "",
        "evil.example",
        f"evil.example:{PORT}",
        f"localhost.:{PORT}",
        f"localhost.evil.example:{PORT}",
        f"127.0.0.1.nip.io:{PORT}",
        f"0.0.0.0:{PORT}",
        f"[::]:{PORT}",
        f"169.254.169.254:{PORT}",
        f"2130706433:{PORT}",
        f"127.1:{PORT}",
        "127.0.0.1",
        "127.0.0.1:1",
        "127.0.0.1:99999",
        "127.0.0.1:",
        f"user@127.0.0.1:{PORT}",
        f" 127.0.0.1:{PORT}",
        f"127.0.0.1:{PORT} ",
        f"127.0.0.1:{PORT}, evil.example",
        f"[::1%lo]:{PORT}",
        f"::1:{PORT}",
        f"[::ffff:127.0.0.1]:{PORT}",
        f"127.0.0.1:{PORT}/x",
        "x" * 60_000,
    ],
)
def test_foreign_host_is_refused_against_dns_rebinding(host: str) -> None:
    assert barred(request(host=host)) == 403


def test_own_address_of_the_socket_is_accepted() -> None:
    assert barred(request("10.0.0.9", own="10.0.0.2", host=f"10.0.0.2:{PORT}")) == 0
    assert barred(request("10.0.0.9", own="10.0.0.2", host=f"10.0.0.3:{PORT}")) == 403
    assert barred(request("10.0.0.9", own="0.0.0.0", host=f"0.0.0.0:{PORT}")) == 403
    assert barred(request("fe80::9", own="fe80::2%eth0", host=f"[fe80::2]:{PORT}")) == 0


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "null",
        "file://",
        "https://evil.example",
        f"https://127.0.0.1:{PORT}",
        "http://127.0.0.1",
        "http://127.0.0.1:3000",
        f"http://localhost:{PORT}",
        f"http://[::1]:{PORT}",
        f"http://127.0.0.1:{PORT}/",
        f"http://127.0.0.1:{PORT}?x",
        f"http://127.0.0.1:{PORT}#x",
        f"http://127.0.0.1:{PORT}@evil.example",
        f"http://evil.example\\@127.0.0.1:{PORT}",
        f"http://127.0.0.1:{PORT}.evil.example",
        f"http://127.0.0.1:{PORT}, https://evil.example",
        f" http://127.0.0.1:{PORT}",
        f"http://127.0.0.1:{PORT}\n",
        f"http:127.0.0.1:{PORT}",
        "chrome-extension://abcdefghijklmnop",
        f"ws://127.0.0.1:{PORT}",
    ],
)
def test_foreign_origin_is_refused(origin: str) -> None:
    assert barred(request(origin=origin)) == 403


def test_allowed_origin_and_its_host_are_accepted() -> None:
    entrance = OriginPolicy.from_config(PORT, ["https://GW.example/", "http://localhost:5173"])
    assert barred(request(origin="https://gw.example"), entrance) == 0
    assert barred(request(origin="https://gw.example:443", host="gw.example:443"), entrance) == 0
    assert barred(request(origin="http://gw.example"), entrance) == 403
    assert barred(request(origin="http://localhost:5173"), entrance) == 0
    assert barred(request(host="localhost:5173"), entrance) == 0
    assert barred(request(host="other.example:443"), entrance) == 403


@pytest.mark.parametrize("text", ["*", "gw.example", "https://gw.example/path", "null", ""])
def test_allowed_origin_that_is_invalid_raises_config_error(text: str) -> None:
    with pytest.raises(ConfigError, match="not an origin") as caught:
        OriginPolicy.from_config(PORT, [text])
    assert caught.value.fix


def test_duplicate_host_or_origin_is_refused() -> None:
    for name in (b"host", b"origin", b"authorization"):
        headers = [(b"host", HERE.encode()), (name, b"a"), (name, b"b")]
        assert barred(RequestInfo.read("127.0.0.1", headers)) == 400


@pytest.mark.parametrize(
    "query",
    [b"token=x", b"a=1&TOKEN=x", b"access_token=x", b"t%6fken=x", b"password=", b"device-token=1"],
)
def test_secret_in_the_query_is_refused(query: bytes) -> None:
    """Row 11: tokens in URLs end in logs and clipboards."""
    assert barred(request(query=query)) == 400


@pytest.mark.parametrize("query", [b"", b"a=token", b"session=main&tokens_left=3", b"gatewayUrl=x"])
def test_other_query_is_accepted(query: bytes) -> None:
    assert barred(request(query=query)) == 0


def test_url_of_100_kilobytes_is_refused() -> None:
    scope = {"client": ("127.0.0.1", 1), "headers": [(b"host", HERE.encode())]}
    assert barred(RequestInfo.from_scope({**scope, "raw_path": b"/" + b"a" * 100_000})) == 414
    assert (
        barred(RequestInfo.from_scope({**scope, "raw_path": b"/", "query_string": b"a" * 9_000}))
        == 414
    )


def test_request_through_a_proxy_is_not_local() -> None:
    """Row 5: peer 127.0.0.1 with a forwarding header and no trusted proxies."""
    assert ENTRANCE.is_local(request())
    for name in ("x_forwarded_for", "x_real_ip", "forwarded", "via", "x_forwarded_host"):
        for value in ("1.2.3.4", "127.0.0.1"):
            headers: dict[str, Any] = {name: value}
            assert not ENTRANCE.is_local(request(**headers))
    trusting = OriginPolicy.from_config(PORT, proxies=["127.0.0.1"])
    assert not trusting.is_local(request(x_forwarded_for="127.0.0.1"))


@pytest.mark.parametrize("peer", ["10.0.0.9", "::ffff:10.0.0.9", "", "unix"])
def test_only_a_loopback_peer_is_local(peer: str) -> None:
    assert not ENTRANCE.is_local(request(peer))


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_every_loopback_form_is_local(peer: str) -> None:
    assert ENTRANCE.is_local(request(peer))


def test_loopback_peer_with_foreign_host_is_not_local() -> None:
    entrance = OriginPolicy.from_config(PORT, ["https://gw.example"])
    assert not entrance.is_local(request(host="gw.example"))


@pytest.mark.parametrize(
    ("peer", "forwarded", "ip"),
    [
        ("1.2.3.4", "9.9.9.9", "1.2.3.4"),
        ("10.0.0.1", "9.9.9.9", "9.9.9.9"),
        ("10.0.0.1", "6.6.6.6, 9.9.9.9", "9.9.9.9"),
        ("10.0.0.1", "6.6.6.6, 9.9.9.9, 10.0.0.7", "9.9.9.9"),
        ("10.0.0.1", "9.9.9.9:4711", "9.9.9.9"),
        ("10.0.0.1", "[2001:db8::1]:4711", "2001:db8::1"),
        ("10.0.0.1", "127.0.0.1, garbage", "10.0.0.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.5", "10.0.0.5"),
        ("::ffff:10.0.0.1", "9.9.9.9", "9.9.9.9"),
    ],
)
def test_forwarded_address_counts_only_from_trusted_proxies(
    peer: str, forwarded: str, ip: str
) -> None:
    entrance = OriginPolicy.from_config(PORT, proxies=["10.0.0.0/24"])
    assert entrance.client_ip(request(peer, x_forwarded_for=forwarded)) == ip


def test_trusted_proxy_that_is_no_address_raises_config_error() -> None:
    with pytest.raises(ConfigError, match="not an address"):
        OriginPolicy.from_config(PORT, proxies=["everybody"])


def test_browser_is_detected_by_its_fetch_headers() -> None:
    assert request(origin="null").is_browser
    assert request(sec_fetch_site="cross-site").is_browser
    assert not request(user_agent="Mozilla/5.0").is_browser


def test_upgrade_facts_come_from_the_asgi_scope() -> None:
    scope = {
        "client": ("10.0.0.9", 5),
        "server": ("10.0.0.2", PORT),
        "headers": [(b"Host", b"10.0.0.2:18789"), (b"Authorization", b"Bearer s3cret")],
        "query_string": b"a=b",
    }
    found = RequestInfo.from_scope(scope)
    assert (found.peer, found.own, found.host) == ("10.0.0.9", "10.0.0.2", "10.0.0.2:18789")
    assert "s3cret" not in repr(found)
    assert barred(RequestInfo.from_scope({"client": None, "headers": []})) == 403


ODD = st.text(st.sampled_from("abz019.:[]/@\\-_% \r\n,\u0130\x00"), max_size=30)


@given(ODD)
def test_any_host_header_is_parsed_or_refused(text: str) -> None:
    found = parse_host(text)
    if found is not None:
        name, port = found
        again = f"[{name}]:{port}" if ":" in name else f"{name}:{port}"
        assert parse_host(again) == found
        assert 0 <= port < 65_536


@given(ODD, st.sampled_from(["http", "https", "file", ""]))
def test_any_origin_header_is_parsed_or_refused(text: str, scheme: str) -> None:
    found = parse_origin(f"{scheme}://{text}")
    if found is not None:
        assert found[0] in {"http", "https"}
        assert not set(found[1]) & set("/@\\ ,\r\n")


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=40)), max_size=8))
def test_any_headers_never_crash_the_parser(headers: list[tuple[bytes, bytes]]) -> None:
    knock = RequestInfo.read("127.0.0.1", headers, query=b"".join(v for _, v in headers))
    barred(knock)
    ENTRANCE.client_ip(knock)
    ENTRANCE.is_local(knock)
