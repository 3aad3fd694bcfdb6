"""A strict fake of Telegram's Bot API.

A green test against it shows that we agree with ourselves about the Bot API, and no more: nobody
at Telegram wrote it. That its answers have the right shape is judged by python-telegram-bot's own
types (tests/peers).

It counts in UTF-16 units after it has read the HTML, refuses in the real one's words, hands out
updates until they are confirmed, lets one program poll at a time, calls a webhook until it
answers, and keeps the books, by which tests judge:

    async with TelegramServer() as telegram:
        telegram.say("hello")                     # a person writes to the bot
        ... a channel with apiRoot telegram.url and telegram.token ...
        assert [m["text"] for m in telegram.sent(chat=ADA)] == ["hi"]

Trouble befalls the next calls of a method, when a test says so: `telegram.trouble("sendMessage",
status=429, retry_after=3)`; `taken=True` does the call before the answer is lost, status 0 hangs
up, `times` says how often.

    python -m homarus.testing.telegram_server [--token T] [--port P]

prints its URL and serves until it is stopped; then tests act by HTTP:

    POST /control/ACT {...}     an act of a person, by its name and arguments: say, edit, press,
                                react, attach, redeliver, trouble; the answer is what it made
    POST /control/hosts {...}   where the addresses of webhooks really are: {"https://…": "http://…"}
    GET  /control/books         {"calls", "pushes", "messages", "pending", "drafts", "actions"}
"""

from homarus.testing.telegram_server.server import CallFault, CallLog, RecordedCall, TelegramServer
from homarus.testing.telegram_server.user_actions import ADA, GROUP

__all__ = ["ADA", "GROUP", "CallFault", "CallLog", "RecordedCall", "TelegramServer"]
