"""The history of the chat: private, bounded, without secrets."""

from pathlib import Path

import pytest

from homarus.cli import chat_history
from homarus.cli.chat_history import FILE, MAX_ENTRY_CHARS, ChatHistoryFile


def test_history_is_kept_in_a_private_file(tmp_path: Path) -> None:
    state = tmp_path / "state"
    for text in ("first", "two\nlines", "می‌خواهم \ud800"):
        ChatHistoryFile(state).add(text)
    assert ChatHistoryFile(state).load() == ["first", "two\nlines", "می‌خواهم \ufffd"]
    assert (state / FILE).stat().st_mode & 0o777 == 0o600


def test_history_omits_secrets_and_what_starts_with_a_blank(tmp_path: Path) -> None:
    history = ChatHistoryFile(tmp_path)
    secret = "sk-ant-api03-" + "Ab1" * 20
    for text in (f"my key is {secret}", " hidden", "", "x" * (MAX_ENTRY_CHARS + 1), "shown"):
        history.add(text)
    assert history.load() == ["shown"]


def test_history_is_shortened_when_it_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_history, "MAX_ENTRIES", 3)
    history = ChatHistoryFile(tmp_path)
    for number in range(8):
        history.add(f"line {number}")
    assert history.load() == ["line 5", "line 6", "line 7"]
    assert len((tmp_path / FILE).read_text().splitlines()) == 3


def test_history_that_cannot_be_read_is_empty(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b'"ok"\n{"a": 1}\nnot json\n\xff\n')
    assert ChatHistoryFile(tmp_path).load() == ["ok"]
    (tmp_path / "dir" / FILE).mkdir(parents=True)
    blocked = ChatHistoryFile(tmp_path / "dir")
    blocked.add("x")
    assert blocked.load() == []
