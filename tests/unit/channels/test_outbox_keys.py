"""Services that forget idempotency keys: an old record is looked up before it is sent again."""

from dataclasses import replace

from homarus.channels.base import Receipt
from homarus.core.message import Extras, Outbound
from homarus.testing.clock import START_MS
from tests.unit.channels.test_outbox_worker import (
    BROKEN,
    LATER,
    Listed,
    Step,
    leave_sending,
    run_worker,
)


class Forgetful(Listed):
    """An idempotent service that remembers a key for 30 seconds after it took the message."""

    def __init__(self, *script: Step) -> None:
        super().__init__(*script)
        self.capabilities = replace(self.capabilities, idempotent=True, idempotent_s=30)
        self.starts: list[int] = []

    async def look_up(self, message: Outbound) -> Receipt | None:
        self.starts.append(message.started_ms)
        return await super().look_up(message)


async def test_worker_key_is_repeated_while_service_remembers_it() -> None:
    service = Forgetful(BROKEN)
    async with run_worker(service) as stage:
        await stage.post("1")
        await stage.clock.advance(10)
        assert await stage.state("1") == "sent"
        assert service.asked == ["1", "1"] and not service.looked


async def test_worker_forgotten_key_is_looked_up_before_resend() -> None:
    service = Forgetful(*[BROKEN] * 3)
    async with run_worker(service) as stage:
        await stage.post("1")
        await stage.clock.advance(29)  # the second attempt was after 10 seconds
        service.there = {"1": "id-seen"}
        assert service.asked == ["1", "1"] and not service.looked
        await stage.clock.advance(1)
        assert (await stage.until("1", "sent")).receipt == "id-seen"
        assert service.asked == ["1", "1"] and service.starts == [START_MS]


async def test_worker_forgotten_key_of_lost_message_is_sent_again() -> None:
    service = Forgetful(*[BROKEN] * 2)
    async with run_worker(service) as stage:
        await stage.post("1")
        await stage.clock.advance(30)
        assert await stage.state("1") == "sent"
        assert service.asked == ["1"] * 3 and service.looked == 1


async def test_worker_refused_message_needs_no_lookup_for_old_key() -> None:
    service = Forgetful(*[LATER] * 3)
    async with run_worker(service) as stage:
        await stage.post("1")
        await stage.clock.advance(200)
        assert await stage.state("1") == "sent" and not service.looked


async def test_worker_thread_is_looked_up_and_not_repeated_by_key() -> None:
    service = Forgetful(BROKEN)
    service.there = {"1": "id-seen"}
    async with run_worker(service) as stage:
        await stage.post("1", extras=Extras(thread_title="Plans"))
        await stage.clock.advance(10)
        assert (await stage.until("1", "sent")).receipt == "id-seen"
        assert service.asked == ["1"]


async def test_worker_old_record_of_killed_process_is_looked_up() -> None:
    service = Forgetful()
    service.there = {"1": "id-seen"}
    async with run_worker(service) as stage:
        await stage.settle()
        await leave_sending(stage, "1")
        stage.clock._elapsed_s += 60
        assert (await stage.until("1", "sent")).receipt == "id-seen"
        assert service.asked == [] and service.starts == [START_MS]


async def test_worker_later_part_of_killed_process_is_looked_up_in_thread() -> None:
    class Threaded(Forgetful):
        def __init__(self) -> None:
            super().__init__()
            self.threads: list[str | None] = []

        async def send(self, message: Outbound) -> Receipt:
            return replace(await super().send(message), thread_id="post-1")

        async def look_up(self, message: Outbound) -> Receipt | None:
            self.threads.append(message.address.thread)
            return await super().look_up(message)

    service = Threaded()
    async with run_worker(service) as stage:
        await stage.post("r:0")
        await stage.until("r:0", "sent")
        service.there = {"r:1": "id-seen"}
        await leave_sending(stage, "r:1", extras=Extras(thread_from="r:0"))
        stage.clock._elapsed_s += 60
        assert (await stage.until("r:1", "sent")).receipt == "id-seen"
    assert service.threads == ["post-1"] and service.asked == ["r:0"]
