"""A person at the line editor of the chat: typing, pasting, completing, stopping."""

import re
from collections.abc import Callable, Iterator

import pytest
from wcwidth import wcswidth

from tests.e2e.program import Home
from tests.e2e.screen import ScreenTerminal

FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466"
PERSIAN = "می‌خواهم"
SAID = f"{PERSIAN} 日本語のテキストにはスペースがありません。とても長い文です。 {FAMILY} end"


@pytest.fixture
def open_screen(home: Home, model_url: str) -> Iterator[Callable[..., ScreenTerminal]]:
    home.use_model(model_url)
    opened: list[ScreenTerminal] = []

    def start(**size: int) -> ScreenTerminal:
        opened.append(ScreenTerminal(home, "chat", **size))
        opened[-1].wait_until("/help for", line=">")
        return opened[-1]

    yield start
    for terminal in opened:
        terminal.close()


def user_texts(home: Home) -> list[str]:
    (entries,) = home.transcripts()
    messages = [entry["message"] for entry in entries if entry["type"] == "message"]
    return [each["content"][0]["text"] for each in messages if each["role"] == "user"]


def test_editor_pastes_completes_keeps_history_and_stops(
    home: Home, open_screen: Callable[..., ScreenTerminal]
) -> None:
    chat = open_screen(columns=40)
    chat.paste("one\ntwo\nthree")
    chat.wait_until("  three", line="  three")
    chat.press("\r")
    chat.wait_until("Hello from the mock model.", line=">")
    chat.press("four\rfive\rsix\r")  # a terminal that does not mark pasted text
    chat.wait_until("> four\n  five\n  six\nHello from", line=">")
    chat.press("seven\x1b\reight")
    chat.wait_until("> seven\n  eight", line="  eight")
    chat.press("\x03")
    chat.wait_until("six", line=">")
    chat.press("/uage\r")
    shown = chat.wait_until("to the model", line=">")
    assert "/usage, /subagents," in " ".join(shown.split())
    chat.press("/stat\t")
    chat.wait_until("> /status", line="> /status")
    chat.press("\x03\x03")
    chat.wait_until("Nothing is running; /quit or Ctrl-D", line=">")
    chat.press(f"MOCK:delay:1500 MOCK:say:{SAID}§\r")
    chat.wait_until("waiting for the model · ")
    shown = chat.wait_until("end\n>", line=">")
    answer = shown.split("§\n")[-1].split("\n>")[0]
    assert answer.replace("\n", "").replace(" ", "") == SAID.replace(" ", "")
    assert all(wcswidth(line) < 40 for line in answer.split("\n")) and "\n" in answer
    chat.press("\x04")
    assert chat.end() == 0
    assert user_texts(home)[:2] == ["one\ntwo\nthree", "four\nfive\nsix"]
    assert len(user_texts(home)) == 3 and chat.shown.strange == []
    assert (home.state / "chat-history.jsonl").stat().st_mode & 0o777 == 0o600

    again = open_screen()
    again.press("\x1b[A\x1b[A")
    again.wait_until("/help for", line="> /uage")
    again.press("\x03")
    again.wait_until("/help for", line=">")
    again.press("\x12seven")  # Ctrl-R
    again.wait_until("I-search backward: seven")
    again.press("\x03")  # leaves the search
    again.wait_until("/help for", line=">")
    again.press("\x12uag")
    again.wait_until("I-search backward: uag")
    again.press("\r")  # takes what was found
    again.wait_until("/help for", line="> /uage")
    again.press("\x03")
    again.wait_until("/help for", line=">")
    again.press("MOCK:long:1000:20\r")
    again.wait_until("word0003")
    again.press("\x03")
    again.wait_until("stopped.", line=">")
    again.press("/quit\r")
    assert again.end() == 0


def test_typing_during_an_answer_stays_below_it_and_is_sent(
    home: Home, open_screen: Callable[..., ScreenTerminal]
) -> None:
    chat = open_screen(columns=60)
    chat.press("MOCK:long:60:40\r")
    chat.wait_until("word0002")
    for typed in ("MOCK", ":say:next", "§"):
        chat.press(typed)
        shown = chat.wait_until("answering · ")
    shown = chat.wait_until("answering · ", line="> MOCK:say:next§")
    assert shown.endswith("> MOCK:say:next§") and "Ctrl-C stops\n>" in shown
    chat.press("\r")
    shown = chat.wait_until("word0059")
    shown = chat.wait_until("\nnext\n", line=">")
    words = [word for word in shown.split() if word.startswith("word")]
    assert words == [f"word{number:04d}" for number in range(60)]
    chat.press("MOCK:long:900:40\r")
    chat.wait_until("word0060")  # of this answer: the one before it has fewer words
    chat.press("MOCK:say:never§\r")
    chat.wait_until("1 more sent · Ctrl-C stops")
    chat.press("\x03")
    chat.wait_until("stopped, with 1 more sent.", line=">")
    chat.press("/quit\r")
    assert chat.end() == 0
    assert "MOCK:say:next§" in user_texts(home) and "MOCK:say:never§" not in user_texts(home)
    assert chat.shown.strange == []


def test_approval_once_always_and_no(
    home: Home, open_screen: Callable[..., ScreenTerminal]
) -> None:
    chat = open_screen()
    make = 'MOCK:tool:exec:{"command":"touch made"}§\r'
    made = home.workspace / "made"
    for answer, is_made in (("n", False), ("y", True), ("a", True)):
        chat.press(make)
        chat.wait_until("[y/a/N]", line="┃ Allow? y: once, a: always, N: no [y/a/N]")
        chat.press(f"{answer}\r")
        chat.wait_until("Hello from the mock model.\n>", line=">")
        assert made.exists() is is_made
        made.unlink(missing_ok=True)
    questions = chat.shown.text.count("┃ Run this command?")
    chat.press(make)
    chat.wait_until("→ ok", line=">")
    chat.press('MOCK:tool:exec:{"command":"rm made > log"}§\r')
    shown = chat.wait_until("not offered, because it is not understood", line="┃ Allow? [y/N]")
    assert made.exists() and shown.count("┃ Run this command?") == questions + 1 == 4
    chat.press("a\r")
    chat.wait_until("exec denied", line=">")
    assert made.exists()


def test_dumb_terminal_gets_plain_text_and_no_color_no_colours(
    home: Home, open_screen: Callable[..., ScreenTerminal]
) -> None:
    said = "MOCK:say:**bold** `x`§"
    home.env["NO_COLOR"] = "1"
    chat = open_screen()
    chat.press(f"{said}\r")
    chat.wait_until("**bold** `x`\n>", line=">")
    assert not re.search(r"\x1b\[[\d;]*[349]\d", chat.output)
    chat.press("\x04")
    assert chat.end() == 0
    home.env["TERM"] = "dumb"
    plain = open_screen()
    plain.press(f"first line\n{said}\n")
    plain.wait_until("**bold** `x`\n>", line=">")
    assert "\x1b" not in plain.output
    plain.press("/quit\n")
    assert plain.end() == 0
    assert user_texts(home)[-1] == f"first line\n{said}"
