"""Detect two bots that answer each other endlessly, and stop answering.

It counts turns: a message that follows a reply of ours. A burst of messages is one turn. A message
that passed and is checked again, for another agent or because it was offered again, is no further
turn.
"""

from collections import OrderedDict, deque
from dataclasses import field
from typing import Final

from homarus.core.clock import Clock
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Inbound

BOT_TURNS: Final = 6
BOT_WINDOW_S: Final = 600.0
# For senders that are not marked as bots: faster than people type, for long.
TURNS: Final = 60
WINDOW_S: Final = 300.0
_MAX_CHATS: Final = 1_000


@dataclass(slots=True)
class _ChatTurns:
    is_our_turn_over: bool = False  # we replied since the last counted turn
    turns: dict[str, deque[float]] = field(default_factory=dict)
    last: str = ""  # the message that passed last


class BotLoopGuard:
    """Count turns by chat and sender."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._chats: OrderedDict[Address, _ChatTurns] = OrderedDict()

    def is_loop(self, inbound: Inbound, *, is_trusted: bool) -> bool:
        """Return whether a message is one turn too many. Trusted senders are never cut off."""
        is_bot = inbound.metadata.is_bot
        if is_trusted and not is_bot:
            return False
        max_turns, window_s = (BOT_TURNS, BOT_WINDOW_S) if is_bot else (TURNS, WINDOW_S)
        chat, now_s = self._chat(inbound.address), self._clock.monotonic()
        if inbound.id and inbound.id == chat.last:
            return False
        if not is_bot:
            self.reset_others(inbound.address, inbound.sender)
        seen = chat.turns.setdefault(inbound.sender, deque(maxlen=TURNS + 1))
        while seen and seen[0] <= now_s - window_s:
            seen.popleft()
        if len(seen) >= max_turns:
            return True
        chat.last = inbound.id
        if chat.is_our_turn_over or not seen:
            seen.append(now_s)
            chat.is_our_turn_over = False
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

    def _chat(self, address: Address) -> _ChatTurns:
        chat = self._chats.setdefault(address, _ChatTurns())
        self._chats.move_to_end(address)
        while len(self._chats) > _MAX_CHATS:
            self._chats.popitem(last=False)
        return chat
