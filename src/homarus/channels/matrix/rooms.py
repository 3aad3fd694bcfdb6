"""Track the rooms we are in: names, members, which are direct, and which replaced another.

The state comes from the sync alone. A room is *direct* when at most two people are in it and either
our account data says so (`m.direct`) or it has no name: with a third member, what was said in
private must not be repeated there.

An upgrade replaces a room by a new one with another id. A conversation keeps the id of the first
room, so its session and its settings stay; what is sent to it goes to the newest room.
"""

from collections.abc import Iterable, Iterator
from dataclasses import field
from typing import Final

from homarus.channels.matrix.api import Object, get_int, get_object, get_objects, get_str
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line

MAX_NAMES: Final = 500  # members of one room whose names are cached


@dataclass(slots=True)
class MatrixRoom:
    """A room. `people` counts joined and invited members; None if unknown."""

    id: str
    name: str = ""
    alias: str = ""
    people: int | None = None
    joined: int = 0
    invited: int = 0
    is_encrypted: bool = False
    conversation: str = ""  # the id of its conversation if it replaced another room
    predecessor: str = ""  # the room that this one says it replaces
    replacement: str = ""  # the room that replaces this one, as its tombstone says
    replacement_server: str = ""  # a server that knows it
    names: dict[str, str] = field(default_factory=dict)

    @property
    def chat(self) -> str:
        """The id of its conversation."""
        return self.conversation or self.id

    @property
    def title(self) -> str:
        return self.name or self.alias

    def name_of(self, user: str) -> str:
        """Return a user's display name; else the local part of the user id."""
        return self.names.get(user) or user.partition(":")[0].removeprefix("@")

    def apply_sync(self, data: Object) -> None:
        """Apply one sync response."""
        summary = get_object(data, "summary")
        if "m.joined_member_count" in summary or "m.invited_member_count" in summary:
            # Each is sent when it has changed.
            if "m.joined_member_count" in summary:
                self.joined = get_int(summary, "m.joined_member_count")
            if "m.invited_member_count" in summary:
                self.invited = get_int(summary, "m.invited_member_count")
            self.people = self.joined + self.invited
        self.apply_state(get_objects(get_object(data, "state"), "events"))
        self.apply_state(get_objects(get_object(data, "timeline"), "events"))

    def apply_state(self, events: Iterable[Object]) -> None:
        """Apply a state event."""
        for event in events:
            if "state_key" not in event:
                continue
            content = get_object(event, "content")
            match event.get("type"):
                case "m.room.name":
                    self.name = one_line(get_str(content, "name"))
                case "m.room.canonical_alias":
                    self.alias = one_line(get_str(content, "alias"))
                case "m.room.encryption":
                    self.is_encrypted = True  # it cannot be turned off
                case "m.room.create":
                    self.predecessor = get_str(get_object(content, "predecessor"), "room_id")
                case "m.room.tombstone" if event.get("state_key") == "":
                    self.replacement = get_str(content, "replacement_room")
                    self.replacement_server = get_str(event, "sender").partition(":")[2]
                case "m.room.member":
                    self._learn_member(get_str(event, "state_key"), content)

    def _learn_member(self, user: str, content: Object) -> None:
        self.names.pop(user, None)
        if get_str(content, "membership") == "join":
            while len(self.names) >= MAX_NAMES:
                del self.names[next(iter(self.names))]
            self.names[user] = one_line(get_str(content, "displayname"))


class JoinedRooms:
    """The joined rooms; `direct` is our account data `m.direct`.

    `successors` has the room that verifiably replaced another, by the id of the replaced one.
    """

    def __init__(self) -> None:
        self._rooms: dict[str, MatrixRoom] = {}
        self.direct: Object = {}
        self.successors: dict[str, str] = {}

    def __contains__(self, room: str) -> bool:
        return room in self._rooms

    def __getitem__(self, room: str) -> MatrixRoom:
        """Return a room, creating it if it is new."""
        return self._rooms.setdefault(room, MatrixRoom(room))

    def get(self, room: str) -> MatrixRoom | None:
        return self._rooms.get(room)

    def __iter__(self) -> Iterator[MatrixRoom]:
        return iter([*self._rooms.values()])

    def newest(self, room: str) -> str:
        """Return the room that a room was replaced by, in the end; else the room itself."""
        seen = {room}
        while (newer := self.successors.get(room, "")) and newer not in seen:
            room = newer
            seen.add(room)
        return room

    def predecessors(self, room: str) -> list[str]:
        """Return the rooms that a room replaced, the newest first."""
        replaced = {new: old for old, new in self.successors.items()}
        found = [room]
        while (older := replaced.get(found[-1], "")) and older not in found:
            found.append(older)
        return found[1:]

    def forget(self, room: str) -> None:
        """Remove a room that we left."""
        self._rooms.pop(room, None)

    def is_direct(self, room: MatrixRoom) -> bool:
        if room.people is not None and room.people > 2:
            return False
        flagged = any(room.id in rooms for _, rooms in self._directs())
        return flagged or (room.people is not None and not room.title)

    def with_person(self, user: str, *, encrypted: bool = False) -> str:
        """Return the direct room with a user; "" when there is none.

        `encrypted`: encrypted rooms are as good as others.
        """
        rooms = dict(self._directs()).get(user, [])
        here = [self._rooms[room] for room in rooms if room in self._rooms]
        found = [room for room in here if room.people is None or room.people <= 2]
        # Unencrypted if possible; the newest is last.
        usable = (room.id for room in reversed(found) if encrypted or not room.is_encrypted)
        return next(usable, "") or (found[-1].id if found else "")

    def add_direct(self, room: str, user: str) -> Object:
        """Mark a room as direct, and return the account data to save."""
        mine = dict(self._directs()).get(user, [])
        if room not in mine:
            self.direct = {**self.direct, user: [*mine, room]}
        return self.direct

    def people_of(self, room: str) -> list[str]:
        """Return the people with whom a room is marked as direct."""
        return [user for user, rooms in self._directs() if room in rooms]

    def _directs(self) -> Iterator[tuple[str, list[str]]]:
        for user, rooms in self.direct.items():
            if isinstance(rooms, list):
                yield user, [room for room in rooms if isinstance(room, str)]
