"""`session-memory`: save the last messages of the session that ends as a note of the memory.

The name of the note is saved in the session's entry before the note is written. A command that is
executed again after a crash therefore writes the same file again, and a reset removes the name
together with the transcript.
"""

import asyncio
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from homarus.agent.internal_hooks.bundled_services import BundledHookServices
from homarus.agent.internal_hooks.event import HookEvent
from homarus.core.errors import ToolError
from homarus.core.faults import fault_point
from homarus.core.message import Message
from homarus.core.session_keys import agent_id_of
from homarus.core.text import one_line
from homarus.memory.cleaning import clean_assistant, clean_user
from homarus.policy.audience import audience_of, folder_of
from homarus.sessions.session import Session
from homarus.tools.rooted_fs import RootedFs

FIELD: Final = "sessionMemoryFile"  # of a session's entry
DEFAULT_MESSAGES: Final = 15
MAX_MESSAGES: Final = 200
MAX_MESSAGE_CHARS: Final = 600
_MAX_TITLE_CHARS: Final = 60
_MAX_SLUG_CHARS: Final = 40
_MAX_SLUG_WORDS: Final = 6
_MAX_SAME_NAME: Final = 100
_WORD: Final = re.compile(r"[a-z0-9]+")


async def handle(event: HookEvent, services: BundledHookServices) -> None:
    """Write the note; a session without messages has none."""
    session = await services.load_session(event.session_key)
    said = [(each.role, text) for each in session.messages if (text := _text_of(each))]
    if not said:
        return
    count = min(services.entry.messages or DEFAULT_MESSAGES, MAX_MESSAGES)
    title = session.label or _make_title(said)
    workspace = services.get_agent(agent_id_of(event.session_key)).workspace
    day = services.local_date(event.at_ms)
    saved = session.record.data.get(FIELD)
    path = saved if isinstance(saved, str) else ""
    if not path:
        folder = folder_of(audience_of(event.session_key))
        stem = f"{day}-{_slug(title, event)}"
        path = await asyncio.to_thread(_find_free, workspace, folder, stem)
        await session.update(**{FIELD: path})
    fault_point("memory.named")
    note = _format(day, title, event, session, said[-count:])
    await asyncio.to_thread(_write, workspace, path, note)
    fault_point("memory.noted")


def _text_of(message: Message) -> str:
    """Return what a person or the agent wrote, in one line; "" for everything else.

    Notices, which may repeat a webhook, and the messages of programs are not a person's words.
    """
    source = message.provenance
    if message.role == "user" and (source is None or source.kind == "external_user"):
        return one_line(clean_user(message.text), MAX_MESSAGE_CHARS)
    if message.role == "assistant":
        return one_line(clean_assistant(message.text), MAX_MESSAGE_CHARS)
    return ""


def _make_title(said: Sequence[tuple[str, str]]) -> str:
    first = next((text for role, text in said if role == "user"), said[0][1])
    return one_line(first, _MAX_TITLE_CHARS)


def _slug(title: str, event: HookEvent) -> str:
    """Return the words of a title for a file name; the time of day when it has none."""
    words = _WORD.findall(title.lower())[:_MAX_SLUG_WORDS]
    slug = "-".join(words)[:_MAX_SLUG_CHARS].strip("-")
    return slug or datetime.fromtimestamp(event.at_ms / 1000, UTC).strftime("%H%M")


def _find_free(workspace: Path, folder: str, stem: str) -> str:
    """Return a path that no file has: two sessions may start with the same words."""
    files = RootedFs(workspace)
    for at in range(1, _MAX_SAME_NAME):
        path = f"{folder}/{stem}{f'-{at}' if at > 1 else ''}.md"
        try:
            files.stat(path)
        except ToolError:
            return path
    raise ToolError(f"there are {_MAX_SAME_NAME} notes {stem} already")


def _format(
    day: str,
    title: str,
    event: HookEvent,
    session: Session,
    said: Sequence[tuple[str, str]],
) -> str:
    at = datetime.fromtimestamp(event.at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    rows = {
        "Session key": event.session_key,
        "Session id": session.session_id,
        "Source": event.context.get("channel") or "unknown",
        "Time": at,
    }
    lines = [
        f"# {day}",
        "",
        f"## Session: {title}",
        *(f"- {label}: {one_line(str(value), 200)}" for label, value in rows.items()),
        "",
        *(f"- {role}: {text}" for role, text in said),
        "",
    ]
    return "\n".join(lines)


def _write(workspace: Path, path: str, note: str) -> None:
    RootedFs(workspace).write_atomic(path, note.encode("utf-8", "replace"))
