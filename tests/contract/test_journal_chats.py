"""What every journal guarantees about what is remembered of chats, and files that come later."""

from dataclasses import replace

import pytest

from homarus.core.errors import ConflictError
from homarus.core.message import Media
from homarus.core.principal import Principal
from homarus.store import journal_codec
from homarus.store.chat_records import MAX_CHAT_RECORDS, ChatRecord
from homarus.store.journal import Cursor, Journal
from tests.contract.journals import HELLO, SESSION, Home, Run, accept, start

LINE = ChatRecord("history", "chat", "m1", 10, {"text": "hello"})


async def put(journal: Journal, *records: ChatRecord) -> None:
    async with journal.transaction() as transaction:
        transaction.put_chat_records(*records)


async def put_and_accept(journal: Journal) -> None:
    async with journal.transaction() as transaction:
        transaction.put_chat_records(LINE)
        transaction.accept(SESSION, HELLO, at_ms=5)


async def test_chat_records_survive_and_keep_order_of_puts(run_journal: Run) -> None:
    second = replace(LINE, id="m2", data={"text": "half \ud83d a pair, \0"})
    async with run_journal() as journal:
        await put(journal, LINE, second, replace(LINE, chat="other"), replace(LINE, kind="ack"))
        await put(journal, replace(LINE, at_ms=20, data={"text": "again"}))
    async with run_journal() as journal:
        found = await journal.chat_records("history", "chat")
        assert [one.id for one in found] == ["m2", "m1"]
        assert found[0].data == {"text": "half \ufffd a pair, \0"}
        assert found[1] == replace(LINE, at_ms=20, data={"text": "again"})
        everywhere = await journal.chat_records("history")
        assert [one.chat for one in everywhere] == ["chat", "other", "chat"]
        assert [one.kind for one in await journal.chat_records("ack")] == ["ack"]
        assert list(await journal.chat_records("turns")) == []


async def test_chat_record_without_data_is_deleted(run_journal: Run) -> None:
    async with run_journal() as journal:
        await put(journal, LINE, replace(LINE, id="m2"))
        await put(journal, replace(LINE, data=None), replace(LINE, id="absent", data=None))
        assert [one.id for one in await journal.chat_records("history")] == ["m2"]


async def test_accept_writes_chat_records_with_message_and_cursor(run_journal: Run) -> None:
    async with run_journal() as journal:
        cursor = Cursor("line", {"offset": 1})
        await journal.accept(SESSION, HELLO, at_ms=5, cursor=cursor, chat_records=[LINE])
        assert list(await journal.chat_records("history")) == [LINE]
        # A duplicate too: what it changed is as new as its cursor.
        again = replace(LINE, data=None)
        accepted = await journal.accept(SESSION, HELLO, at_ms=6, chat_records=[again])
        assert accepted.kind == "duplicate" and not await journal.chat_records("history")


async def test_chat_records_of_failed_transaction_are_not_there(run_journal: Run) -> None:
    async with run_journal() as journal:
        await accept(journal)
        with pytest.raises(ConflictError):
            await put_and_accept(journal)
        assert list(await journal.chat_records("history")) == []


async def test_chat_records_of_principals_are_apart(journal_home: Home) -> None:
    async with journal_home.open() as scope:
        ours, theirs = scope(Principal("acme", "ann")), scope(Principal("acme", "bob"))
        await put(ours, LINE)
        assert list(await theirs.chat_records("history")) == []
        await put(theirs, replace(LINE, data=None))
        await theirs.prune(1_000)
        assert list(await ours.chat_records("history")) == [LINE]


async def test_prune_deletes_old_and_surplus_chat_records(run_journal: Run) -> None:
    async with run_journal() as journal:
        await put(journal, LINE, replace(LINE, id="m2", at_ms=30))
        assert await journal.prune(30) == 0
        assert [one.id for one in await journal.chat_records("history")] == ["m2"]
        many = [replace(LINE, id=f"n{n}", at_ms=30) for n in range(MAX_CHAT_RECORDS)]
        await put(journal, *many)
        await journal.prune(30)
        found = await journal.chat_records("history")
        assert len(found) == MAX_CHAT_RECORDS and found[0].id == "n0"


async def test_unreadable_chat_record_has_no_fields() -> None:
    row = ("turns", "chat", "", 5, "{")
    assert journal_codec.decode_chat_record(row) == ChatRecord("turns", "chat", "", 5, {})


async def test_set_message_stores_files_of_accepted_message(run_journal: Run) -> None:
    pending = replace(HELLO, images=(), media=(Media("image", ref="file-1"),))
    complete = replace(HELLO, media=(Media("image", ref="file-1", path="/state/1.png"),))
    async with run_journal() as journal:
        record = (await journal.accept(SESSION, pending, at_ms=5)).record
        assert await journal.set_message(record.id, complete)
    async with run_journal() as journal:
        (found,) = await journal.inbox_records("accepted")
        assert found.inbound == complete
        again = await journal.accept(SESSION, pending, at_ms=6)
        assert again.kind == "duplicate"  # whether its files are here does not tell messages apart


async def test_set_message_changes_no_started_or_settled_message(run_journal: Run) -> None:
    complete = replace(HELLO, text="changed")
    async with run_journal() as journal:
        record = await accept(journal)
        await start(journal, record)
        assert not await journal.set_message(record.id, complete)
        assert not await journal.set_message("absent", complete)
        found = await journal.inbox_record(record.id)
        assert found and found.inbound == HELLO
