"""Run every channel under supervision, and turn replies into outbox records.

Each account has its own tasks, to receive and to send. A failed one is restarted after a backoff;
an account whose credential is refused stops alone until it is restarted. Accounts can be added and
removed while the program runs.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from homarus.channels.base import TTL_MS, Capabilities, Channel, SupportsEdit
from homarus.channels.inbound import InboundPipeline
from homarus.config.schema import Config
from homarus.core.clock import Clock
from homarus.core.diagnostics import Diagnostics
from homarus.core.errors import ChannelAuthError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import NO_EXTRAS, NO_OUTBOX_CHANNELS, Address, Extras, Inbound, Outbound
from homarus.core.retry import Backoff
from homarus.core.tasks import supervise, task_group
from homarus.store.journal import Journal, OutboxRecord

if TYPE_CHECKING:
    from homarus.channels.outbox_worker import OutboxClock, OutboxWorker

log = logging.getLogger(__name__)

NOTICE_MS: Final = 7 * TTL_MS  # how long an unknown delivery is worth a notice
RESTART: Final = Backoff(first_s=1.0, max_s=60.0)


def unknown_delivery_notice(unknown: Sequence[OutboxRecord], *, at_ms: int) -> list[OutboxRecord]:
    """Return the notice for a chat about replies whose delivery is unknown.

    Its id is the same for the same replies, and the journal drops an id that it has: however often
    it is posted, the chat reads it once.
    """
    recent = [record for record in unknown if at_ms - record.at_ms < NOTICE_MS]
    if not recent:
        return []
    last = recent[-1]
    text = (
        f"I could not find out whether an earlier reply of mine arrived: {last.address.channel}"
        " did not confirm it. I have not sent it again, so that you do not get it twice. If it is"
        " missing, ask me for it."
    )
    return [OutboxRecord(f"{last.run}:notice", last.run, last.address, text, at_ms, at_ms + TTL_MS)]


@dataclass(slots=True)
class RunningAccount:
    """One supervised account; `problem` says why it is stopped, or what failed last."""

    channel: Channel
    worker: "OutboxWorker"
    problem: str = ""
    is_connected: bool = False  # the service accepted the login, and no failure since
    since_ms: int = 0
    last_out_ms: int = 0
    restarts: int = 0
    task: asyncio.Task[None] | None = None

    def connect(self) -> None:
        self.is_connected, self.problem = True, ""

    @property
    def key(self) -> tuple[str, str]:
        return self.channel.name, self.channel.account

    @property
    def name(self) -> str:
        return ":".join(self.key)


class ChannelSupervisor:
    """Supervise all channel accounts."""

    def __init__(
        self,
        journal: Journal,
        channels: Sequence[Channel],
        clock: Clock,
        *,
        config: Callable[[], Config] = Config,
        sent: Callable[[Outbound, str], object] = lambda _message, _error: None,
        restart: Backoff = RESTART,
        diagnostics: Diagnostics | None = None,
    ) -> None:
        self._diagnostics = diagnostics
        self._config, self._sent = config, sent
        self._journal, self._clock, self._restart = journal, clock, restart
        self._accounts: dict[tuple[str, str], RunningAccount] = {}
        self._outbox_clock: OutboxClock | None = None
        self._last_capabilities: dict[tuple[str, str], Capabilities] = {}  # of removed accounts
        self._unknown: dict[str, OutboxRecord] = {}
        self._active: tuple[asyncio.TaskGroup, InboundPipeline] | None = None  # while it runs
        for channel in channels:
            self.add_account(channel)

    @property
    def accounts(self) -> tuple[RunningAccount, ...]:
        """Return every account and its state."""
        return tuple(self._accounts.values())

    def find_account(self, channel: str, account: str) -> RunningAccount | None:
        """Return one account, None if it is not running."""
        return self._accounts.get((channel, account))

    def find_connected(self, channel: str, account: str) -> Channel | None:
        """Return an account that its service accepted the login of, None if there is none."""
        running = self.find_account(channel, account)
        return running.channel if running and running.is_connected else None

    async def run(self, pipeline: InboundPipeline) -> None:
        """Receive and send until cancelled; due records are still sent, in a grace period."""
        for record in await self._journal.outbox_records("unknown"):
            self._track_unknown(record)
        async with pipeline.running(), asyncio.TaskGroup() as group:
            self._active = group, pipeline
            for running in self._accounts.values():
                self._start(running)
            try:
                await asyncio.Event().wait()
            finally:
                self._active = None
                pipeline.close()

    def add_account(self, channel: Channel) -> None:
        """Add an account, and start it if the supervisor is running."""
        # Not imported without channels.
        from homarus.channels.outbox_worker import OutboxClock, OutboxWorker

        self._outbox_clock = self._outbox_clock or OutboxClock(self._journal, self._clock)
        worker = OutboxWorker(
            channel,
            self._journal,
            self._clock,
            on_state_change=self._track_unknown,
            outbox_clock=self._outbox_clock,
            diagnostics=self._diagnostics,
        )
        running = RunningAccount(channel, worker)
        if self._accounts.setdefault(running.key, running) is not running:
            raise UserError(f"two channels are called {running.name}", fix="rename one of them")
        self._start(running)

    async def remove_account(self, channel: str, account: str) -> None:
        """Stop one account; its pending records stay in the journal."""
        running = self._accounts.pop((channel, account), None)
        if running:
            self._last_capabilities[running.key] = running.channel.capabilities
        if running and running.task:
            running.task.cancel()
            await asyncio.wait([running.task])

    def wake_workers(self) -> None:
        """Wake the workers: records were enqueued, or are to be retried."""
        for running in self._accounts.values():
            running.worker.wake()

    def build_reply(
        self, inbound: Inbound, run: str, text: str, first: int = 0, extras: Extras = NO_EXTRAS
    ) -> list[OutboxRecord]:
        """Return the records of a reply; none for a client that reads the transcript.

        If the delivery of an earlier reply to the chat is unknown, a notice precedes. Records for a
        channel that is not running wait in the journal, where the status shows them; one that is
        being restarted gets them by its last known capabilities.
        """
        to = inbound.address
        capabilities = self.capabilities(to)
        if capabilities is None:
            return []
        from homarus.channels.outbound import (  # not imported without channels
            build_outbox_records,
            with_reply_to,
        )
        from homarus.config.channels import common_settings

        at_ms, settings = (
            self._clock.now_ms(),
            common_settings(self._config(), to.channel, to.account).for_chat(inbound.metadata.kind),
        )
        unknown = [one for one in self._unknown.values() if _is_same_chat(one.address, to)]
        extras = with_reply_to(inbound, extras, settings, first)
        if capabilities.has_new_threads and inbound.metadata.kind != "direct" and not to.thread:
            extras = replace(extras, thread_on=inbound.id)
        reply = build_outbox_records(
            run, text, to, capabilities, settings, extras=extras, at_ms=at_ms, first=first
        )
        return [*unknown_delivery_notice(unknown, at_ms=at_ms), *reply] if reply else []

    def capabilities(self, to: Address) -> Capabilities | None:
        """Return what the target can take, None if no channel sends to it."""
        if to.channel in NO_OUTBOX_CHANNELS:
            return None
        running = self.find_account(to.channel, to.account)
        if running is None:
            return self._last_capabilities.get((to.channel, to.account), Capabilities())
        return running.channel.capabilities

    def can_edit(self, to: Address) -> bool:
        """Return whether our messages in a chat can be edited."""
        running = self.find_account(to.channel, to.account)
        return running is not None and isinstance(running.channel, SupportsEdit)

    def _track_unknown(self, record: OutboxRecord) -> None:
        """Track the records with unknown delivery, without their text."""
        running = self.find_account(record.address.channel, record.address.account)
        if running and record.state == "sent":
            running.last_out_ms = self._clock.now_ms()
        if record.state in {"sent", "dead"}:
            self._sent(Outbound(record.address, record.text, record.id), record.why)
        if record.state == "unknown":
            self._unknown[record.id] = replace(record, text="")
        else:
            self._unknown.pop(record.id, None)

    def _start(self, running: RunningAccount) -> None:
        if self._active:
            group, pipeline = self._active
            work = self._supervise(running, pipeline)
            running.task = group.create_task(work, name=f"channel {running.name}")

    async def _supervise(self, running: RunningAccount, pipeline: InboundPipeline) -> None:
        channel, receive = running.channel, pipeline.handler_for(running.channel, running.connect)
        clock, backoff, fatal = self._clock, self._restart, (ChannelAuthError,)

        async def run() -> None:
            running.is_connected, running.since_ms = False, clock.now_ms()
            await channel.run(receive)

        def failed(exc: Exception) -> None:
            running.is_connected, running.problem = False, str(exc) or type(exc).__name__
            running.restarts += 1

        try:
            async with task_group() as group:
                group.create_task(
                    supervise(
                        f"channel {running.name}",
                        run,
                        clock=clock,
                        backoff=backoff,
                        fatal=fatal,
                        failed=failed,
                    )
                )
                # Not a task of the group: when it is cancelled, it sends due records while the
                # channel is still connected.
                await supervise(
                    f"delivery of {running.name}",
                    running.worker.run,
                    clock=clock,
                    backoff=backoff,
                    fatal=fatal,
                )
        except* ChannelAuthError as errors:
            running.problem = str(errors.exceptions[0])
            log.error(  # noqa: TRY400 - the error says it all
                "channel %s stopped: %s", running.name, running.problem
            )
        finally:
            running.is_connected = False


def _is_same_chat(one: Address, other: Address) -> bool:
    return (one.channel, one.account, one.chat) == (other.channel, other.account, other.chat)
