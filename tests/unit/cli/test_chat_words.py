"""The words of the input line: unknown commands, and what Tab completes."""

from pathlib import Path

import pytest

from homarus.agent.commands.listing import implemented_commands
from homarus.cli.chat_words import check_command, complete
from homarus.core.errors import UserError

COMMANDS = implemented_commands()


def completed(before: str, *folders: Path) -> list[str]:
    found = complete(before, COMMANDS, folders)
    return [before[: len(before) - each.replaced] + each.text for each in found]


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("/uage", "/usage"),
        ("/stauts", "/status"),
        ("/qiut", "/quit"),
        ("/modle openai/x", "/model"),
        ("/xyzzy", "/"),
        ("/thnk: high", "/think"),
    ],
)
def test_unknown_command_names_the_nearest_three(text: str, near: str) -> None:
    with pytest.raises(UserError) as caught:
        check_command(text, COMMANDS, ())
    nearest = caught.value.message.split("nearest are ")[1].split(", ")
    assert len(nearest) == 3 and nearest[0].startswith(near)
    assert "blank before the slash" in caught.value.fix


@pytest.mark.parametrize(
    "text",
    [
        "/status", "/STATUS", "/t high", "/quit", "/tts on", "/etc/hosts is what?", "/tmp is full",
        "/ is the root", "//x", " /uage", "a /uage", "/opus hello", "/fresh", "/1", "/-",
    ],
)  # fmt: skip
def test_command_path_or_text_is_sent(text: str) -> None:
    check_command(text, COMMANDS, ("opus", "/fresh"))


def test_tab_completes_commands_and_their_choices() -> None:
    assert completed("/sta") == ["/status"] and completed("/q") == ["/queue", "/quit"]
    assert {"/help", "/new", "/usage", "/quit"} <= set(completed("/"))
    assert completed("/think m") == ["/think minimal", "/think medium"]
    assert completed("/context ") == ["/context list", "/context detail", "/context json"]
    assert completed("/usage off o") == [] == completed("/compact x")


def test_tab_completes_file_names_of_all_folders(tmp_path: Path) -> None:
    first, second = tmp_path / "ws", tmp_path / "here"
    for folder in (first, second):
        (folder / "notes").mkdir(parents=True)
    (first / "notes.md").touch()
    (second / "notes" / "می‌خواهم.md").touch()
    (second / "no\u202ehidden").touch()
    (second / ".secret").touch()
    assert completed("read no", first, second) == ["read notes/", "read notes.md"]
    assert completed("(notes/", first, second) == ["(notes/می‌خواهم.md"]
    assert completed(f"see {tmp_path}/h", first) == [f"see {tmp_path}/here/"]
    assert completed("read .", second) == ["read .secret"]
    assert completed("", first) == [] and completed("read ", first) == []
    assert completed(f"{tmp_path}/nowhere/x") == []
