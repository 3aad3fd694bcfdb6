"""A run for a request of the HTTP API: started once, followed while its client is there.

Without an Idempotency-Key each request is one run, which is stopped when its client disconnects.
With one, the journal has the run under an id that is made of the key: the same request again, also
after a restart, gets that run's answer, and a client that disconnects may come back for it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

from homarus.agent.run import RunOutcome
from homarus.core.errors import UnavailableError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Image, Media, RunOptions, Usage
from homarus.gateway.http_api.api_error import ApiError
from homarus.gateway.http_api.endpoint import ApiCall
from homarus.gateway.http_api.run_answer import (
    RunAnswer,
    created_s_of,
    find_record,
    message_name,
    read_answer,
    run_usage,
)
from homarus.gateway.http_api.run_errors import outcome_error, suspended_error
from homarus.gateway.http_api.run_target import RunTarget
from homarus.gateway.http_api.run_text import RunText
from homarus.gateway.run_request import RunRequest, check_policy, start_run
from homarus.store.journal import UNSETTLED, InboxRecord

_BROKEN: Final = "the model broke off and began its answer again; repeat the request"
_SLOW: Final = "the client reads more slowly than the answer is written"


@dataclass(frozen=True, slots=True)
class RunInput:
    """What a request says to the agent."""

    text: str
    options: RunOptions
    images: tuple[Image, ...] = ()
    media: tuple[Media, ...] = ()


class ClientRun:
    """One run, and what its client has not read of it.

    `answer` is that of a run which has ended before. `is_resumed`: it may have begun before this
    request.
    """

    def __init__(
        self,
        call: ApiCall,
        run_id: str,
        session_key: str,
        created_s: int,
        *,
        answer: RunAnswer | None = None,
        is_resumed: bool = False,
        streams: bool = False,
    ) -> None:
        self._call, self.id, self.session_key = call, run_id, session_key
        self.created_s, self._answer, self._is_resumed = created_s, answer, is_resumed
        self._outcome: asyncio.Future[RunOutcome] | None = None
        self._changed = asyncio.Event()
        self._is_gone = self._is_closed = False
        self.text = RunText(self._changed.set, streams=streams)
        self._leave = call.services.bus.follow_run(run_id, self.text.feed)

    def set_outcome(self, outcome: asyncio.Future[RunOutcome]) -> None:
        """Wait for the outcome of this future from now on."""
        self._outcome = outcome
        outcome.add_done_callback(lambda _done: self._changed.set())

    def watch_client(self) -> None:
        """Notice when the client disconnects."""
        self._call.gateway.start(f"http client of {self.id}", self._watch)

    async def wait_for_text(self, timeout_s: float) -> bool:
        """Wait for more text or the end of the run; return whether it came in time."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._changed.wait()
        except TimeoutError:
            return False
        self._changed.clear()
        return True

    async def answer(self) -> RunAnswer:
        """Wait for the answer. Raises ApiError without one, and when the client is gone."""
        if self._answer is not None:
            return self._answer
        while not self.has_ended:
            self._changed.clear()
            await self._changed.wait()
        if self._is_gone:
            raise ApiError(408, "the client disconnected")
        if self.text.is_broken:
            raise ApiError(502, _BROKEN, reason="answer_restarted")
        if self.text.is_too_long:
            raise ApiError(408, _SLOW)
        if self._outcome is None or not self._outcome.done():
            raise suspended_error(self.id, self.session_key, self.text.approvals)
        if self._outcome.cancelled():
            raise UnavailableError("the message was dropped before a run had answered it")
        outcome = self._outcome.result()
        if error := outcome_error(outcome):
            raise error
        usage = await self._find_usage(outcome)
        return RunAnswer(outcome.text, usage, outcome.pending_calls, outcome.stop)

    @property
    def has_ended(self) -> bool:
        """Whether there is nothing more to wait for."""
        if self._answer is not None or self._is_gone or self.text.is_stopped:
            return True
        return self._outcome is not None and self._outcome.done()

    async def abandon(self) -> None:
        """Give the run up, as its client does; without an Idempotency-Key it is stopped."""
        if self._is_closed or self.has_ended:
            return
        self._is_gone = True
        self._changed.set()
        if self._call.request_key is None:
            await self._call.services.control.stop(self.session_key, self.id, by="rpc")

    def close(self) -> None:
        """Stop following the run: its client has all of it, or gets no more."""
        self._is_closed = True
        self._leave()

    async def _watch(self) -> None:
        while (await self._call.receive())["type"] != "http.disconnect":
            pass  # bytes behind the body
        await self.abandon()

    async def _find_usage(self, outcome: RunOutcome) -> Usage:
        """Return the tokens of all model calls of the run, also those of earlier attempts."""
        if self._is_resumed:
            return await run_usage(self._call, self.session_key, self.id)
        return outcome.total_usage


async def open_run(
    call: ApiCall,
    target: RunTarget,
    prepare: Callable[[], Awaitable[RunInput]],
    *,
    streams: bool,
) -> ClientRun:
    """Start the run of a request, or find the one that its Idempotency-Key stands for."""
    key, runs = call.request_key, call.gateway.runs
    run_id = str(UUID(key.id)) if key else call.id
    session_key = target.key_for(run_id)
    created_s = call.services.clock.now_ms() // 1000
    if key:
        while runs.is_claimed(run_id):  # the same request came a moment ago
            await runs.prepared(session_key)
        if row := await find_record(call, key, run_id):
            return await _find_run(call, row)
    with runs.claim(run_id, session_key):
        given = await prepare()
        await check_policy(call.method_call, session_key)
        request = RunRequest(
            session_key, given.text, given.images, run_id, options=given.options, is_program=True,
            media=given.media, message_id=message_name(key, created_s) if key else run_id,
        )  # fmt: skip
        run = ClientRun(call, run_id, session_key, created_s, streams=streams)
        try:
            run.set_outcome(await start_run(call.method_call, request))
        except BaseException:
            run.close()
            raise
    run.watch_client()
    return run


async def _find_run(call: ApiCall, row: InboxRecord) -> ClientRun:
    """Return the run of an earlier request: its answer, or the run while it has none."""
    created_s = created_s_of(row)
    if row.state not in UNSETTLED:
        answer = await read_answer(call, row)
        return ClientRun(call, row.id, row.session, created_s, answer=answer)
    if row.state == "suspended":
        raise suspended_error(row.id, row.session, ())
    pending = call.services.control.find_pending(row.session, row.id)
    if pending is None:
        raise UnavailableError(f"run {row.id} is about to go on", retry_after_ms=1_000)
    run = ClientRun(call, row.id, row.session, created_s, is_resumed=True)
    run.set_outcome(pending)
    run.watch_client()
    return run
