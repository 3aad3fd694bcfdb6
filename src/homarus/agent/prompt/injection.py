"""Choose the workspace files of a prompt, their order, and how much of each is included. Pure.

    files = reader.load(workspace, file_names_for(session_kind(key)))
    injected = inject(files, max_chars, total_chars)

One table says which kind of session gets which file. Private files (long-term memory, the first-run
instructions) go to private sessions only; sub-agents and jobs get the agent's rules and tool notes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final, Literal, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.session_keys import GLOBAL_KEY, is_cron, is_hook, is_subagent, parse_agent_key
from homarus.core.silent_reply import is_blank_checklist
from homarus.core.text import one_line

SessionKind: TypeAlias = Literal["main", "group", "subagent", "cron", "hook", "heartbeat", "boot"]

MEMORY: Final = ("MEMORY.md", "memory.md")
CHECKLIST: Final = "HEARTBEAT.md"
RITUAL: Final = "BOOTSTRAP.md"
# In the order of the prompt: the kinds of session that get each file.
_SEEN_BY: Final[Mapping[str, frozenset[SessionKind]]] = {
    "AGENTS.md": frozenset({"main", "group", "subagent", "cron", "hook", "heartbeat", "boot"}),
    "SOUL.md": frozenset({"main", "group", "heartbeat", "boot"}),
    "TOOLS.md": frozenset({"main", "group", "subagent", "cron", "hook", "heartbeat", "boot"}),
    "IDENTITY.md": frozenset({"main", "group", "heartbeat", "boot"}),
    "USER.md": frozenset({"main", "group", "heartbeat", "boot"}),
    CHECKLIST: frozenset({"main", "heartbeat"}),
    RITUAL: frozenset({"main"}),
    "MEMORY.md": frozenset({"main", "heartbeat", "boot"}),
    "memory.md": frozenset({"main", "heartbeat", "boot"}),
}
ORDER: Final = tuple(_SEEN_BY)
# A missing file is named in the prompt if it is one of these; the others are optional.
EXPECTED: Final = frozenset({"AGENTS.md", "SOUL.md", "TOOLS.md", "IDENTITY.md", "USER.md"})
_MIN_CHARS: Final = 64  # left of the limit, else the other files are left out
_HEAD, _TAIL = 0.7, 0.2  # of a truncated file; the rest is for the marker


@dataclass(frozen=True, slots=True)
class WorkspaceFile:
    """A file as it is on disk. `chars` is its full length when `text` has only its ends."""

    name: str
    path: str
    text: str = ""
    missing: bool = False
    chars: int = 0


@dataclass(frozen=True, slots=True)
class InjectedFile:
    """A file as it is in the prompt."""

    name: str
    path: str
    text: str
    missing: bool = False
    raw_chars: int = 0
    truncated: bool = False


@lru_cache(1_024)
def session_kind(key: str) -> SessionKind:
    """Return the kind of a session by its key; when unclear `group`, as others may read it."""
    if is_subagent(key):
        return "subagent"
    if is_cron(key):
        return "cron"
    if is_hook(key):
        return "hook"
    parsed = parse_agent_key(key)
    if parsed is None:
        return "group"
    rest = parsed.rest.lower()
    if rest == "boot":
        return "boot"
    if rest in {"heartbeat", "main:heartbeat"}:
        return "heartbeat"
    # In the session of `session.scope: global` groups read along.
    is_shared = rest == GLOBAL_KEY or {"group", "channel"} & {*rest.split(":")}
    return "group" if is_shared else "main"


def is_private(kind: SessionKind) -> bool:
    """Return whether only the agent's owner, or no person, reads the session."""
    return kind in {"main", "heartbeat", "boot"}


@lru_cache(32)
def file_names_for(kind: SessionKind) -> tuple[str, ...]:
    """Return the file names for a kind of session, in the order of the prompt."""
    return tuple(name for name, kinds in _SEEN_BY.items() if kind in kinds)


def texts_of(files: Sequence[WorkspaceFile]) -> dict[str, str]:
    """Return the existing files as a hook gets them: name → text."""
    return {file.name: file.text for file in files if not file.missing}


def with_texts(
    files: Sequence[WorkspaceFile], texts: Mapping[str, str]
) -> tuple[WorkspaceFile, ...]:
    """Return the files as a hook returns them: changed, removed, or added at the end."""
    remaining = [
        file
        if texts.get(file.name, file.text) == file.text
        else replace(file, text=texts[file.name], chars=len(texts[file.name]), missing=False)
        for file in files
        if file.missing or file.name in texts
    ]
    known = {file.name for file in files}
    added = [
        WorkspaceFile(name, name, text, chars=len(text))
        for name, text in texts.items()
        if name not in known
    ]
    return (*remaining, *added)


def inject(
    files: Sequence[WorkspaceFile], max_chars: int, total_chars: int
) -> tuple[InjectedFile, ...]:
    """Return the files as the prompt includes them, within the limits for each and for all.

    A blank file is left out; a missing one is named.
    """
    shown: list[InjectedFile] = []
    left = total_chars
    for file in files:
        if left < min(_MIN_CHARS, total_chars) or left <= 0:
            break
        text = f"[MISSING] Expected at: {one_line(file.path, 500)}" if file.missing else file.text
        text = text.rstrip()
        if _is_blank(file.name, text):
            continue
        limit = min(max_chars, left)
        full_chars = max(file.chars, len(text))
        included = truncate_file(text, limit, file.name, full_chars=full_chars)
        shown.append(
            InjectedFile(
                file.name,
                file.path,
                included,
                missing=file.missing,
                raw_chars=0 if file.missing else full_chars,
                truncated=full_chars > limit,
            )
        )
        left -= len(included)
    return tuple(shown)


def _is_blank(name: str, text: str) -> bool:
    return not text.strip() or (name == CHECKLIST and is_blank_checklist(text))


def truncate_file(text: str, max_chars: int, name: str, *, full_chars: int = 0) -> str:
    """Return the text in at most `max_chars`: its start, some of its end, and a marker.

    `full_chars` is the length of the file when `text` has only its ends.
    """
    full_chars = max(full_chars, len(text))
    if full_chars <= max_chars:
        return text
    head, tail = int(max_chars * _HEAD), int(max_chars * _TAIL)
    left_out = full_chars - head - tail
    marker = f"\n[… {left_out} characters of {one_line(name, 60)} left out: read the file …]\n"
    over = head + tail + len(marker) - max_chars
    if over > 0:  # a long marker takes from the tail, then from the head
        tail, head = max(0, tail - over), max(0, head - max(0, over - tail))
    if head == 0:
        return text[:max_chars]
    return text[:head] + marker + (text[-tail:] if tail else "")
