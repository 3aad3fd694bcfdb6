"""A user on IRC: pydle, controlled by lines of JSON, reporting events the same way.

Run by a Python that has pydle: irc_person.py PORT NICK. An order is {"do": NAME, "args": [...]}
with the name of a method of pydle's client; an event has a `kind`.
"""

import asyncio
import importlib
import json
import sys
from typing import Any


def tell(kind: str, **event: str) -> None:
    sys.stdout.write(json.dumps({"kind": kind, **event}) + "\n")
    sys.stdout.flush()


def make(nick: str) -> Any:
    """Return a client that reports what happens to it."""
    client: Any = importlib.import_module("pydle").Client(nick)

    read = client.on_raw

    async def on_raw(message: Any) -> None:
        # In this hook, because later ones are not called in order.
        if message.command == "PRIVMSG":
            target, text = message.params
            tell("message", by=message.source.partition("!")[0], target=target, text=text)
        if message.command == "MODE":
            tell("mode", target=message.params[0], text=" ".join(map(str, message.params[1:])))
        if message.command == 353:  # who is in a channel that we join
            names = " ".join(name.lstrip("@+") for name in message.params[-1].split())
            tell("names", target=message.params[-2], text=names)
        await read(message)

    async def on_notice(target: str, by: str, message: str) -> None:
        tell("notice", by=by, target=target, text=message)

    async def on_join(channel: str, user: str) -> None:
        tell("join", by=user, target=channel)

    async def on_quit(user: str, _message: str | None = None) -> None:
        tell("quit", by=user)

    async def on_nick_change(old: str, new: str) -> None:
        tell("nick", by=old, target=new)

    greeted = client.on_connect

    async def on_connect() -> None:
        await greeted()
        tell("ready")

    for each in (on_raw, on_notice, on_join, on_quit, on_nick_change, on_connect):
        setattr(client, each.__name__, each)
    return client


async def live(port: int, nick: str) -> None:
    client = make(nick)
    await client.connect("127.0.0.1", port, tls=False)
    while line := await asyncio.to_thread(sys.stdin.readline):
        order = json.loads(line)
        await getattr(client, order["do"])(*order["args"])


if __name__ == "__main__":
    asyncio.run(live(int(sys.argv[1]), sys.argv[2]))
