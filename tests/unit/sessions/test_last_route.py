"""The last route in a session's record."""

import json
from pathlib import Path

import pytest

from homarus.core.message import Address
from homarus.sessions.last_route import last_address, route_fields

SAMPLE = Path(__file__).parents[2] / "data" / "samples" / "sessions.json"
WEB = Address("webchat", "agent:main:main")


def test_webchat_message_stores_same_route_as_openclaw() -> None:
    theirs = json.loads(SAMPLE.read_text(encoding="utf-8"))["agent:main:cap-chat"]
    ours = {k: v for k, v in route_fields({"chatType": "direct"}, WEB).items() if v is not None}
    assert ours == {name: theirs[name] for name in ("origin", "deliveryContext", "lastChannel")}


@pytest.mark.parametrize("channel", ["agent", "cli", "wake"])
def test_message_without_return_route_changes_nothing(channel: str) -> None:
    assert route_fields({"lastChannel": "telegram"}, Address(channel, "x")) == {}


def test_channel_message_stores_full_route() -> None:
    fields = route_fields({}, Address("telegram", "42", "work", "7"))
    assert fields["deliveryContext"] == {
        "channel": "telegram", "to": "42", "accountId": "work", "threadId": "7",
    }  # fmt: skip
    assert (fields["lastTo"], fields["lastAccountId"], fields["lastThreadId"]) == (
        "42",
        "work",
        "7",
    )


def test_route_of_other_channel_drops_origin_label() -> None:
    there = {"origin": {"provider": "telegram", "label": "Ann", "to": "42", "from": "ann"}}
    again = route_fields(there, Address("telegram", "43"))["origin"]
    assert (again["label"], again["from"], again["to"]) == ("Ann", "ann", "43")
    page = route_fields({**there, "lastTo": "42"}, WEB)
    assert page["origin"] == {"provider": "webchat", "surface": "webchat"}
    assert page["lastTo"] == "42"  # kept, as OpenClaw keeps it


def test_webchat_message_keeps_route_of_group_session() -> None:
    key, there = "agent:main:telegram:group:-100", {"lastChannel": "telegram", "lastTo": "-100"}
    assert route_fields(there, WEB, key=key) == {}
    assert (
        route_fields({}, WEB, key=key)["lastChannel"] == "webchat"
    )  # the session had no route before
    assert route_fields(there, WEB, key="agent:channel:main")["lastChannel"] == "webchat"
    assert route_fields(there, Address("telegram", "-200"), key=key)["lastTo"] == "-200"


@pytest.mark.parametrize("origin", [None, 5, "x", [], {"provider": 5}])
def test_route_fields_of_damaged_record_are_valid(origin: object) -> None:
    fields = route_fields({"origin": origin, "chatType": 5}, WEB)
    assert fields["origin"] == {"provider": "webchat", "surface": "webchat"}


def test_last_address_is_read_from_record() -> None:
    entry = {"lastChannel": "irc", "lastTo": "#room", "lastThreadId": 5}
    assert last_address(entry) == Address("irc", "#room")
    written = route_fields({}, Address("telegram", "42", "work", "7"))
    assert last_address(written) == Address("telegram", "42", "work", "7")
    assert last_address({}) == Address("", "")
