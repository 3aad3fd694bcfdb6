"""`command-logger`: append each command to a log file, once for its run."""

import asyncio
import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from homarus.agent.internal_hooks.bundled_services import BundledHookServices
from homarus.agent.internal_hooks.event import HookEvent
from homarus.core.private_files import make_private_dir
from homarus.core.text import one_line

FILE_NAME: Final = "commands.log"
MAX_BYTES: Final = 5_000_000
_TAIL_BYTES: Final = 65_536
_MAX_FIELD_CHARS: Final = 300
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


async def handle(event: HookEvent, services: BundledHookServices) -> None:
    """Append one line."""
    at = datetime.fromtimestamp(event.at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    fields = {
        "timestamp": at.replace("+00:00", "Z"),
        "action": event.action,
        "sessionKey": event.session_key,
        "source": event.context.get("channel") or "unknown",
        "runId": event.context.get("run_id") or "",
    }
    row = {name: one_line(str(value), _MAX_FIELD_CHARS) for name, value in fields.items()}
    await asyncio.to_thread(_append, services.logs / FILE_NAME, row)


def _append(file: Path, row: dict[str, str]) -> None:
    make_private_dir(file.parent)
    if row["runId"] and _has_row(file, row):  # the command is repeated after a crash
        return
    if file.exists() and file.stat().st_size >= MAX_BYTES:
        file.replace(file.with_name(f"{FILE_NAME}.1"))
    descriptor = os.open(file, _FLAGS, 0o600)
    try:
        os.write(descriptor, json.dumps(row, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
    finally:
        os.close(descriptor)


def _has_row(file: Path, row: dict[str, str]) -> bool:
    try:
        with file.open("rb") as opened:
            opened.seek(max(0, file.stat().st_size - _TAIL_BYTES))
            lines = opened.read(_TAIL_BYTES).split(b"\n")
    except FileNotFoundError:
        return False
    return any(_is_same(line, row) for line in lines)


def _is_same(line: bytes, row: dict[str, str]) -> bool:
    try:
        found = json.loads(line)
    except ValueError:  # empty, or the cut first line
        return False
    names = ("action", "sessionKey", "runId")
    return isinstance(found, dict) and all(found.get(name) == row[name] for name in names)
