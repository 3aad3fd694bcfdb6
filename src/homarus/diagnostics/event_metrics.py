"""Count diagnostic events as metrics; the labels name no session, sender, chat or run."""

from collections.abc import Mapping

from homarus.core.diagnostics import (
    DeliveryAttempted,
    Diagnostic,
    LaneDequeued,
    MemorySearched,
    MessageProcessed,
    MessageQueued,
    ModelUsed,
    RunAttempted,
    RunTraced,
    SessionStuck,
    WebhookFailed,
    WebhookProcessed,
    WebhookReceived,
)
from homarus.core.message import Json
from homarus.diagnostics.metric_families import (
    DURATION_BOUNDS_S,
    SHORT_BOUNDS_S,
    MetricFamily,
)


class EventMetrics:
    """The families that are counted from events."""

    def __init__(self) -> None:
        model, durations = ("provider", "model"), DURATION_BOUNDS_S
        self.runs = MetricFamily("runs_total", "counter", "Runs by outcome.", ("outcome",))
        self.attempts = MetricFamily("run_attempts_total", "counter", "Attempts at runs.")
        self.run_seconds = MetricFamily(
            "run_duration_seconds", "histogram", "Duration of runs.", ("outcome",), durations
        )
        self.calls = MetricFamily(
            "model_calls_total", "counter", "Model calls by outcome.", (*model, "outcome")
        )
        self.call_seconds = MetricFamily(
            "model_call_duration_seconds", "histogram", "Duration of model calls.", model,
            durations,
        )  # fmt: skip
        self.first_byte_seconds = MetricFamily(
            "model_first_byte_seconds", "histogram", "Time to a model's first piece.", model,
            durations,
        )  # fmt: skip
        self.tokens = MetricFamily(
            "model_tokens_total", "counter", "Tokens by type.", (*model, "type")
        )
        self.cost = MetricFamily(
            "model_cost_usd_total", "counter", "Cost of model calls in dollars.", model
        )
        self.tools = MetricFamily(
            "tool_calls_total", "counter", "Tool calls by outcome.", ("tool", "outcome")
        )
        self.tool_seconds = MetricFamily(
            "tool_call_duration_seconds", "histogram", "Duration of tool calls.", ("tool",),
            durations,
        )  # fmt: skip
        self.queued = MetricFamily(
            "messages_queued_total", "counter", "Messages submitted.", ("channel", "source")
        )
        self.processed = MetricFamily(
            "messages_processed_total", "counter", "Messages whose run ended.",
            ("channel", "outcome"),
        )  # fmt: skip
        self.lane_seconds = MetricFamily(
            "lane_wait_seconds", "histogram", "Wait for a place in a lane.", ("lane",),
            bounds=SHORT_BOUNDS_S,
        )  # fmt: skip
        self.deliveries = MetricFamily(
            "deliveries_total", "counter", "Attempts to send by the state they led to.",
            ("channel", "state"),
        )  # fmt: skip
        self.delivery_seconds = MetricFamily(
            "delivery_duration_seconds", "histogram", "Duration of attempts to send.",
            ("channel",), bounds=SHORT_BOUNDS_S,
        )  # fmt: skip
        self.webhooks = MetricFamily(
            "webhook_events_total", "counter", "Webhook requests by what became of them.",
            ("channel", "event"),
        )  # fmt: skip
        self.stuck = MetricFamily("sessions_stuck_total", "counter", "Warnings of stuck sessions.")
        self.memory_seconds = MetricFamily(
            "memory_search_seconds", "histogram", "Duration of memory searches.",
            bounds=SHORT_BOUNDS_S,
        )  # fmt: skip
        self.cron = MetricFamily(
            "cron_slots_total", "counter", "Cron slots by outcome.", ("outcome",)
        )
        self.heartbeats = MetricFamily(
            "heartbeats_total", "counter", "Heartbeats by status.", ("status",)
        )

    def families(self) -> tuple[MetricFamily, ...]:
        """Return every family."""
        return tuple(each for each in vars(self).values() if isinstance(each, MetricFamily))

    def on_cron(self, event: Mapping[str, Json]) -> None:
        """Count the end of a cron slot."""
        if event.get("action") == "finished":
            self.cron.add(str(event.get("status") or "unknown"))

    def on_heartbeat(self, event: Mapping[str, Json]) -> None:
        """Count a heartbeat."""
        self.heartbeats.add(str(event.get("status") or "unknown"))

    def on_event(self, event: Diagnostic, _at_ms: int) -> None:
        """Count a diagnostic event."""
        match event:
            case ModelUsed():
                self._count_call(event)
            case RunTraced():
                self._count_run(event)
            case DeliveryAttempted():
                self.deliveries.add(event.channel, event.state)
                took_s = max(0, event.ended_ms - event.started_ms) / 1000
                self.delivery_seconds.observe(event.channel, value=took_s)
            case LaneDequeued():
                self.lane_seconds.observe(event.lane, value=event.wait_ms / 1000)
            case MemorySearched():
                self.memory_seconds.observe(value=event.duration_ms / 1000)
            case WebhookReceived() | WebhookProcessed() | WebhookFailed():
                names = {WebhookReceived: "received", WebhookProcessed: "processed"}
                self.webhooks.add(event.channel, names.get(type(event), "error"))
            case _:
                self._count(event)

    def _count(self, event: Diagnostic) -> None:
        match event:
            case MessageQueued():
                self.queued.add(event.channel, event.source)
            case MessageProcessed():
                self.processed.add(event.channel, event.outcome)
            case RunAttempted():
                self.attempts.add()
            case SessionStuck():
                self.stuck.add()
            case _:
                pass

    def _count_call(self, event: ModelUsed) -> None:
        model = event.provider, event.model
        self.calls.add(*model, "error" if event.error else "ok")
        self.call_seconds.observe(*model, value=event.duration_ms / 1000)
        if event.ttfb_ms is not None:
            self.first_byte_seconds.observe(*model, value=event.ttfb_ms / 1000)
        for name, count in event.usage.items():
            if count and name != "total":
                self.tokens.add(*model, name, by=count)
        if event.cost_usd:
            self.cost.add(*model, by=event.cost_usd)

    def _count_run(self, event: RunTraced) -> None:
        times = event.data.get("times", {})
        started, ended = times.get("submitted", times.get("started")), times.get("settled")
        self.runs.add(event.outcome)
        if started and ended:
            self.run_seconds.observe(event.outcome, value=max(0, ended - started) / 1000)
        for step in event.data.get("steps", ()):
            if step["kind"] != "tool":
                continue
            denied = step.get("decision") == "deny"
            outcome = "denied" if denied else str(step.get("outcome") or "unfinished")
            name = str(step.get("name") or "unknown")
            self.tools.add(name, outcome)
            if step.get("ms") is not None:
                self.tool_seconds.observe(name, value=step["ms"] / 1000)
