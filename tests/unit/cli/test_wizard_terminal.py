"""The wizard at a terminal: how its texts are laid out."""

import os

import pytest

from homarus.cli.wizard_terminal import TerminalPrompter
from homarus.gateway.wizard.step import WizardStep

LINK = "Open http://127.0.0.1:18789/#token=" + "a" * 40


@pytest.mark.parametrize("is_terminal", [True, False])
async def test_note_wraps_at_words_and_keeps_links_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], is_terminal: bool
) -> None:
    size = os.terminal_size((30, 24))
    monkeypatch.setattr("shutil.get_terminal_size", lambda: size)
    prompter = TerminalPrompter()
    prompter._is_terminal = is_terminal
    text = "A sentence that is longer than one row."
    await prompter.ask(WizardStep("note", "note", "Title", f"{text}\n{LINK}"))
    rows = ["  A sentence that is longer", "  than one row."] if is_terminal else [f"  {text}"]
    assert capsys.readouterr().out.splitlines() == ["", "Title", *rows, f"  {LINK}"]
