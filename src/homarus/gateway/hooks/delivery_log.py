"""Remember deliveries, so that one that is sent again answers as before and starts nothing.

A record is written in the transaction that stores what the delivery caused, and deleted a week
later, with the settled messages of the journal.
"""

from collections.abc import Mapping
from typing import Final

from homarus.core.clock import Clock
from homarus.core.message import Json
from homarus.gateway.hooks.payload import DeliveryId
from homarus.gateway.hooks.refusal import HookRefusedError
from homarus.store.base import Store, Transaction

KIND: Final = "hook-delivery"
KEPT_MS: Final = 7 * 86_400_000
MAX_RECORDS: Final = 20_000
_PRUNE_EVERY_MS: Final = 3_600_000


class DeliveryLog:
    """The deliveries of the last week."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._pruned_at_ms = 0
        self._expired: tuple[str, ...] = ()

    async def find(self, delivery: DeliveryId) -> Mapping[str, Json] | None:
        """Return the answer to an earlier request with the same id.

        Raises HookRefusedError (409) when that had another body.
        """
        for key in delivery.keys:
            found = await self._store.record(KIND, key)
            if found is None:
                continue
            if delivery.digest and found.get("digest") not in ("", delivery.digest):
                raise HookRefusedError(
                    409, "repeated-id", "the id of this delivery was used with another body"
                )
            answer: Mapping[str, Json] = found.get("answer") or {}
            return answer
        return None

    async def prepare(self) -> None:
        """Look up, once in an hour, which records the next `write` deletes."""
        now_ms = self._clock.now_ms()
        if 0 <= now_ms - self._pruned_at_ms < _PRUNE_EVERY_MS:
            return
        found = await self._store.records(KIND)
        by_age = sorted(found, key=lambda key: int(found[key].get("at", 0)))
        surplus = len(by_age) - MAX_RECORDS
        old = [key for key in by_age if int(found[key].get("at", 0)) < now_ms - KEPT_MS]
        self._expired = tuple(by_age[: max(surplus, len(old), 0)])
        self._pruned_at_ms = now_ms

    def write(
        self, transaction: Transaction, delivery: DeliveryId, answer: Mapping[str, Json]
    ) -> None:
        """Record a delivery and its answer, and delete the records that are old."""
        record = {"at": self._clock.now_ms(), "digest": delivery.digest, "answer": dict(answer)}
        for key in delivery.keys:
            transaction.put_record(KIND, key, record)
        for key in self._expired:
            transaction.delete_record(KIND, key)
        self._expired = ()
