"""The strict fake's frames and responses, and our blocks, checked with slack-sdk's own types."""

import asyncio

from slack_sdk.models.blocks import ActionsBlock, Block, SectionBlock
from slack_sdk.models.metadata import Metadata
from slack_sdk.socket_mode.request import SocketModeRequest
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from homarus.channels.slack.outbound import make_blocks, post_params
from homarus.core.message import Button, Extras, Outbound
from homarus.testing.fakes import RecordingHandler
from homarus.testing.slack_server import ADA, GENERAL, SlackServer
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


async def test_slack_library_works_with_every_method_of_the_fake() -> None:
    """The library's own helpers send the arguments, and parse the responses."""
    async with SlackServer() as slack:
        client = AsyncWebClient(slack.bot_token, base_url=slack.api, retry_handlers=[])
        blocks, metadata = (
            Block.parse_all(make_blocks("hello", BUTTONS)),
            Metadata("x", {"key": "k"}),
        )
        sent = await client.chat_postMessage(
            channel=GENERAL, text="hello", blocks=blocks, metadata=metadata
        )
        ts = str(sent["ts"])
        where = {"channel": GENERAL, "timestamp": ts}
        found: list[AsyncSlackResponse] = [
            await client.auth_test(),
            await client.conversations_history(channel=GENERAL, include_all_metadata=True),
            await client.conversations_replies(channel=GENERAL, ts=ts, limit=10),
            await client.conversations_info(channel=GENERAL, include_num_members=True),
            await client.conversations_list(types="public_channel", exclude_archived=True),
            await client.conversations_open(users=ADA),
            await client.users_conversations(types="im,public_channel"),
            await client.users_info(user=ADA),
            await client.users_list(limit=10),
            await client.reactions_add(name="eyes", **where),
            await client.reactions_get(full=True, **where),
            await client.reactions_remove(name="eyes", **where),
            await client.pins_add(**where),
            await client.pins_list(channel=GENERAL),
            await client.pins_remove(**where),
            await client.files_upload_v2(
                channel=GENERAL, content="text", filename="a.txt", initial_comment="see"
            ),
            await client.files_info(file=next(iter(slack.world.files))),
            await client.chat_update(channel=GENERAL, ts=ts, text="changed", blocks=[]),
            await client.chat_delete(channel=GENERAL, ts=ts),
            await client.conversations_kick(channel=GENERAL, user=ADA),
            await client.apps_connections_open(app_token=slack.app_token),
        ]
        person = AsyncWebClient(slack.user_token, base_url=slack.api, retry_handlers=[])
        found.append(await person.search_messages(query="hello", count=5))
        assert all(response["ok"] is True for response in found)
        assert found[1]["messages"][0]["metadata"]["event_payload"] == {"key": "k"}
        assert found[3]["channel"]["num_members"] == 2
        assert {call.method for call in slack.books.calls} == {*METHODS, "apps.connections.open"}


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
