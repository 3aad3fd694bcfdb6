"""Who is listed as present, for how long, and what the others see."""

from dataclasses import replace

from homarus.gateway.method import Caller
from homarus.gateway.presence import MAX_ENTRIES, TTL_MS, PresenceList
from homarus.testing.clock import FakeClock

PAGE = Caller("c1", "webchat-ui", "webchat", version="1", device_id="dev", ip="10.0.0.9")


def test_presence_lists_the_gateway_first() -> None:
    own, *others = PresenceList(FakeClock(), "1.2.3").entries()
    assert not others
    assert (own["mode"], own["reason"], own["version"]) == ("gateway", "self", "1.2.3")


def test_presence_keeps_a_client_for_a_while_after_disconnect() -> None:
    clock = FakeClock()
    presence = PresenceList(clock, "1")
    before = presence.version
    assert presence.join(PAGE)
    entry = presence.entries()[1]
    assert (entry["reason"], entry["deviceId"], entry["ip"]) == ("connect", "dev", "10.0.0.9")
    clock._elapsed_s += TTL_MS / 1000 + 1
    assert len(presence.entries()) == 2  # however long it stays
    assert presence.leave(PAGE)
    assert presence.entries()[1]["reason"] == "disconnect"
    assert presence.version == before + 2
    clock._elapsed_s += TTL_MS / 1000 + 1
    assert len(presence.entries()) == 1


def test_presence_omits_command_line_clients() -> None:
    presence = PresenceList(FakeClock(), "1")
    assert not presence.join(Caller("c1", "cli", "cli"))
    assert not presence.leave(Caller("c1", "cli", "cli"))
    assert len(presence.entries()) == 1 and presence.version == 1


def test_presence_of_device_with_two_connections_is_one_entry() -> None:
    presence = PresenceList(FakeClock(), "1")
    second = replace(PAGE, conn_id="c2")
    presence.join(PAGE)
    presence.join(second)
    assert len(presence.entries()) == 2
    assert not presence.leave(PAGE)
    assert presence.entries()[1]["reason"] == "connect"
    assert presence.leave(second)


def test_presence_of_local_client_has_no_address() -> None:
    presence = PresenceList(FakeClock(), "1")
    presence.join(replace(PAGE, ip="127.0.0.1", is_local=True))
    assert "ip" not in presence.entries()[1]


def test_presence_is_bounded_in_length_and_text() -> None:
    presence = PresenceList(FakeClock(), "1")
    for n in range(MAX_ENTRIES * 2):
        presence.update(f"device {n}", {"host": "x" * 10_000, "lastInputSeconds": 3})
    entries = presence.entries()
    assert len(entries) == MAX_ENTRIES
    assert all(len(str(value)) <= 200 for entry in entries for value in entry.values())
    assert entries[1]["host"] and entries[1]["lastInputSeconds"] == 3


def test_presence_update_replaces_only_the_given_fields() -> None:
    presence = PresenceList(FakeClock(), "1")
    presence.update("Phone", {"host": "phone", "mode": "node"})
    presence.update("phone ", {"reason": "beacon", "mode": None})
    (_, entry) = presence.entries()
    assert (entry["host"], entry["mode"], entry["reason"]) == ("phone", "node", "beacon")
