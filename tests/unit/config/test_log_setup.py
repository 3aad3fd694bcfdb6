import json
import logging
import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from homarus.config import redaction
from homarus.config.check import check_config
from homarus.config.log_files import log_file
from homarus.config.log_setup import MAX_CHARS, ConsoleFormatter, configure_logging
from homarus.config.redaction import redact
from homarus.config.schema import Config


@pytest.fixture(autouse=True)
def _leave_no_handlers() -> object:
    yield
    redaction.set_patterns(())  # they hold for the whole process
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


def log_one(level: str, text: str, /, **settings: object) -> None:
    configure_logging(Config.model_validate({"logging": settings}))
    logger = logging.getLogger("homarus.gateway.serve")
    getattr(logger, level)(text)


@pytest.mark.parametrize(
    ("settings", "shown"),
    [
        ({}, ["warning", "error"]),
        ({"consoleLevel": "debug"}, ["debug", "info", "warning", "error"]),
        ({"consoleLevel": "error"}, ["error"]),
        ({"consoleLevel": "silent"}, []),
        ({"level": "silent"}, []),
        ({"level": "silent", "consoleLevel": "info"}, ["info", "warning", "error"]),
    ],
)
def test_console_level_decides_what_the_console_shows(
    settings: dict[str, str], shown: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for level in ("debug", "info", "warning", "error"):
        log_one(level, level, **settings)
    assert capsys.readouterr().err.split() == shown


def test_console_level_leaves_the_file_at_its_own_level(tmp_path: Path) -> None:
    log_one("debug", "no", file=str(tmp_path / "a.log"), consoleLevel="debug")
    log_one("info", "yes", file=str(tmp_path / "a.log"), consoleLevel="debug")
    assert [row["message"] for row in rows(tmp_path / "a.log")] == ["yes"]


def test_console_style_compact_names_level_and_part(capsys: pytest.CaptureFixture[str]) -> None:
    log_one("warning", "two\nlines", consoleStyle="compact")
    assert capsys.readouterr().err == "warn gateway/serve: two lines\n"


def test_console_style_pretty_has_the_time_and_no_colour_in_a_pipe(
    capsys: pytest.CaptureFixture[str],
) -> None:
    log_one("warning", "hi", consoleStyle="pretty")
    shown = capsys.readouterr().err
    assert re.fullmatch(r"\d\d:\d\d:\d\d WARN  \[gateway/serve\] hi\n", shown)


def test_console_style_pretty_is_coloured_in_a_terminal() -> None:
    record = logging.makeLogRecord({"name": "homarus.x", "levelno": logging.ERROR, "msg": "hi"})
    assert "\x1b[31mhi\x1b[0m" in ConsoleFormatter("pretty", has_colours=True).format(record)


def test_console_style_json_is_one_object_per_line(capsys: pytest.CaptureFixture[str]) -> None:
    log_one("error", 'a "quote"\x1b[2J', consoleStyle="json")
    row = json.loads(capsys.readouterr().err)
    assert (row["level"], row["subsystem"]) == ("error", "gateway/serve")
    assert row["message"].startswith('a "quote"') and "\x1b" not in row["message"]


@pytest.mark.parametrize("style", [None, "pretty", "compact", "json"])
def test_console_of_each_style_is_redacted(
    style: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    log_one("error", f"{'x' * (MAX_CHARS - 5)} lobster-17", consoleStyle=style,
            redactPatterns=[r"lobster-\d+"])  # fmt: skip
    shown = capsys.readouterr().err
    assert "lobster" not in shown and "lobs" not in shown


def test_redact_patterns_hold_in_the_file_with_redaction_off(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    log_one("error", "password=hunter22 lobster", file=str(file), redactSensitive="off",
            redactPatterns=["lobster"], consoleLevel="silent")  # fmt: skip
    assert rows(file)[0]["message"] == "password=hunter22 ***"


def test_redact_patterns_cannot_make_a_text_grow_with_their_number() -> None:
    patterns = ["x*", r"\*", ".", "^", "$"] * 20
    configure_logging(Config.model_validate({"logging": {"redactPatterns": patterns}}))
    assert len(redact("some text " * 20)) <= 3 + 200


def test_redact_patterns_that_overlap_leave_nothing_of_a_match() -> None:
    configure_logging(
        Config.model_validate({"logging": {"redactPatterns": ["abc", "bcd", "Zürich"]}})
    )
    assert redact("xabcdx in ZÜRICH") == "x***x in ***"


def test_redact_pattern_that_would_backtrack_is_searched_at_once() -> None:
    configure_logging(
        Config.model_validate({"logging": {"redactPatterns": ["(a+)+$", "(a|aa)+b"]}})
    )
    started = time.process_time()
    redact("a" * 5_000 + "!")
    assert time.process_time() - started < 2.0


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (["("], "logging.redactPatterns.0: the pattern cannot be searched: missing )"),
        (["ok", "(?<=x)y"], "logging.redactPatterns.1: the pattern cannot be searched"),
        (["((a{100}){100}){100}"], "logging.redactPatterns.0: the pattern cannot be searched"),
        (["x" * 501], "logging.redactPatterns.0: the pattern is longer than 500"),
        (["x"] * 101, "logging.redactPatterns: "),
    ],
)
def test_redact_pattern_that_is_invalid_is_a_named_error(patterns: list[str], message: str) -> None:
    (problem,) = check_config({"logging": {"redactPatterns": patterns}}).problems
    assert f"{'.'.join(map(str, problem.path))}: {problem.message}".startswith(message)
