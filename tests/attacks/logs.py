"""`redaction_log`: secrets and forged lines, logged with the real configuration."""

import io
import json
import logging
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from pathlib import Path

from homarus.config.log_setup import MAX_CHARS, configure_logging
from homarus.config.schema import Config
from tests.attacks.cases import Case, Judge

# The text around a secret may remain; each longer word of the rest is the secret.
_WORD = re.compile(r"[A-Za-z0-9_~+/-]{6,}")
_TALK = re.compile(
    r"https?://[^/?#]+|getMe|authorization|bearer|password|apiKey|set-cookie|token"
    r"|-----(?:BEGIN|END) [A-Z ]+-----",
    re.IGNORECASE,
)
_REPEATED = re.compile(r"(.)\*(\d+)")


@contextmanager
def world() -> Iterator[Judge]:
    """Log to a temporary file and to the terminal."""
    root = logging.getLogger("homarus")
    before = (root.handlers[:], root.level, root.propagate)
    with tempfile.TemporaryDirectory() as folder:
        try:
            yield lambda case: _judge(Path(folder) / f"{case['id']}.log", case)
        finally:
            root.handlers[:], root.level, root.propagate = before


def _judge(file: Path, case: Case) -> str:
    text = str(case["text"])
    if repeated := _REPEATED.fullmatch(text):
        text = repeated[1] * int(repeated[2])
    terminal = io.StringIO()
    with redirect_stderr(terminal):
        configure_logging(Config.model_validate({"logging": {"file": str(file)}}))
        logging.getLogger("homarus.gateway").warning("%s", text)
        logging.getLogger("homarus.gateway").warning(text)
    for handler in logging.getLogger("homarus").handlers:
        handler.close()
    lines = file.read_text(encoding="utf-8").splitlines()
    shown = [json.loads(line)["message"] for line in lines]
    if len(shown) != 2 or terminal.getvalue().count("\n") != 2:
        return f"{len(shown)} records for two"
    expected = str(case["expected"])
    if expected == "unchanged":
        return "" if shown == [text, text] else f"became {shown[0]!r}"
    if expected.startswith("secret not present"):
        return _find_secret(text, [*shown, terminal.getvalue()])
    return _check_shape(text, shown[0], terminal.getvalue())


def _find_secret(text: str, shown: list[str]) -> str:
    secrets = [word for word in _WORD.findall(_TALK.sub(" ", text)) if word != "user"]
    leaked = [word for word in secrets if any(word in line for line in shown)]
    if not secrets and shown[0] == text:
        return "nothing was blotted out"
    return f"leaked {leaked[0]!r}" if leaked else ""


def _check_shape(text: str, message: str, terminal: str) -> str:
    if len(message) > MAX_CHARS:
        return f"{len(message)} characters"
    if not text.startswith(message[:20]):
        return f"became {message[:40]!r}"
    if not terminal.replace("\n", "").isprintable():
        return "steers the terminal"
    return ""
