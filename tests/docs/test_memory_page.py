"""Run the commands on the page about memory, and compare their output with the page."""

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from homarus.cli.main import group
from homarus.config.load import load_text
from homarus.config.memory import memory_search, memory_settings
from homarus.config.paths import Paths
from tests.docs.test_documents import commands_in
from tests.style.rules import ROOT

PAGE = ROOT / "docs" / "memory.md"
# A block of commands, and what they print when the page shows it.
_SHOWN = re.compile(r"^```console\n(.*?)^```(?:\n\n```text\n(.*?)^```)?", re.MULTILINE | re.DOTALL)
_SETTINGS = re.compile(r"^```json5\n(.*?)^```", re.MULTILINE | re.DOTALL)
# These need a download, a gateway, or another program. Other tests run them:
# tests/unit/cli/test_models_command.py, tests/peers.
ELSEWHERE = ("models pull",)


def plain(text: str) -> str:
    """Return the text without what differs by day and by machine."""
    text = re.sub(r"\d{4}-\d\d-\d\d", "DAY", text)
    text = re.sub(r"\d+\.\d (s|MB)\b", r"N \1", text)
    return re.sub(r"(#L\d+(?:-L\d+)?)  +\d+\.\d\d", r"\1  SCORE", text).strip()


def test_memory_page_commands_work_in_order_with_shown_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("OPENCLAW_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    config = tmp_path / ".openclaw" / "openclaw.json"
    config.parent.mkdir()
    settings = {
        "logging": {"file": str(tmp_path / "log.jsonl")},
        "agents": {"defaults": {"memorySearch": {"provider": "none"}}},
    }
    config.write_text(json.dumps(settings))
    assert CliRunner().invoke(group, ["setup"]).exit_code == 0
    (tmp_path / "Notes" / "memory").mkdir(parents=True)
    compared = 0
    for commands, shown in _SHOWN.findall(PAGE.read_text(encoding="utf-8")):
        printed = ""
        for program, *words in commands_in(f"```console\n{commands}```\n"):
            if program != "homarus" or " ".join(words).startswith(ELSEWHERE):
                continue
            done = CliRunner().invoke(group, words)
            assert done.exception is None and done.exit_code == 0, (words, done.exception)
            printed += done.stdout
        if shown:
            assert plain(printed) == plain(shown)
            compared += 1
    assert compared >= 2


def test_memory_page_figures_match_the_measurement() -> None:
    decision = (ROOT / "docs" / "adr" / "0014-memory-recall.md").read_text(encoding="utf-8")
    told = " ".join(PAGE.read_text(encoding="utf-8").split())
    for row, words in (
        ("words only", "by words only"),
        (r"\+ MiniLM-L6 int8", "with the sentence"),
    ):
        within_4k = re.search(
            rf"^\| {row} (?:\| \**\.\d+\** ){{2}}\| \**(\.\d+)", decision, re.MULTILINE
        )
        assert within_4k and re.search(rf"{float(within_4k[1]):.0%}"[:-1] + rf" % .*?{words}", told)
    assert "786 questions" in told and "786 questions" in decision


def test_memory_page_settings_exist(tmp_path: Path) -> None:
    blocks = _SETTINGS.findall(PAGE.read_text(encoding="utf-8"))
    assert len(blocks) >= 3
    for block in blocks:
        paths = Paths.find({"HOME": str(tmp_path)})
        loaded = load_text(paths, {"HOME": str(tmp_path), "VOYAGE_API_KEY": "k"}, block)
        assert not loaded.warnings
        memory_search(loaded.config, "main")
        memory_settings(loaded.config)
