"""Make the table of running commands when the first command is started."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from homarus.tools.exec.process_table import ProcessTable


class ProcessTableLoader:
    """Returns the table when called; nothing of it is imported before."""

    def __init__(
        self,
        group: asyncio.TaskGroup,
        get_now_ms: Callable[[], int],
        add_notice: Callable[[str, str, int], None],
    ) -> None:
        self._group, self._get_now_ms, self._add_notice = group, get_now_ms, add_notice
        self._table: ProcessTable | None = None

    def __call__(self) -> "ProcessTable":
        """Return the table of running commands."""
        if self._table is None:
            from homarus.tools.exec.process_table import ProcessTable

            self._table = ProcessTable(self._group, self._get_now_ms, self._notify)
        return self._table

    def stop(self) -> None:
        """End the background commands."""
        if self._table:
            self._table.stop()

    def _notify(self, session_key: str, text: str) -> None:
        self._add_notice(session_key, text, self._get_now_ms())
