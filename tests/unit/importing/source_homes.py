"""Homes to import from, made of files, and what tests compare of a target."""

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from homarus.config.paths import Paths
from homarus.core.message import Json
from homarus.importing.importer import ImportOptions, import_home
from homarus.importing.report import ImportReport
from homarus.store.sqlite import open_store

AT = "2026-04-15T10:01:00.000Z"
JOB: dict[str, Json] = {
    "id": "job-1",
    "name": "Morning",
    "enabled": True,
    "schedule": {"kind": "cron", "expr": "0 7 * * *"},
    "sessionTarget": "isolated",
    "payload": {"kind": "agentTurn", "message": "What is new?"},
    "state": {"nextRunAtMs": 5, "runningAtMs": 4},
}
PROFILE: dict[str, Json] = {"type": "api_key", "provider": "openai", "key": "sk-theirs"}


def write(path: Path, content: str | bytes | Json) -> Path:
    """Write text, bytes or a JSON value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def message(entry_id: str, text: str, parent: str | None = None, role: str = "user") -> str:
    """Return a line of a typed transcript."""
    body = {"role": role, "content": [{"type": "text", "text": text}], "timestamp": 1}
    entry = {"type": "message", "id": entry_id, "parentId": parent, "timestamp": AT}
    return json.dumps({**entry, "message": body}) + "\n"


def transcript(session_id: str, *texts: str) -> str:
    """Return a typed transcript, whose entries are named after their texts."""
    header = {"type": "session", "version": 3, "id": session_id, "timestamp": AT, "cwd": "/w"}
    lines = [json.dumps(header) + "\n"]
    lines += [
        message(f"e-{text}", text, f"e-{before}" if before else None)
        for before, text in zip((None, *texts), texts, strict=False)
    ]
    return "".join(lines)


def rows(*texts: str) -> str:
    """Return a transcript of bare rows."""
    return "".join(
        json.dumps({"role": "user", "content": t, "timestamp": AT}) + "\n" for t in texts
    )


def make_home(root: Path) -> Path:
    """Make a home of OpenClaw 2026.2 with something of every kind, and return it."""
    state = root / ".openclaw"
    sessions = state / "agents/main/sessions"
    index = {
        "agent:main:main": {"sessionId": "s-main", "updatedAt": 10, "model": "gpt-x"},
        "agent:main:telegram:group:-5:topic:42": {
            "sessionId": "s-topic",
            "updatedAt": 9,
            "sessionFile": f"{sessions}/s-topic-topic-42.jsonl",
        },
    }
    write(sessions / "sessions.json", index)
    write(sessions / "s-main.jsonl", transcript("s-main", "one", "two"))
    write(sessions / "s-topic-topic-42.jsonl", transcript("s-topic", "in the topic"))
    write(sessions / "s-old.jsonl", transcript("s-old", "old"))
    # An array, bare rows, and a topic that the array does not name.
    array = [{"id": "abc123", "name": "my-api", "updated_at": "2026-04-15T12:30:00Z"}]
    legacy = state / "agents/ops/sessions"
    write(legacy / "sessions.json", array)
    write(legacy / "abc123.jsonl", rows("Hello", "Again"))
    write(legacy / "abc123-topic-7.jsonl", rows("In topic 7"))
    write(state / "workspace/MEMORY.md", "# Memory\n")
    write(state / "workspace/memory/2026-04-15.md", "# 2026-04-15\n")
    write(state / "workspace-ops/MEMORY.md", "# Ops\n")
    write(state / "cron/jobs.json", {"version": 1, "jobs": [JOB]})
    profiles = {"openai:default": PROFILE}
    order = {"openai": ["openai:default"]}
    write(
        state / "agents/main/agent/auth-profiles.json",
        {"version": 1, "profiles": profiles, "order": order},
    )
    write(state / ".env", "FIRST=1\nSECOND='two words'\n")
    write(state / "credentials/telegram-allowFrom.json", {"version": 1, "allowFrom": ["7", "8"]})
    write(state / "credentials/whatsapp/default/creds.json", {"me": 1})
    write(state / "openclaw.json", {"agents": {"list": [{"id": "main"}, {"id": "ops"}]}})
    return state


def run_import(target: Path, source: Path, **options: Any) -> ImportReport:
    """Import into the home `target`."""
    paths = Paths.find({"HOME": str(target)})
    return asyncio.run(import_home(ImportOptions(source, **options), paths, {}))


def outcomes(report: ImportReport, kind: str) -> dict[str, int]:
    """Return the counts of a kind that are not zero."""
    return {k: n for k, n in report.as_json()["kinds"][kind].items() if n}


def notes(report: ImportReport) -> str:
    return "\n".join(f"{one.kind}: {one.item}: {one.text}" for one in report.notes)


def read_tree(root: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return every file beneath a folder with its mode, time and bytes."""
    found = {}
    for folder, _, names in os.walk(root):
        for path in (Path(folder, name) for name in names):
            status = path.lstat()
            data = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            found[str(path.relative_to(root))] = (status.st_mode, status.st_mtime_ns, data)
    return found


def read_target(home: Path) -> dict[str, Any]:
    """Return what a target holds, apart from the bytes of its database."""

    async def sessions() -> dict[str, Any]:
        async with open_store(home / ".openclaw") as store:
            return {
                one.key: (
                    one.session_id,
                    one.updated_ms,
                    dict(one.data),
                    await texts_of(store, one.session_id),
                )
                for one in await store.sessions()
            }

    stored = asyncio.run(sessions())
    files = {
        name: data
        for name, (_, _, data) in read_tree(home).items()
        if "state." not in name and not name.endswith(".lock")
    }
    return {"sessions": stored, "files": files}


async def texts_of(store: Any, session_id: str) -> Sequence[tuple[str, str | None, str]]:
    return [
        (entry.id, entry.parent, json.dumps(entry.data.get("message"), sort_keys=True))
        for entry in await store.entries(session_id)
    ]


def session_texts(home: Path, key: str) -> list[str]:
    """Return the texts of a session of the target."""
    found = read_target(home)["sessions"][key][3]
    return [json.loads(body)["content"][0]["text"] for _, _, body in found]
