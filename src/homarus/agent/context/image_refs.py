"""Attach images that a user message only names by their paths.

A path counts when it ends like an image and the reader, which guards what may be read, finds an
image there. A question gets its images before it is saved, so that the transcript has them. Images
named by older messages, which the model of that time could not see, are read once when the session
is loaded.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from urllib.parse import unquote

from homarus.agent.context.image_scaling import fit_parts
from homarus.core.errors import ToolError
from homarus.core.message import Image, Message, Text
from homarus.policy.workspace_access import WorkspaceAccess
from homarus.sessions.transcript import summary_in
from homarus.tools.builtin.files import read_image
from homarus.tools.rooted_fs import RootedFs

if TYPE_CHECKING:
    from homarus.tools.sandbox.session_sandbox import SessionSandbox

MAX_PATHS = 8  # of one message
MAX_RESTORED = 8  # of all older messages together, the newest
_MAX_CHARS = 50_000  # of one message that are searched
_MAX_PATH_CHARS = 1_000
_ENDS = r"\.(?:png|jpe?g|gif|webp)"
_PATH = re.compile(
    rf"""
      "([^"\n]{{1,{_MAX_PATH_CHARS}}}?{_ENDS})"      # in quotes, where spaces are allowed
    | '([^'\n]{{1,{_MAX_PATH_CHARS}}}?{_ENDS})'
    | `([^`\n]{{1,{_MAX_PATH_CHARS}}}?{_ENDS})`
    | (?<![^\s(\[<:=,;])([^\s=,;"'`<>()\[\]|]{{1,{_MAX_PATH_CHARS}}}?{_ENDS})(?![\w/.-]*\w)
    """,
    re.IGNORECASE | re.VERBOSE,
)
_FILE_URL = re.compile(r"file://(?:localhost)?(?=/)", re.IGNORECASE)
_URL = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)

Read: TypeAlias = Callable[[str], Image | None]  # None: the path is no readable image
NamedImages: TypeAlias = Mapping[
    tuple[int, str], tuple[Image | Text, ...]
]  # by a message's time, text


def workspace_reader(
    workspace: Path, access: WorkspaceAccess, sandbox: "SessionSandbox | None" = None
) -> Read:
    """Return a reader for images of one folder only, as far as the conversation may read them.

    In a session with a sandbox it is the folder that its commands see.
    """

    def read(path: str) -> Image | None:
        try:
            if sandbox:
                found = sandbox.agent_files(path, access)
                beneath = found[0] if found else sandbox.files(access)
            else:
                beneath = RootedFs(workspace, access=access)
            return read_image(beneath, path) if access.can_attach else None
        except (ToolError, OSError):
            return None  # outside the workspace, missing or too large: the text stays as it is

    return read


def image_paths(text: str) -> tuple[str, ...]:
    """Return the image paths that a text names, each once, in order."""
    found: dict[str, None] = {}
    for match in _PATH.finditer(text[:_MAX_CHARS]):
        path = match[match.lastindex or 0].strip()
        if url := _FILE_URL.match(path):
            path = unquote(path[url.end() :])
        elif _URL.match(path):
            continue
        found[path] = None
        if len(found) == MAX_PATHS:
            break
    return tuple(found)


def attach_named_images(question: Message, read: Read) -> Message:
    """Return a question with the images it names; one that has images stays as it is.

    Reads files: not for the event loop.
    """
    images = tuple(_read(question, read)) if _may_name(question) else ()
    return replace(question, parts=(*question.parts, *images)) if images else question


def load_named_images(
    history: Sequence[Message], read: Read, max_px: int | None = None
) -> NamedImages:
    """Load the images that older messages name, scaled. Reads files: not for the event loop."""
    named: dict[tuple[int, str], tuple[Image | Text, ...]] = {}
    left = MAX_RESTORED
    for message in reversed(history):
        if not left:
            break
        if _may_name(message) and (images := tuple(islice(_read(message, read), left))):
            named[name_of(message)] = fit_parts(images, max_px)
            left -= len(images)
    return named


def name_of(message: Message) -> tuple[int, str]:
    """Return the key of a message in `NamedImages`."""
    return message.at_ms, message.text


def _may_name(message: Message) -> bool:
    if message.role != "user" or summary_in(message):
        return False
    return not any(isinstance(part, Image) for part in message.parts)


def _read(message: Message, read: Read) -> Iterator[Image]:
    text = "\n".join(part.text for part in message.parts if isinstance(part, Text))
    for path in image_paths(text):
        if image := read(path):
            yield image
