"""Records of turns that have not ended: what is done at their end."""

from collections.abc import Mapping
from typing import Any, Final

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json, Usage
from homarus.schedule.turn import Delivery, TurnRequest
from homarus.store.slots import SlotState

TURN_KIND: Final = "turn"
_KEYS: Final = {
    "id": "id",
    "source": "source",
    "name": "name",
    "agent": "agent",
    "session_key": "sessionKey",
    "at_ms": "atMs",
    "summarizes": "summarizes",
    "wake_mode": "wakeMode",
}
_DELIVERY_KEYS: Final = {
    "mode": "mode",
    "channel": "channel",
    "to": "to",
    "account": "accountId",
    "thread": "threadId",
    "best_effort": "bestEffort",
}


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """How a turn ended. `status` is `skipped` when a person stopped it.

    `summary` is the answer for people, shortened; "" when the agent had nothing to report.
    `is_delivered`: the answer goes to a chat. `is_retryable`: the same turn may succeed later.
    """

    request: TurnRequest
    status: SlotState
    ended_ms: int
    summary: str = ""
    error: str = ""
    session_id: str = ""
    model: str = ""
    provider: str = ""
    usage: Usage | None = None
    is_delivered: bool = False
    is_retryable: bool = False


def encode_turn(request: TurnRequest) -> dict[str, Json]:
    """Return what the end of a turn needs; its text is in the journal."""
    delivery = {key: getattr(request.delivery, name) for name, key in _DELIVERY_KEYS.items()}
    return {
        **{key: getattr(request, name) for name, key in _KEYS.items()},
        "delivery": delivery,
        "taint": [list(source) for source in request.taint],
    }


def decode_turn(data: Mapping[str, Json]) -> TurnRequest:
    """Return the request that `encode_turn` wrote, without its text and options."""
    fields: dict[str, Any] = {name: data[key] for name, key in _KEYS.items()}
    given = data["delivery"]
    delivery = Delivery(**{name: given[key] for name, key in _DELIVERY_KEYS.items()})
    taint = tuple((str(kind), str(origin)) for kind, origin in data.get("taint", ()))
    return TurnRequest(**fields, text="", delivery=delivery, taint=taint)
