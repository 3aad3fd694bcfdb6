"""Detect two bots that answer each other endlessly, and stop answering.

It counts turns: a message that follows a reply of ours. A burst of messages is one turn. A message
that passed and is checked again, for another agent or because it was offered again, is no further
turn.

The turns of a chat are a record of the journal: the caller stores `take_changes` in the transaction
that moves the cursor. They are times of the wall clock. One that lies ahead, since the clock was
set back, counts as now, so that no sender is cut off for longer than the window.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import field
from typing import Final

from homarus.core.clock import Clock
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Inbound
from homarus.store.chat_records import ChatRecord, chat_key

BOT_TURNS: Final = 6
BOT_WINDOW_S: Final = 600.0
# For senders that are not marked as bots: faster than people type, for long.
TURNS: Final = 60
WINDOW_S: Final = 300.0
_MAX_CHATS: Final = 1_000
_MAX_SENDERS: Final = 100  # of one chat


@dataclass(slots=True)
class _ChatTurns:
    is_our_turn_over: bool = False  # we replied since the last counted turn
    turns: OrderedDict[str, deque[int]] = field(default_factory=OrderedDict)  # by sender, in ms
    last: str = ""  # the message that passed last

    def load(self, record: ChatRecord) -> None:
        data = record.data or {}
        # Not stored with each reply: at most one turn too many is counted after a restart.
        self.is_our_turn_over, self.last = True, str(data.get("last", ""))
        turns = data.get("turns")
        for sender, times in turns.items() if isinstance(turns, dict) else ():
            if isinstance(times, list):
                known = (time for time in times if isinstance(time, int))
                self.turns[sender] = deque(known, maxlen=TURNS + 1)

    def of_sender(self, sender: str) -> deque[int]:
        """Return the turns of a sender; those who were quiet the longest are dropped."""
        times = self.turns.setdefault(sender, deque(maxlen=TURNS + 1))
        self.turns.move_to_end(sender)
        while len(self.turns) > _MAX_SENDERS:
            self.turns.popitem(last=False)
        return times


class BotLoopGuard:
    """Count turns by chat and sender."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._chats: OrderedDict[Address, _ChatTurns] = OrderedDict()
        self._changed: dict[Address, None] = {}

    def is_loaded(self, address: Address) -> bool:
        """Return whether a chat is in memory."""
        return address in self._chats

    def load(self, address: Address, records: Sequence[ChatRecord]) -> None:
        """Take the turns of a chat from its record, unless they are in memory already."""
        if address not in self._chats:
            chat = self._chat(address)
            for record in records:
                chat.load(record)

    def take_changes(self) -> list[ChatRecord]:
        """Return the records that changed since the last call."""
        changed, self._changed = self._changed, {}
        return [self._encode(address) for address in changed if address in self._chats]

    def is_loop(self, inbound: Inbound, *, is_trusted: bool) -> bool:
        """Return whether a message is one turn too many. Trusted senders are never cut off."""
        is_bot = inbound.metadata.is_bot
        if is_trusted and not is_bot:
            return False
        max_turns, window_s = (BOT_TURNS, BOT_WINDOW_S) if is_bot else (TURNS, WINDOW_S)
        chat, now_ms = self._chat(inbound.address), self._clock.now_ms()
        if inbound.id and inbound.id == chat.last:
            self._changed[inbound.address] = None  # offered again: it may not have been stored
            return False
        if not is_bot:
            self.reset_others(inbound.address, inbound.sender)
        seen = chat.of_sender(inbound.sender)
        recent = [min(at_ms, now_ms) for at_ms in seen if at_ms > now_ms - window_s * 1000]
        seen.clear()
        seen.extend(recent)
        if len(seen) >= max_turns:
            return True
        chat.last = inbound.id
        if chat.is_our_turn_over or not seen:
            seen.append(now_ms)
            chat.is_our_turn_over = False
        self._changed[inbound.address] = None
        return False

    def on_reply_sent(self, address: Address) -> None:
        """Record that we replied in a chat."""
        if address in self._chats:
            self._chats[address].is_our_turn_over = True

    def reset_others(self, address: Address, person: str = "") -> None:
        """Reset the other senders of a chat: they are not alone with us."""
        if chat := self._chats.get(address):
            for sender in [each for each in chat.turns if each != person]:
                del chat.turns[sender]
                self._changed[address] = None

    def _encode(self, address: Address) -> ChatRecord:
        chat = self._chats[address]
        turns = {sender: [*times] for sender, times in chat.turns.items() if times}
        data = {"last": chat.last, "turns": turns} if turns else None
        return ChatRecord("turns", chat_key(address), "", self._clock.now_ms(), data)

    def _chat(self, address: Address) -> _ChatTurns:
        chat = self._chats.setdefault(address, _ChatTurns())
        self._chats.move_to_end(address)
        while len(self._chats) > _MAX_CHATS:
            self._chats.popitem(last=False)
        return chat
