"""The metrics of the gateway in Prometheus format: `/metrics`."""

from collections.abc import Iterable

from homarus.diagnostics.metric_families import (
    MetricFamily,
    counter,
    format_families,
    gauge,
)
from homarus.gateway.server import Gateway, memory_bytes
from homarus.gateway.services import GatewayServices


async def metrics_text(gateway: Gateway) -> str:
    """Return every metric as text; while the gateway starts, only its own."""
    families = [*_gateway_families(gateway)]
    if gateway.ready.is_set():
        families += await _service_families(gateway.services)
    return format_families(families)


def _gateway_families(gateway: Gateway) -> Iterable[MetricFamily]:
    counts, monitor = gateway.counts, gateway.monitor
    yield gauge("connections", "Clients connected now.", len(gateway.connections))
    yield gauge("runs", "Runs under way.", len(gateway.events.live()))
    yield gauge("uptime_seconds", "Since the start.", gateway.uptime_ms / 1000)
    yield gauge("loop_lag_p99_seconds", "How late the loop runs.", monitor.p99_lag_ms / 1000)
    yield gauge("loop_lag_max_seconds", "How late at most.", monitor.max_lag_ms / 1000)
    yield counter("loop_stalls_total", "Times the loop was blocked.", monitor.stalls)
    yield gauge("memory_bytes", "Resident memory.", memory_bytes())
    yield counter("connections_total", "Clients that came in.", counts.connections)
    yield counter("refused_total", "Requests turned away at the door.", counts.refused)
    yield counter("requests_total", "Requests answered.", counts.requests)
    yield counter("events_total", "Events sent.", counts.events)
    yield counter("events_dropped_total", "Events a client was too slow for.", counts.dropped)
    if hooks := gateway.hook_counters:
        family = MetricFamily(
            "hook_requests_total", "counter", "Requests to webhooks, by outcome.",
            ("outcome", "reason"),
        )  # fmt: skip
        family.add("accepted", "", by=hooks.accepted)
        family.add("duplicate", "", by=hooks.duplicates)
        family.add("ignored", "", by=hooks.ignored)
        for reason, count in sorted(hooks.refused.items()):
            family.add("refused", reason, by=count)
        yield family


async def _service_families(services: GatewayServices) -> list[MetricFamily]:
    metrics = services.get_event_metrics()
    return [
        *_lanes(services),
        *await _backlog(services),
        *_channels(services),
        *(metrics.families() if metrics else ()),
    ]


def _lanes(services: GatewayServices) -> Iterable[MetricFamily]:
    active = MetricFamily("lane_active", "gauge", "Runs that work, by lane.", ("lane",))
    waiting = MetricFamily("lane_waiting", "gauge", "Runs that wait, by lane.", ("lane",))
    for lane, (inside, queued, _width) in services.lanes.snapshot().items():
        active.set(lane, value=inside)
        waiting.set(lane, value=queued)
    return active, waiting


async def _backlog(services: GatewayServices) -> Iterable[MetricFamily]:
    """Return what is not done by state, and the age of the oldest."""
    now_ms = services.clock.now_ms()
    names = {"inbox": "messages", "outbox": "replies", "approvals": "approvals"}
    counts = {
        kind: MetricFamily(f"{kind}_records", "gauge", f"Unfinished {name} by state.", ("state",))
        for kind, name in names.items()
    }
    ages = {
        kind: MetricFamily(
            f"{kind}_oldest_seconds", "gauge", f"Age of the oldest of these {name}.", ("state",)
        )
        for kind, name in names.items()
    }
    for each in await services.store.journal.backlog():
        counts[each.kind].set(each.state, value=each.count)
        ages[each.kind].set(each.state, value=max(0, now_ms - each.oldest_ms) / 1000)
    return *counts.values(), *ages.values()


def _channels(services: GatewayServices) -> Iterable[MetricFamily]:
    family = MetricFamily(
        "channel_accounts", "gauge", "Accounts of channels by state.", ("channel", "state")
    )
    for status in services.channels.status():
        state = "connected" if status.connected else "running" if status.running else "stopped"
        family.add(status.channel, state if status.enabled else "disabled")
    return (family,)
