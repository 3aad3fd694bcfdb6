"""A call as one line, and what came back."""

from homarus.core.message import Text, ToolCall, ToolResult
from homarus.tools.describe import (
    describe_call,
    describe_target,
    format_call_line,
    format_output,
)


def test_describe_call_shows_main_argument() -> None:
    assert describe_call(ToolCall("1", "exec", {"command": "ls\n-la"})) == "exec ls -la"
    assert describe_call(ToolCall("1", "odd", {"a": 1, "b": [2]})) == "odd a=1 b=[2]"
    assert len(describe_call(ToolCall("1", "exec", {"command": "x" * 500}))) == 80


def test_describe_target_names_lines_of_file() -> None:
    def about(name: str, **args: object) -> str:
        return describe_target(ToolCall("1", name, args))

    assert about("read", path="a.md", limit=5) == "first 5 lines of a.md"
    assert about("read", path="a.md", offset=10, limit=5) == "lines 10-14 of a.md"
    assert about("read", path="a.md", offset=10) == "from line 10 of a.md"
    assert about("read", path="a.md") == "from a.md"
    assert about("exec", command="echo\nhi") == "echo hi" and about("status") == ""
    assert "abcdefgh" not in about("exec", command="curl -H 'Authorization: Bearer abcdefgh12345'")
    assert about("read", path=5, limit="x") == "5"


def test_call_line_shows_name_and_main_argument() -> None:
    assert format_call_line(ToolCall("1", "read", {"path": "notes/a.md"})) == "🔧 read · notes/a.md"
    assert format_call_line(ToolCall("1", "status", {})) == "🔧 status"


def test_call_line_secret_in_command_is_redacted() -> None:
    call = ToolCall("1", "exec", {"command": "curl -H 'Authorization: Bearer abcdefgh12345678' x"})
    assert "abcdefgh" not in format_call_line(call) + describe_call(call)
    leaked = ToolResult("1", "exec", (Text("API_KEY=sk-proj-abcdefghijklmnop"),))
    assert "abcdefghijkl" not in format_output(call, leaked)


def test_call_line_secret_cut_by_line_end_is_redacted() -> None:
    call = ToolCall(
        "1", "exec", {"command": "x" * 55 + " token=abcdefghijklmnopqrstuvwxyz0123456789"}
    )
    assert "abcdef" not in format_call_line(call)


def test_output_block_cannot_be_closed_by_output() -> None:
    call = ToolCall("1", "read", {"path": "a.md"})
    output = ToolResult("1", "read", (Text("````py\nx\n````"),), is_error=True)
    assert format_output(call, output) == ("🔧 read · a.md · failed\n`````\n````py\nx\n````\n`````")


def test_output_block_long_is_cut_and_empty_is_one_line() -> None:
    call = ToolCall("1", "read", {"path": "a.md"})
    assert len(format_output(call, ToolResult("1", "read", (Text("x" * 9_000),)))) < 2_200
    assert format_output(call, ToolResult("1", "read", (Text("\n"),))) == "🔧 read · a.md"
