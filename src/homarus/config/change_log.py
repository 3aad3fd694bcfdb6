"""Record changes of config, allowlists and pairings for the audit log.

A change may be made by a process that does not hold the store, such as `homarus config set` next
to a gateway. So it is appended to a file, which the next process that holds the store moves to the
audit log (`store.audit_changes`): the gateway at once when it reloads the config.
"""

import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Final
from uuid import uuid4

from homarus.core.message import Json
from homarus.core.text import one_line

log = logging.getLogger(__name__)

FILE: Final = "audit-pending.jsonl"
MAX_FILE_BYTES: Final = 4_000_000
_MAX_LINE_BYTES: Final = 16_000
_MAX_AUTHOR_CHARS: Final = 120

_author: ContextVar[str] = ContextVar("change_author", default="")


def set_change_author(author: str) -> None:
    """Set who makes the changes of this task and of those it starts."""
    _author.set(one_line(author, _MAX_AUTHOR_CHARS))


@contextmanager
def changes_by(author: str) -> Iterator[None]:
    """Set who makes the changes of a block."""
    token = _author.set(one_line(author, _MAX_AUTHOR_CHARS))
    try:
        yield
    finally:
        _author.reset(token)


def change_author() -> str:
    """Return who makes changes now: a client, a sender, or the user of this process."""
    return _author.get() or f"process of user {os.getuid()}"


def log_change(state: Path, target: str, **data: Json) -> None:
    """Append a change of a target (`config`, `allowlist`, `pairing`, `device`) to the file.

    The change was made already, so a failure is logged and not raised.
    """
    line = {
        "id": uuid4().hex,
        "atMs": time.time_ns() // 1_000_000,
        "by": change_author(),
        "target": target,
        **data,
    }
    text = json.dumps(line, default=str)
    if len(text) > _MAX_LINE_BYTES:
        kept = {name: line[name] for name in ("id", "atMs", "by", "target")}
        text = json.dumps({**kept, "cut": text[:2_000]})
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(state / FILE, flags, 0o600)
        try:
            if os.fstat(descriptor).st_size > MAX_FILE_BYTES:
                raise OSError("it is full; `homarus audit` empties it")
            os.write(descriptor, f"{text}\n".encode())
        finally:
            os.close(descriptor)
    except OSError as exc:
        log.warning("a change of %s is not in the audit log: %s: %s", target, state / FILE, exc)
