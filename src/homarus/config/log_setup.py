"""Set up logging: JSON lines in a file, and on the console what `logging.consoleLevel` asks for.

Each record is one line of bounded length, with secrets redacted. The file is created with the
first record of a day, with mode 0600.
"""

import json
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, cast

from homarus.config.log_files import log_file, open_log_to_append
from homarus.config.redaction import redact, redact_configured, set_patterns
from homarus.core.text import one_line

if TYPE_CHECKING:
    from homarus.config.schema import Config

MAX_CHARS = 4_000
_MAX_SHOWN_CHARS = 1_000  # of the message as OpenClaw's programs read it
LEVELS = {
    "silent": logging.CRITICAL + 10,
    "fatal": logging.CRITICAL,
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "trace": logging.DEBUG,
}
# OpenClaw's number and name of each level.
_LEVEL_NAMES = {
    logging.DEBUG: (2, "DEBUG"),
    logging.INFO: (3, "INFO"),
    logging.WARNING: (4, "WARN"),
    logging.ERROR: (5, "ERROR"),
    logging.CRITICAL: (6, "FATAL"),
}
_COLOURS = {"debug": "\x1b[2m", "warn": "\x1b[33m", "error": "\x1b[31m", "fatal": "\x1b[31m"}


class JsonLineFormatter(logging.Formatter):
    """Formats a record as one JSON object on one line."""

    def __init__(self, *, redacted: bool) -> None:
        super().__init__()
        self._redacted = redacted

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        # Redacted before it is cut, so that no part of a secret remains.
        redact_text = redact if self._redacted else redact_configured
        message = redact_text(text[: 2 * MAX_CHARS])[:MAX_CHARS]
        at = _utc_time(record)
        name = json.dumps({"subsystem": _subsystem(record)})
        level_id, level_name = _LEVEL_NAMES.get(record.levelno, (3, record.levelname))
        row = {
            "time": at,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": message,
            # The same once more as OpenClaw writes it, for its `logs` command and its pages.
            "0": name,
            "1": message[:_MAX_SHOWN_CHARS],
            "_meta": {
                "name": name,
                "parentNames": ["homarus"],
                "date": at,
                "logLevelId": level_id,
                "logLevelName": level_name,
            },
        }
        return json.dumps(row)


class ConsoleFormatter(logging.Formatter):
    """Formats a record for the console: one line, no traceback.

    `pretty` adds the time and the part of the program, `compact` the level and the part, `json` is
    an object; without a style the line is the message alone.
    """

    def __init__(self, style: str | None = None, *, has_colours: bool = False) -> None:
        super().__init__()
        self._console_style, self._has_colours = style, has_colours

    def format(self, record: logging.LogRecord) -> str:
        # Redacted before it is cut, so that no part of a secret remains.
        text = redact(one_line(record.getMessage()[: 2 * MAX_CHARS], 2 * MAX_CHARS))
        return self._styled(record, one_line(text, MAX_CHARS))

    def _styled(self, record: logging.LogRecord, text: str) -> str:
        if self._console_style is None:
            return text
        level, part = _level_name(record), _subsystem(record)
        if self._console_style == "compact":
            return f"{level} {part}: {text}"
        if self._console_style == "json":
            row = {"time": _utc_time(record), "level": level, "subsystem": part, "message": text}
            return json.dumps(row)
        at = time.strftime("%H:%M:%S", time.localtime(record.created))
        if not self._has_colours:
            return f"{at} {level.upper():5} [{part}] {text}"
        colour = _COLOURS.get(level, "")
        return f"\x1b[2m{at}\x1b[0m {colour}{level.upper():5}\x1b[0m [{part}] {colour}{text}\x1b[0m"


class FlagFilter(logging.Filter):
    """Passes records of a level, and all records of the parts of the program that flags name.

    A flag is the name of a part, or of its end, such as `telegram.adapter`; `*` stands for any
    text.
    """

    def __init__(self, level: int, flags: Sequence[str]) -> None:
        super().__init__()
        self._min_level = level
        self._flags = [flag.strip().lower() for flag in flags]
        self._passes: dict[str, bool] = {}  # by logger

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= self._min_level:
            return True
        if (passes := self._passes.get(record.name)) is None:
            passes = self._passes[record.name] = self._is_flagged(record.name)
        return passes

    def _is_flagged(self, logger: str) -> bool:
        parts = logger.lower().removeprefix("homarus.").split(".")
        ends = [".".join(parts[start:]) for start in range(len(parts))]
        return any(
            fnmatchcase(f"{end}.", f"{flag}*") if flag.endswith(".*") else fnmatchcase(end, flag)
            for end in ends
            for flag in self._flags
        )


def _level_name(record: logging.LogRecord) -> str:
    """Return a record's level as `logging.level` spells it."""
    return _LEVEL_NAMES.get(record.levelno, (3, record.levelname))[1].lower()


def _subsystem(record: logging.LogRecord) -> str:
    return record.name.removeprefix("homarus.").replace(".", "/")


def _utc_time(record: logging.LogRecord) -> str:
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
    return f"{at}.{int(record.msecs):03d}Z"


class PrivateFileHandler(logging.FileHandler):
    """Writes the log file of the day, with mode 0600, created with the first record."""

    def __init__(self, get_path: Callable[[], Path], *, is_own_folder: bool) -> None:
        self._get_path, self._is_own_folder = get_path, is_own_folder
        self._path, self._day = get_path(), time.strftime("%j")
        super().__init__(self._path, encoding="utf-8", delay=True)
        self._has_failed = False

    def _open(self) -> TextIOWrapper:
        return cast(
            "TextIOWrapper", open_log_to_append(self._path, is_own_folder=self._is_own_folder)
        )

    def emit(self, record: logging.LogRecord) -> None:
        try:
            if self._is_own_folder and self._day != (today := time.strftime("%j")):
                self.close()
                self._path, self._day, self._closed = self._get_path(), today, False
            super().emit(record)
        except OSError as exc:  # the program continues without a log
            if not self._has_failed:
                self._has_failed = True
                sys.stderr.write(f"no log is written to {self._path}: {exc.strerror}\n")

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the base's name
        """Ignore errors of writing the log."""


def configure_logging(config: "Config", logs: Path | None = None) -> None:
    """Log records to `logging.file`, else to a file in `logs`, and to the console."""
    settings = config.logging
    set_patterns(settings.redact_patterns)
    root = logging.getLogger("homarus")
    for old in root.handlers:
        if isinstance(old, PrivateFileHandler):  # from an earlier config
            old.close()
    root.handlers.clear()
    level = LEVELS[settings.level]
    console_level = max(level, logging.WARNING)
    if settings.console_level:
        console_level = LEVELS[settings.console_level]
    root.setLevel(min(level, console_level))
    flags = config.diagnostics.flags if config.diagnostics.enabled else ()
    if flags:
        root.setLevel(logging.DEBUG)
    root.propagate = False
    if logs or settings.file:
        get_path = partial(log_file, config, logs or Path())
        file = PrivateFileHandler(get_path, is_own_folder=not settings.file)
        if flags:
            file.addFilter(FlagFilter(level, flags))
        else:
            file.setLevel(level)
        file.setFormatter(JsonLineFormatter(redacted=settings.redact_sensitive != "off"))
        root.addHandler(file)
    console = logging.StreamHandler(sys.stderr)
    console.setLevel(console_level)
    has_colours = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    console.setFormatter(ConsoleFormatter(settings.console_style, has_colours=has_colours))
    root.addHandler(console)
