"""Reduce a message to what was written: without what programs add around it. Pure.

Envelopes, notices, silent-reply tokens, names of attached files, and whatever looks like a secret
are removed. Prompts by programs (a heartbeat, a memory flush) are dropped.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Final

from homarus.config.redaction import redact
from homarus.core.envelope import strip_envelope
from homarus.core.silent_reply import ACK_WORD, SILENT_WORD, is_silent_text, strip_heartbeat_ack

MAX_MESSAGE_CHARS: Final = 200_000  # of one message; a longer one is a pasted file

_SYSTEM = re.compile(r"System:? ?\[[^\]\n]{1,80}\].*")
_MEDIA = re.compile(
    r"[ \t]{0,8}(?:\[(?:media (?:attached|missing)|image|audio|video|document|sticker|voice)"
    r"[^\[\]\n]{0,600}\]|<media:[\w-]{1,40}>|MEDIA:\s?\S{1,600})[ \t]{0,8}",
    re.IGNORECASE,
)
_HINT = re.compile(r"To send an image back, [^\n]*")
_TAG = re.compile(
    r"\[\[\s{0,4}(?:reply_to_current|reply_to:[^\]\n]{0,200}|audio_as_voice)\s{0,4}\]\]"
)
_REASONING = re.compile(r"\s*<(think|thinking|thought)>.*?</\1>\s*", re.DOTALL | re.IGNORECASE)
# How programs ask for silence, in our prompts and in OpenClaw's.
_PROMPT = re.compile(
    rf"\b(?:reply|respond|answer|say|is)\b[^\n]{{0,80}}\b(?:{ACK_WORD}|{SILENT_WORD})\b"
    r"|\A(?:Pre-compaction memory flush|Read HEARTBEAT\.md|A new session was started via /)",
    re.IGNORECASE,
)


def clean_user(text: str) -> str:
    """Return what a user wrote; empty when the message came from a program."""
    told = "\n".join(line for line in text[:MAX_MESSAGE_CHARS].split("\n") if not _is_notice(line))
    told = strip_envelope(told.strip())
    if _PROMPT.search(told):
        return ""
    return _plain(_HINT.sub("", _MEDIA.sub("", told)))


def clean_assistant(text: str) -> str:
    """Return what the agent answered; empty when it chose to send nothing."""
    told = text[:MAX_MESSAGE_CHARS]
    if thought := _REASONING.match(told):  # at the start, where models put it
        told = told[thought.end() :]
    if is_silent_text(told):
        return ""
    ack = strip_heartbeat_ack(told, heartbeat=False)
    return "" if ack.skip else _plain(_TAG.sub("", _MEDIA.sub("", ack.text)))


def _is_notice(line: str) -> bool:
    return line.startswith("System") and _SYSTEM.fullmatch(line) is not None


def _plain(text: str) -> str:
    """Return the text without secrets, and without invisible characters."""
    told = redact(text)
    if not (told.isascii() and told.isprintable()):
        told = "".join(ch for ch in told if ch == "\n" or _is_shown(ch))
    return told.strip()


@lru_cache(4_096)
def _is_shown(ch: str) -> bool:
    return ch == "\t" or unicodedata.category(ch) not in {"Cc", "Cf", "Cs", "Co"} or ch in _JOINERS


_JOINERS: Final = "\u200c\u200d"  # some scripts, and many emoji, need them
