"""Compaction of a session: on a person's request, and with the hooks around it."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from homarus.config.schema import CompactionConfig
from homarus.core.errors import OverloadedError, UserError
from homarus.core.message import Address, Inbound
from homarus.plugins.hooks import hook
from homarus.testing.fakes import ScriptedProvider, assistant_message
from tests.unit.agent.harness import KEY, Harness


def test_compact_session_records_usage_and_calls_hooks(tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    class Watcher:
        @hook
        def before_compaction(self, messages: int) -> None:
            seen.append(("before", messages))

        @hook
        def after_compaction(self, messages: int) -> None:
            seen.append(("after", messages))

    harness = Harness(
        tmp_path,
        assistant_message("one " * 500),
        assistant_message("two"),
        assistant_message("notes"),
    )
    harness.window = 9_000
    harness.hooks.register(Watcher(), "watcher")
    for name in ("r1", "r2"):
        harness.run(Inbound(name, Address("t", "1"), "ann", "word " * 900, run_id=name))
    asyncio.run(harness.runs.compact_session(KEY))
    runs = [record.run for record in asyncio.run(harness.store.usage_records())]
    assert runs[-1] == f"compact:{KEY}" and runs[:2] == ["r1", "r2"]
    assert (
        seen == [("before", 4), ("after", len(harness.messages()))] and harness.hooks.failures == ()
    )


def test_compact_session_mode_default_adds_no_quotes_to_notes(tmp_path: Path) -> None:
    summaries = []
    for mode in ("default", "safeguard"):
        folder = tmp_path / mode
        folder.mkdir()
        harness = Harness(folder, *map(assistant_message, ("one", "two", "notes")))
        rules = CompactionConfig.model_validate({"mode": mode})
        harness.window, harness.agent = 9_000, replace(harness.agent, compaction=rules)
        for name in ("r1", "r2"):
            text = f"The code is {name}-4417. " + "word " * 900
            harness.run(Inbound(name, Address("t", "1"), "ann", text, run_id=name))
        summaries.append(asyncio.run(harness.runs.compact_session(KEY)).summary)
    assert summaries[0].startswith("notes") and "r1-4417" not in summaries[0]
    assert "r1-4417" in summaries[1]


def test_compact_session_passes_instructions_to_model(tmp_path: Path) -> None:
    harness = Harness(
        tmp_path, assistant_message("one"), assistant_message("two"), assistant_message("notes")
    )
    harness.window = 9_000
    for name in ("r1", "r2"):
        harness.run(Inbound(name, Address("t", "1"), "ann", "word " * 900, run_id=name))
    result = asyncio.run(harness.runs.compact_session(KEY, "keep the prices"))
    assert result.by_model and result.tokens_after < result.tokens_before
    assert isinstance(harness.provider, ScriptedProvider)
    request = harness.provider.requests[-1]
    assert "keep the prices" in request.messages[0].text and not request.tools


def test_compact_session_failing_model_summarises_without_it(tmp_path: Path) -> None:
    harness = Harness(
        tmp_path, assistant_message("one"), assistant_message("two"), OverloadedError("busy")
    )
    harness.window = 9_000
    for name in ("r1", "r2"):
        harness.run(Inbound(name, Address("t", "1"), "ann", "word " * 900, run_id=name))
    assert not asyncio.run(harness.runs.compact_session(KEY)).by_model
    assert asyncio.run(harness.store.usage_records())[-1].error == "busy"


def test_compact_session_without_history_raises_user_error(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    with pytest.raises(UserError, match="nothing to summarise"):
        asyncio.run(harness.runs.compact_session(KEY))
    assert harness.messages() == []
