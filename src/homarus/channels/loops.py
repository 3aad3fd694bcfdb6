"""Two programs that answer each other for ever: noticed, and ended by saying nothing more.

What is counted is turns: a message that follows an answer of ours. Many messages at once are one.
A message that was let through and is judged again, for another agent or because it was offered
again, is no other turn.
"""

from collections import OrderedDict, deque
from dataclasses import field
from typing import Final

from homarus.core.clock import Clock
from homarus.core.message import Address, Inbound
from homarus.core.value import dataclass

BOT_TURNS: Final = 6
BOT_WINDOW_S: Final = 600.0
# Of somebody who does not say that they are a program: faster than people are, for long.
TURNS: Final = 60
WINDOW_S: Final = 300.0
_MAX_CHATS: Final = 1_000


@dataclass(slots=True)
class _Chat:
    is_our_turn_over: bool = False  # we answered since the last turn that counted
    turns: dict[str, deque[float]] = field(default_factory=dict)
    last: str = ""  # the message that was let through last


class Loops:
    """Counts turns, by chat and sender."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._chats: OrderedDict[Address, _Chat] = OrderedDict()

    def turns(self, inbound: Inbound, *, is_trusted: bool) -> bool:
        """Whether a message is one turn too many. People who are trusted are never cut off."""
        is_bot = inbound.occasion.is_bot
        if is_trusted and not is_bot:
            return False
        most, window_s = (BOT_TURNS, BOT_WINDOW_S) if is_bot else (TURNS, WINDOW_S)
        chat, now_s = self._chat(inbound.address), self._clock.monotonic()
        if inbound.id and inbound.id == chat.last:
            return False
        if not is_bot:
            self.person_spoke(inbound.address, inbound.sender)
        seen = chat.turns.setdefault(inbound.sender, deque(maxlen=TURNS + 1))
        while seen and seen[0] <= now_s - window_s:
            seen.popleft()
        if len(seen) >= most:
            return True
        chat.last = inbound.id
        if chat.is_our_turn_over or not seen:
            seen.append(now_s)
            chat.is_our_turn_over = False
        return False

    def answered(self, address: Address) -> None:
        """We said something there."""
        if address in self._chats:
            self._chats[address].is_our_turn_over = True

    def person_spoke(self, address: Address, person: str = "") -> None:
        """Somebody else is there: whoever talked with us is not alone with us any more."""
        if chat := self._chats.get(address):
            for sender in [each for each in chat.turns if each != person]:
                del chat.turns[sender]

    def _chat(self, address: Address) -> _Chat:
        chat = self._chats.setdefault(address, _Chat())
        self._chats.move_to_end(address)
        while len(self._chats) > _MAX_CHATS:
            self._chats.popitem(last=False)
        return chat
