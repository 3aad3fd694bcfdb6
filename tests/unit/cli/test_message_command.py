"""`homarus message`: what reaches the gateway, and what is printed."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from homarus.cli import message as message_module
from homarus.cli import message_options
from homarus.cli.gateway_options import GatewayOptions
from homarus.cli.message import command
from homarus.core.errors import HomarusError, InvalidRequestError, UserError
from homarus.core.message import Json


class FakeGateway:
    """Records the requests and answers them by their method or action."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, Mapping[str, Any]]] = []
        self.answers: dict[str, Any] = {}

    async def call(
        self, _gateway: GatewayOptions, method: str, params: Mapping[str, Json]
    ) -> dict[str, Any]:
        self.asked.append((method, params))
        name = str(params.get("action") or method)
        address = {"channel": "telegram", "accountId": "default", "to": "1", "threadId": None}
        answer = self.answers.get(name, {})
        if isinstance(answer, Exception):
            raise answer
        return {**address, "chatId": "1", "messageId": "m1", "status": "sent", **answer}


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> FakeGateway:
    fake = FakeGateway()
    for module in (message_module, message_options):
        monkeypatch.setattr(module, "call_gateway", fake.call)
    return fake


def run(*args: str) -> Result:
    return CliRunner().invoke(command, args, standalone_mode=False)


def done(*args: str) -> str:
    result = run(*args)
    assert result.exception is None, result.exception
    return result.stdout


def test_send_names_files_by_their_full_path(gateway: FakeGateway, tmp_path: Path) -> None:
    target = ("send", "--target", "1", "--channel", "telegram", "--thread-id", "4")
    shown = done(*target, "-m", "hi", "--media", "a.jpg", "--media", "https://x.test/b",
                 "--reply-to", "9", "--silent", "--idempotency-key", "k")  # fmt: skip
    assert shown == "Sent to telegram:1 as message m1.\n"
    ((method, params),) = gateway.asked
    assert method == "send" and params == {
        "to": "1", "channel": "telegram", "threadId": "4", "message": "hi", "replyToId": "9",
        "mediaUrls": [str(Path("a.jpg").resolve()), "https://x.test/b"], "silent": True,
        "idempotencyKey": "k",
    }  # fmt: skip


def test_send_without_a_key_makes_one_each_time(gateway: FakeGateway) -> None:
    for _ in range(2):
        done("send", "--target", "1", "-m", "hi")
    first, second = (params["idempotencyKey"] for _, params in gateway.asked)
    assert first != second and len(first) >= 16


def test_dry_run_sends_nothing(gateway: FakeGateway) -> None:
    shown = json.loads(done("send", "--target", "1", "-m", "hi", "--dry-run", "--json"))
    assert shown["dryRun"] and shown["payload"] == {"message": "hi"}
    assert [params["action"] for _, params in gateway.asked] == ["resolve"]
    poll = ("poll", "--target", "1", "--poll-question", "Tea?", "-o", "yes", "-o", "no")
    assert "Nothing was sent" in done(*poll, "--dry-run")
    assert {method for method, _ in gateway.asked} == {"message.action"}


@pytest.mark.parametrize(
    ("status", "told"), [("queued", "On its way"), ("unknown", "did not confirm")]
)
def test_send_says_how_far_it_came(gateway: FakeGateway, status: str, told: str) -> None:
    gateway.answers["send"] = {"status": status}
    assert told in done("send", "--target", "1", "-m", "hi")


