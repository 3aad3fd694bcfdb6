"""Encode, decode and resolve approval records; every journal uses this module."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from homarus.core.errors import ConflictError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import repair_json
from homarus.store.approvals import ApprovalRecord, ApprovalState
from homarus.store.journal_codec import to_storable
from homarus.store.transcript_codec import dump_json, load_json

# In the order of the fields of ApprovalRecord.
APPROVAL_COLUMNS: Final = (
    "id", "agent", "session", "run", "call_id", "tool", "requester", "digest", "request",
    "created_ms", "expires_ms", "state", "decision", "resolved_by", "resolved_ms", "used_ms",
    "extra",
)  # fmt: skip
SELECT_APPROVALS: Final = f"SELECT {', '.join(APPROVAL_COLUMNS)} FROM approvals"  # noqa: S608 - our names
_REQUEST, _EXTRA = 8, 16  # the indexes of the JSON columns


@dataclass(frozen=True, slots=True)
class ApprovalResolution:
    """The end of a pending approval: answered, expired or cancelled."""

    id: str
    state: ApprovalState
    decision: str
    by: str
    at_ms: int

    def apply(self, record: ApprovalRecord) -> ApprovalRecord | None:
        """Return the record as it is then; None unless it is pending, and the time is right.

        An answer must come before the expiry, and nothing expires before that.
        """
        is_due = self.at_ms >= record.expires_ms
        is_in_time = {"expired": is_due, "cancelled": True}.get(self.state, not is_due)
        if record.state != "pending" or self.state == "pending" or not is_in_time:
            return None
        return replace(
            record,
            state=self.state,
            decision=self.decision,
            resolved_by=_storable(self.by),
            resolved_ms=self.at_ms,
        )


def unusable_approval(record_id: str) -> ConflictError:
    """Return the error of a call that starts with an approval that does not allow it."""
    return ConflictError(
        f"approval {record_id} does not allow this call: it was not given, was used already,"
        " has expired, or was given for something else",
        fix="make a new call, which asks again",
    )


def encode_approval(record: ApprovalRecord) -> tuple[Any, ...]:
    """Return the columns of a record."""
    fields = [_storable(getattr(record, name)) for name in APPROVAL_COLUMNS]
    for index in (_REQUEST, _EXTRA):
        fields[index] = dump_json(repair_json(fields[index]))
    return tuple(fields)


def decode_approval(row: Sequence[Any]) -> ApprovalRecord:
    """Return a record from its columns, which are in the order of the fields."""
    fields = [*row]
    for index in (_REQUEST, _EXTRA):
        fields[index] = load_json(fields[index])
    return ApprovalRecord(*fields)


def _storable(value: Any) -> Any:
    return to_storable(value) if isinstance(value, str) else value
