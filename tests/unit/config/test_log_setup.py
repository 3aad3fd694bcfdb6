import json
import logging
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.config.log_files import log_file
from homarus.config.log_setup import MAX_CHARS, configure_logging, redact
from homarus.config.schema import Config


@pytest.fixture(autouse=True)
def _leave_no_handlers() -> object:
    yield
    root = logging.getLogger("homarus")
    for handler in root.handlers:
        handler.close()
    root.handlers.clear()
    root.setLevel(logging.NOTSET)
    root.propagate = True


def config(file: Path, level: str = "info", redacted: str = "tools") -> Config:
    return Config.model_validate(
        {"logging": {"file": str(file), "level": level, "redactSensitive": redacted}}
    )


def rows(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_log_file_has_json_lines_and_mode_0600(tmp_path: Path) -> None:
    file = tmp_path / "logs" / "a.log"
    configure_logging(config(file))
    assert not file.exists()
    logging.getLogger("homarus.x").info("hello %s", "there")
    (row,) = rows(file)
    assert (row["level"], row["logger"], row["message"]) == ("info", "homarus.x", "hello there")
    assert oct(file.stat().st_mode)[-3:] == "600"


def test_log_record_is_one_line_of_bounded_length(tmp_path: Path) -> None:
    configure_logging(config(tmp_path / "a.log"))
    logging.getLogger("homarus").info("one\r\n{}\x1b[2J%s", "x" * 100_000)
    (row,) = rows(tmp_path / "a.log")
    assert len(row["message"]) <= MAX_CHARS


def test_log_level_filters_records(tmp_path: Path) -> None:
    configure_logging(config(tmp_path / "a.log", level="error"))
    logging.getLogger("homarus").warning("no")
    logging.getLogger("homarus").error("yes")
    assert [row["message"] for row in rows(tmp_path / "a.log")] == ["yes"]


def test_log_terminal_shows_warnings_on_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(config(tmp_path / "a.log"))
    logging.getLogger("homarus").info("quiet")
    logging.getLogger("homarus").warning("two\nlines")
    assert capsys.readouterr().err == "two lines\n"


SECRETS = [
    "sk-proj-abcdefghijklmnop1234",
    "Authorization: Bearer abcdef1234567890",
    "https://example.test/v1?key=abcdefgh&x=1",
    '{"apiKey": "hunter2hunter2"}',
    "password=correct-horse",
    "AIzaSyA1234567890abcdefg",
    "Authorization: Basic YWJjZGVmZ2g6eA==",
    "github_pat_11AA1234567890",
    "npm_A1234567890abcd",
    "xoxb-A1234567890-abcd",
    "https://api.telegram.org/bot123456789:AAabcdefghijklmnopqrstuvwxyz12345/getMe",
    "eyJhbGciOiJIUzI1NiJ9.eyJabcdefgh.abcdefgh",
    "-----BEGIN OPENSSH PRIVATE KEY-----\nabcdefgh\n-----END OPENSSH PRIVATE KEY-----",
    "http://127.0.0.1:18789/#token=abcdefghijkl",
    '{\\"botToken\\":\\"abcdefghijkl\\"}',
    '{"password": "correct-horse hunter2 staple"}',
    "AWS_SECRET_ACCESS_KEY = abcdefgh/hunter2",
    "https://bob:hunter2@example.test/",
]
PROSE = [
    "the token bucket algorithm",
    "totalTokens: 5321, maxTokens=200, token_count=5",
    "sk-8",
    "git commit 3a9d69d",
    "a skateboarding-lesson-today",
    "session key agent:main:main",
    "run 4c9d8dbb-1ae0-4366-81a9-dbecc9edad27 ended",
    "unauthorized: gateway token mismatch (provide gateway auth token)",
    "the bearer of bad news learned Basic English",
]


@pytest.mark.parametrize("text", SECRETS)
def test_redact_replaces_secrets(text: str) -> None:
    shown = redact(f"before {text} after")
    for secret in ("abcdefgh", "hunter2", "correct-horse", "A1234567890", "YWJjZGVm"):
        assert secret not in shown
    assert shown.startswith("before") and shown.endswith("after")


def test_redact_keeps_the_line_after_a_cookie() -> None:
    assert redact("set-cookie: sid=abcdefgh; x=y\nnext") == "set-cookie: ***\nnext"


@pytest.mark.parametrize("text", PROSE)
def test_redact_keeps_prose_about_secrets(text: str) -> None:
    assert redact(text) == text


def test_redact_secret_at_the_cut_completely(tmp_path: Path) -> None:
    configure_logging(config(tmp_path / "a.log"))
    logging.getLogger("homarus").info("%s sk-abcdefghijklmnop", "x" * (MAX_CHARS - 10))
    (row,) = rows(tmp_path / "a.log")
    assert "abc" not in row["message"]


def test_log_terminal_escapes_control_characters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    configure_logging(config(tmp_path / "a.log"))
    logging.getLogger("homarus").warning("%s", "x\x1b[2J\x00\u202ey\r\n2026 INFO fine")
    shown = capsys.readouterr().err
    assert shown.count("\n") == 1
    assert shown.strip().isprintable()


@given(st.text(max_size=200))
def test_redact_any_text_never_fails_or_grows_much(text: str) -> None:
    assert len(redact(text)) <= len(text) + 3 * 50


def test_redact_untrusted_text_is_linear() -> None:
    for hostile in ("token" * 20_000, "=" * 100_000, "Bearer " * 20_000, "sk-" * 30_000):
        redact(hostile)
    started = time.process_time()
    for hostile in ("-----BEGIN PRIVATE KEY-----" * 4_000, "a." * 50_000, "://" * 30_000):
        redact(hostile)
    assert time.process_time() - started < 5


def test_log_file_unwritable_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    configure_logging(config(tmp_path / "file" / "a.log"))
    logging.getLogger("homarus").info("lost")


def test_log_file_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "a.log").symlink_to(tmp_path / "victim")
    configure_logging(config(tmp_path / "a.log"))
    logging.getLogger("homarus").info("x")
    assert (tmp_path / "victim").read_text() == "mine"


def test_log_file_default_is_in_the_given_folder(tmp_path: Path) -> None:
    assert log_file(Config(), tmp_path / "logs").parent == tmp_path / "logs"
