"""The requests with an Idempotency-Key whose effects must happen once, also across a restart.

A record is written in the transaction that comes right before the effect, and completed with the
answer. A record without one is of a request whose outcome is unknown: the process ended in between.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from homarus.core.message import Json
from homarus.gateway.http_api.api_error import ApiError, encode_json
from homarus.gateway.http_api.request_key import RequestKey

if TYPE_CHECKING:
    from homarus.gateway.server import Gateway
    from homarus.store.base import Transaction

KIND: Final = "http-request"
ANSWER_KIND: Final = (
    "http-answer"  # apart from the records, which are all read to find the old ones
)
KEPT_MS: Final = 86_400_000
MAX_RECORDS: Final = 10_000
MAX_ANSWER_BYTES: Final = 256 << 10
_PRUNE_EVERY_MS: Final = 3_600_000


class RequestLog:
    """The requests of the last day."""

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway
        self._pruned_at_ms = -_PRUNE_EVERY_MS

    async def find(self, key: RequestKey) -> dict[str, Json] | None:
        """Return the answer to an earlier request with this key; None if there was none.

        Raises ApiError (409) when that was another request, and when its outcome is unknown.
        """
        store = self._gateway.services.store
        record = await store.record(KIND, key.id)
        if record is None:
            return None
        key.check_same(str(record.get("digest")))
        if record.get("state") != "done":
            raise ApiError(
                409,
                "the outcome of the earlier request with this Idempotency-Key is unknown: the"
                " gateway stopped while it was carried out",
                reason="outcome_unknown",
                fix="check what it has done, then send a new key",
            )
        answer = await store.record(ANSWER_KIND, key.id)
        if answer is None:
            raise ApiError(
                409,
                "the earlier request with this Idempotency-Key was carried out; its answer was"
                " too large to be kept",
                reason="answer_not_kept",
            )
        return dict(answer)

    def record_start(self, transaction: "Transaction", key: RequestKey) -> None:
        """Record that the effects of a request begin."""
        transaction.put_record(KIND, key.id, self._record(key, "started"))

    async def record_end(self, key: RequestKey, answer: Mapping[str, Json]) -> None:
        """Record the answer to a request, and delete old records."""
        expired = await self._find_expired()
        async with self._gateway.services.store.transaction() as transaction:
            transaction.put_record(KIND, key.id, self._record(key, "done"))
            if len(encode_json(dict(answer))) <= MAX_ANSWER_BYTES:
                transaction.put_record(ANSWER_KIND, key.id, answer)
            for each in expired:
                transaction.delete_record(KIND, each)
                transaction.delete_record(ANSWER_KIND, each)

    def _record(self, key: RequestKey, state: str) -> dict[str, Any]:
        now_ms = self._gateway.clock.now_ms()
        return {"at": now_ms, "digest": key.digest, "state": state}

    async def _find_expired(self) -> list[str]:
        """Return, once in an hour, the records that are old or too many."""
        now_ms = self._gateway.clock.now_ms()
        if 0 <= now_ms - self._pruned_at_ms < _PRUNE_EVERY_MS:
            return []
        self._pruned_at_ms = now_ms
        found = await self._gateway.services.store.records(KIND)
        by_age = sorted(found, key=lambda each: int(found[each].get("at", 0)))
        old = sum(int(found[each].get("at", 0)) < now_ms - KEPT_MS for each in by_age)
        return by_age[: max(old, len(by_age) - MAX_RECORDS, 0)]
