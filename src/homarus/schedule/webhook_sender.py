"""Post the results of jobs to the webhooks of others: stored, retried, each with an id.

A delivery is a record that is written with the end of the run. It is deleted when the receiver has
answered, so that a crash in between posts it again: the receiver tells such a repetition by the
header `Idempotency-Key`.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias

from homarus.core.clock import Clock
from homarus.core.errors import BlockedUrlError, FetchError, HomarusError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.faults import fault_point
from homarus.core.message import Json
from homarus.core.tasks import run_contained
from homarus.core.text import one_line
from homarus.net.guard import NetworkPolicy, check_target, parse_url
from homarus.net.guarded_fetch import FetchedResponse, FetchLimits, guarded_fetch
from homarus.schedule.wakeable_sleep import WakeableSleep
from homarus.store.base import Store, Transaction
from homarus.store.transcript_codec import dump_json

log = logging.getLogger(__name__)

DELIVERY_KIND: Final = "webhook-delivery"
RETRY_S: Final = (10.0, 60.0, 300.0, 900.0, 3_600.0, 3_600.0, 3_600.0)
_LIMITS: Final = FetchLimits(max_bytes=65_536, max_redirects=0, truncates=True)
_RETRIED: Final = frozenset({408, 425, 429})

Post: TypeAlias = Callable[..., Awaitable[FetchedResponse]]


@dataclass(frozen=True, slots=True)
class WebhookSettings:
    """The owner's webhook and its token, and what the network guard allows."""

    url: str = ""
    token: str = ""
    policy: NetworkPolicy = NetworkPolicy()


@dataclass(frozen=True, slots=True)
class WebhookServices:
    """What webhooks use of the rest of the program.

    `on_failed` gets the id and the reason of a delivery that is given up.
    """

    store: Store
    clock: Clock
    get_settings: Callable[[], WebhookSettings]
    spawn: Callable[[Coroutine[Any, Any, None], str], object]
    on_failed: Callable[[str, str], Awaitable[None]]
    post: Post = guarded_fetch


class WebhookSender:
    """Posts the deliveries that are stored, in a task that ends when there are none."""

    def __init__(self, services: WebhookServices) -> None:
        self._services, self._store, self._clock = services, services.store, services.clock
        self._is_running = False
        self._sleep = WakeableSleep(services.clock)

    async def resolve_url(self, url: str) -> str:
        """Return the URL of a job, else the owner's. Raises UserError when it cannot be used."""
        settings = self._services.get_settings()
        url = url.strip() or settings.url
        if not url:
            raise UserError(
                "the job has no webhook to deliver to", fix="set delivery.to or cron.webhook"
            )
        try:
            await check_target(
                url, settings.policy, is_port_allowed=_is_port_allowed(url, settings)
            )
        except FetchError:
            log.debug("the webhook of a job cannot be reached now; it is retried later")
        except BlockedUrlError as exc:
            raise UserError(f"the webhook is refused: {exc.message}", fix=exc.fix) from exc
        return url

    def write(
        self, transaction: Transaction, run_id: str, url: str, event: Mapping[str, Json]
    ) -> None:
        """Store a delivery in the transaction that ends a run."""
        transaction.put_record(
            DELIVERY_KIND, run_id, {"url": url, "event": dict(event), "attempts": 0, "dueMs": 0}
        )

    def wake(self) -> None:
        """Post what is stored."""
        self._sleep.wake()
        if not self._is_running:
            self._is_running = True
            name = "webhooks of jobs"
            self._services.spawn(run_contained(name, self._work, lambda _exc: None), name)

    async def recover(self) -> None:
        """Post what an earlier process left."""
        if await self._store.records(DELIVERY_KIND):
            self.wake()

    async def _work(self) -> None:
        try:
            while pending := await self._store.records(DELIVERY_KIND):
                now_ms, next_ms = self._clock.now_ms(), 0
                for run_id, data in pending.items():
                    due_ms = min(int(data.get("dueMs", 0)), now_ms + round(RETRY_S[-1] * 1000))
                    if due_ms <= now_ms:
                        await self._deliver(run_id, data)
                    else:
                        next_ms = min(next_ms or due_ms, due_ms)
                if next_ms:
                    wait_s = (next_ms - self._clock.now_ms()) / 1000
                    await self._sleep.sleep(min(60.0, max(0.05, wait_s)))
        finally:
            self._is_running = False

    async def _deliver(self, run_id: str, data: Mapping[str, Json]) -> None:
        """Post one delivery; delete it, or plan the next attempt."""
        attempts = int(data.get("attempts", 0)) + 1
        problem, is_final = await self._post(run_id, data)
        fault_point("cron.posted")
        is_given_up = bool(problem) and (is_final or attempts > len(RETRY_S))
        async with self._store.transaction() as transaction:
            if not problem or is_given_up:
                transaction.delete_record(DELIVERY_KIND, run_id)
            else:
                due_ms = self._clock.now_ms() + round(RETRY_S[attempts - 1] * 1000)
                transaction.put_record(
                    DELIVERY_KIND, run_id, {**data, "attempts": attempts, "dueMs": due_ms}
                )
        if is_given_up:
            log.warning("the webhook of run %s is given up: %s", run_id, problem)
            await self._services.on_failed(run_id, problem)
        elif problem:
            wait_s = RETRY_S[attempts - 1]
            log.warning(
                "the webhook of run %s is called again in %g s: %s", run_id, wait_s, problem
            )

    async def _post(self, run_id: str, data: Mapping[str, Json]) -> tuple[str, bool]:
        """Return what went wrong, "" for nothing, and whether a retry is useless."""
        settings, url = self._services.get_settings(), str(data.get("url", ""))
        headers = {"Content-Type": "application/json", "Idempotency-Key": run_id}
        if settings.token:
            headers["Authorization"] = f"Bearer {settings.token}"
        try:
            response = await self._services.post(
                url,
                limits=_LIMITS,
                policy=settings.policy,
                method="POST",
                headers=headers,
                body=dump_json(data.get("event") or {}).encode("utf-8", "replace"),
                is_port_allowed=_is_port_allowed(url, settings),
            )
        except BlockedUrlError as exc:
            return exc.message, True
        except HomarusError as exc:
            return exc.message, False
        if 200 <= response.status < 300:
            return "", False
        text = one_line(f"the receiver answered with status {response.status}", 200)
        return text, response.status < 500 and response.status not in _RETRIED


def _is_port_allowed(url: str, settings: WebhookSettings) -> bool:
    """Return whether the owner named this address, or its host: then any port may be used."""
    if url == settings.url:
        return True
    try:
        return settings.policy.is_allowed(parse_url(url)[1])
    except BlockedUrlError:
        return False
