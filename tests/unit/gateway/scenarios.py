"""Talks: a conversation as a text file, what is said and everything that comes of it.

A talk is `golden/NAME.talk`. What a test does stands in lines that begin with `#` (a remark),
`config:` (JSON, first), `>` (the owner says), `w>` (a client that may only write says), `c>` (an
authorised person in a chat says), `s>` (a stranger there says), `@` (time passes) or `?` (the
session is shown). All other lines are what came of it: `<` what was answered, `!` an error, `=`
what a model was asked, `+` what a chat was sent, `~` a setting of the session that changed.
`GOLDEN=1 pytest …` writes those anew, for a person to read in the diff.
"""

import json
import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from homarus import __version__
from homarus.core.errors import HomarusError
from homarus.core.message import Address, Authority, Inbound
from homarus.core.units import parse_duration_ms
from tests.unit.gateway.app_harness import Harness, answer, world

FOLDER = Path(__file__).parent / "golden"
KEY = "agent:main:main"
CHAT = Address("svc", "room")
_DOES = ("#", "config:", ">", "w>", "c>", "s>", "@", "?")
_STAMP = re.compile(r"^\[[^\]]*\] ")
_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22}|session-[0-9a-f]{8}-[0-9a-f]{8}")
# The settings that a person sets; other fields of the record are not compared.
_SETTINGS = (
    "thinkingLevel", "verboseLevel", "reasoningLevel", "elevatedLevel", "responseUsage",
    "providerOverride", "modelOverride", "authProfileOverride", "queueMode", "queueDebounceMs",
    "queueCap", "queueDrop", "sendPolicy", "groupActivation",
)  # fmt: skip


class Talk:
    """One recorded conversation in a World."""

    def __init__(self, it: Harness, folder: Path) -> None:
        self._it, self._folder = it, folder
        self._numbers = count(1)
        self._asked = 0  # model requests that were reported
        self._held: dict[str, Any] = {}
        self._session_id = ""

    async def play(self, line: str) -> list[str]:
        """Execute a line and return what came of it."""
        does, _, rest = line.partition(" ")
        if does == "@":
            await self._it.clock.advance(parse_duration_ms(rest) / 1000)
            return []
        match does:
            case ">" | "w>":
                said = await self._say(rest, *(("read", "write") if does == "w>" else ()))
            case "c>" | "s>":
                said = await self._write(rest, "authorised" if does == "c>" else "stranger")
            case _:
                said = []
        told = [*self._requests(), *said, *await self._changes()]
        return [self._plain(one) for one in told]

    async def _say(self, text: str, *scopes: str) -> list[str]:
        run_id = f"run-{next(self._numbers)}"
        params = {"sessionKey": "main", "message": text, "idempotencyKey": run_id}
        try:
            told = await self._it.ask("chat.send", params, *scopes)
        except HomarusError as exc:
            return [f"! {exc}"]
        if "aborted" in told:
            return [f"< aborted: {told['aborted']}"]
        await self._it.ended(run_id)
        beside = [c for c in self._it.gateway.chats(f"{run_id}:status") if c["state"] == "final"]
        last = [c for c in self._it.gateway.chats(run_id) if c["state"] != "delta"]
        return [line for event in (*beside, *last) for line in _lines(event)]

    async def _write(self, text: str, authority: Authority) -> list[str]:
        run_id, app = f"run-{next(self._numbers)}", self._it.app
        inbound = Inbound(
            run_id, CHAT, "ann", text, at_ms=app.clock.now_ms(), run_id=run_id, authority=authority
        )
        key = app.control.resolve_key("svc:direct:room")
        await app.control.submit(key, (await app.control.accept(key, inbound)).record)
        sent = await app.store.journal.outbox_records("pending")
        row = await app.store.journal.inbox_record(run_id)
        assert row is not None
        mine = [parcel for parcel in sent if parcel.run.startswith(run_id)]
        return [
            *(f"+ {line}" for parcel in mine for line in parcel.text.splitlines()),
            *([f"+ ({row.state}{': ' + row.why if row.why else ''})"] if not mine else []),
        ]

    def _requests(self) -> Iterator[str]:
        requests = self._it.model.requests[self._asked :]
        self._asked += len(requests)
        for request in requests:
            talk = [m for m in request.messages if m.role == "user"]
            words = [line for line in talk[-1].text.splitlines() if line.strip()]
            text = _STAMP.sub("", words[-1])
            thinking = f" thinking {request.thinking}" if request.thinking != "off" else ""
            yield f"= {request.model}{thinking}, question {len(talk)}: {text}"

    async def _changes(self) -> list[str]:
        record = await self._it.app.store.session(KEY)
        data = record.data if record else {}
        held = {name: data[name] for name in _SETTINGS if name in data}
        changed = [
            f"~ {name}: {value}" for name, value in held.items() if self._held.get(name) != value
        ]
        changed += [f"~ {name}: gone" for name in self._held if name not in held]
        if record and record.session_id != self._session_id:
            changed += ["~ a new session"] if self._session_id else []
            self._session_id = record.session_id
        self._held = held
        return changed

    def _plain(self, line: str) -> str:
        """Return the text without what differs in each run."""
        line = line.replace(str(self._folder), "HOME").replace(__version__, "0.0.0")
        return _ID.sub("ID", line)


def _lines(event: dict[str, Any]) -> list[str]:
    if event["state"] == "error":
        return [f"! {event['errorMessage']}"]
    text = event["message"]["content"][0]["text"] if "message" in event else f"({event['state']})"
    return [f"< {line}".rstrip() for line in text.splitlines()]


def read(name: str) -> str:
    return (FOLDER / f"{name}.talk").read_text(encoding="utf-8")


async def replay(written: str, folder: Path) -> str:
    """Return the complete file as it comes out now."""
    does = [line for line in written.splitlines() if line.startswith(_DOES)]
    config = [
        json.loads(line.removeprefix("config:")) for line in does if line.startswith("config:")
    ]
    lines = list[str]()
    script = (answer(f"Answer {number}.") for number in count(1))
    async with world(folder, script, config[0] if config else None) as it:
        talk = Talk(it, folder)
        for line in does:
            lines += (
                ["", line] if line.startswith(("#", ">", "w>", "c>", "s>", "@", "?")) else [line]
            )
            if not line.startswith(("#", "config:")):
                lines += await talk.play(line)
    return "\n".join(lines).strip() + "\n"
