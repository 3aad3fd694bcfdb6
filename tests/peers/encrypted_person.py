"""A person with an encrypting client of matrix-nio, in the process of the test."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from nio import (
    AsyncClient,
    AsyncClientConfig,
    Event,
    KeyVerificationEvent,
    MatrixRoom,
    MegolmEvent,
    RoomPreset,
)
from nio.crypto.sas import Sas

from tests.peers.synapse import SERVER, WAIT_S, Synapse

ENCRYPTED = {
    "type": "m.room.encryption",
    "state_key": "",
    "content": {"algorithm": "m.megolm.v1.aes-sha2"},
}


class EncryptedPerson:
    """One device of a user."""

    def __init__(self, client: AsyncClient) -> None:
        self.client = client
        self.events: dict[str, Event] = {}
        self.rounds = 0
        client.add_event_callback(self._note, Event)
        client.add_to_device_callback(self._answer, KeyVerificationEvent)

    @property
    def id(self) -> str:
        return str(self.client.user_id)

    @property
    def device(self) -> str:
        return str(self.client.device_id)

    async def _note(self, _room: MatrixRoom, event: Event) -> None:
        self.events[event.event_id] = event

    async def _answer(self, event: KeyVerificationEvent) -> None:
        """Accept a verification that another device began."""
        sas = self.sas
        if sas and not sas.we_started_it and type(event).__name__ == "KeyVerificationStart":
            await self.client.accept_key_verification(event.transaction_id)

    @property
    def sas(self) -> Sas | None:
        return next(iter(self.client.key_verifications.values()), None)

    async def create(self, *invite: str) -> str:
        """Open an encrypted direct room."""
        made = checked(
            await self.client.room_create(
                is_direct=True,
                preset=RoomPreset.trusted_private_chat,
                invite=invite,
                initial_state=(ENCRYPTED,),
            )
        )
        return str(made.room_id)

    async def say(self, room: str, text: str, **content: Any) -> str:
        body = {"msgtype": "m.text", "body": text, **content}
        sent = await self.client.room_send(
            room, "m.room.message", body, ignore_unverified_devices=True
        )
        return str(checked(sent).event_id)

    async def sees(self, text: str) -> Event:
        """Wait for an event that was decrypted and has this text."""
        return await self.until(
            lambda: next(
                (
                    one
                    for one in self.events.values()
                    if getattr(one, "body", "") == text and one.decrypted
                ),
                None,
            )
        )

    async def until(self, find: Callable[[], Any]) -> Any:
        async with asyncio.timeout(WAIT_S):
            while True:
                if found := find():
                    return found
                await asyncio.sleep(0.02)

    async def member(self, room: str, user: str) -> None:
        """Wait until a user has joined, and this client knows the devices of all members."""
        rooms = self.client.rooms
        await self.until(
            lambda: (
                room in rooms
                and user in rooms[room].users
                and user not in rooms[room].invited_users
                and rooms[room].encrypted
                and not self.client.should_query_keys
                and self.client.device_store[user]
            )
        )

    def unreadable(self) -> list[Event]:
        return [one for one in self.events.values() if isinstance(one, MegolmEvent)]


@asynccontextmanager
async def online(
    server: Synapse, folder: Path, user: str, password: str = "secret"
) -> AsyncIterator[EncryptedPerson]:
    """Log in with a new device, and sync while the block lasts."""
    folder.mkdir(parents=True, exist_ok=True)
    config = AsyncClientConfig(encryption_enabled=True, store_sync_tokens=False)
    client = AsyncClient(server.url, user, store_path=str(folder), config=config)
    try:
        checked(await client.login(password, device_name="Phone"))
        person = EncryptedPerson(client)
        checked(await client.sync(timeout=0, full_state=True))
        await client.keys_upload()
        async with asyncio.TaskGroup() as group:
            syncing = group.create_task(client.sync_forever(timeout=30_000, full_state=True))
            try:
                yield person
            finally:
                syncing.cancel()
    finally:
        await client.close()
        if client.olm:
            client.olm.store.database.close()


def new_user(server: Synapse, name: str = "alice") -> str:
    local = f"{name}-{uuid4().hex[:8]}"
    server.register(local, "secret")
    return f"@{local}:{SERVER}"


def checked(answer: Any) -> Any:
    assert "Error" not in type(answer).__name__, answer
    return answer
