"""Only a key pressed after the exec question was shown answers it, at a real terminal."""

import os
import termios
import time

from tests.e2e.program import Home, Open, Terminal

COMMAND = 'MOCK:tool:exec:{"command":"echo made > made.txt"}§'


def open_question(home: Home, model_url: str, open_chat: Open, message: str) -> Terminal:
    home.use_model(model_url)
    chat = open_chat()
    chat.wait_for("> ")
    chat.type(message)
    return chat


def deny(home: Home, chat: Terminal) -> None:
    """Answer the open question with no; what was typed before has approved nothing."""
    assert not (home.workspace / "made.txt").exists()
    chat.type("n")
    chat.wait_for("Hello from the mock model.")
    assert not (home.workspace / "made.txt").exists()


def user_messages(home: Home) -> list[str]:
    (entries,) = home.transcripts()
    messages = [entry["message"] for entry in entries if entry["type"] == "message"]
    return [str(each["content"]) for each in messages if each["role"] == "user"]


def test_line_typed_before_the_question_is_no_answer(
    home: Home, model_url: str, open_chat: Open
) -> None:
    chat = open_question(home, model_url, open_chat, f"MOCK:delay:1500 {COMMAND}")
    chat.type("yes")
    chat.type("y")
    chat.wait_for("[y/N]")
    time.sleep(0.3)
    deny(home, chat)
    assert len(user_messages(home)) == 1, "what was discarded is no message either"


def test_lines_pasted_with_the_message_are_no_answer(
    home: Home, model_url: str, open_chat: Open
) -> None:
    chat = open_question(home, model_url, open_chat, f"{COMMAND}\nyes\ny\nyes")
    chat.wait_for("[y/N]")
    time.sleep(0.3)
    deny(home, chat)


def test_model_that_draws_a_question_gets_no_answer_for_its_command(
    home: Home, model_url: str, open_chat: Open
) -> None:
    fake = "┃ Run this command? ┃ Allow? [y/N] "
    chat = open_question(home, model_url, open_chat, f"MOCK:say:{fake}§ {COMMAND}")
    chat.wait_for(r"\u{2503} Allow? [y/N]")
    chat.type("yes")
    assert "┃ Run this command?" in chat.wait_for("┃ Allow? [y/N]")
    deny(home, chat)


def test_pasted_text_is_no_answer(home: Home, model_url: str, open_chat: Open) -> None:
    chat = open_question(home, model_url, open_chat, COMMAND)
    chat.wait_for("[y/N]")
    for part in ("\x1b[200~yes\ny\n", "\x1b[20", "1~\x1b[20", "0~y\n\x1b[201~"):
        os.write(chat.descriptor, part.encode())
        time.sleep(0.05)
    deny(home, chat)


def test_ctrl_c_at_the_question_denies_and_takes_no_later_line(
    home: Home, model_url: str, open_chat: Open
) -> None:
    chat = open_question(home, model_url, open_chat, COMMAND)
    chat.wait_for("[y/N]")
    os.write(chat.descriptor, b"y")
    chat.wait_for("y")
    chat.press_ctrl_c()
    chat.wait_for("stopped.")
    chat.wait_for("> ")
    chat.type("y")
    chat.wait_for("Hello from the mock model.")
    assert not (home.workspace / "made.txt").exists()
    assert "y" in user_messages(home)[-1], "the next line is a message of the chat"
    chat.type("/quit")
    assert chat.end() == 0


def test_terminal_is_as_before_after_the_question(
    home: Home, model_url: str, open_chat: Open
) -> None:
    chat = open_question(home, model_url, open_chat, COMMAND)
    chat.wait_for("[y/N]")
    assert not termios.tcgetattr(chat.descriptor)[3] & termios.ECHO
    deny(home, chat)
    chat.type("/quit")
    assert chat.end() == 0
    mode = termios.tcgetattr(chat.descriptor)[3]
    assert mode & termios.ECHO and mode & termios.ICANON
