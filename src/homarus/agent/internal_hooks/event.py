"""The event that handlers get, and what comes back of it."""

from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.text import one_line

API_VERSION: Final = 1
MAX_MESSAGES: Final = 5
MAX_MESSAGE_CHARS: Final = 500
MAX_FILES: Final = 100
MAX_FILES_CHARS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class HookEvent:
    """Something that happened: its type (`command`), its action (`new`) and its context."""

    type: str
    action: str
    session_key: str = ""
    context: Mapping[str, Json] = field(default_factory=dict)
    at_ms: int = 0

    @property
    def name(self) -> str:
        return f"{self.type}:{self.action}"

    def encode(self) -> dict[str, Json]:
        """Return the event as a handler's process gets it."""
        return {
            "apiVersion": API_VERSION,
            "type": self.type,
            "action": self.action,
            "sessionKey": self.session_key,
            "context": dict(self.context),
            "atMs": self.at_ms,
        }


@dataclass(frozen=True, slots=True)
class HookResult:
    """What a handler made of an event: lines for the person, and the changed bootstrap files."""

    messages: tuple[str, ...] = ()
    files: Mapping[str, str] | None = None


def decode_result(reply: Mapping[str, Any]) -> HookResult:
    """Return the result in a reply; what is too long is cut, what is no text is left out."""
    found = reply.get("messages")
    lines = [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
    messages = tuple(one_line(line, MAX_MESSAGE_CHARS) for line in lines[:MAX_MESSAGES])
    return HookResult(tuple(filter(str.strip, messages)), _decode_files(reply.get("files")))


def _decode_files(found: object) -> Mapping[str, str] | None:
    if not isinstance(found, dict) or len(found) > MAX_FILES:
        return None
    files = {
        name: text for name, text in found.items() if isinstance(name, str) and name.isprintable()
    }
    if not all(isinstance(text, str) for text in files.values()):
        return None
    return files if sum(map(len, files.values())) <= MAX_FILES_CHARS else None
