"""The methods of the Web API, with Slack's limits and error codes.

An argument that a method does not have is refused: Slack itself ignores some.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeAlias

from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.testing.slack_server.state import (
    APP,
    BOT,
    BOT_USER,
    TEAM,
    FakeConversation,
    Object,
    SlackCallError,
    SlackWorkspace,
)

Params: TypeAlias = Mapping[str, str]
Run: TypeAlias = Callable[[SlackWorkspace, Params], Object]

MAX_TEXT_CHARS: Final = 40_000  # a longer one is cut
MAX_EDIT_CHARS: Final = 4_000
MAX_BLOCKS, MAX_SECTION_CHARS, MAX_ELEMENTS = 50, 3_000, 25
MAX_LABEL_CHARS, MAX_VALUE_CHARS, MAX_METADATA_BYTES = 75, 2_000, 16_000


@dataclass(frozen=True, slots=True)
class SlackMethod:
    """The arguments of a method, those that it needs, and its function."""

    takes: frozenset[str]
    needs: frozenset[str]
    run: Run


def perform(state: SlackWorkspace, name: str, params: Params) -> Object:
    """Return the result of a call. Raises SlackCallError."""
    method = METHODS.get(name)
    if method is None:
        raise SlackCallError("unknown_method", req_method=name)
    unknown, missing = set(params) - method.takes, method.needs - set(params)
    if unknown or missing:
        told = [f"[ERROR] unknown field: {each}" for each in sorted(unknown)]
        told += [f"[ERROR] missing required field: {each}" for each in sorted(missing)]
        raise SlackCallError("invalid_arguments", response_metadata={"messages": told})
    return method.run(state, params)


def _auth_test(_state: SlackWorkspace, _params: Params) -> Object:
    return {
        "url": "https://acme.slack.com/", "team": "Acme", "user": "lobster", "team_id": TEAM,
        "user_id": BOT_USER, "bot_id": BOT, "is_enterprise_install": False,
    }  # fmt: skip


# Messages


def _post(state: SlackWorkspace, params: Params) -> Object:
    chat = state.joined(params["channel"])
    text, blocks = params.get("text", ""), _blocks(params.get("blocks", "[]"))
    if not text.strip() and not blocks:
        raise SlackCallError("no_text")
    fields = _own(text[:MAX_TEXT_CHARS]) | ({"blocks": blocks} if blocks else {})
    if "metadata" in params:
        fields["metadata"] = _metadata(params["metadata"])
    if thread := params.get("thread_ts"):
        if thread not in chat.messages:
            raise SlackCallError("thread_not_found")
        fields["thread_ts"] = thread
    message = state.add_message(chat, **fields)
    return {"channel": chat.id, "ts": message["ts"], "message": _shown(message)}


def _own(text: str) -> Object:
    return {"user": BOT_USER, "bot_id": BOT, "app_id": APP, "text": text}


def _update(state: SlackWorkspace, params: Params) -> Object:
    chat = state.joined(params["channel"])
    message = _own_message(chat, params["ts"], "cant_update_message")
    text, blocks = params.get("text", ""), _blocks(params.get("blocks", "[]"))
    if len(text) > MAX_EDIT_CHARS:
        raise SlackCallError("msg_too_long")
    message |= {"text": text, "edited": {"user": BOT_USER, "ts": state.next_ts()}}
    if "blocks" in params:
        message["blocks"] = blocks
    return {"channel": chat.id, "ts": message["ts"], "text": text, "message": _shown(message)}


def _delete(state: SlackWorkspace, params: Params) -> Object:
    chat = state.joined(params["channel"])
    _own_message(chat, params["ts"], "cant_delete_message")
    del chat.messages[params["ts"]]
    return {"channel": chat.id, "ts": params["ts"]}


def _own_message(chat: FakeConversation, ts: str, refusal: str) -> Object:
    message = chat.messages.get(ts)
    if message is None:
        raise SlackCallError("message_not_found")
    if message.get("user") != BOT_USER:
        raise SlackCallError(refusal)
    return message


def _metadata(text: str) -> Object:
    found = _parse(text, "invalid_metadata_format")
    is_valid = isinstance(found, dict) and set(found) == {"event_type", "event_payload"}
    if not is_valid or len(text.encode()) > MAX_METADATA_BYTES:
        raise SlackCallError("invalid_metadata_format")
    return dict(found)


def _blocks(text: str) -> list[Object]:
    blocks = _parse(text, "invalid_blocks_format")
    if not isinstance(blocks, list) or len(blocks) > MAX_BLOCKS:
        raise SlackCallError("invalid_blocks")
    actions = list[str]()
    for number, block in enumerate(blocks):
        block.setdefault("block_id", f"b{number}")
        kind, elements = block.get("type"), block.get("elements", [])
        text_length = len(block.get("text", {}).get("text", "")) if kind == "section" else 1
        if kind not in {"section", "actions"} or not 0 < text_length <= MAX_SECTION_CHARS:
            raise SlackCallError("invalid_blocks")
        if kind == "actions" and not 0 < len(elements) <= MAX_ELEMENTS:
            raise SlackCallError("invalid_blocks")
        for element in elements:
            if element.get("type") != "button" or not _is_button(element):
                raise SlackCallError("invalid_blocks")
            actions.append(element["action_id"])
    if len(set(actions)) != len(actions):
        raise SlackCallError("invalid_blocks")
    return blocks


def _is_button(element: Mapping[str, Json]) -> bool:
    label = element["text"]
    return (
        label["type"] == "plain_text"
        and 0 < len(label["text"]) <= MAX_LABEL_CHARS
        and 0 < len(element["value"]) <= MAX_VALUE_CHARS
    )


def _is_true(params: Params, name: str) -> bool:
    return params.get(name) in {"true", "1"}


def _parse(text: str, error: str) -> Json:
    try:
        return json.loads(text)
    except ValueError as exc:
        raise SlackCallError(error) from exc


def _shown(message: Object, *, metadata: bool = False) -> Object:
    return {key: value for key, value in message.items() if metadata or key != "metadata"}


# Conversations


def _history(state: SlackWorkspace, params: Params) -> Object:
    chat = state.joined(params["channel"])
    found = [
        one
        for one in chat.messages.values()
        if one.get("thread_ts") in {None, one["ts"]} or one.get("subtype") == "thread_broadcast"
    ]
    return _page([*reversed(found)], params)


def _replies(state: SlackWorkspace, params: Params) -> Object:
    chat, thread = state.joined(params["channel"]), params["ts"]
    if thread not in chat.messages:
        raise SlackCallError("thread_not_found")
    replies = [one for one in chat.messages.values() if one.get("thread_ts") == thread]
    return _page([one for one in replies if one["ts"] != thread], params, [chat.messages[thread]])


def _page(rows: Sequence[Object], params: Params, always: Sequence[Object] = ()) -> Object:
    oldest, latest = params.get("oldest", "0"), params.get("latest", "9999999999")
    rows = [*always, *(one for one in rows if float(oldest) < float(one["ts"]) < float(latest))]
    start, limit = int(params.get("cursor") or 0), int(params.get("limit", 100))
    if not 1 <= limit <= 999:
        raise SlackCallError("invalid_limit")
    end = start + limit
    metadata = _is_true(params, "include_all_metadata")
    shown = [_shown(one, metadata=metadata) for one in rows[start:end]]
    return {"messages": shown, **_cursor(end, len(rows)), "has_more": end < len(rows)}


def _cursor(end: int, count: int) -> Object:
    return {"response_metadata": {"next_cursor": str(end) if end < count else ""}}


def _list(state: SlackWorkspace, params: Params) -> Object:
    return _conversations(state, params, is_member=False)


def _own_conversations(state: SlackWorkspace, params: Params) -> Object:
    return _conversations(state, params, is_member=True)


def _conversations(state: SlackWorkspace, params: Params, *, is_member: bool) -> Object:
    names = {"channel": "public_channel", "group": "private_channel"}
    kinds = params.get("types", "public_channel").split(",")
    rows = [
        chat
        for chat in state.conversations.values()
        if names.get(chat.kind, chat.kind) in kinds
        and (BOT_USER in chat.members or (chat.kind == "channel" and not is_member))
        and not (chat.is_archived and _is_true(params, "exclude_archived"))
    ]
    start, limit = int(params.get("cursor") or 0), int(params.get("limit", 100))
    end = start + limit
    return {"channels": [chat.shown() for chat in rows[start:end]], **_cursor(end, len(rows))}


def _info(state: SlackWorkspace, params: Params) -> Object:
    chat = state.find(params["channel"])
    row = chat.shown()
    if _is_true(params, "include_num_members"):
        row["num_members"] = len(chat.members)
    return {"channel": row}


def _open(state: SlackWorkspace, params: Params) -> Object:
    user = params["users"]
    if user not in state.people:
        raise SlackCallError("user_not_found")
    return {"channel": {"id": state.direct(user).id}}


def _kick(state: SlackWorkspace, params: Params) -> Object:
    chat = state.joined(params["channel"])
    if params["user"] not in chat.members:
        raise SlackCallError("not_in_channel")
    chat.members.discard(params["user"])
    return {}


# People


def _user(state: SlackWorkspace, params: Params) -> Object:
    if params["user"] not in state.people:
        raise SlackCallError("user_not_found")
    return {"user": state.people[params["user"]]}


def _users(state: SlackWorkspace, params: Params) -> Object:
    rows, start = [*state.people.values()], int(params.get("cursor") or 0)
    end = start + int(params.get("limit", 100))
    return {"members": rows[start:end], **_cursor(end, len(rows))}


# Reactions and pins


def _message(state: SlackWorkspace, params: Params) -> tuple[FakeConversation, Object]:
    chat = state.joined(params["channel"])
    if params["timestamp"] not in chat.messages:
        raise SlackCallError("message_not_found")
    return chat, chat.messages[params["timestamp"]]


def _add_reaction(state: SlackWorkspace, params: Params) -> Object:
    chat, message = _message(state, params)
    if not params["name"].replace("_", "").replace("+", "").replace("-", "").isalnum():
        raise SlackCallError("invalid_name")
    users = state.reactions.setdefault((chat.id, message["ts"]), {}).setdefault(params["name"], [])
    if BOT_USER in users:
        raise SlackCallError("already_reacted")
    users.append(BOT_USER)
    return {}


def _remove_reaction(state: SlackWorkspace, params: Params) -> Object:
    chat, message = _message(state, params)
    names = state.reactions.get((chat.id, message["ts"]), {})
    if BOT_USER not in names.get(params["name"], ()):
        raise SlackCallError("no_reaction")
    names[params["name"]].remove(BOT_USER)
    return {}


def _get_reactions(state: SlackWorkspace, params: Params) -> Object:
    chat, message = _message(state, params)
    names = state.reactions.get((chat.id, message["ts"]), {})
    rows = [{"name": n, "count": len(who), "users": who} for n, who in names.items() if who]
    shown = _shown(message) | ({"reactions": rows} if rows else {})
    return {"type": "message", "channel": chat.id, "message": shown}


def _pin(state: SlackWorkspace, params: Params) -> Object:
    chat, message = _message(state, params)
    if message["ts"] in chat.pins:
        raise SlackCallError("already_pinned")
    chat.pins.append(message["ts"])
    return {}


def _unpin(state: SlackWorkspace, params: Params) -> Object:
    chat, message = _message(state, params)
    if message["ts"] not in chat.pins:
        raise SlackCallError("no_pin")
    chat.pins.remove(message["ts"])
    return {}


def _pins(state: SlackWorkspace, params: Params) -> Object:
    chat = state.joined(params["channel"])
    rows = [{"type": "message", "message": _shown(chat.messages[ts])} for ts in chat.pins]
    return {"items": rows}


# Files


def _upload_url(state: SlackWorkspace, params: Params) -> Object:
    if not params["length"].isdigit() or int(params["length"]) < 1:
        raise SlackCallError("invalid_arguments")
    file = state.add_file(params["filename"], b"")
    file.size = int(params["length"])
    return {"upload_url": f"{state.url}/upload/v1/{file.id}", "file_id": file.id}


def _complete_upload(state: SlackWorkspace, params: Params) -> Object:
    rows = _parse(params["files"], "invalid_arguments")
    files = [state.files.get(row["id"]) for row in rows]
    if not files or any(file is None or len(file.content) != file.size for file in files):
        raise SlackCallError("file_not_found")
    found = [file for file in files if file]
    for file, row in zip(found, rows, strict=True):
        file.title = row.get("title", "")
    if "channel_id" in params:
        _share(state, params, found)
    return {"files": [file.shown(state.url) for file in found]}


def _share(state: SlackWorkspace, params: Params, files: Sequence[object]) -> None:
    chat = state.joined(params["channel_id"])
    fields = _own(params.get("initial_comment", "")) | {"upload": True, "subtype": "file_share"}
    if thread := params.get("thread_ts"):
        fields["thread_ts"] = thread
    message = state.add_message(chat, **fields)
    rows = [file for file in state.files.values() if file in files]
    for file in rows:
        file.shares.setdefault(chat.id, []).append({"ts": message["ts"]})
    message["files"] = [file.shown(state.url) for file in rows]


def _file(state: SlackWorkspace, params: Params) -> Object:
    if params["file"] not in state.files:
        raise SlackCallError("file_not_found")
    return {"file": state.files[params["file"]].shown(state.url)}


def _search(state: SlackWorkspace, params: Params) -> Object:
    found = [
        {**_shown(message), "channel": {"id": chat.id, "name": chat.name}}
        for chat in state.conversations.values()
        for message in chat.messages.values()
        if params["query"].lower() in message.get("text", "").lower()
    ]
    count = int(params.get("count", 20))
    return {"messages": {"total": len(found), "matches": found[:count]}}


def _method(run: Run, needs: str = "", also: str = "") -> SlackMethod:
    required = frozenset(needs.split())
    return SlackMethod(required | frozenset(also.split()), required, run)


_PAGE = "cursor limit"
_READ = f"{_PAGE} oldest latest inclusive include_all_metadata"
METHODS: Final[Mapping[str, SlackMethod]] = {
    "auth.test": _method(_auth_test),
    "chat.delete": _method(_delete, "channel ts"),
    "chat.postMessage": _method(
        _post, "channel", "text blocks metadata thread_ts unfurl_links unfurl_media"
    ),
    "chat.update": _method(_update, "channel ts", "text blocks metadata"),
    "conversations.history": _method(_history, "channel", _READ),
    "conversations.info": _method(_info, "channel", "include_num_members"),
    "conversations.kick": _method(_kick, "channel user"),
    "conversations.list": _method(_list, "", f"{_PAGE} types exclude_archived"),
    "conversations.open": _method(_open, "users", "return_im"),
    "conversations.replies": _method(_replies, "channel ts", _READ),
    "files.completeUploadExternal": _method(
        _complete_upload, "files", "channel_id initial_comment thread_ts"
    ),
    "files.getUploadURLExternal": _method(_upload_url, "filename length", "alt_txt"),
    "files.info": _method(_file, "file"),
    "pins.add": _method(_pin, "channel timestamp"),
    "pins.list": _method(_pins, "channel"),
    "pins.remove": _method(_unpin, "channel timestamp"),
    "reactions.add": _method(_add_reaction, "channel timestamp name"),
    "reactions.get": _method(_get_reactions, "channel timestamp", "full"),
    "reactions.remove": _method(_remove_reaction, "channel timestamp name"),
    "search.messages": _method(_search, "query", "count sort"),
    "users.conversations": _method(_own_conversations, "", f"{_PAGE} types exclude_archived"),
    "users.info": _method(_user, "user"),
    "users.list": _method(_users, "", _PAGE),
}
