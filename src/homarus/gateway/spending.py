"""The cost of sessions, cached until their transcript grows."""

from collections import OrderedDict
from datetime import datetime

from homarus.sessions.usage import Summary, summarise
from homarus.store.base import SessionRecord, Store

MAX_KEPT = 2_000


class Spending:
    """Usage summaries by session."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[int, str | None, Summary]] = OrderedDict()

    async def of(self, store: Store, record: SessionRecord) -> Summary:
        """Return a session's summary, reading its transcript only when it has grown."""
        if not record.session_id:
            return Summary()
        leaf = await store.leaf(record.session_id)
        kept = self._kept.get(record.session_id)
        if kept and kept[:2] == (record.version, leaf):
            self._kept.move_to_end(record.session_id)
            return kept[2]
        summary = summarise(await store.entries(record.session_id), day_of)
        self._kept[record.session_id] = (record.version, leaf, summary)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return summary


def day_of(at_ms: int) -> str:
    """Return the day in this machine's time zone."""
    try:
        return str(datetime.fromtimestamp(at_ms / 1000).astimezone().date())
    except (OverflowError, OSError, ValueError):  # a time outside the calendar
        return "1970-01-01"
