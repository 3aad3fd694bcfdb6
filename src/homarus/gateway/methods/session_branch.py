"""Method that continues a conversation from one of its messages, in a session of its own."""

from collections.abc import Sequence
from uuid import uuid4

from homarus.core.errors import InvalidRequestError
from homarus.core.message import Json
from homarus.core.session_keys import agent_id_of
from homarus.gateway.history import role_of, text_of
from homarus.gateway.method import MethodCall, Params, method
from homarus.gateway.params import Label, Name
from homarus.gateway.run_request import resolve_session_key
from homarus.sessions.transcript import EntryTree
from homarus.store.base import TranscriptEntry

_INHERITED = ("providerOverride", "modelOverride", "thinkingLevel", "verboseLevel")


class SessionBranchParams(Params):
    """The session, and the message that the new one ends with.

    Before a message of a person the new session ends, so that it can be written differently.
    """

    key: Name
    agent_id: Name | None = None
    message_id: Name
    label: Label | None = None


@method("sessions.branch", scope="write", params=SessionBranchParams, advertised=False)
async def branch(call: MethodCall, params: SessionBranchParams) -> Json:
    """Create a session with the messages of another one up to `messageId`. Nothing is run. Ours.

    For a message of a person, `draft` is its text, and the new session ends before it.
    """
    store = call.services.store
    source = await store.session(resolve_session_key(call, params.key, params.agent_id))
    if source is None or not source.session_id:
        raise InvalidRequestError("session not found")
    entries = await store.entries(source.session_id)
    path = EntryTree(entries, await store.leaf(source.session_id)).path()
    copied, draft = _cut(path, params.message_id)
    key = resolve_session_key(call, f"agent:{agent_id_of(source.key)}:web-{uuid4().hex[:12]}")
    session = await call.services.control.load(key)
    fields: dict[str, Json] = {n: source.data[n] for n in _INHERITED if n in source.data}
    if params.label:
        fields["label"] = params.label
    await session.copy_path(copied, fields)
    await call.gateway.sessions.send_change(key, reason="create")
    return {"ok": True, "key": key, "draft": draft} if draft else {"ok": True, "key": key}


def _cut(path: Sequence[TranscriptEntry], message_id: str) -> tuple[Sequence[TranscriptEntry], str]:
    """Return the start of the path, and the text of the person's message that it leaves out."""
    at = next((n for n, entry in enumerate(path) if entry.id == message_id), None)
    if at is None:
        raise InvalidRequestError("message not found in this session")
    if role_of(path[at]) == "user":
        return path[:at], text_of(path[at])
    return path[: at + 1], ""
