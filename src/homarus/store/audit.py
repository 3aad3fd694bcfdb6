"""The audit log: append-only rows, each with the hash of the row before it.

The hash of a row covers its number, its columns and the hash of the row before it, so that a row
which is changed, removed or moved is found by `check_audit_rows`. `seq` counts from 1 without gaps,
for each principal. Text is bounded, and secrets in it are redacted, before a row is hashed.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from homarus.config.redaction import redact
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import repair_surrogates

if TYPE_CHECKING:
    from homarus.core.principal import Principal
    from homarus.store.base import Store

# decision: of a tool call. approval: asked, answered, expired. execution: what ran, and how it
# ended. config: a change of config, policy, allowlist or session settings that affect it.
AuditKind: TypeAlias = Literal["decision", "approval", "execution", "config"]
AUDIT_KINDS: Final[tuple[AuditKind, ...]] = ("decision", "approval", "execution", "config")
MAX_TEXT_CHARS: Final = 600
MAX_DATA_CHARS: Final = 4_000
ANCHOR_EVERY: Final = 100  # entries
_MAX_ITEMS: Final = 50
_MAX_DEPTH: Final = 4


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """One row of the audit log. `seq`, `previous` and `hash` are set when it is stored."""

    at_ms: int
    kind: AuditKind
    agent: str = ""
    session: str = ""
    tool: str = ""
    data: Mapping[str, Json] = field(default_factory=dict)
    seq: int = 0
    previous: str = ""
    hash: str = ""


@dataclass(frozen=True, slots=True)
class AuditRow:
    """A row as it is stored: `json` is the text of the data, which the hash covers."""

    seq: int
    at_ms: int
    kind: AuditKind
    agent: str
    session: str
    tool: str
    json: str
    previous: str
    hash: str

    def to_entry(self) -> AuditEntry:
        """Return the row with its data decoded; data that is no JSON object is shown as text."""
        try:
            data: Json = json.loads(self.json)
        except ValueError:
            data = None
        return AuditEntry(
            self.at_ms, self.kind, self.agent, self.session, self.tool,
            data if isinstance(data, dict) else {"unreadable": self.json},
            self.seq, self.previous, self.hash,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class AuditAnchor:
    """The last row of a log, stored apart from it; seq 0 when there is none."""

    seq: int = 0
    hash: str = ""


@dataclass(frozen=True, slots=True)
class AuditCheck:
    """The result of checking a log: its last row, and what is wrong, "" if nothing is."""

    anchor: AuditAnchor
    problem: str = ""


def make_audit_row(principal: "Principal", entry: AuditEntry, last: AuditAnchor) -> AuditRow:
    """Return the row that stores an entry after the last one."""
    seq = last.seq + 1
    bounds = _Bounds()
    agent, session, tool = (bounds.cut(each) for each in (entry.agent, entry.session, entry.tool))
    data = bounds.fit(entry.data)
    if bounds.has_secrets:
        redacted = _Bounds(is_redacting=True)
        agent, session, tool = (redacted.cut(each) for each in (agent, session, tool))
        data = redacted.fit(entry.data)
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    if len(text) > MAX_DATA_CHARS:
        text = json.dumps({"cut": text[: MAX_DATA_CHARS // 2]}, separators=(",", ":"))
    made = (seq, entry.at_ms, entry.kind, agent, session, tool, text, last.hash)
    return AuditRow(*made, _hash(principal, made))


def check_audit_rows(
    principal: "Principal", rows: Iterable[AuditRow], anchors: Mapping[str, AuditAnchor]
) -> AuditCheck:
    """Check the rows of a log in the order of their numbers, against each other and the anchors.

    An anchor, by the name of the place it was stored in, is a row that the log must contain.
    """
    last = AuditAnchor()
    missing = {name: anchor for name, anchor in anchors.items() if anchor.seq}
    for row in rows:
        if row.seq != last.seq + 1:
            what = f"row {last.seq + 1} is missing" if row.seq > last.seq else "a row is doubled"
            return AuditCheck(last, f"{what}: row {row.seq} follows row {last.seq}")
        if row.previous != last.hash:
            return AuditCheck(last, f"row {row.seq} does not follow row {last.seq}: one was edited")
        made = (row.seq, row.at_ms, row.kind, row.agent, row.session, row.tool, row.json, last.hash)
        if row.hash != _hash(principal, made):
            return AuditCheck(last, f"row {row.seq} was edited: its hash is not that of its text")
        last = AuditAnchor(row.seq, row.hash)
        for name in [name for name, anchor in missing.items() if anchor.seq == row.seq]:
            if missing.pop(name).hash != row.hash:
                return AuditCheck(last, f"row {row.seq} is not the one that {name} has: rewritten")
    for name, anchor in missing.items():
        return AuditCheck(last, f"{name} has row {anchor.seq}, the log ends at {last.seq}: cut off")
    return AuditCheck(last)


def encode_entry(entry: AuditEntry) -> dict[str, Json]:
    """Return an entry as JSON; `seq` is 0 for one that is not in the log yet."""
    return {
        "seq": entry.seq,
        "atMs": entry.at_ms,
        "kind": entry.kind,
        "agent": entry.agent,
        "session": entry.session,
        "tool": entry.tool,
        "data": dict(entry.data),
        "hash": entry.hash,
    }


class AuditLog:
    """Collects the entries of a program; each is stored with the next transaction of a run.

    An entry that must be on disk at once is stored by `write`. `on_stored` is called now and then,
    after some entries were stored.
    """

    def __init__(
        self, store: "Store | None" = None, on_stored: Callable[[], None] = lambda: None
    ) -> None:
        self._store, self._on_stored = store, on_stored
        self._pending: list[AuditEntry] = []
        self._stored = 0

    def record(self, entry: AuditEntry) -> None:
        """Add an entry, to be stored with the next transaction."""
        if self._store is not None:
            self._pending.append(entry)

    @contextmanager
    def storing(self) -> Iterator[tuple[AuditEntry, ...]]:
        """Return the entries to be added to a transaction; they stay pending if it fails."""
        entries, self._pending = tuple(self._pending), []
        try:
            yield entries
        except BaseException:
            self._pending[:0] = entries
            raise
        self._stored += len(entries)
        if self._stored >= ANCHOR_EVERY:
            self._stored = 0
            self._on_stored()

    async def write(self, *entries: AuditEntry) -> None:
        """Store entries, and those that are pending, before this returns."""
        if self._store is None or not (entries or self._pending):
            return
        self._pending += entries
        with self.storing() as rows:
            async with self._store.transaction() as transaction:
                transaction.add_audit(*rows)


def _hash(principal: "Principal", made: tuple[Any, ...]) -> str:
    text = json.dumps([principal.team, principal.user, *made], separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class _Bounds:
    """Cuts the texts of an entry, and redacts the secrets in them.

    Most entries have no secrets: all texts are searched at once, and redacted one by one only where
    something is found.
    """

    def __init__(self, *, is_redacting: bool = False) -> None:
        self._is_redacting = is_redacting
        self._seen: list[str] = []

    @property
    def has_secrets(self) -> bool:
        seen = "\n".join(self._seen)
        return redact(seen) != seen

    def fit(self, value: Json, depth: int = 0) -> Json:
        """Return a JSON value that fits a row."""
        if isinstance(value, str):
            return self.cut(value)
        if isinstance(value, bool | int | float) or value is None:
            return value
        if depth >= _MAX_DEPTH:
            return "…"
        if isinstance(value, Mapping):
            pairs = list(value.items())[:_MAX_ITEMS]
            return {self.cut(str(key)): self.fit(item, depth + 1) for key, item in pairs}
        if isinstance(value, list | tuple | set | frozenset):
            return [self.fit(item, depth + 1) for item in list(value)[:_MAX_ITEMS]]
        return self.cut(str(value))

    def cut(self, text: str) -> str:
        """Return a text that fits a row."""
        # Redacted before it is cut, so that no part of a secret remains.
        shown = repair_surrogates(text[: 4 * MAX_TEXT_CHARS]).replace("\0", "\ufffd")
        if self._is_redacting:
            shown = redact(shown)
        else:
            self._seen.append(shown)
        return shown if len(shown) <= MAX_TEXT_CHARS else f"{shown[: MAX_TEXT_CHARS - 1]}…"
