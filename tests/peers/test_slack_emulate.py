"""Slack's Web API as an emulator that is not ours implements it, by our own adapter.

`emulate` has the methods and their limits, and neither socket mode, interactions nor limits of
requests: those are on our own fake (tests/unit/channels/test_slack_*.py).
"""

import asyncio
import json
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from homarus.channels.base import ChannelContext
from homarus.channels.slack import Settings, create
from homarus.channels.slack.adapter import SlackChannel
from homarus.channels.slack.api import SlackClient, SlackRefusedError
from homarus.channels.slack.fields import get_objects, get_str
from homarus.core.chat_action import ChatAction, ChatActionName
from homarus.core.clock import SystemClock
from homarus.core.errors import ChannelError
from homarus.core.message import Address, Button, Extras, Json, Media, Outbound
from tests.peers.install import emulate_command
from tests.peers.ircd import free_port

pytestmark = [pytest.mark.peers, pytest.mark.timeout(300)]

START_S = 60.0
TOKEN = "xoxb-emulated"
SEED = {
    "tokens": {TOKEN: {"login": "lobster", "scopes": []}},
    "slack": {
        "team": {"name": "Acme", "domain": "acme"},
        "users": [{"name": "lobster", "real_name": "Lobster"}, {"name": "ada", "real_name": "Ada"}],
        "channels": [{"name": "general", "topic": "the tide"}, {"name": "sea", "topic": "deep"}],
    },
}


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the address of the emulated Web API."""
    folder, port = tmp_path_factory.mktemp("emulate"), free_port()
    (folder / "seed.json").write_text(json.dumps(SEED), encoding="utf-8")
    command = [*emulate_command(), "start", "--service", "slack", "--port", str(port)]
    with (folder / "out").open("w") as out:
        server = subprocess.Popen(
            [*command, "--seed", str(folder / "seed.json")], cwd=folder, stdout=out, stderr=out
        )
        try:
            address = f"http://localhost:{port}/api"  # as it names itself
            _wait_until_served(address, server)
            yield address
        finally:
            server.kill()
            server.wait()


def _wait_until_served(address: str, server: "subprocess.Popen[bytes]") -> None:
    deadline_s = time.monotonic() + START_S
    while True:
        try:
            asyncio.run(SlackClient(address, TOKEN).call("auth.test"))
        except ChannelError:
            assert server.poll() is None and time.monotonic() < deadline_s
            time.sleep(0.1)
        else:
            return


def bot(root: str, token: str = TOKEN) -> SlackChannel:
    settings = Settings.read({"botToken": token, "appToken": "xapp-1", "apiRoot": root})
    return create(ChannelContext("slack", "default", SystemClock()), settings)


def outbound(chat: str, text: str, key: str = "k", **extras: Json) -> Outbound:
    return Outbound(Address("slack", chat), text, key, Extras(**extras))


async def history(root: str, chat: str) -> list[dict[str, Json]]:
    """Return the messages of a channel, newest first, as the emulator has them."""
    client = SlackClient(root, TOKEN)
    listed = await client.call("conversations.list", {"limit": 100})
    ids = {get_str(one, "name"): get_str(one, "id") for one in get_objects(listed, "channels")}
    found = await client.call("conversations.history", {"channel": ids[chat]})
    return [dict(one) for one in get_objects(found, "messages")]


async def test_emulated_slack_gets_message_thread_edit_and_deletion(root: str) -> None:
    channel = bot(root)
    assert await channel.probe() == "@lobster in Acme"
    first = await channel.send(outbound("#general", "hello *you* & é", "key-1"))
    (message,) = [one for one in await history(root, "general") if one["ts"] == first.message_id]
    assert message["text"] == "hello *you* & é"
    reply = outbound("#general", "below", "key-2", reply_to=f"C1:{first.message_id}")
    assert (await channel.send(reply)).message_id != first.message_id
    (root_message,) = [m for m in await history(root, "general") if m["ts"] == first.message_id]
    assert root_message["reply_count"] == 1
    await channel.edit(Address("slack", "#general"), first.message_id, "changed")
    texts = {one["ts"]: one["text"] for one in await history(root, "general")}
    assert texts[first.message_id] == "changed"
    await channel.delete(Address("slack", "#general"), first.message_id)
    assert first.message_id not in {one["ts"] for one in await history(root, "general")}


async def test_emulated_slack_keeps_the_key_that_a_lookup_finds(root: str) -> None:
    channel = bot(root)
    message = outbound("#sea", "find me", "run-7:0")
    receipt = await channel.send(message)
    assert await channel.look_up(message) == receipt
    assert await channel.look_up(replace(message, key="run-7:1")) is None
    thread = replace(message.address, thread=receipt.message_id)
    inside = replace(message, address=thread, key="run-8:0")
    assert await channel.look_up(inside) is None
    receipt = await channel.send(inside)
    assert await channel.look_up(inside) == receipt


async def test_emulated_slack_cuts_text_at_its_limit(root: str) -> None:
    sent = await bot(root).send(outbound("#sea", "x" * 50_000))
    (message,) = [one for one in await history(root, "sea") if one["ts"] == sent.message_id]
    assert len(message["text"]) == 40_000


async def test_emulated_slack_shows_buttons_as_blocks(root: str) -> None:
    rows = ((Button("Yes", "y"), Button("No", "n")),)
    sent = await bot(root).send(outbound("#sea", "Now?", buttons=rows))
    (message,) = [one for one in await history(root, "sea") if one["ts"] == sent.message_id]
    labels = [element["text"]["text"] for element in message["blocks"][1]["elements"]]
    assert labels == ["Yes", "No"]


async def test_emulated_slack_refuses_unknown_channel_with_a_fix(root: str) -> None:
    with pytest.raises(SlackRefusedError) as refused:
        await bot(root).send(outbound("C0NOWHERE", "hi"))
    assert refused.value.error == "channel_not_found" and "invite" in refused.value.fix


async def test_emulated_slack_has_reactions_and_removes_ours(root: str) -> None:
    channel, to = bot(root), Address("slack", "#sea")
    sent = await channel.send(outbound("#sea", "react to me"))
    for _ in range(2):  # it is there already
        await channel.react(to, sent.message_id, "👀")

    async def listed() -> list[Json]:
        action = ChatAction("reactions", message_id=sent.message_id)
        return list((await channel.run_chat_action(to, action))["reactions"])

    assert [(one["emoji"], one["count"]) for one in await listed()] == [("👀", 1)]
    await bot(root).react(to, sent.message_id, "")  # another process: it asks what is ours
    assert await listed() == []


async def test_emulated_slack_shares_file_with_text(root: str, tmp_path: Path) -> None:
    (tmp_path / "tide.txt").write_bytes(b"high at six")
    media = Media("document", "text/plain", "tide.txt", 11, path=str(tmp_path / "tide.txt"))
    channel = bot(root)
    message = outbound("#sea", "the *tide*", "file-1", media=(media,))
    receipt = await channel.send(message)
    newest = (await history(root, "sea"))[0]
    assert (newest["text"], newest["files"][0]["name"]) == ("the *tide*", "tide.txt")
    assert receipt.message_id == newest["ts"] and await channel.look_up(message) == receipt
    assert await channel.fetch(Media(ref=newest["files"][0]["id"]), 100) == b"high at six"


@pytest.mark.parametrize("name", ["pin", "pins", "read", "channel-info", "channel-list"])
async def test_emulated_slack_does_chat_actions(root: str, name: ChatActionName) -> None:
    channel, to = bot(root), Address("slack", "#sea")
    sent = await channel.send(outbound("#sea", "keep me"))
    if name == "pins":
        await channel.run_chat_action(to, ChatAction("pin", message_id=sent.message_id))
    found = await channel.run_chat_action(to, ChatAction(name, message_id=sent.message_id))
    match name:
        case "pin":
            assert found["pinned"]
        case "pins" | "read":
            assert "keep me" in [row["text"] for row in found["messages"]]
        case "channel-info":
            assert (found["name"], found["topic"]) == ("sea", "deep")
        case "channel-list":
            assert {"general", "sea"} <= {row["name"] for row in found["channels"]}


async def test_emulated_slack_opens_direct_chat_with_person(root: str) -> None:
    channel = bot(root)
    sent = await channel.send(outbound("@ada", "hello Ada"))
    listed = await SlackClient(root, TOKEN).call("users.list")
    (ada,) = [get_str(one, "id") for one in get_objects(listed, "members") if one["name"] == "ada"]
    assert await channel.look_up(outbound(ada, "hello Ada")) == sent
