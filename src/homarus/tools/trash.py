"""The trash of a workspace: `.trash`, with a folder for each deletion, kept for some time.

    .trash/20261118-055501-3fa9c1/notes/old.md

The folder of a deletion has the time in its name and the path from the workspace in it, so that a
deletion is undone by moving its content back. It is in the workspace because a rename there is
atomic, never copies, and cannot leave the folder that the file tools are bound to.
"""

import logging
import re
import secrets
import shutil
import time
from pathlib import Path
from typing import Final

from homarus.policy.workspace_access import TRASH

log = logging.getLogger(__name__)

KEPT_DAYS: Final = 30
_BATCH: Final = re.compile(r"(\d{8}-\d{6})-[0-9a-f]{6}")
_TIME: Final = "%Y%m%d-%H%M%S"


def make_batch(now_s: float) -> str:
    """Return the name of the folder of one deletion."""
    return f"{time.strftime(_TIME, time.gmtime(now_s))}-{secrets.token_hex(3)}"


def prune_trash(workspace: Path, now_ms: int) -> list[str]:
    """Remove what was deleted more than `KEPT_DAYS` ago, and return the names of those folders.

    What is in the trash by any other name stays; so does a trash that is a link.
    """
    limit = time.strftime(_TIME, time.gmtime(now_ms / 1000 - KEPT_DAYS * 86_400))
    trash, removed = workspace / TRASH, list[str]()
    if trash.is_symlink() or not trash.is_dir():
        return removed
    for entry in sorted(trash.iterdir()):
        found = _BATCH.fullmatch(entry.name)
        if found and found.group(1) < limit and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)  # it follows no links
            if entry.exists():
                log.warning("%s in the trash cannot be removed completely", entry)
            removed.append(entry.name)
    return removed
