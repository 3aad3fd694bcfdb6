"""Users of matrix-nio: controlled by lines of JSON, they respond with lines.

Runs in the environment of requirements/synapse.lock, as a program of its own.
"""

import asyncio
import base64
import io
import json
import sys
from typing import Any

from nio import (
    AsyncClient,
    AsyncClientConfig,
    Event,
    MatrixRoom,
    ReceiptEvent,
    RoomCreateResponse,
    RoomPreset,
    TypingNoticeEvent,
)

POLL_MS = 30_000
EXCHANGE_S = 60.0


class Person:
    """One client, and all it has received."""

    def __init__(self, homeserver: str, user: str) -> None:
        config = AsyncClientConfig(encryption_enabled=False, store_sync_tokens=False)
        self.client = AsyncClient(homeserver, user, config=config)
        self.events: dict[str, list[dict[str, Any]]] = {}
        self.typing: dict[str, list[list[str]]] = {}
        self.read: dict[str, list[str]] = {}
        self.client.add_event_callback(self._note, Event)
        self.client.add_ephemeral_callback(self._note_typing, TypingNoticeEvent)
        self.client.add_ephemeral_callback(self._note_read, ReceiptEvent)
        self.task: asyncio.Task[None] | None = None

    async def _note(self, room: MatrixRoom, event: Event) -> None:
        told = {"class": type(event).__name__, "id": event.event_id, "sender": event.sender}
        fields = ("body", "formatted_body", "url", "key", "reacts_to", "redacts", "membership")
        told |= {name: getattr(event, name) for name in fields if hasattr(event, name)}
        self.events.setdefault(room.room_id, []).append({**told, "source": event.source})

    async def _note_typing(self, room: MatrixRoom, event: TypingNoticeEvent) -> None:
        self.typing.setdefault(room.room_id, []).append(list(event.users))

    async def _note_read(self, room: MatrixRoom, event: ReceiptEvent) -> None:
        seen = self.read.setdefault(room.room_id, [])
        seen.extend(f"{one.user_id} {one.event_id}" for one in event.receipts)

    async def follow(self) -> None:
        """Sync forever; a server that is down for a while is awaited."""
        await self.client.sync_forever(timeout=POLL_MS, full_state=True)


PEOPLE: dict[str, Person] = {}


async def do(told: dict[str, Any], group: asyncio.TaskGroup) -> Any:
    what, who = told["do"], told["who"]
    if what == "login":
        person = PEOPLE[who] = Person(told["homeserver"], who)
        _checked(await person.client.login(told["password"]))
        _checked(await person.client.sync(timeout=0, full_state=True))
        person.task = group.create_task(person.follow())
        return True
    person = PEOPLE[who]
    return await COMMANDS[what](person, told)


async def create(person: Person, told: dict[str, Any]) -> str:
    answer = await person.client.room_create(
        name=told.get("name"),
        is_direct=told.get("direct", False),
        preset=RoomPreset(told.get("preset", "trusted_private_chat")),
        invite=told["invite"],
        initial_state=told.get("state", ()),
    )
    _checked(answer)
    assert isinstance(answer, RoomCreateResponse)
    return str(answer.room_id)


async def send(person: Person, told: dict[str, Any]) -> str:
    answer = await person.client.room_send(told["room"], told["kind"], told["content"])
    return str(_checked(answer).event_id)


async def exchange(person: Person, told: dict[str, Any]) -> str:
    """Send a message, and wait for another user's."""
    seen = person.events.setdefault(told["room"], [])
    count = len(seen)
    content = {"msgtype": "m.text", "body": told["text"]}
    _checked(await person.client.room_send(told["room"], "m.room.message", content))
    async with asyncio.timeout(EXCHANGE_S):
        while True:
            for event in seen[count:]:
                if event["sender"] != person.client.user_id and "body" in event:
                    return str(event["body"])
            await asyncio.sleep(0.005)


async def redact(person: Person, told: dict[str, Any]) -> str:
    answer = await person.client.room_redact(told["room"], told["event"])
    return str(_checked(answer).event_id)


async def upload(person: Person, told: dict[str, Any]) -> str:
    data = base64.b64decode(told["data"])
    answer, _ = await person.client.upload(
        io.BytesIO(data), told["mime"], told["name"], filesize=len(data)
    )
    return str(_checked(answer).content_uri)


async def download(person: Person, told: dict[str, Any]) -> dict[str, str]:
    answer = _checked(await person.client.download(told["url"]))
    body = base64.b64encode(answer.body).decode()
    return {"data": body, "mime": answer.content_type, "name": answer.filename or ""}


async def invite(person: Person, told: dict[str, Any]) -> bool:
    _checked(await person.client.room_invite(told["room"], told["user"]))
    return True


async def join(person: Person, told: dict[str, Any]) -> bool:
    _checked(await person.client.join(told["room"]))
    return True


async def invited(person: Person, _told: dict[str, Any]) -> list[str]:
    return list(person.client.invited_rooms)


async def token(person: Person, _told: dict[str, Any]) -> str:
    return str(person.client.access_token)


async def members(person: Person, told: dict[str, Any]) -> list[str]:
    answer = _checked(await person.client.joined_members(told["room"]))
    return [member.user_id for member in answer.members]


async def shown(person: Person, told: dict[str, Any]) -> list[dict[str, Any]]:
    return person.events.get(told["room"], [])


async def typing(person: Person, told: dict[str, Any]) -> list[list[str]]:
    return person.typing.get(told["room"], [])


async def read(person: Person, told: dict[str, Any]) -> list[str]:
    return person.read.get(told["room"], [])


COMMANDS = {
    one.__name__: one
    for one in (
        create,
        send,
        exchange,
        redact,
        upload,
        download,
        invite,
        join,
        invited,
        token,
        members,
        shown,
        typing,
        read,
    )
}


def _checked(answer: Any) -> Any:
    if "Error" in type(answer).__name__:
        raise RuntimeError(str(answer))
    return answer


async def main() -> None:
    loop = asyncio.get_running_loop()
    async with asyncio.TaskGroup() as group:
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            try:
                answer = {"ok": await do(json.loads(line), group)}
            except Exception as exc:  # noqa: BLE001 - the test is told, whatever it is
                answer = {"error": f"{type(exc).__name__}: {exc}"}
            print(json.dumps(answer, default=str), flush=True)
        for person in PEOPLE.values():
            if person.task:
                person.task.cancel()
            await person.client.close()


asyncio.run(main())
