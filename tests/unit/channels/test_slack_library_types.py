"""The strict fake's frames and responses, and our blocks, checked with slack-sdk's own types."""

import asyncio
from pathlib import Path

from slack_sdk.models.blocks import ActionsBlock, Block, SectionBlock
from slack_sdk.models.metadata import Metadata
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from homarus.channels.slack.outbound import make_blocks, post_params
from homarus.core.message import Button, Extras, Media, Outbound
from homarus.testing.fakes import RecordingHandler
from homarus.testing.slack_server import GENERAL, SlackServer
from homarus.testing.slack_server.methods import METHODS
from tests.unit.channels.slack_stage import bot, running, send, to

BUTTONS = ((Button("Yes", "y"), Button("No", "n")), (Button("Later", "l"),))


async def test_slack_frames_of_fake_parse_in_library() -> None:
    async with SlackServer() as slack:
        channel, handler = bot(slack, reactionNotifications="all"), RecordingHandler()
        async with running(channel, handler, slack):
            said = await slack.say("hello", GENERAL)
            sent = await send(channel, "Now?", GENERAL, buttons=BUTTONS)
            await slack.publish(*slack.acts.edit(GENERAL, said["ts"], "hello!"))
            await slack.publish(*slack.acts.react(GENERAL, said["ts"], "eyes"))
            await slack.publish(*slack.acts.join(GENERAL, "U0BOB"))
            await slack.publish(*slack.acts.press(GENERAL, sent.message_id, "Yes"))
            await slack.publish(*slack.acts.slash("/openclaw", "status"))
            await slack.publish(*slack.acts.delete(GENERAL, said["ts"]))
            await slack.until_acknowledged()
        envelopes = [frame for frame in slack.books.frames if "envelope_id" in frame]
        requests = [SocketModeRequest.from_dict(frame) for frame in envelopes]
        assert {frame["type"] for frame in slack.books.frames} >= {"hello", "events_api"}
        kinds = {request.type for request in requests if request}
        assert kinds == {"events_api", "interactive", "slash_commands"} and None not in requests


async def test_slack_responses_of_fake_parse_in_library(tmp_path: Path) -> None:
    """The library's own helpers of the methods that read their arguments from the body."""
    (tmp_path / "a.txt").write_bytes(b"text")
    async with SlackServer() as slack:
        client = AsyncWebClient(slack.bot_token, base_url=slack.api, retry_handlers=[])
        assert (await client.auth_test())["user"] == "lobster"
        sent = await client.chat_postMessage(
            channel=GENERAL,
            text="hello",
            blocks=Block.parse_all(make_blocks("hello", BUTTONS)),
            metadata=Metadata("homarus_message", {"key": "k"}),
        )
        assert isinstance(sent, AsyncSlackResponse)
        assert sent["ok"] is True
        where = {"channel": GENERAL, "timestamp": sent["ts"]}
        assert (await client.api_call("reactions.add", data={**where, "name": "eyes"}))["ok"]
        found = await client.api_call("conversations.history", data={"channel": GENERAL})
        assert [one["text"] for one in found["messages"]] == ["hello"]
        media = (Media(name="a.txt", size=4, path=str(tmp_path / "a.txt")),)
        await send(bot(slack), "see", GENERAL, media=media)
        for call in slack.books.calls:
            assert call.response["ok"] is True, call
        assert {call.method for call in slack.books.calls} <= {*METHODS, "auth.test"}


async def test_slack_library_retries_no_send() -> None:
    from homarus.channels.slack.socket_mode import _ReportingClient

    client = _ReportingClient("xapp-1", asyncio.Queue())
    assert client.web_client.retry_handlers == []
    await client.stop()


def test_slack_blocks_are_valid_for_library() -> None:
    message = Outbound(to(GENERAL), "Now *or* never?", "k", Extras(buttons=BUTTONS))
    params = post_params(message, GENERAL)
    blocks = Block.parse_all(params["blocks"])
    assert [type(block) for block in blocks] == [SectionBlock, ActionsBlock, ActionsBlock]
    for block in blocks:
        block.validate_json()
        assert block.to_dict()
    assert Metadata(**params["metadata"]).event_payload == {"key": "k"}
