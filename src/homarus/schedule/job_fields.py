"""Check the field names of a job that a client or a model writes.

A field that the program does not know is refused: it may restrict what the job does. In files the
fields of other versions survive, except for those of 2026.9 that are known to restrict a job.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.core.text import closest_names, one_line

_JOB: Final = frozenset(
    {
        "id", "name", "agentId", "sessionKey", "description", "enabled", "deleteAfterRun",
        "schedule", "sessionTarget", "wakeMode", "payload", "delivery", "misfire", "displayName",
    }
)  # fmt: skip
_OLD_DELIVERY: Final = frozenset({"deliver", "channel", "provider", "to", "bestEffortDeliver"})
_TURN: Final = frozenset({"model", "thinking", "timeoutSeconds", "allowUnsafeExternalContent"})
_PARTS: Final[Mapping[str, frozenset[str]]] = {
    "schedule": frozenset(
        {"kind", "at", "atMs", "everyMs", "anchorMs", "expr", "cron", "tz", "staggerMs"}
    ),
    "payload": frozenset({"kind", "text", "message", *_TURN, *_OLD_DELIVERY}),
    "delivery": frozenset({"mode", "channel", "to", "accountId", "threadId", "bestEffort"}),
    "misfire": frozenset({"policy", "maxAgeMinutes"}),
}
# What a job may have at its top level in place of a payload.
FLAT_PAYLOAD: Final = frozenset({"text", "message", *_TURN, *_OLD_DELIVERY})
JOB_FIELDS: Final = _JOB | FLAT_PAYLOAD
_EVERY_TOOL: Final = ["*"]  # what 2026.9 writes for a job without a restriction


def check_job_fields(job: Mapping[str, Json]) -> None:
    """Raise UserError for fields of a job, or of a patch, that would have no effect."""
    unknown = [*_unknown_in(job, JOB_FIELDS, "")]
    for part, names in _PARTS.items():
        inner = job.get(part)
        if isinstance(inner, Mapping):
            unknown += _unknown_in(_without_every_tool(inner), names, f"{part}.")
    if unknown:
        shown = ", ".join(one_line(path, 60) for path, _ in unknown[:5])
        raise UserError(f"a job has no field {shown}", fix=unknown[0][1])


def check_restrictions(job: Mapping[str, Json]) -> None:
    """Raise UserError for a job of a file that 2026.9 would run with less than this program."""
    payload, policy = job.get("payload"), job.get("scheduledToolPolicy")
    inner = _without_every_tool(payload) if isinstance(payload, Mapping) else {}
    is_trusted = isinstance(policy, Mapping) and policy.get("mode") == "trusted"
    found = {
        "payload.toolsAllow limits its tools": inner.get("toolsAllow") is not None,
        "payload.externalContentSource marks its message as text of others": (
            inner.get("externalContentSource") is not None
        ),
        "scheduledToolPolicy limits its tools": policy is not None and not is_trusted,
        "its trigger is a condition": job.get("trigger") is not None,
    }
    for problem, is_there in found.items():
        if is_there:
            raise UserError(
                f"{problem}, which this program does not support",
                fix="remove the field, or the job",
            )


def _unknown_in(
    given: Mapping[str, Json], names: frozenset[str], path: str
) -> Iterator[tuple[str, str]]:
    for name in given:
        if name not in names:
            nearest = closest_names(str(name)[:60], sorted(names))
            fix = f"did you mean {' or '.join(path + one for one in nearest)}?" if nearest else ""
            yield f"{path}{name}", fix or "leave it out: it would have no effect"


def _without_every_tool(payload: Mapping[str, Json]) -> Mapping[str, Json]:
    if payload.get("toolsAllow") != _EVERY_TOOL:
        return payload
    return {name: value for name, value in payload.items() if name != "toolsAllow"}
