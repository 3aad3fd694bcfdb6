"""Follow rooms to their replacements.

Only a member with enough power can place a tombstone in a room; the homeserver enforces it. Anyone
can create a room that claims to replace another. A room therefore counts as the successor when the
tombstone of the old room names it, and its first event names the old room.

The successors are stored in our account data: they are known after a restart, also when we are no
longer in the old room.
"""

import logging
from collections.abc import Container
from typing import Final

from homarus.channels.matrix.account import MatrixAccount
from homarus.channels.matrix.api import Object, get_object
from homarus.channels.matrix.rooms import MatrixRoom
from homarus.core.errors import ChannelError

log = logging.getLogger(__name__)

UPGRADES: Final = "homarus.room_upgrades"
CREATE, TOMBSTONE = "m.room.create", "m.room.tombstone"
_SUCCESSORS: Final = "successors"


class RoomUpgrades:
    """The upgrades of one account's rooms. `listed` are the rooms that its config names."""

    def __init__(self, account: MatrixAccount, listed: Container[str]) -> None:
        self._account, self._listed = account, listed

    def load(self, content: Object) -> None:
        """Apply the stored successors."""
        found = get_object(content, _SUCCESSORS)
        rooms = self._account.rooms
        rooms.successors |= {old: new for old, new in found.items() if isinstance(new, str)}
        for room in rooms:
            self.set_chat(room)

    def set_chat(self, room: MatrixRoom) -> None:
        """Set a room's conversation: the newest id that the config names, else the oldest."""
        ids = [room.id, *self._account.rooms.predecessors(room.id)]
        room.conversation = next((one for one in ids if one in self._listed), ids[-1])

    def is_expected(self, room: str) -> bool:
        """Return whether the tombstone of a room that we are in names this room."""
        return any(one.replacement == room for one in self._account.rooms)

    def link(self, room: MatrixRoom) -> list[tuple[str, str]]:
        """Return the upgrades, as old and new id, that are verified now that a room changed."""
        return [
            (old, new)
            for old, new in ((room.predecessor, room.id), (room.id, room.replacement))
            if self._is_verified(old, new) and self._link(old, new)
        ]

    def unproved(self, room: MatrixRoom) -> list[str]:
        """Return the rooms for which we joined this one, although it does not replace them."""
        return [
            one.id
            for one in self._account.rooms
            if one.id in self._account.moving
            and one.replacement == room.id
            and room.predecessor != one.id
        ]

    def room_to_join(self, room: MatrixRoom) -> str:
        """Return the replacement of a room if we have never been in it; else ""."""
        new, rooms = room.replacement, self._account.rooms
        if not new.startswith("!") or new in rooms or rooms.successors.get(room.id) == new:
            return ""
        return new

    async def save(self, upgrades: list[tuple[str, str]]) -> None:
        """Store the successors, and mark the replacement of a direct room as direct."""
        account = self._account
        try:
            data: Object = {_SUCCESSORS: dict(account.rooms.successors)}
            await account.server.put("user", account.me, "account_data", UPGRADES, data=data)
            for old, new in upgrades:
                for person in account.rooms.people_of(old):
                    await account.save_direct(new, person)
        except ChannelError as exc:  # it is verified again at the next start
            log.warning("the upgrade of a room could not be stored on the homeserver: %s", exc)

    def _is_verified(self, old: str, new: str) -> bool:
        rooms = self._account.rooms
        before, after = rooms.get(old), rooms.get(new)
        if not (before and after and before.replacement == new):
            return False
        if after.predecessor != old:
            log.info("%s is not followed to %s, which does not name it as replaced", old, new)
            return False
        return True

    def _link(self, old: str, new: str) -> bool:
        rooms = self._account.rooms
        if rooms.successors.get(old) == new:
            return False
        rooms.successors[old] = new
        for room in rooms:
            self.set_chat(room)
        log.warning("the room %s was upgraded and continues in %s", old, new)
        return True
