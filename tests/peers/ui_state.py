"""A state directory with some weeks of use, for the pages of the control UI that show it."""

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor

from homarus.core.message import Address, Inbound, Json
from homarus.store.audit import AuditEntry
from homarus.store.base import SessionRecord, Store, TranscriptEntry, TranscriptHeader
from homarus.store.journal import OutboxRecord
from homarus.store.sqlite import open_store
from homarus.store.usage import transcript_usage
from tests.e2e.program import Home

DAY_MS = 86_400_000
EVIL = "<img src=x onerror=alert(1)>\u202e"
CHAT = Address("irc", "#club")
SECRET = "sk-do-not-show-this-0123456789"
# The names that people gave to sessions.
LABELS = {"web-release": "Release notes for 0.2", "web-flat": "Flat in Kiel"}
# Name of the session, model, days with the number of answers on each, dollars of an answer.
TALKS = (
    ("main", "large", range(13, -1, -1), 0.021),
    ("web-release", "large", range(9, -1, -2), 0.034),
    ("web-flat", "small", range(6, -1, -3), 0.004),
)


def fill_home(home: Home) -> None:
    """Add a spend limit, a channel that fails and a secret to the config, and weeks of use."""
    file = home.state / "openclaw.json"
    config = json.loads(file.read_text(encoding="utf-8"))
    config["channels"] = {
        "irc": {
            "host": "127.0.0.1",
            "port": 9,
            "tls": False,
            "nick": "lobster",
            "channels": ["#club"],
        }
    }
    config["env"] = {"vars": {"WEATHER_API_KEY": SECRET}}
    home.configure(config)
    own = {"agents": {"defaults": {"spend": {"perDayUsd": 5, "perRunUsd": 1}}}}
    (home.state / "homarus.json").write_text(json.dumps(own), encoding="utf-8")
    # Playwright has an event loop on this thread.
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, _fill(home)).result()


def add_sessions(home: Home, count: int) -> None:
    """Add conversations, each an hour older than the one before."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, _add_sessions(home, count)).result()


async def _add_sessions(home: Home, count: int) -> None:
    now_ms = int(time.time() * 1000)
    async with open_store(home.state) as store:
        for number in range(count):
            talk = (f"talk-{number:03}", "small", range(1), 0.01)
            await _add_session(store, talk, now_ms - number * 3_600_000)


async def _fill(home: Home) -> None:
    now_ms = int(time.time() * 1000)
    async with open_store(home.state) as store:
        for talk in TALKS:
            await _add_session(store, talk, now_ms)
        await _park(store, now_ms)
        await _lose_reply(store, now_ms)
        async with store.transaction() as transaction:
            transaction.add_audit(*_audit_rows(now_ms))


async def _add_session(store: Store, talk: tuple[str, str, range, float], now_ms: int) -> None:
    name, model, days, usd = talk
    key, session_id = (
        f"agent:main:{name}",
        f"00000000-0000-4000-8000-{abs(hash(name)) % 10**12:012d}",
    )
    entries: list[TranscriptEntry] = []
    for day in days:
        for turn in range(1 + day % 4):
            at_ms = now_ms - day * DAY_MS - 60_000 * (5 - turn)
            usage = {
                "input": 900,
                "output": 260 + 40 * turn,
                "cacheRead": 4_200,
                "cost": {"total": usd},
            }
            question: Json = {"role": "user", "content": f"Question {turn + 1}"}
            reply: Json = {
                "role": "assistant", "content": [{"type": "text", "text": "An answer."}],
                "provider": "vendor", "model": model, "usage": usage, "stopReason": "stop",
            }  # fmt: skip
            for message, later_ms in ((question, 0), (reply, 4_000)):
                parent = entries[-1].id if entries else None
                entry_id = f"{len(entries):08x}"
                data = {"message": message}
                entries.append(TranscriptEntry(entry_id, parent, "message", at_ms + later_ms, data))
    async with store.transaction() as transaction:
        fields: dict[str, Json] = {"sessionId": session_id, "updatedAt": now_ms - 120_000}
        if name in LABELS:
            fields["label"] = LABELS[name]
        transaction.put_session(SessionRecord(key, "main", session_id, now_ms - 120_000, fields))
        transaction.open_transcript(TranscriptHeader(session_id, "main", entries[0].at_ms))
        transaction.append(session_id, *entries)
        names = {"agent": "main", "session": key, "session_id": session_id}
        transaction.add_usage(*transcript_usage(entries, **names))


async def _park(store: Store, now_ms: int) -> None:
    key, journal = "agent:main:main", store.journal
    inbound = Inbound("parked-1", CHAT, "Ada", f"Please book the flight {EVIL}", run_id="parked-1")
    record = (await journal.accept(key, inbound, at_ms=now_ms - 3_600_000)).record
    async with journal.lease(f"session:{key}") as lease, journal.transaction() as transaction:
        transaction.mark_running([record.id], lease, run=record.id)
        why = "it ended the program three times"
        transaction.settle([record.id], lease, "parked", at_ms=now_ms, why=why)


async def _lose_reply(store: Store, now_ms: int) -> None:
    journal = store.journal
    text = "The boat leaves at nine, from the second pier."
    async with journal.transaction() as transaction:
        record = OutboxRecord("lost-1", "r", CHAT, text, now_ms - 900_000, now_ms + DAY_MS)
        transaction.enqueue(record)
    async with journal.lease("send:irc") as lease:
        async with journal.transaction() as transaction:
            transaction.send_started("lost-1", lease)
        async with journal.transaction() as transaction:
            why = "no confirmation before the restart"
            transaction.send_ended("lost-1", lease, "unknown", why=why)


def _audit_rows(now_ms: int) -> list[AuditEntry]:
    session = "agent:main:main"
    rows = []
    for number in range(60):
        at_ms = now_ms - (60 - number) * 600_000
        decision = {"action": "allow", "rule": "allowlist", "reason": "git status only reads"}
        if number % 7 == 0:
            decision = {"action": "deny", "rule": "taint", "reason": f"{EVIL} was read before"}
        rows.append(AuditEntry(at_ms, "decision", "main", session, "exec", decision))
        if number % 7:
            done = {"outcome": "done", "durationMs": 112, "exitCode": 0, "digest": "9f86d081884c"}
            rows.append(AuditEntry(at_ms + 200, "execution", "main", session, "exec", done))
    change = {"target": "config", "by": "ada", "changed": ["agents.defaults.spend.perDayUsd"]}
    return [*rows, AuditEntry(now_ms - 60_000, "config", data=change)]
