"""`homarus tui` as a person uses it: on a real terminal of tmux, with a gateway and without one."""

import os
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from wcwidth import wcwidth

from homarus.testing.model_server import CallTools, ModelServer, Say, ScriptedCall
from tests.e2e.program import Home
from tests.peers.gateway import TOKEN, Running, new_home, running_gateway
from tests.peers.install import debian
from tests.peers.screen import Screen, shown

pytestmark = [pytest.mark.peers, pytest.mark.timeout(300)]

COMMAND = (sys.executable, "-m", "homarus", "tui")
HOSTILE = (
    "before \x1b]0;owned\x07\x1b]52;c;b3duZWQ=\x07\x1b[2J\x1b[31m\x1b]8;;http://evil.example\x1b\\x"
    " \x9b5n \u202eback [red]markup[/red] after"
)
READY = "F1 help"
EARLY_S = 1.5  # an answer to an approval does not count before


@contextmanager
def tui(
    home: Home, folder: Path, *args: str, columns: int = 80, rows: int = 24
) -> Iterator[Screen]:
    """Run the interface until the block ends."""
    debian(tmux="tmux")
    folder.mkdir()
    env = {**home.env, "TERM": "xterm-256color", "LANG": "C.UTF-8", "OPENCLAW_GATEWAY_TOKEN": TOKEN}
    with shown([*COMMAND, *args], env, folder, columns=columns, rows=rows) as screen:
        screen.wait_for(READY)
        yield screen


def home_of(folder: Path, model: ModelServer) -> Home:
    (folder / "home").mkdir()
    return new_home(folder / "home", {"PATH": os.environ["PATH"]}, model)


def new_session(screen: Screen) -> None:
    screen.press("C-p")
    screen.wait_for("New session")
    screen.type("new session")
    time.sleep(0.5)  # until the search has come
    screen.press("Enter")
    screen.wait_for("Nothing was said here yet.")


@pytest.fixture
def screen(gateway: Running, tmp_path: Path) -> Iterator[Screen]:
    """The interface on a gateway, in a session of its own."""
    with tui(gateway.home, tmp_path / "tui", "--session", tmp_path.name) as screen:
        screen.wait_for("● gateway")
        yield screen


def test_resize_during_an_answer_loses_nothing(screen: Screen) -> None:
    screen.enter("MOCK:long:150:20")
    screen.wait_for("word0020")
    for columns, rows in ((40, 15), (120, 40), (20, 6), (100, 30), (80, 24)):
        screen.resize(columns, rows)
        time.sleep(0.3)
    screen.wait_for("word0149")
    text = screen.wait_for(READY)
    words = [word for word in text.split() if word.startswith("word")]
    assert words == [f"word{n:04}" for n in range(150 - len(words), 150)]
    assert len(words) > 50


def test_wide_characters_keep_their_columns(screen: Screen) -> None:
    answer = "日本語のとても長い文章がここにあります。" * 3 + " 👩\u200d👩\u200d👧 cafe\u0301"
    screen.type(f"MOCK:say:{answer}§")
    screen.press("Enter")
    screen.wait_for("caf")
    text = screen.wait_for(READY)
    assert text.count("日本語のとても長い文章がここにあります。") >= 2
    columns = [sum(max(0, wcwidth(ch)) for ch in line) for line in text.split("\n")]
    assert max(columns) <= 80


def test_paste_of_10000_lines_does_not_freeze(screen: Screen, model: ModelServer) -> None:
    started_s = time.monotonic()
    screen.paste("\n".join(f"pasted line {n}" for n in range(10_000)))
    screen.wait_for("[pasted #1: 10,000 lines]")
    screen.type(" MOCK:say:read it§")
    screen.wait_for("MOCK:say")
    assert time.monotonic() - started_s < 20
    screen.press("Enter")
    screen.wait_for("  read it")
    assert "pasted line 9999" in str(model.requests[-1].body)


