"""`runs.trace` and the metrics of a complete program, with and without diagnostics."""

from pathlib import Path
from typing import Any

import pytest

from homarus.core.diagnostics import Diagnostic
from homarus.core.errors import InvalidRequestError, ProviderError
from homarus.core.message import ToolCall
from homarus.gateway.metrics import metrics_text
from homarus.testing.fakes import Hang
from tests.unit.diagnostics.test_metric_families import parse
from tests.unit.gateway.app_harness import Harness, answer, run

READ = ToolCall("c1", "read", {"path": "AGENTS.md"})


def hop(report: Any, name: str) -> Any:
    (found,) = [each for each in report["hops"] if each["name"] == name]
    return found


async def test_trace_of_finished_run_has_steps_and_totals(tmp_path: Path) -> None:
    async with run(tmp_path, answer(READ), answer("done", tokens=7)) as it:
        await it.send("hello sk-abcdefghijklmnopqrstuvwx")
        report = await it.ask("runs.trace", {"id": "run-1"}, "read")
        assert report["state"] == "answered" and report["now"] == ""
        kinds = [step["kind"] for step in hop(report, "loop")["steps"]]
        assert kinds == ["model", "tool", "model"]
        assert report["totals"]["modelCalls"] == 2 and report["totals"]["cost"] == 0.5
        assert hop(report, "routed")["agent"] == "main" and hop(report, "queued")["lane"] == "main"
        assert (await it.ask("runs.trace", {"sessionKey": "agent:main:main"}))["runId"] == "run-1"
        assert "hello" not in str(report)  # no text of people


async def test_trace_of_active_run_says_what_it_does(tmp_path: Path) -> None:
    async with run(tmp_path, Hang()) as it:
        params = {"sessionKey": "main", "message": "hi", "idempotencyKey": "run-9"}
        await it.ask("chat.send", params)
        await it.asked(1)
        report = await it.ask("runs.trace", {"id": "run-9"})
        assert report["state"] == "running" and "calls the model mock/mock-1" in report["now"]
        assert not hop(report, "settled")["at"] and hop(report, "prepared")["at"]
        again = await it.ask("chat.send", params)  # a duplicate starts nothing
        assert again["runId"] == "run-9"


async def test_trace_of_failed_run_has_error_without_secrets(tmp_path: Path) -> None:
    secret = "sk-abcdefghijklmnopqrstuvwx0123456789"
    async with run(tmp_path, ProviderError(f"refused {secret}")) as it:
        await it.send("hello")
        report = await it.ask("runs.trace", {"id": "last"})
        assert report["state"] == "reported" and "refused" in hop(report, "settled")["why"]
        assert secret not in str(report)
        (model,) = [step for step in hop(report, "loop")["steps"] if step["kind"] == "model"]
        assert "refused" in model["error"] and report["totals"]["modelErrors"] == 1


async def test_trace_of_unknown_id_is_refused_with_message(tmp_path: Path) -> None:
    async with run(tmp_path) as it:
        with pytest.raises(InvalidRequestError, match="message or run"):
            await it.ask("runs.trace", {"id": "nothing"})
        with pytest.raises(InvalidRequestError, match="has no messages"):
            await it.ask("runs.trace", {"id": "last"})


async def test_run_without_diagnostics_publishes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run(tmp_path, answer(READ), answer("done")) as it:
        published = list[Diagnostic]()
        monkeypatch.setattr(it.app.diagnostics, "publish", published.append)
        it.app.diagnostics_loader.start(has_metrics=False)
        await it.send("hello")
        assert not published and not it.app.diagnostics.is_active
        assert it.app.diagnostics_loader.metrics is None


async def start_metrics(it: Harness) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    it.app.diagnostics_loader.start(has_metrics=True)
    await it.send("hello")
    return parse(await metrics_text(it.gateway))


async def test_metrics_count_runs_models_tools_and_queues(tmp_path: Path) -> None:
    async with run(tmp_path, answer(READ), answer("done")) as it:
        found = await start_metrics(it)
        runs = found["homarus_runs_total"]
        assert runs[("", "homarus_runs_total"), ("outcome", "answered")] == 1
        labels = ("provider", "mock"), ("model", "mock-1")
        calls = found["homarus_model_calls_total"]
        assert calls[("", "homarus_model_calls_total"), *labels, ("outcome", "ok")] == 2
        tokens = found["homarus_model_tokens_total"]
        assert tokens[("", "homarus_model_tokens_total"), *labels, ("type", "input")] == 200
        assert ("", "homarus_tool_calls_total") in {
            key[0] for key in found["homarus_tool_calls_total"]
        }
        assert {"homarus_lane_waiting", "homarus_lane_wait_seconds"} <= found.keys()
        text = await metrics_text(it.gateway)
        assert "agent:main" not in text and "run-1" not in text


async def test_events_are_logged_and_given_to_hooks(tmp_path: Path) -> None:
    class Collects:
        def __init__(self) -> None:
            self.events: list[Any] = []

        def diagnostic_event(self, event: Any) -> None:
            self.events.append(event)

    from homarus.plugins.hooks import hook

    Collects.diagnostic_event = hook(Collects.diagnostic_event)  # type: ignore[method-assign] # as a plugin has it
    plugin, config = Collects(), {"diagnostics": {"enabled": True, "stuckSessionWarnMs": 1_000}}
    async with run(tmp_path, answer("done"), config=config) as it:
        it.app.hooks.register(plugin, "collects")
        it.app.diagnostics_loader.start(has_metrics=False)
        await it.send("hello")
        kinds = {event["type"] for event in plugin.events}
    wanted = {
        "message.queued", "session.state", "run.attempt", "queue.lane.dequeue", "model.usage",
        "message.processed",
    }  # fmt: skip
    assert wanted <= kinds
    (used,) = [event for event in plugin.events if event["type"] == "model.usage"]
    assert used["sessionKey"] == "agent:main:main" and used["usage"]["input"] == 100
