"""Read the rules for commands that are outside of the config: OpenClaw's approvals files."""

from collections.abc import Mapping
from pathlib import Path

from homarus.config.approvals_file import read_approvals
from homarus.config.paths import is_sqlite_home
from homarus.core.message import Json


def read_exec_rules(state: Path) -> list[Mapping[str, Json]]:
    """Return our rules for commands, and those that OpenClaw 2026.9 has in its database.

    A file that is there and cannot be read denies all commands.
    """
    if not is_sqlite_home(state):
        return [read_approvals(state)]
    from homarus.store.openclaw_database import read_exec_approvals

    return [read_approvals(state), read_exec_approvals(state)]
