"""Turn the options of `homarus cron add` and `cron edit` into a job or a patch. Pure.

Both use the same options; those that were not given are None. Wrong combinations raise UserError
with the fix.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from math import ceil
from typing import Any, Final

from homarus.core.errors import UserError
from homarus.core.message import Json
from homarus.core.text import one_line
from homarus.core.units import parse_duration_ms

Options = Mapping[str, Any]
_SCHEDULES: Final = ("at", "every", "cron")


def make_draft(options: Options, now_ms: int) -> dict[str, Json]:
    """Return the job to add."""
    _check_one(options, _SCHEDULES, "when the job runs")
    _check_one(options, ("system_event", "message"), "what the job does")
    job = {**_plain_fields(options), "schedule": _schedule(options, now_ms)}
    if not job.get("name"):
        raise UserError("the job has no name", fix="add --name TEXT")
    is_turn = options["message"] is not None
    target = options["target"] or ("isolated" if is_turn else "main")
    _check_target(target, is_turn=is_turn)
    job |= {"sessionTarget": target, "wakeMode": options["wake"] or "now"}
    job["payload"] = _payload(options)
    if delivery := _delivery(options):
        if not is_turn:
            raise UserError(
                "a system event has no answer to deliver",
                fix="use --message TEXT for a turn, or leave out the options of the delivery",
            )
        job["delivery"] = delivery
    job["enabled"] = options["enabled"] is not False
    return job


def make_patch(options: Options, now_ms: int) -> dict[str, Json]:
    """Return the changes of a job."""
    _check_at_most_one(options, _SCHEDULES)
    _check_at_most_one(options, ("system_event", "message"))
    patch = _plain_fields(options)
    if any(options[name] is not None for name in _SCHEDULES):
        patch["schedule"] = _schedule(options, now_ms)
    elif any(options[name] for name in ("tz", "stagger", "exact")):
        raise UserError(
            "--tz, --stagger and --exact belong to a schedule",
            fix="give it again with --cron EXPR",
        )
    for key, name in (("sessionTarget", "target"), ("wakeMode", "wake"), ("enabled", "enabled")):
        if options[name] is not None:
            patch[key] = options[name]
    if payload := _payload(options):
        patch["payload"] = payload
    if delivery := _delivery(options):
        patch["delivery"] = delivery
    for key in ("agent", "session"):
        if options.get(f"clear_{key}"):
            patch["agentId" if key == "agent" else "sessionKey"] = None
    if not patch:
        raise UserError("nothing was given to change", fix="homarus cron edit --help")
    return patch


def _plain_fields(options: Options) -> dict[str, Json]:
    if options["deletes"] and options["keeps"]:
        raise UserError(
            "--delete-after-run and --keep-after-run contradict each other", fix="use one of them"
        )
    fields: dict[str, Json] = {}
    names = {"name": "name", "description": "description", "agent": "agentId", "key": "sessionKey"}
    for name, key in names.items():
        if options[name] is not None:
            fields[key] = options[name].strip()
    if options["deletes"] or options["keeps"]:
        fields["deleteAfterRun"] = bool(options["deletes"])
    if options["misfire"] is not None:
        fields["misfire"] = {"policy": options["misfire"]}
    return fields


def _schedule(options: Options, now_ms: int) -> dict[str, Json]:
    if options["at"] is not None:
        return {"kind": "at", "at": parse_at(options["at"], options["tz"] or "", now_ms)}
    if options["every"] is not None:
        every_ms = _duration(options["every"], "--every")
        if every_ms < 1:
            raise UserError("--every is too short", fix="write for example 10m or 2h")
        return {"kind": "every", "everyMs": every_ms}
    schedule: dict[str, Json] = {"kind": "cron", "expr": options["cron"].strip()}
    if options["tz"]:
        schedule["tz"] = options["tz"]
    if options["exact"] and options["stagger"] is not None:
        raise UserError("--exact and --stagger contradict each other", fix="use one of them")
    if options["exact"]:
        schedule["staggerMs"] = 0
    elif options["stagger"] is not None:
        schedule["staggerMs"] = _duration(options["stagger"], "--stagger")
    return schedule


def parse_at(text: str, tz: str, now_ms: int) -> str:
    """Return a time as ISO text: a date and time, or a duration from now as `20m` or `+2h`.

    A time without an offset is in the zone `tz`, else in UTC, as in OpenClaw.
    """
    from homarus.schedule.absolute_time import format_iso_ms, parse_absolute_time_ms

    text = text.strip()
    if (at_ms := _in_zone(text, tz) if tz else None) is None:
        at_ms = parse_absolute_time_ms(text)
    if at_ms is None:
        try:
            at_ms = now_ms + parse_duration_ms(text.removeprefix("+"), "m")
        except UserError:
            raise UserError(
                f"--at {one_line(text, 60)!r} is no time",
                fix="write for example 2026-12-24T18:00+01:00, or a duration as 20m",
            ) from None
    return format_iso_ms(at_ms)


def _in_zone(text: str, tz: str) -> int | None:
    """Return a time without an offset in a zone; None for other texts. Raises UserError."""
    from homarus.schedule.zones import get_zone

    zone = get_zone(tz)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    if moment.tzinfo is not None or text.isdecimal():
        return None
    return int(moment.replace(tzinfo=zone).astimezone(UTC).timestamp() * 1000)


def _payload(options: Options) -> dict[str, Json]:
    if options["system_event"] is not None:
        return {"kind": "systemEvent", "text": options["system_event"]}
    given = {
        "message": options["message"],
        "model": options["model"],
        "thinking": options["thinking"],
        "timeoutSeconds": None if options["timeout_s"] is None else ceil(options["timeout_s"]),
    }
    payload = {name: value for name, value in given.items() if value is not None}
    return {"kind": "agentTurn", **payload} if payload else {}


def _delivery(options: Options) -> dict[str, Json]:
    """Return the delivery that the options name; empty if they name none."""
    names = ("announce", "no_deliver", "webhook")
    if len([name for name in names if options[name]]) > 1:
        raise UserError(
            "--announce, --no-deliver and --webhook contradict each other", fix="use one of them"
        )
    if options["no_deliver"]:
        return {"mode": "none"}
    if options["webhook"]:
        return {"mode": "webhook", "to": options["webhook"]}
    given = {
        "channel": options["channel"],
        "to": options["to"],
        "accountId": options["account"],
        "threadId": options["thread"],
        "bestEffort": options["best_effort"],
    }
    delivery = {name: value for name, value in given.items() if value is not None}
    return {"mode": "announce", **delivery} if delivery or options["announce"] else {}


def _check_target(target: str, *, is_turn: bool) -> None:
    if target == "main" and is_turn:
        raise UserError(
            "the main session takes a system event, not a message",
            fix="use --system-event TEXT, or --session isolated",
        )
    if target == "isolated" and not is_turn:
        raise UserError(
            "an isolated job needs a message, not a system event",
            fix="use --message TEXT, or --session main",
        )


def _check_one(options: Options, names: tuple[str, ...], about: str) -> None:
    _check_at_most_one(options, names)
    if all(options[name] is None for name in names):
        shown = " or ".join(f"--{name.replace('_', '-')}" for name in names)
        raise UserError(f"nothing says {about}", fix=f"add {shown}")


def _check_at_most_one(options: Options, names: tuple[str, ...]) -> None:
    given = [f"--{name.replace('_', '-')}" for name in names if options[name] is not None]
    if len(given) > 1:
        raise UserError(f"{' and '.join(given)} contradict each other", fix="use one of them")


def _duration(text: str, option: str) -> int:
    try:
        return parse_duration_ms(text, "m")
    except UserError as exc:
        raise UserError(f"{option}: {exc.message}", fix=exc.fix) from exc
