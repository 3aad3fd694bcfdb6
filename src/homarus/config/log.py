"""What the program writes down about itself: JSON lines in a file, warnings on the terminal.

One record is one line of bounded length, whatever was in it; secrets are blotted out before it
is written. The file is made with the first record, for its owner alone.
"""

import json
import logging
import os
import re
import sys
import tempfile
import time
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING

from homarus.core.text import one_line

if TYPE_CHECKING:
    from homarus.config.schema import Config

MAX_CHARS = 4_000
LEVELS = {
    "silent": logging.CRITICAL + 10,
    "fatal": logging.CRITICAL,
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "info": logging.INFO,
    "debug": logging.DEBUG,
    "trace": logging.DEBUG,
}
# What a secret looks like. What stands before it and says what it is goes to a group, and stays.
_NAME = (
    r"(?:api[-_]?key|secret|password|passwd|passphrase|private[-_]?key|credential"
    r"|(?:token|[-_]key)(?=[\\\"']{0,4}\s{0,3}[:=]\s{0,3}(?!\d{1,7}\b)))"
)
_VALUE = r"""(?:\\?"[^"\r\n]{1,2000}|'[^'\r\n]{1,2000}|[^\s"',;&}\\]{3,})"""
_SECRETS = re.compile(
    # private keys, also cut off or on one line
    r"(?P<pem>-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----)(?:(?!-----END)[\s\S]){0,6000}"
    # by their vendors' marks
    r"|\b(?:sk|pk|rk|gsk|xai|gh[pousr]|github_pat|xox[a-z]|xapp|npm|glpat|hf|pplx|whsec|shpat)"
    r"[-_][A-Za-z0-9_-]{12,}"
    r"|\bAIza[A-Za-z0-9_-]{12,}|\b(?:AKIA|ASIA)[A-Z0-9]{12,}|\bya29\.[\w-]{12,}"
    r"|\bSG\.[\w-]{12,}\.[\w-]{12,}"
    r"|(?<!\d)\d{6,12}:[A-Za-z0-9_-]{30,}"
    r"|\beyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]{2,}(?:\.[A-Za-z0-9_-]*)?"
    r"|\b[A-Za-z0-9_-]{23,28}\.[A-Za-z0-9_-]{6,7}\.[A-Za-z0-9_-]{27,}"
    # by what is said before them
    r"|(?P<cookie>\b(?:set-)?cookie[\\\"']{0,4}\s{0,3}[:=])[^\r\n]{3,}"
    r"|(?P<auth>\b(?:proxy-)?authorization[\\\"']{0,4}\s{0,3}[:=])\s{0,3}[\\\"']{0,4}"
    r"(?:[A-Za-z-]{2,20} {1,3})?[^\s\"',}\\]{3,}"
    r"|(?P<scheme>\b(?:bearer|basic) {1,3})[A-Za-z0-9._~+/-]{8,}=*"
    r"|(?P<query>[?&#](?:[\w-]{0,30}(?:key|token|secret|password|signature)|sig|code)=)[^&\s\"'#]+"
    rf"|(?P<named>{_NAME}[\\\"']{{0,4}}\s{{0,3}}[:=]\s{{0,3}}){_VALUE}"
    r"|(?P<user>://[^/\s:@]{0,80}:)[^/\s@]{1,200}(?=@)",
    re.IGNORECASE,
)


def redact(text: str) -> str:
    """The text with whatever looks like a secret blotted out."""
    return _SECRETS.sub(_blot, text)


def _blot(found: re.Match[str]) -> str:
    return f"{found[found.lastgroup] if found.lastgroup else ''}***"


class Lines(logging.Formatter):
    """One JSON object per record, on one line."""

    def __init__(self, *, redacted: bool) -> None:
        super().__init__()
        self._redacted = redacted

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        row = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
            + f".{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            # A secret is not cut in two before it is looked for.
            "message": (redact(text[: 2 * MAX_CHARS]) if self._redacted else text)[:MAX_CHARS],
        }
        return json.dumps(row)


class Console(logging.Formatter):
    """A warning for the person at the terminal: one line, no traceback."""

    def format(self, record: logging.LogRecord) -> str:
        return redact(one_line(record.getMessage()[:MAX_CHARS], MAX_CHARS))


class OwnerFile(logging.FileHandler):
    """A log file that only its owner can read, made with the first record."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8", delay=True)

    def _open(self) -> TextIOWrapper:
        path = Path(self.baseFilename)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        return os.fdopen(os.open(path, flags, 0o600), "a", encoding="utf-8")

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # a log that cannot be opened is no reason to stop
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the base's name
        """Nor is one that cannot be written."""


def log_file(config: "Config") -> Path:
    """Where the log of today goes."""
    if config.logging.file:
        return Path(config.logging.file).expanduser()
    return Path(tempfile.gettempdir()) / "openclaw" / time.strftime("openclaw-%Y-%m-%d.log")


def set_up(config: "Config") -> None:
    """Send this program's records to the file, and its warnings to the terminal."""
    root = logging.getLogger("homarus")
    root.handlers.clear()
    root.setLevel(LEVELS[config.logging.level])
    root.propagate = False
    file = OwnerFile(log_file(config))
    file.setFormatter(Lines(redacted=config.logging.redact_sensitive != "off"))
    console = logging.StreamHandler(sys.stderr)
    console.setLevel(logging.WARNING)
    console.setFormatter(Console())
    root.handlers[:] = [file, console]
