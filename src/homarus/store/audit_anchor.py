"""The anchor of the audit log: a file with the number and hash of a late row.

It is stored apart from the database, so that rows which were cut off the end, together with the
database's own count of them, are missed. A file that disagrees with the log is never replaced.
"""

import json
import logging
from pathlib import Path
from typing import Final

from homarus.core.atomic_file import write_atomic
from homarus.store.audit import AuditAnchor
from homarus.store.base import Store

log = logging.getLogger(__name__)

ANCHOR_FILE: Final = "audit-anchor.json"


def load_anchor(state: Path) -> AuditAnchor:
    """Return the anchor of a state directory; seq 0 when there is none that can be read."""
    try:
        found = json.loads((state / ANCHOR_FILE).read_text(encoding="ascii"))
        return AuditAnchor(int(found["seq"]), str(found["hash"]))
    except (OSError, ValueError, LookupError, TypeError):
        return AuditAnchor()


async def save_anchor(store: Store, state: Path) -> None:
    """Save the last row as the anchor, if the log still has the row of the old one."""
    old, last = load_anchor(state), await store.audit_anchor()
    if old == last:
        return
    if old.seq and await store.audit_anchor(old.seq) != old:
        log.error("the audit log lacks row %d: see `homarus audit verify`", old.seq)
        return
    text = json.dumps({"seq": last.seq, "hash": last.hash})
    try:
        write_atomic(state / ANCHOR_FILE, f"{text}\n".encode("ascii"))
    except OSError as exc:
        log.warning("%s cannot be written: %s", state / ANCHOR_FILE, exc)
