import asyncio
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from typing import Any

import pytest

from tests.crash.ledger import Flavour, LedgerRecords, LedgerServer, Offer, SendFault

GUARD_S = 60.0


def texts(updates: list[Any]) -> list[str]:
    return [update["text"] for update in updates]


def answered(records: LedgerRecords, *texts_: str, chat: str = "chat") -> None:
    for number, text in enumerate(texts_):
        records.record_send(f"k{len(records.sends)}-{number}", chat, text)


def test_update_is_repeated_until_higher_offset_acknowledges_it() -> None:
    records = LedgerRecords()
    first = records.offer(Offer(text="one"))
    records.offer(Offer(text="two"))
    assert texts(records.read(0, 10)) == texts(records.read(0, 10)) == ["one", "two"]
    assert texts(records.read(1, 1)) == ["one"] and first.acked_s == 0
    assert texts(records.read(2, 10)) == ["two"] and first.acked_s > 0
    assert texts(records.read(0, 10)) == ["two"] and first.handed == 3


def test_offer_with_known_id_repeats_message_with_new_text() -> None:
    records = LedgerRecords()
    message = records.offer(Offer(text="a {nonce}", id="x", copies=2))
    assert records.offer(Offer(text="b {nonce}", id="x")) is message
    updates = records.read(0, 10)
    assert [update["messageId"] for update in updates] == ["x", "x", "x"]
    assert [update["id"] for update in updates] == [1, 2, 3]
    assert texts(updates) == [f"a {message.nonce}"] * 2 + [f"b {message.nonce}"]
    assert len(records.messages) == 1


@pytest.mark.parametrize(("flavour", "sends"), [("plain", 2), ("idempotent", 1), ("lookup", 2)])
def test_send_with_known_key_follows_flavour(flavour: Flavour, sends: int) -> None:
    records = LedgerRecords(flavour)
    first, second = records.record_send("k", "c", "hello"), records.record_send("k", "c", "hello")
    assert len(records.sends) == sends and (first == second) == (sends == 1)
    assert records.sends[0].repeats == 2 - sends
    assert records.lookup("k") == first and records.lookup("other") == ""


def test_verdict_names_every_message_once() -> None:
    records = LedgerRecords()
    offers = {
        "answered": Offer(text="q", id="answered", chat="1"),
        "doubled": Offer(text="q", id="doubled", chat="2"),
        "reported": Offer(text="q", id="reported", chat="3"),
        "lost": Offer(text="q", id="lost", chat="4"),
        "waiting": Offer(text="q", id="waiting", chat="5"),
    }
    made = {name: records.offer(offer) for name, offer in offers.items()}
    records.read(5, 0)  # all but the last are acknowledged
    answered(records, made["answered"].nonce, chat="1")
    answered(records, made["doubled"].nonce, made["doubled"].nonce, chat="2")
    answered(records, "something went wrong", chat="3")
    answered(records, made["lost"].nonce, chat="elsewhere")
    verdict = records.verdict()
    assert {name: verdict[name] for name in offers} == {name: [name] for name in offers}
    assert verdict["offered"] == 5 and 0 <= verdict["worstS"] < GUARD_S
    assert records.verdict(within_s=60)["waiting"] == ["reported", "lost", "waiting"]


def test_verdict_reply_in_parts_needs_each_part_once() -> None:
    records = LedgerRecords()
    message = records.offer(Offer(text="q", marks=("{nonce}.1", "{nonce}.2")))
    records.read(2, 0)
    first, second = message.marks
    answered(records, first)
    assert records.verdict()["lost"] == ["m1"]
    answered(records, second)
    assert records.verdict()["answered"] == ["m1"]
    answered(records, second)
    assert records.verdict()["doubled"] == ["m1"]


def test_verdict_answer_to_other_message_is_no_report() -> None:
    records = LedgerRecords()
    records.offer(Offer(text="one"))
    second = records.offer(Offer(text="two"))
    records.read(3, 0)
    answered(records, second.nonce)
    verdict = records.verdict()
    assert verdict["lost"] == ["m1"] and verdict["answered"] == ["m2"]


def test_faults_hit_next_sends_in_order() -> None:
    records = LedgerRecords()
    records.faults.extend([SendFault(status=429, times=2), SendFault(status=0)])
    assert [records.next_fault().status for _ in range(5)] == [429, 429, 0, 200, 200]


def ask(url: str, body: object = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data), timeout=GUARD_S) as answer:
        return json.load(answer)


def refusal(url: str, body: object) -> tuple[int, Any]:
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(url, body)
    with refused.value as answer:
        return answer.code, json.load(answer)


def test_ledger_process_records_over_http() -> None:
    command = [sys.executable, "-m", "tests.crash.ledger", "--flavour", "lookup"]
    with subprocess.Popen([*command, "--text-limit", "50"], stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().decode().strip()
            assert ask(f"{url}/about") == {"flavour": "lookup", "textLimit": 50}
            told = ask(f"{url}/offer", {"text": "say {nonce}", "chat": "c"})
            (update,) = ask(f"{url}/updates?offset=0&waitS=30")["updates"]
            assert update == {
                "id": 1, "messageId": told["id"], "chat": "c", "sender": "c",
                "text": f"say {told['nonce']}",
            }  # fmt: skip
            assert ask(f"{url}/updates?offset=2")["updates"] == []
            ask(f"{url}/trouble", {"sends": [{"taken": False, "status": 503, "afterS": 2}]})
            send = {"key": "k", "chat": "c", "text": told["nonce"]}
            status, why = refusal(f"{url}/send", send)
            assert status == 503 and why["afterS"] == 2
            assert ask(f"{url}/look?key=k") == {"messageId": ""}
            assert ask(f"{url}/send", send) == ask(f"{url}/look?key=k") == {"messageId": "s1"}
            ledger = ask(f"{url}/ledger")
            assert ledger["messages"][0]["ackedS"] > 0
            assert [one["taken"] for one in ledger["attempts"]] == [False, True]
            assert [one["messageId"] for one in ledger["sends"]] == ["s1"]
            assert ask(f"{url}/verdict?withinS=5")["answered"] == [told["id"]]
            for wrong in ("/send", "/offer", "/trouble"):
                assert refusal(f"{url}{wrong}", {"odd": 1})[0] == 400
        finally:
            process.kill()


async def test_poll_waits_for_update_until_timeout() -> None:
    async with asyncio.timeout(GUARD_S), LedgerServer() as ledger, asyncio.TaskGroup() as group:
        poll = f"{ledger.url}/updates?offset=0&waitS=30"
        started = time.monotonic()
        assert await asyncio.to_thread(ask, f"{ledger.url}/updates?waitS=0.01") == {"updates": []}
        waiting = group.create_task(asyncio.to_thread(ask, poll))
        await asyncio.sleep(0.01)
        ledger.offer(Offer(text="news"))
        assert texts((await waiting)["updates"]) == ["news"]
        assert time.monotonic() - started < 30
