"""Write diagnostic events to the log, one line each, and give them to the hooks of plugins."""

import json
import logging
from collections.abc import Callable, Coroutine, Mapping

from homarus.core.diagnostics import Diagnostic, SessionStuck, encode_diagnostic
from homarus.core.message import Json

log = logging.getLogger(__name__)


class DiagnosticEventLog:
    """A listener that logs each of OpenClaw's kinds of events."""

    def __init__(
        self,
        has_hook: Callable[[], bool] = lambda: False,
        call_hook: Callable[[Mapping[str, Json]], Coroutine[None, None, None]] | None = None,
        start_task: Callable[[Coroutine[None, None, None]], object] = lambda work: work.close(),
    ) -> None:
        self._has_hook, self._call_hook, self._start_task = has_hook, call_hook, start_task
        self._seq = 0

    def on_event(self, event: Diagnostic, at_ms: int) -> None:
        """Log one event; a stuck session is a warning."""
        encoded = encode_diagnostic(event, self._seq + 1, at_ms)
        if encoded is None:
            return
        self._seq += 1
        level = logging.WARNING if isinstance(event, SessionStuck) else logging.INFO
        log.log(level, "%s", json.dumps(encoded, ensure_ascii=False))
        if self._call_hook and self._has_hook():
            self._start_task(self._call_hook(encoded))
