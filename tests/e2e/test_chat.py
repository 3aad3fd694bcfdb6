"""A person at the terminal."""

import signal
from collections.abc import Callable

from tests.e2e.gateway import Gateway
from tests.e2e.program import Home, Open


def test_chat_line_is_answered_and_session_continues(
    home: Home, model_url: str, open_chat: Open
) -> None:
    home.use_model(model_url)
    chat = open_chat()
    chat.wait_for("mock/mock-1")
    chat.type("MOCK:short")
    chat.wait_for("Hello from the mock model.")
    chat.type("/status")
    assert "2 messages" in chat.wait_for("Workspace")
    chat.type("/quit")
    assert chat.end() == 0
    (entries,) = home.transcripts()
    roles = [e["message"]["role"] for e in entries if e["type"] == "message"]
    assert roles == ["user", "assistant"]


def test_chat_tool_call_shows_one_line_and_runs(
    home: Home, model_url: str, open_chat: Open
) -> None:
    home.use_model(model_url)
    chat = open_chat()
    chat.wait_for("> ")
    chat.type('MOCK:tool:write:{"path":"note.md","content":"kept"}§')
    assert "⚙ write note.md → ok" in chat.wait_for("Hello from the mock model.")
    assert (home.workspace / "note.md").read_text() == "kept"


def test_chat_command_runs_only_after_approval(home: Home, model_url: str, open_chat: Open) -> None:
    home.use_model(model_url)
    chat = open_chat()
    chat.wait_for("> ")
    chat.type('MOCK:tool:exec:{"command":"echo made > made.txt"}§')
    assert "echo made > made.txt" in chat.wait_for("[y/N]")
    chat.type("n")
    chat.wait_for("Hello from the mock model.")
    assert not (home.workspace / "made.txt").exists()
    chat.type('MOCK:tool:exec:{"command":"echo made > made.txt"}§')
    chat.wait_for("[y/N]")
    chat.type("y")
    chat.wait_for("Hello from the mock model.")
    assert (home.workspace / "made.txt").read_text() == "made\n"


def test_chat_ctrl_c_stops_answer_and_not_program(
    home: Home, model_url: str, open_chat: Open
) -> None:
    home.use_model(model_url)
    chat = open_chat()
    chat.wait_for("> ")
    chat.type("MOCK:long:1000:50")
    chat.wait_for("word0003")
    chat.press_ctrl_c()
    chat.wait_for("stopped.")
    chat.press_ctrl_c()
    chat.wait_for("Nothing is running")
    chat.type("MOCK:short")
    chat.wait_for("Hello from the mock model.")
    chat.type("/quit")
    assert chat.end() == 0
    (entries,) = home.transcripts()
    stops = [e["message"].get("stopReason") for e in entries if e["type"] == "message"]
    assert stops == [None, "aborted", None, "stop"]


def test_chat_new_resets_session_and_keeps_old_one(
    home: Home, model_url: str, open_chat: Open
) -> None:
    home.use_model(model_url)
    chat = open_chat()
    chat.wait_for("> ")
    chat.type("MOCK:short one")
    chat.wait_for("Hello from the mock model.")
    chat.type("/new")
    chat.wait_for("A new conversation.")
    chat.type("MOCK:short two")
    chat.wait_for("Hello from the mock model.")
    chat.type("/quit")
    assert chat.end() == 0
    (entries,) = home.transcripts()
    texts = [e["message"]["content"] for e in entries if e["type"] == "message"]
    assert "two" in str(texts) and "one" not in str(texts)
    kept = list((home.state / "agents" / "main" / "sessions").glob("*.jsonl.reset.*"))
    assert len(kept) == 1 and "MOCK:short one" in kept[0].read_text()


def test_chat_unknown_model_is_reported_and_chat_continues(
    home: Home, model_url: str, open_chat: Open
) -> None:
    home.use_model(model_url)
    chat = open_chat()
    chat.wait_for("> ")
    chat.type("/model mock/mock-2")
    chat.wait_for("mock-1")
    chat.type("/model mok/x")
    chat.wait_for("unknown provider")
    chat.type("MOCK:short")
    chat.wait_for("Hello from the mock model.")


def test_chat_pipe_is_answered_line_by_line(home: Home, model_url: str) -> None:
    home.use_model(model_url)
    said = "MOCK:say:# می‌خواهم **b**§\n"
    done = home.run("chat", text=f"MOCK:short a\n{said}", PYTHONPROFILEIMPORTTIME="1")
    assert done.status == 0 and "Hello from the mock model.\n# می‌خواهم **b**\n" in done.out
    assert "\x1b" not in done.out and "\r" not in done.out
    assert not any(name in done.err for name in ("prompt_toolkit", "pygments", "markdown_it"))


def test_chat_pipe_cannot_approve_command(home: Home, model_url: str) -> None:
    home.use_model(model_url)
    done = home.run("chat", text='MOCK:tool:exec:{"command":"touch made"}§\ny\n')
    assert done.status == 0 and "failed" in done.out
    assert not (home.workspace / "made").exists()


COMMANDS = (
    "/help\n/think high\n/think off MOCK:short a\n/status MOCK:short b\n/model mok/x\nstop\n"
    "/usage tokens\nMOCK:short c\n/uage\n"
)


def check_commands(out: str) -> None:
    """Check the results of the lines above, with or without a gateway."""
    assert "/status - Model, context" in out and "/quit: leave" in out
    assert "Thinking: high." in out and "unknown provider 'mok'" in out
    assert out.count("Hello from the mock model.") == 3
    assert out.count(" in / 3 out") == 1 and out.rindex("Usage: ") > out.rindex("Hello from")
    assert "no command /uage; the nearest are /usage, /subagents, /queue" in out
    assert out.count("Homarus 0.") == 1 and "Nothing is running." in out


def test_chat_commands_and_directives_work_without_gateway(home: Home, model_url: str) -> None:
    home.use_model(model_url)
    done = home.run("chat", text=COMMANDS)
    assert done.status == 0, done.err
    check_commands(done.out)


def test_chat_after_gateway_restart_connects_again_and_names_failures(
    home: Home, start: Callable[..., Gateway], open_chat: Open
) -> None:
    gateway = start().wait_ready()
    chat = open_chat()
    chat.wait_for("by the gateway")
    chat.type("MOCK:short one")
    chat.wait_for("Hello from the mock model.")
    gateway.signal(signal.SIGTERM)
    assert gateway.end() == 0
    chat.type("MOCK:short lost")
    chat.wait_for("the gateway stopped and is not back")
    chat.wait_for("the next message tries again")
    start().wait_ready(times=2)
    chat.type("MOCK:short two")
    chat.wait_for("Hello from the mock model.")
    chat.type('MOCK:tool:exec:{"command":"touch made"}§')
    chat.wait_for("/N]")  # the new connection can ask, too
    chat.type("n")
    chat.wait_for("⚙ exec touch made → failed: exec")
    chat.wait_for("Hello from the mock model.")
    chat.type("/quit")
    assert chat.end() == 0
    (entries,) = home.transcripts()
    sent = [e["message"] for e in entries if e["type"] == "message"]
    asked = [str(each["content"]) for each in sent if each["role"] == "user"]
    assert [text.count("MOCK:") for text in asked] == [1, 1, 1] and "lost" not in str(asked)
