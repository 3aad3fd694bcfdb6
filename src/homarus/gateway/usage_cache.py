"""What transcripts say of sessions, cached until they grow."""

from collections import OrderedDict

from homarus.sessions.usage import UsageSummary, summarize_usage
from homarus.store.base import SessionRecord, Store
from homarus.store.usage import local_day

MAX_KEPT = 2_000


class UsageCache:
    """Usage summaries by session."""

    def __init__(self) -> None:
        self._cache: OrderedDict[str, tuple[int, str | None, UsageSummary]] = OrderedDict()

    async def summary_of(self, store: Store, record: SessionRecord) -> UsageSummary:
        """Return a session's summary, reading its transcript only when it has grown."""
        if not record.session_id:
            return UsageSummary()
        leaf = await store.leaf(record.session_id)
        cached = self._cache.get(record.session_id)
        if cached and cached[:2] == (record.version, leaf):
            self._cache.move_to_end(record.session_id)
            return cached[2]
        summary = summarize_usage(await store.entries(record.session_id), local_day)
        self._cache[record.session_id] = (record.version, leaf, summary)
        while len(self._cache) > MAX_KEPT:
            self._cache.popitem(last=False)
        return summary
