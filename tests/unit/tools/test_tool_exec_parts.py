"""The parts of exec that need no process: environment, question, output."""

import re
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.core.errors import ToolDeniedError, ToolError
from homarus.tools.exec.approval import describe_command, escape_deceptive_chars
from homarus.tools.exec.environment import build_environment
from homarus.tools.exec.output import (
    PROGRESS_CHARS,
    PROGRESS_EVERY_S,
    OutputBuffer,
    ProgressThrottle,
)

OUTER = {
    "PATH": "/usr/bin",
    "HOME": "/home/me",
    "LANG": "C.UTF-8",
    "LC_ALL": "C",
    "OPENAI_API_KEY": "sk-1",
    "ANTHROPIC_API_KEY": "sk-2",
    "AWS_SECRET_ACCESS_KEY": "x",
    "LD_PRELOAD": "/evil.so",
    "BASH_ENV": "/evil.sh",
    "OPENCLAW_GATEWAY_TOKEN": "t",
    "SSH_AUTH_SOCK": "/tmp/agent",
}


def test_environment_keeps_only_harmless_names() -> None:
    kept = {"PATH": "/usr/bin", "HOME": "/home/me", "LANG": "C.UTF-8", "LC_ALL": "C"}
    assert build_environment({}, OUTER) == kept
    assert build_environment({"ARG_A": "1"}, OUTER) == kept | {"ARG_A": "1"}


def test_environment_always_has_path() -> None:
    assert build_environment({}, {}) == {"PATH": "/usr/local/bin:/usr/bin:/bin"}


FORBIDDEN = (
    "PATH Path LD_PRELOAD LD_X DYLD_INSERT_LIBRARIES NODE_OPTIONS NODE_PATH PYTHONPATH PYTHONHOME"
    " RUBYLIB PERL5LIB BASH_ENV ENV GCONV_PATH IFS SSLKEYLOGFILE GIT_EXTERNAL_DIFF GIT_EXEC_PATH"
    " SHELLOPTS PS4 HOME ZDOTDIR"
)


@pytest.mark.parametrize("name", FORBIDDEN.split())
def test_environment_dangerous_requested_names_are_denied(name: str) -> None:
    with pytest.raises(ToolDeniedError, match="put it in the command"):
        build_environment({name: "x"}, OUTER)


@pytest.mark.parametrize(
    "asked",
    [
        {"": "x"},
        {"A=B": "x"},
        {"1A": "x"},
        {"A\n": "x"},
        {"BASH_FUNC_x%%": "() { :; }"},
        {"Ä": "x"},
        {"ARG_A": "x\0"},
        {"ARG_A": "\ud800"},
        {"ARG_A": "x" * 40_000},
        {f"ARG_{n}": "" for n in range(65)},
    ],
)
def test_environment_invalid_requested_variable_is_refused(asked: dict[str, str]) -> None:
    with pytest.raises(ToolError):
        build_environment(asked, OUTER)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("git status", "git status"),
        ("git\u200b status", r"git\u{200b} status"),
        ("\u202egpj.exe", r"\u{202e}gpj.exe"),
        ("\uff52\uff4d -rf", r"\u{ff52}\u{ff4d} -rf"),
        ("a\u00a0b\u3164c\ufe0f", r"a\u{a0}b\u{3164}c\u{fe0f}"),
        ("a\rb\x1b[2K", r"a\u{d}b\u{1b}[2K"),
        ("ls" + " " * 5000 + "; rm x", "ls[5000 blanks]; rm x"),
        ("ls" + "\n" * 60 + "rm x", "ls\n[59 empty lines]\nrm x"),
        ("echo é 日本 👍", "echo é 日本 👍"),
    ],
)
def test_approval_text_shows_hidden_characters(text: str, seen: str) -> None:
    assert escape_deceptive_chars(text) == seen


def test_approval_text_is_complete_and_cannot_be_imitated() -> None:
    command = "echo 1\nfolder: /safe\necho 2"
    asked = describe_command(
        command, folder="/ws/sub", env={"B": "2", "A": "1\u200b"}, timeout_s=60
    )
    assert asked.split("\n") == [
        "folder: /ws/sub",
        "time: at most 60 s",
        r"variable: A=1\u{200b}",
        "variable: B=2",
        "command (3 lines, 27 characters):",
        "    echo 1",
        "    folder: /safe",
        "    echo 2",
    ]


@given(st.text(max_size=60))
def test_approval_text_is_printable_and_keeps_plain_commands(text: str) -> None:
    seen = escape_deceptive_chars(text)
    assert all(ch.isprintable() or ch in "\n\t" for ch in seen)
    if re.fullmatch(r"[!-~]*( [!-~]+)*", text) and "\\u{" not in text:
        assert seen == text


@given(
    chunks=st.lists(st.binary(max_size=30), max_size=12),
    max_chars=st.integers(min_value=2, max_value=60),
)
def test_output_any_chunks_keep_head_and_tail(chunks: list[bytes], max_chars: int) -> None:
    output = OutputBuffer(max_chars)
    told = "".join(output.add(chunk) for chunk in chunks) + output.add(b"", final=True)
    whole = b"".join(chunks).decode("utf-8", "replace")
    assert told == whole
    if len(whole) <= max_chars:
        assert output.text == whole
    else:
        head = max_chars * 2 // 3
        tail = max_chars - head
        left_out = len(whole) - max_chars
        assert output.text == (
            f"{whole[:head]}\n\n[… {left_out} characters left out …]\n\n{whole[-tail:]}"
        )


def test_output_any_size_uses_bounded_memory() -> None:
    output = OutputBuffer(200_000)
    chunk = b"0123456789abcdef" * 4096
    tracemalloc.start()
    for _ in range(2000):
        output.add(chunk)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000
    assert len(output.text) < 200_100


def test_progress_is_immediate_then_throttled() -> None:
    shown: list[str] = []
    progress = ProgressThrottle(shown.append)
    progress.add("a", 10.0)
    assert progress.due_in_s(10.0) is None
    progress.add("b", 10.01)
    progress.add("c", 10.02)
    assert shown == ["a"]
    assert progress.due_in_s(10.02) == pytest.approx(PROGRESS_EVERY_S - 0.02)
    progress.flush(10.1)
    assert shown == ["a", "bc"]
    progress.add("d" * 100_000, 11.0)
    assert len(shown[-1]) == PROGRESS_CHARS
