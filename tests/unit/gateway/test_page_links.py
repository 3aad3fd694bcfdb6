"""The links to the page: every address that can be reached, and none that cannot."""

import socket
from ipaddress import ip_address
from pathlib import Path

import pytest

from homarus.cli.gateway_secret import describe_listening
from homarus.gateway import machine_addresses as module
from homarus.gateway.listen_address import page_links, reachable_hosts
from homarus.gateway.machine_addresses import machine_addresses
from homarus.gateway.serve import Listening

OWN = ("192.168.1.5", "100.100.1.2", "fd00::5")
ANY = ("0.0.0.0", "::")


@pytest.fixture
def own_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "machine_addresses", lambda: OWN)


@pytest.mark.usefixtures("own_addresses")
@pytest.mark.parametrize(
    ("bound", "hosts"),
    [
        (("127.0.0.1", "::1"), ("127.0.0.1",)),
        (ANY, ("127.0.0.1", *OWN)),
        (("0.0.0.0",), ("127.0.0.1", *OWN[:2])),
        (("::",), ("::1", "fd00::5")),
        (("192.168.1.5",), ("192.168.1.5",)),
        ((), ()),
    ],
)
def test_reachable_hosts_follow_the_bound_addresses(
    bound: tuple[str, ...], hosts: tuple[str, ...]
) -> None:
    assert reachable_hosts(bound) == hosts


@pytest.mark.usefixtures("own_addresses")
def test_page_links_have_scheme_brackets_and_port() -> None:
    links = page_links(ANY, 18789, is_tls=True)
    assert links[0] == "https://127.0.0.1:18789/" and links[-1] == "https://[fd00::5]:18789/"
    assert page_links(("127.0.0.1",), 1, is_tls=False) == ("http://127.0.0.1:1/",)


@pytest.mark.usefixtures("own_addresses")
def test_ready_lines_say_that_browsers_elsewhere_need_https() -> None:
    alone = describe_listening(Listening("ws://127.0.0.1:1", ("127.0.0.1",), 1), "s/ecret")
    assert alone == ["The page: http://127.0.0.1:1/#token=s%2Fecret"]
    lines = describe_listening(Listening("ws://127.0.0.1:1", ANY, 1), "")
    assert lines[:2] == ["The page: http://127.0.0.1:1/", "The page: http://192.168.1.5:1/"]
    assert "  → homarus config set gateway.tls.enabled true" in lines
    assert not any("token" in line for line in lines)


def test_machine_addresses_are_usable_and_stable() -> None:
    found = machine_addresses()
    assert len(set(found)) == len(found)
    for each in map(ip_address, found):
        assert not (each.is_loopback or each.is_link_local or each.is_multicast)
    for text in found:
        family = socket.AF_INET6 if ":" in text else socket.AF_INET
        with socket.socket(family) as probe:
            probe.bind((text, 0))  # it is an address of this machine


def test_machine_addresses_without_the_system_call_use_the_route(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "_interface_addresses", lambda: iter(()))
    monkeypatch.setattr(module, "_route_source", lambda _family, target: f"{target[:-1]}7")
    monkeypatch.setattr(module, "_IPV6_FLAGS", tmp_path / "missing")
    assert machine_addresses() == ("192.0.2.7", "2001:db8::7")


def test_temporary_and_local_addresses_are_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    flags = tmp_path / "if_inet6"
    flags.write_text(
        "20010db8000000000000000000000002 02 40 00 01     eth0\n"
        "20010db8000000000000000000000003 02 40 00 80     eth0\n"
    )
    addresses = ["fe80::1", "169.254.1.1", "100.64.0.1", "10.0.0.2", "10.0.0.1"]
    monkeypatch.setattr(
        module, "_interface_addresses", lambda: iter([*addresses, "2001:db8::2", "2001:db8::3"])
    )
    monkeypatch.setattr(module, "_route_source", lambda _family, _target: "10.0.0.1")
    monkeypatch.setattr(module, "_IPV6_FLAGS", flags)
    assert machine_addresses() == ("10.0.0.1", "10.0.0.2", "100.64.0.1", "2001:db8::3")
