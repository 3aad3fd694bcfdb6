"""A strict fake of Slack: its Web API, and the WebSocket of socket mode.

It is ours: a green test against it shows that we agree with ourselves about Slack, and no more.
That its frames and responses have the right shape is checked with slack-sdk's own types.

It refuses arguments that Slack does not have, in Slack's words; stores the metadata of messages;
sends each event to one connection, and again to the next one until it is acknowledged. An event
while nothing is connected is lost, as the worst case: only the history has its message.

    async with SlackServer() as slack:
        slack.say("hello")                        # a person writes to the bot
        ... a channel with apiRoot slack.api, slack.bot_token and slack.app_token ...
        assert [m["text"] for m in slack.sent()] == ["hi"]

A test makes the next calls of a method fail: `slack.trouble("chat.postMessage", status=429,
retry_after=3)`; `taken=True` performs the call before the response is lost, status 0 hangs up.

    python -m homarus.testing.slack_server [--port P]

prints its URL, and serves until it is stopped.
"""

from homarus.testing.slack_server.server import SlackFault, SlackServer
from homarus.testing.slack_server.state import ADA, GENERAL

__all__ = ["ADA", "GENERAL", "SlackFault", "SlackServer"]
