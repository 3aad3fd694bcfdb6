"""Run the commands on the pages about channels, and compare their module table with the code."""

import json
import os
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from homarus.cli.main import group
from tests.docs.test_documents import commands_in
from tests.style.rules import ROOT

PAGES = sorted((ROOT / "docs" / "channels").glob("*.md"))
SECRET = "123456:abc_DEF"
SECRETS = {"discord": "MTIzNDU2.abc_DEF.ghi-JKL_mno"}
# These need a service, a sender, or programs of the machine. Other tests run them:
# tests/docs/test_record.py, tests/e2e/test_pairing_notify.py, tests/unit/cli/test_channels_command,
# test_matrix_command and test_gateway_install_command.
ELSEWHERE = (
    "gateway run",
    "gateway install",
    "matrix",
    "pairing approve",
    "channels dead-letters retry",
)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_channel_page_commands_work_in_order(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith(("OPENCLAW_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    config = tmp_path / ".openclaw" / "openclaw.json"
    config.parent.mkdir()
    config.write_text(json.dumps({"logging": {"file": str(tmp_path / "log.jsonl")}}))
    if page.stem == "routing":
        CliRunner().invoke(group, ["agents", "add", "work", "--non-interactive"])
    if page.stem == "telegram":  # the webhook is for a bot that is there
        monkeypatch.setenv("TELEGRAM_WEBHOOK_SECRET", "long-and-random")
    if page.stem == "slack":
        monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-1")
        monkeypatch.setenv("SLACK_APP_TOKEN", "xapp-1")
        monkeypatch.setenv("SLACK_SIGNING_SECRET", "long-and-random")
    text = page.read_text(encoding="utf-8")
    for program, *words in commands_in(text):
        if program != "homarus" or " ".join(words).startswith(ELSEWHERE):
            continue
        done = CliRunner().invoke(group, words, input=f"{SECRETS.get(page.stem, SECRET)}\n")
        assert done.exception is None and done.exit_code == 0, (words, done.exception, done.output)
        if words[0] == "route":
            assert done.output in text, "the page shows something else"
    if page.stem in {"discord", "slack", "telegram", "matrix", "irc"}:
        assert json.loads(config.read_text(encoding="utf-8"))["channels"][page.stem]["enabled"]


def test_channels_page_names_every_module_of_the_package() -> None:
    text = (ROOT / "docs" / "channels" / "README.md").read_text(encoding="utf-8")
    table = text.partition("## How a message travels")[2].partition("Why it is so")[0]
    named = set(re.findall(r"`(\w+)(?:\.py|/)`", table))
    package = ROOT / "src" / "homarus" / "channels"
    found = {path.stem for path in package.iterdir() if not path.name.startswith("__")}
    assert named - {"agent", "sessions"} == found - {"base"}  # the two make the answer
