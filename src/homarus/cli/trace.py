"""`homarus trace`: the ten hops of one run, and where its time went."""

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Final

import click

from homarus.cli.command_group import examples
from homarus.cli.gateway_options import (
    GatewayOptions,
    as_json_option,
    gateway_options,
    is_gateway_running,
    open_gateway,
)
from homarus.cli.options import session_option
from homarus.config.paths import Paths
from homarus.config.session_store import find_session_store
from homarus.core.clock import SystemClock
from homarus.core.message import Json
from homarus.core.text import escape_invisible
from homarus.sessions.trace_report import LAST, find_traced, report_trace
from homarus.store.sqlite import open_store

_INDENT: Final = " " * 17


@click.command("trace")
@examples("homarus trace", "homarus trace 4f2a", "homarus trace --session agent:main:main --json")
@click.argument("run", default=LAST)
@session_option("The newest run of this session.", default="all sessions")
@as_json_option
@gateway_options
def command(run: str, session_key: str | None, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Show what happened to a message, hop by hop.

    RUN is the ID of a run, of a message or of a reply, the start of one, or last.
    """
    report = asyncio.run(fetch_trace(gateway, run, session_key))
    if as_json:
        click.echo(json.dumps(report, ensure_ascii=False))
        return
    for line in format_trace(report):
        click.echo(line)


async def fetch_trace(gateway: GatewayOptions, run: str, session: str | None) -> dict[str, Json]:
    """Return the report on a run, from a running gateway or the store."""
    if is_gateway_running(gateway):
        params = {"id": run, **({"sessionKey": session} if session else {})}
        async with open_gateway(gateway) as client:
            found = await client.call("runs.trace", params)
        return found if isinstance(found, dict) else {}
    paths = find_session_store(Paths.find(os.environ), os.environ)
    async with open_store(paths.state, read_only=True, sessions=paths.session_store) as store:
        traced = await find_traced(store, run, session)
        return await report_trace(store, traced, SystemClock().now_ms())


def format_trace(report: Mapping[str, Json]) -> Iterator[str]:
    """Yield the lines of a report."""
    yield f"run {_shown(report['runId'])} of {_shown(report['sessionKey'])}: {report['state']}"
    if report["now"]:
        yield f"now: {_shown(report['now'])}"
    if joined := report.get("message"):
        yield f"message {_shown(joined['id'])} joined it"
    if report["interrupted"]:
        times = "once" if report["interrupted"] == 1 else f"{report['interrupted']} times"
        yield f"interrupted {times} by the end of the program"
    hops = sorted(report["hops"], key=lambda hop: int(hop["hop"]))
    start_ms = next((int(hop["at"]) for hop in hops if hop["hop"] == 2 and hop["at"]), 0)
    for hop in hops:
        at = _clock(hop["at"]) if hop["at"] else "-"
        details = _DETAILS[hop["name"]](hop)
        yield f"{hop['hop']:>2}  {at:>12}  {hop['name']:<10} {details}".rstrip()
        yield from (f"{_INDENT}{line}" for line in _more(hop, start_ms))
    if len(report["attempts"]) > 1:
        yield "attempts: " + ", ".join(
            f"{each['outcome']} after {_duration(each['ms'])}" for each in report["attempts"]
        )
    yield _totals(report["totals"])


def _totals(totals: Mapping[str, Json]) -> str:
    cost = float(totals.get("cost", 0))
    return (
        f"total: {totals.get('modelCalls', 0)} model calls, {totals.get('toolCalls', 0)} tool"
        f" calls, {totals.get('input', 0)} tokens in, {totals.get('output', 0)} out, ${cost:.4f}"
    )


def _received(_hop: Mapping[str, Json]) -> str:
    return "by the service" if _hop["at"] else "the service gave no time"


def _accepted(hop: Mapping[str, Json]) -> str:
    if "channel" not in hop:
        return "its record was deleted"
    again = f", came again {hop['duplicates']} times" if hop["duplicates"] else ""
    key = f"key {_shown(hop['dedupeKey'])}"
    sender = _shown(hop["sender"]) or "an unknown sender"
    return f"from {sender} by {_shown(hop['channel'])}, {key}{again}"


def _routed(hop: Mapping[str, Json]) -> str:
    why = f" ({_shown(hop['why'])})" if hop["why"] else ""
    return f"to {_shown(hop['agent'])}{why}"


def _submitted(hop: Mapping[str, Json]) -> str:
    return f"{_duration(hop['sinceAcceptedMs'])} after it was accepted" if hop["at"] else ""


def _queued(hop: Mapping[str, Json]) -> str:
    if not hop["at"]:
        return ""
    merged = f", {hop['merged']} messages" if (hop["merged"] or 1) > 1 else ""
    return (
        f"{_duration(hop['ms'])} ({hop['mode'] or 'idle'}{merged}), session"
        f" {_duration(hop['sessionMs'])}, lane {hop['lane']} {_duration(hop['laneMs'])}"
    )


def _prepared(hop: Mapping[str, Json]) -> str:
    return f"{_duration(hop['ms'])}, model {_shown(hop['model'])}" if hop["at"] else ""


def _prompt(hop: Mapping[str, Json]) -> str:
    return f"{_duration(hop['ms'])}, about {hop['tokens'] or 0} tokens" if hop["at"] else ""


def _loop(hop: Mapping[str, Json]) -> str:
    omitted = f", {hop['omitted']} not kept" if hop["omitted"] else ""
    return f"{len(hop['steps'])} steps{omitted}"


def _settled(hop: Mapping[str, Json]) -> str:
    why = f": {_shown(hop['why'])}" if hop["why"] else ""
    if not hop["at"]:
        return f"not yet{why}"
    replies = len(hop["outbox"])
    return f"{hop['outcome']}{why}, {_duration(hop['ms'])} after it was accepted, {replies} to send"


def _delivered(hop: Mapping[str, Json]) -> str:
    return f"{len(hop['messages'])} messages" if hop["messages"] else "nothing to send"


_DETAILS: Final = {
    "received": _received,
    "accepted": _accepted,
    "routed": _routed,
    "submitted": _submitted,
    "queued": _queued,
    "prepared": _prepared,
    "prompt": _prompt,
    "loop": _loop,
    "settled": _settled,
    "delivered": _delivered,
}


def _more(hop: Mapping[str, Json], start_ms: int) -> Iterator[str]:
    """Yield the steps of the loop, or the messages that were sent."""
    for step in hop.get("steps", ()):
        after = f"+{max(0, int(step['at']) - start_ms) / 1000:.3f} s" if start_ms else ""
        mark = " (interrupted attempt)" if step.get("interrupted") else ""
        yield f"{after:>10}  {_step(step)}{mark}"
    for each in hop.get("messages", ()):
        why = f": {_shown(each['why'])}" if each["why"] and not each["tries"] else ""
        receipt = f", receipt {_shown(each['receipt'])}" if each["receipt"] else ""
        tries = f"{each['attempts']} attempt{'' if each['attempts'] == 1 else 's'}"
        yield f"{_shown(each['id'])}  {each['channel']}: {each['state']}, {tries}{receipt}{why}"
        for number, attempt in enumerate(each["tries"], 1):
            why = f": {_shown(attempt['why'])}" if attempt["why"] else ""
            at = _clock(attempt["at"])
            yield f"  {number}. {at} {_duration(attempt['ms'])} {attempt['state']}{why}"


def _step(step: Mapping[str, Json]) -> str:
    match step["kind"]:
        case "model":
            ttfb, cost = step.get("ttfbMs"), float(step.get("cost") or 0)
            first = f", first byte {_duration(ttfb)}" if ttfb is not None else ""
            again = f", attempt {step['attempt']}" if int(step.get("attempt") or 1) > 1 else ""
            error = f": {_shown(step['error'])}" if step.get("error") else ""
            return (
                f"model {_shown(step['provider'])}/{_shown(step['model'])} {_duration(step['ms'])}"
                f"{first}{again}, {step['input']} in, {step['output']} out, ${cost:.4f}{error}"
            )
        case "tool":
            return _tool_step(step)
        case "fallback":
            wait = f" after {_duration(step['waitMs'])}" if step["waitMs"] else ""
            return f"then {_shown(step['next'])}{wait} ({_shown(step['reason'])})"
        case _:
            return f"{step['kind']} {_duration(step.get('ms'))}"


def _tool_step(step: Mapping[str, Json]) -> str:
    decision = f", {step['decision']}" if step.get("decision") else ""
    if step.get("decision") == "ask":
        answered = _duration(step["approvalMs"]) if "approvalMs" in step else "no answer"
        decision = f", asked ({answered})"
    if step.get("approval"):
        decision += f", approval {_shown(step['approval'])}"
    if "outcome" not in step:
        return f"tool {_shown(step.get('name', '?'))}{decision}, no result"
    result = f"{step['outcome']}, {step.get('chars', 0)} characters"
    return f"tool {_shown(step.get('name', '?'))} {_duration(step['ms'])}{decision}, {result}"


def _duration(ms: Json) -> str:
    if ms is None:
        return "?"
    return f"{ms} ms" if ms < 10_000 else f"{ms / 1000:.1f} s"


def _clock(at_ms: int) -> str:
    at = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone()
    return f"{at:%H:%M:%S}.{at_ms % 1000:03d}"


def _shown(text: Json) -> str:
    return escape_invisible(str(text))
