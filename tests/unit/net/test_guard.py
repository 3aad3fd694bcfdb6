"""The network guard: which URLs, names and addresses a model or a message may aim at."""

from collections.abc import Sequence
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.errors import BlockedUrlError, FetchError
from homarus.net.guard import NetworkPolicy, check_target, normalize_host, parse_url
from homarus.net.special_addresses import find_special_range

PUBLIC = "93.184.216.34"


def resolver(*addresses: str) -> "Resolver":
    return Resolver(addresses)


class Resolver:
    """Answers every lookup alike, and counts them."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self.addresses, self.names = addresses, list[str]()

    async def __call__(self, host: str, _port: int) -> Sequence[str]:
        self.names.append(host)
        return self.addresses


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0", "10.1.2.3", "100.64.0.1", "100.100.100.200", "127.255.255.255", "168.63.129.16",
        "169.254.169.254", "172.31.255.255", "192.0.0.192", "192.0.2.1", "192.88.99.1",
        "192.168.0.1", "198.19.255.255", "198.51.100.1", "203.0.113.1", "224.0.0.1",
        "239.255.255.255", "240.0.0.1", "255.255.255.255",
        "::", "::1", "::7f00:1", "::ffff:10.0.0.1", "::ffff:0:10.0.0.1", "64:ff9b::10.0.0.1",
        "64:ff9b:1::8.8.8.8", "100::1", "2001::1", "2001:2::1", "2001:10::1", "2001:db8::1",
        "2002:0808:0808::1", "2606:4700::5efe:127.0.0.1", "2606:4700::200:5efe:10.0.0.1",
        "3fff::1", "5f00::1", "fc00::1", "fd00:ec2::254", "fe80::1", "fec0::1", "ff02::1",
    ],
)  # fmt: skip
def test_special_address_is_found(address: str) -> None:
    assert find_special_range(ip_address(address)) is not None


@pytest.mark.parametrize(
    "address",
    [
        "1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255",
        "128.0.0.0", "169.253.255.255", "169.255.0.0", "172.15.255.255", "172.32.0.0",
        "192.0.1.0", "192.167.255.255", "192.169.0.0", "198.17.255.255", "198.20.0.0",
        "223.255.255.255", "2606:4700::1111", "2a00:1450::1", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1",
        "2606:4700::5efe:1.1.1.1",
    ],
)  # fmt: skip
def test_public_address_is_not_special(address: str) -> None:
    assert find_special_range(ip_address(address)) is None


@given(st.integers(0, 2**32 - 1), st.sampled_from(["::ffff:0:0", "64:ff9b::", "::ffff:0:0:0"]))
def test_embedded_special_address_stays_special(value: int, prefix: str) -> None:
    inner = find_special_range(ip_address(value))
    outer = find_special_range(ip_address(int(ip_address(prefix)) + value))
    assert outer is not None or inner is None


@pytest.mark.parametrize(
    ("url", "host", "port"),
    [
        ("http://127.1/", "127.0.0.1", 80),
        ("http://0x7f.1/", "127.0.0.1", 80),
        ("http://0177.0.0.01/", "127.0.0.1", 80),
        ("http://2130706433/", "127.0.0.1", 80),
        ("http://0x/", "0.0.0.0", 80),
        ("http://1.2.3.4./", "1.2.3.4", 80),
        ("http://%31%32%37.0.0.1/", "127.0.0.1", 80),
        ("http://１２７。0｡0.1/", "127.0.0.1", 80),
        ("http://[::ffff:127.0.0.1]:8080/", "127.0.0.1", 8080),
        ("HTTPS://EXAMPLE.com./a?b#c", "example.com", 443),
        ("http://bücher.example", "xn--bcher-kva.example", 80),
        ("http://ⓔxample.com:8443/", "example.com", 8443),
        ("http://example.com:/", "example.com", 80),
    ],
)
def test_url_host_is_read_as_browsers_read_it(url: str, host: str, port: int) -> None:
    parts, found, number = parse_url(url)
    assert (found, number) == (host, port)
    assert parts.hostname == host and parts.fragment == ""


@pytest.mark.parametrize(
    "url",
    [
        "", "http://", "http:///a.com", "http:a.com", "//a.com", "a.com", "ftp://a.com", "ws://a.com",
        "http://a@b.com", "http://a:b@c.com/", "http://@b.com/", "http://a.com\\@b.com",
        "http://a b.com", "http://a.com/\n", "http://a\u200b.com", "http://a%00.com",
        "http://a%2fb.com", "http://a%zz.com",
        "http://a..com", "http://.a.com", "http://a.com..", "http://1.2.3.4.5", "http://1.2.3.256",
        "http://256.1.1.1", "http://1.2.3.08", "http://a.0x1g.5", "http://09", "http://4294967296",
        "http://[::1", "http://[::1]a", "http://[1.2.3.4]", "http://[fe80::1%25lo]", "http://[::g]",
        "http://a.com:0", "http://a.com:65536", "http://a.com:8a", "http://a.com:-1", "http://a.com:١",
        "http://" + "a" * 64 + ".com", "http://a.com/" + "x" * 9000, "http://a.com\ud800", "http://*.a.com/",
        "http://a_%E2%84%80.com", "\thttp://a.com", "javascript://a.com/%0aalert(1)",
    ],
)  # fmt: skip
def test_url_that_is_ambiguous_is_refused(url: str) -> None:
    with pytest.raises(BlockedUrlError):
        parse_url(url)


@given(st.text(max_size=40))
def test_url_of_any_text_is_parsed_or_refused(text: str) -> None:
    for url in (text, f"http://{text}", f"http://example.com{text}"):
        try:
            parts, host, port = parse_url(url)
        except BlockedUrlError:
            continue
        assert parts.scheme in ("http", "https") and host.isascii() and 0 < port < 65536
        assert parts.hostname == host and (parts.port or port) == port
        assert normalize_host(host) == host


async def test_target_name_is_resolved_once_and_pinned() -> None:
    resolve = resolver(PUBLIC, "2606:4700::1111", "::ffff:1.1.1.1")
    target = await check_target("https://example.com:8443/a", resolve=resolve)
    assert resolve.names == ["example.com"]
    assert target.addresses == (PUBLIC, "2606:4700::1111", "1.1.1.1")
    assert target.origin == ("https", "example.com", 8443)


async def test_target_with_one_private_address_is_refused() -> None:
    with pytest.raises(BlockedUrlError, match=r"rebound.test resolves to 10.0.0.1"):
        await check_target("http://rebound.test/", resolve=resolver(PUBLIC, "10.0.0.1"))


@pytest.mark.parametrize("port", [22, 25, 21, 110, 139, 445, 993, 6379, 5432, 11211, 6667])
async def test_target_port_of_another_service_is_refused(port: int) -> None:
    with pytest.raises(BlockedUrlError, match=f"port {port} is not a port of web servers"):
        await check_target(f"http://example.com:{port}/", resolve=resolver(PUBLIC))


@pytest.mark.parametrize(
    "host", ["nas", "nas.local", "a.localhost", "x.svc", "db.internal", "r.lan"]
)
async def test_target_local_name_is_refused_before_a_lookup(host: str) -> None:
    resolve = resolver(PUBLIC)
    with pytest.raises(BlockedUrlError, match=f"add {host} to .*allowedHostnames"):
        await check_target(f"http://{host}/", resolve=resolve)
    assert resolve.names == []


async def test_target_allowed_host_may_be_private() -> None:
    policy = NetworkPolicy(allowed_hosts=frozenset({"nas.lan", "127.0.0.1"}))
    assert (await check_target("http://nas.lan:5000/", policy, resolver("192.168.1.9"))).addresses
    assert (await check_target("http://127.1:8080/", policy)).addresses == ("127.0.0.1",)
    wide = NetworkPolicy(allowed_hosts=frozenset({"*.lan"}))
    assert (await check_target("http://a.nas.lan/", wide, resolver("192.168.1.9"))).addresses
    with pytest.raises(BlockedUrlError):
        await check_target("http://lan/", wide, resolver("192.168.1.9"))
    for url in ("http://router.lan/", "http://x.nas.lan/", "http://127.0.0.2/"):
        with pytest.raises(BlockedUrlError):
            await check_target(url, policy, resolver("192.168.1.1"))
    with pytest.raises(BlockedUrlError, match="metadata"):
        await check_target("http://nas.lan/", policy, resolver("169.254.169.254"))


async def test_target_private_network_is_allowed_by_setting() -> None:
    policy = NetworkPolicy(allows_private=True)
    for address in ("10.0.0.1", "127.0.0.1", "fd12::1", "198.18.0.1", "100.64.0.1"):
        target = await check_target("http://printer/", policy, resolver(address))
        assert target.addresses == (address,)
    for address in ("169.254.169.254", "0.0.0.0", "224.0.0.1", "fe80::1", "64:ff9b::a00:1"):
        with pytest.raises(BlockedUrlError):
            await check_target("http://printer/", policy, resolver(address))


async def test_target_fake_ip_range_names_its_setting() -> None:
    with pytest.raises(BlockedUrlError, match="allowRfc2544BenchmarkRange: true allows"):
        await check_target("http://site.com/", resolve=resolver("198.18.0.7"))
    policy = NetworkPolicy(allows_benchmark=True, allows_unique_local=True)
    assert (await check_target("http://site.com/", policy, resolver("198.18.0.7", "fc00::7"))).port
    with pytest.raises(BlockedUrlError):
        await check_target("http://site.com/", policy, resolver("192.168.0.1"))


async def test_target_blocked_host_is_refused_with_its_subdomains() -> None:
    policy = NetworkPolicy(
        allowed_hosts=frozenset({"a.ads.com"}), blocked_hosts=frozenset({"*.ads.com"})
    )
    for host in ("ads.com", "ADS.com.", "a.ads.com"):
        with pytest.raises(BlockedUrlError, match="blockedHostnames"):
            await check_target(f"http://{host}/", policy, resolver(PUBLIC))
    assert (await check_target("http://myads.com/", policy, resolver(PUBLIC))).port


async def test_target_outside_of_a_list_of_hosts_is_refused() -> None:
    policy = NetworkPolicy(only_hosts=frozenset({"a.com", "*.b.com"}))
    for host in ("a.com", "A.com.", "x.b.com", "y.x.b.com"):
        assert (await check_target(f"http://{host}/", policy, resolver(PUBLIC))).port
    for host in ("x.a.com", "b.com", "xb.com", "a.com.evil.com", "9.9.9.9"):
        with pytest.raises(BlockedUrlError, match="not on the list"):
            await check_target(f"http://{host}/", policy, resolver(PUBLIC))
    with pytest.raises(BlockedUrlError):
        await check_target("http://a.com/", policy, resolver("127.0.0.1"))


async def test_target_unknown_name_is_a_fetch_error() -> None:
    async def fail(_host: str, _port: int) -> Sequence[str]:
        raise OSError(-2, "Name or service not known")

    with pytest.raises(FetchError, match="cannot be resolved: Name or service not known"):
        await check_target("http://example.com/", resolve=fail)
    with pytest.raises(FetchError, match="has no address"):
        await check_target("http://example.com/", resolve=resolver())
    with pytest.raises(BlockedUrlError, match="no address"):
        await check_target("http://example.com/", resolve=resolver("fe8"))