def test_control_sequences_of_the_model_are_shown_as_text(
    screen: Screen, model: ModelServer
) -> None:
    call = CallTools(ScriptedCall("read", {"path": HOSTILE}))
    model.script([call], [Say(HOSTILE)])
    screen.enter("be hostile")
    text = screen.wait_for("markup[/red] after")
    assert "\\u{1b}]0;owned" in text
    assert "[red]" in text
    screen.press("C-o")
    screen.wait_for("path: before")
    written = screen.written
    for raw in (b"\x1b]0;owned", b"\x1b]52;", b"\x1b]8;", b"http://evil.example\x1b", b"\x9b5n"):
        assert raw not in written, raw
    assert "owned" not in screen.tmux("display-message", "-p", "#{pane_title}")
    assert screen.tmux("list-buffers") == ""


def test_escape_stops_the_answer(screen: Screen) -> None:
    screen.enter("MOCK:long:2000:20")
    screen.wait_for("word0010")
    screen.press("Escape")
    text = screen.wait_for("Stopped.")
    assert "word1999" not in text
    screen.wait_for(READY)


def test_command_is_approved_once_it_is_read(screen: Screen) -> None:
    screen.enter('MOCK:tool:exec:{"command":"touch made.txt"}§ MOCK:next MOCK:say:It is there.§')
    text = screen.wait_for("y  allow once")
    assert "touch made.txt" in text
    assert "waits for approval" in text
    screen.press("y")  # too early: it may have been meant for the line
    time.sleep(EARLY_S)
    assert "y  allow once" in screen.text
    screen.press("y")
    screen.wait_for("It is there.")
    screen.wait_for("● exec touch made.txt")


def test_another_session_is_opened_and_left(screen: Screen) -> None:
    screen.enter("MOCK:say:The first session.§")
    screen.wait_for("  The first session.")
    new_session(screen)
    screen.enter("MOCK:say:The second session.§")
    screen.wait_for("  The second session.")
    screen.press("C-p")
    screen.wait_for("Sessions")
    screen.type("the first")
    screen.wait_for("MOCK:say:The first session.§ ·")
    time.sleep(0.5)
    screen.press("Enter")
    text = screen.wait_for("  The first session.")
    assert "  The second session." not in text


def test_without_a_gateway_it_runs_in_this_process(model: ModelServer, tmp_path: Path) -> None:
    home = home_of(tmp_path, model)
    with tui(home, tmp_path / "tui", columns=40, rows=15) as screen:
        screen.enter("MOCK:say:From this process.§")
        screen.wait_for("  From this process.")
        screen.resize(80, 24)
        screen.wait_for("● local")
        screen.enter("MOCK:long:2000:20")
        screen.wait_for("word0010")
        screen.press("C-c")
        screen.press("C-c")
        assert ended(screen)
    assert not (home.state / "gateway.json").exists()
    done = home.run("agent", "--local", "-m", "MOCK:say:free again§")
    assert done.status == 0  # the state is free, and the run that was stopped is not resumed


def test_killed_gateway_loses_no_text_and_no_message(model: ModelServer, tmp_path: Path) -> None:
    home = home_of(tmp_path, model)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    with running_gateway(home, port) as first, tui(home, tmp_path / "tui") as screen:
        screen.enter("MOCK:say:Before the end.§")
        screen.wait_for("  Before the end.")
        first.process.send_signal(signal.SIGKILL)
        screen.wait_for("reconnecting")
        screen.enter("MOCK:say:After the end.§")
        screen.type("half a thought")
        screen.wait_for("half a thought")
        text = screen.wait_for("waits for the connection")
        assert "  Before the end." in text
        with running_gateway(home, port):
            screen.wait_for("● gateway")
            text = screen.wait_for("  After the end.")
            assert "› half a thought" in text
            assert text.count("  After the end.") == 1


def ended(screen: Screen) -> bool:
    """Return whether the program gave its terminal back and ended."""
    deadline_s = time.monotonic() + 30
    while time.monotonic() < deadline_s:
        if b"\x1b[?1049l" in screen.written:
            return True
        time.sleep(0.1)
    return False
