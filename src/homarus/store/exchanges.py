"""The record of an exchange: two sessions that write to each other after one `sessions_send`.

It is saved before each of its messages is accepted, with the text of that message, and removed when
the exchange ends. The id of a message is made of the exchange's and the number of the step, so that
a message is accepted once, however often a process that was killed starts its step again.
"""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json

KIND: Final = "exchange"
MAX_HOPS: Final = 5  # messages between sessions, one because of the other, after the first
_PREFIX: Final = "exchange"
_ANNOUNCE: Final = "announce"

ExchangePhase: TypeAlias = Literal["turn", "announce"]


@dataclass(frozen=True, slots=True)
class ExchangeRecord:
    """An exchange at its current step.

    Step 0 is the message of `source` to `target`; the steps after it go back and forth, up to
    `max_step`. The last phase asks the target what its chat is told. `text` is the message of the
    current step, `request` the first message and `reply` the last answer, as the models wrote them.
    `source_run` and `source_channel` are those of the run that called the tool. An exchange
    `is_untrusted` when one of its texts may contain what others wrote, and `is_limited` when it
    has not the owner's authority.
    """

    id: str
    source: str
    target: str
    text: str
    request: str
    source_run: str = ""
    source_channel: str = ""
    step: int = 0
    max_step: int = 0
    phase: ExchangePhase = "turn"
    reply: str = ""
    is_limited: bool = False
    is_untrusted: bool = False

    @property
    def step_run(self) -> str:
        """The id of the run that answers the current step, and of its message."""
        name = _ANNOUNCE if self.phase == "announce" else str(self.step)
        return f"{self.id}:{name}"

    @property
    def first_run(self) -> str:
        return f"{self.id}:0"

    @property
    def receiver(self) -> str:
        """The session that gets the message of the current step."""
        is_back = self.phase == "turn" and self.step % 2 == 1
        return self.source if is_back else self.target

    @property
    def sender(self) -> str:
        """The session that the message of the current step comes from."""
        return self.target if self.receiver == self.source else self.source


def make_exchange_id(hops: int, digest: str) -> str:
    """Return the id of an exchange that starts after so many messages between sessions."""
    return f"{_PREFIX}:{hops}:{digest}"


def count_hops(run_id: str) -> int:
    """Return how many messages between sessions led to a run; 0 for a run of another message."""
    parts = run_id.split(":")
    if len(parts) != 4 or parts[0] != _PREFIX or not parts[1].isdecimal():
        return 0
    if parts[3] == _ANNOUNCE:
        return MAX_HOPS + 1
    return int(parts[1]) + int(parts[3]) + 1 if parts[3].isdecimal() else 0


def encode_exchange(record: ExchangeRecord) -> dict[str, Json]:
    """Return what the store keeps of an exchange."""
    return {name: getattr(record, name) for name in ExchangeRecord.__slots__ if name != "id"}


def decode_exchange(exchange_id: str, data: Mapping[str, Json]) -> ExchangeRecord:
    """Return a stored exchange; fields that a newer version added are ignored."""
    known = {name: data[name] for name in ExchangeRecord.__slots__ if name in data}
    return ExchangeRecord(**{**known, "id": exchange_id})
