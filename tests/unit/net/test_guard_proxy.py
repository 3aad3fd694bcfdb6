"""The proxy of browsers: what it connects to, and what it remembers of refusals."""

from collections.abc import Sequence

import pytest

from homarus.core.errors import BlockedUrlError
from homarus.net.guard import CheckedTarget, NetworkPolicy
from homarus.net.guard_proxy import GuardProxy
from homarus.net.guarded_stream import Stream
from homarus.net.proxy_request import ProxyRefusalError, ProxyTarget

PUBLIC = "93.184.216.34"


class FakeInternet:
    """A fake of the resolver and of the network: it records where connections lead."""

    def __init__(self, *answers: str) -> None:
        self.answers, self.connected = list(answers), list[str]()

    async def resolve(self, _host: str, _port: int) -> Sequence[str]:
        return (self.answers.pop(0) if len(self.answers) > 1 else self.answers[0],)

    async def open_stream(self, target: CheckedTarget, _timeout_s: float) -> Stream:
        self.connected += target.addresses
        raise ConnectionRefusedError(111, "no one listens")


def make_proxy(
    internet: FakeInternet, policies: Sequence[NetworkPolicy] = (NetworkPolicy(),)
) -> GuardProxy:
    return GuardProxy(
        lambda: policies[-1], resolve=internet.resolve, open_stream=internet.open_stream
    )


async def test_guard_proxy_connects_to_the_address_it_checked() -> None:
    internet = FakeInternet(PUBLIC, "127.0.0.1")
    with pytest.raises(ProxyRefusalError, match="connection failed"):
        await make_proxy(internet).open_target(ProxyTarget("https", "a.example", 443))
    assert internet.connected == [PUBLIC]


@pytest.mark.parametrize("address", ["127.0.0.1", "10.0.0.1", "169.254.169.254", "::1"])
async def test_guard_proxy_refuses_private_addresses(address: str) -> None:
    internet = FakeInternet(address)
    proxy = make_proxy(internet)
    with proxy.watch_refusals() as refused, pytest.raises(ProxyRefusalError) as raised:
        await proxy.open_target(ProxyTarget("http", "a.example", 80, "/"))
    assert raised.value.status == 403 and internet.connected == []
    assert [place for place, _ in refused] == ["a.example:80"]


async def test_guard_proxy_uses_the_policy_of_the_moment() -> None:
    internet, policies = FakeInternet("10.0.0.1"), [NetworkPolicy(allows_private=True)]
    proxy = make_proxy(internet, policies)
    await proxy.check("http://a.example/")
    policies.append(NetworkPolicy())
    with pytest.raises(BlockedUrlError):
        await proxy.check("http://a.example/")


async def test_guard_proxy_watch_has_only_what_is_refused_in_it() -> None:
    proxy = make_proxy(FakeInternet("10.0.0.1"))
    for host in ("one.example", "two.example"):
        with proxy.watch_refusals() as refused, pytest.raises(ProxyRefusalError):
            await proxy.open_target(ProxyTarget("http", host, 80, "/"))
        assert [place for place, _ in refused] == [f"{host}:80"]
