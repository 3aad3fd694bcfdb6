"""A hook request that is refused, and the counters of all of them."""

from collections import Counter
from dataclasses import field
from typing import Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.gateway.origin_policy import RequestBlockedError

RefusalReason: TypeAlias = Literal[
    "agent",  # hooks.allowedAgentIds
    "auth",
    "body",  # not a JSON object, or its fields are wrong
    "browser",
    "busy",
    "media-type",
    "method",
    "path",
    "rate-limit",
    "repeated-id",  # an id that was used with another body
    "session-key",
    "shape",  # of the request: two lengths, a secret in the URL
    "store",
    "target",  # a model, a thinking level or a chat that does not exist
    "template",
    "too-large",
    "transform",
]


class HookRefusedError(RequestBlockedError):
    """A hook request that is refused, with the reason that it is counted under."""

    def __init__(
        self, status: int, reason: RefusalReason, message: str, *, fix: str = "", after_s: int = 0
    ) -> None:
        super().__init__(status, message, fix=fix, after_s=after_s)
        self.reason: RefusalReason = reason


@dataclass(slots=True)
class HookCounters:
    """Hook requests since the start, for `/metrics` and `status`."""

    accepted: int = 0
    duplicates: int = 0
    ignored: int = 0  # by a transform, or a ping
    refused: Counter[RefusalReason] = field(default_factory=Counter)

    def encode(self) -> dict[str, Json]:
        """Return them as `status` shows them."""
        return {
            "accepted": self.accepted,
            "duplicates": self.duplicates,
            "ignored": self.ignored,
            "refused": {str(reason): count for reason, count in sorted(self.refused.items())},
        }