def test_broadcast_goes_on_after_a_failure_and_reports_it(
    gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = iter([InvalidRequestError("there is no such chat"), {}])

    async def call(_gateway: GatewayOptions, method: str, params: Mapping[str, Json]) -> Any:
        gateway.asked.append((method, params))
        answer = next(calls)
        if isinstance(answer, Exception):
            raise answer
        return {"status": "sent", "chatId": "2", "channel": "irc", "messageId": ""}

    monkeypatch.setattr(message_module, "call_gateway", call)
    asked = ("--targets", "bad", "--targets", "irc:ann", "--targets", "bad")
    result = CliRunner().invoke(command, ["broadcast", *asked, "-m", "hi", "--json"])
    assert result.exit_code == 1
    told = json.loads(result.stdout)
    assert told["failed"] == 1 and [row["ok"] for row in told["results"]] == [False, True]
    keys = [params["idempotencyKey"] for _, params in gateway.asked]
    assert keys[0].endswith(":0") and keys[1].endswith(":1")


def test_poll_with_several_answers_says_so(gateway: FakeGateway) -> None:
    poll = ("poll", "--target", "1", "--poll-question", "Tea?", "-o", "yes", "-o", "no")
    done(*poll, "--poll-multi", "--poll-duration-hours", "2")
    ((method, params),) = gateway.asked
    assert method == "poll" and params["options"] == ["yes", "no"]
    assert (params["maxSelections"], params["durationHours"]) == (2, 2)


@pytest.mark.parametrize(
    ("line", "action", "details"),
    [
        ("react --message-id 7 --emoji x", "react", {"messageId": "7", "emoji": "x"}),
        ("react --message-id 7 --remove", "react", {"messageId": "7", "remove": True}),
        ("edit --message-id 7 -m new", "edit", {"messageId": "7", "message": "new"}),
        ("delete --message-id 7", "delete", {"messageId": "7"}),
        ("pin --message-id 7", "pin", {"messageId": "7"}),
        ("unpin --message-id 7", "unpin", {"messageId": "7"}),
        ("kick --user 5 --reason spam", "kick", {"userId": "5", "message": "spam"}),
        ("ban --user 5 --remove", "ban", {"userId": "5", "remove": True}),
        ("timeout --user 5", "timeout", {"userId": "5", "durationSeconds": 600}),
        ("thread create --name Trip", "thread-create", {"message": "Trip"}),
        ("sticker send --sticker S", "sticker-send", {"message": "S"}),
    ],
)
def test_action_sends_only_what_was_said(
    gateway: FakeGateway, line: str, action: str, details: dict[str, Any]
) -> None:
    done(*line.split(), "--target", "1", "--json")
    ((method, params),) = gateway.asked
    assert (method, params["action"]) == ("message.action", action)
    assert params["params"] == {"target": "1", **details}


@pytest.mark.parametrize("name", ["read", "search", "pins"])
def test_messages_are_printed_without_control_characters(gateway: FakeGateway, name: str) -> None:
    row = {"id": "7", "sender": "ann", "text": "hi\x1b[2J\nthere", "timestamp": 5}
    gateway.answers[name] = {"messages": [row]}
    query = ("--query", "hi") if name == "search" else ()
    shown = done(name, "--target", "1", *query)
    assert "\x1b" not in shown and shown.startswith("7  ann: hi") and shown.count("\n") == 1
    told = json.loads(done(name, "--target", "1", *query, "--json"))
    assert told["messages"] == [row]


def test_lists_of_a_service_are_printed(gateway: FakeGateway) -> None:
    gateway.answers |= {
        "channel-list": {"channels": [{"id": "!r", "name": "Family"}]},
        "thread-list": {"threads": [{"threadId": "$1", "text": "Trip"}]},
        "reactions": {"reactions": [{"emoji": "x", "count": 2, "users": ["a", "b"]}]},
        "permissions": {"may": {"kick": True, "ban": False}},
        "channel-info": {"name": "Family", "members": 3, "topic": ""},
        "member-info": {"name": "Ada", "membership": "join"},
    }
    assert done("channel", "list", "--channel", "matrix") == "!r  Family\n"
    assert done("thread", "list", "--target", "1") == "$1  Trip\n"
    assert done("reactions", "--target", "1", "--message-id", "7") == "x  2  a, b\n"
    assert done("permissions", "--target", "1").split() == ["kick", "yes", "ban", "no"]
    assert "Family" in done("channel", "info", "--target", "1")
    assert "Ada" in done("member", "info", "--target", "1", "--user", "5")


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("send --target 1", "there is nothing to send"),
        ("thread reply --target 1 -m x", "in which thread"),
    ],
)
def test_message_that_lacks_something_is_not_sent(
    gateway: FakeGateway, line: str, told: str
) -> None:
    error = run(*line.split()).exception
    assert isinstance(error, UserError) and told in error.message and gateway.asked == []


def test_message_without_a_gateway_says_what_is_missing(home: Path) -> None:
    error = run("send", "--target", "1", "-m", "x").exception
    assert isinstance(error, HomarusError) and error.fix == "start it: homarus gateway"
    with pytest.raises(UserError, match="running gateway"):
        asyncio.run(message_options.call_gateway(GatewayOptions(), "send", {}))
