"""The active runs of the program, by session key."""

from collections.abc import Sequence

from homarus.agent.context.compaction import CompactionResult
from homarus.agent.run import Run, RunOutcome
from homarus.agent.services import RunServices
from homarus.agent.session_compaction import compact_session
from homarus.core.diagnostics import SessionActivity, SessionStateChanged
from homarus.core.message import Json, StoppedBy
from homarus.store.journal import InboxRecord


class RunRegistry:
    """Starts runs, and stops those that are active. Built once, by `App`."""

    def __init__(self, services: RunServices) -> None:
        self._services = services
        self._active: dict[str, Run] = {}

    async def start(self, key: str, records: Sequence[InboxRecord], text: str = "") -> RunOutcome:
        """Answer accepted messages in one run; `text` stands for them when they were merged.

        Every failure is an outcome. A run that is cancelled because the program ends has none:
        the next start of the program resumes it.
        """
        run = self._active[key] = Run(self._services, key, records, text)
        self._publish_state(key, "idle", "processing")
        try:
            await run.execute()
        finally:
            del self._active[key]
            run.close()
            self._publish_state(key, "processing", "idle")
        return run.report_end()

    def _publish_state(self, key: str, before: SessionActivity, state: SessionActivity) -> None:
        if self._services.diagnostics.is_active:
            depth = self._services.get_queue_depth(key)
            self._services.diagnostics.publish(SessionStateChanged(key, before, state, depth))

    def stop(self, key: str, run_id: str | None = None) -> tuple[str, ...]:
        """Stop the active run of a session, or only `run_id`; return the ids of stopped runs."""
        run = self._active.get(key)
        if run is None or (run_id and run.id != run_id):
            return ()
        run.stop()
        return (run.id,)

    def mark_stopped_by(self, key: str, run_id: str | None, by: StoppedBy) -> None:
        """Record who stops the active run of a session; called before `stop`."""
        run = self._active.get(key)
        if run and run_id in (None, run.id):
            run.stopped_by = by

    def active_ids(self, key: str | None = None) -> tuple[str, ...]:
        """Return the ids of the active runs, of one session or of all."""
        return tuple(
            run.id for session_key, run in self._active.items() if key in (None, session_key)
        )

    def live_trace(self, run_id: str) -> dict[str, Json] | None:
        """Return the trace so far of an active run; None if it is not active."""
        run = next((each for each in self._active.values() if each.id == run_id), None)
        return run.trace() if run else None

    async def compact_session(self, key: str, instructions: str = "") -> CompactionResult:
        """Summarise the old turns of a session. Raises UserError when there are none."""
        return await compact_session(self._services, key, instructions)
