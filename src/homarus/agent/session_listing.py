"""What `sessions_list`, `sessions_history` and `agents_list` return: bounded and redacted JSON."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from homarus.agent.commands.context import CommandServices
from homarus.agent.session_lookup import (
    check_exists,
    check_reached,
    find_reached,
    reach_of,
    resolve_session,
    text_field,
)
from homarus.agent.subagents.spawn_rules import check_depth, find_target
from homarus.agent.taint import find_session_taint
from homarus.config.agent_settings import agent_entry, agent_ids
from homarus.config.redaction import redact
from homarus.config.schema import Config
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Image, Json, Message, Text, ToolCall, ToolResult
from homarus.core.session_keys import channel_of, is_cron, is_hook, is_main, parse_agent_key
from homarus.core.text import clip_middle, one_line
from homarus.core.untrusted import neutralize_name, unwrap_untrusted
from homarus.policy.tool_call import TaintSource
from homarus.sessions.chat_fields import display_name
from homarus.sessions.session import Session
from homarus.store.base import SessionRecord
from homarus.tools.execute import MAX_CHARS
from homarus.tools.tool import ToolContext, ToolOutput

MAX_HISTORY_BYTES: Final = 80 * 1024
MAX_TEXT_CHARS: Final = 4_000
_MAX_OUTPUT_CHARS: Final = MAX_CHARS - 500  # the pipeline would cut the JSON in the middle
_MAX_NAME_CHARS: Final = 80


@dataclass(frozen=True, slots=True)
class ListRequest:
    """The arguments of `sessions_list`; no kinds are all, 0 minutes any time."""

    kinds: frozenset[str] = frozenset()
    limit: int = 50
    active_minutes: int = 0
    message_limit: int = 0


async def list_sessions(
    services: CommandServices, ctx: ToolContext, request: ListRequest
) -> ToolOutput:
    """Return the sessions that are reached, newest first."""
    since_ms = 0
    if request.active_minutes:
        since_ms = services.clock.now_ms() - request.active_minutes * 60_000
    reach = reach_of(services.get_config(), ctx)
    records = await find_reached(services.store, reach, since_ms)
    kept = [each for each in records if not request.kinds or session_kind(each) in request.kinds]
    rows, taint, left = list[Json](), None, _MAX_OUTPUT_CHARS
    for record in kept[: request.limit]:
        row = _row(services, record)
        if request.message_limit:
            messages = await _load_messages(services, record)
            shown = list(_encode(messages, include_tools=False))[-request.message_limit :]
            row["messages"] = shown
            if record.key != ctx.session_key:
                taint = taint or find_session_taint(record.key, messages)
        left -= len(json.dumps(row, ensure_ascii=False)) + 2
        if left < 0:
            break
        rows.append(row)
    found: dict[str, Json] = {"count": len(rows), "visibility": reach.visibility, "sessions": rows}
    if len(rows) < len(kept):
        found["truncated"] = True
    return _output(found, taint)


def session_kind(record: SessionRecord) -> str:
    """Return the kind of a session, as the tool names it."""
    key, parsed = record.key, parse_agent_key(record.key)
    rest = (parsed.rest if parsed else key).lower()
    if is_main(key, record.agent):
        return "main"
    if is_cron(key):
        return "cron"
    if is_hook(key):
        return "hook"
    if rest.startswith(("node:", "node-")):
        return "node"
    marks = {*rest.split(":")}
    is_group = record.data.get("chatType") in {"group", "channel"} or {"group", "channel"} & marks
    return "group" if is_group else "other"


def _row(services: CommandServices, record: SessionRecord) -> dict[str, Json]:
    name = neutralize_name(one_line(display_name(record.data, record.key), _MAX_NAME_CHARS))
    tokens = record.data.get("totalTokens")
    row: dict[str, Json] = {
        "key": record.key,
        "kind": session_kind(record),
        "label": text_field(record, "label"),
        "displayName": name,
        "channel": text_field(record, "lastChannel") or channel_of(record.key),
        "spawnedBy": text_field(record, "spawnedBy"),
        "model": text_field(record, "modelOverride") or text_field(record, "model"),
        "totalTokens": tokens if isinstance(tokens, int) else None,
        "updatedAt": record.updated_ms,
        "sessionId": record.session_id,
    }
    if services.control.is_busy(record.key):
        row["active"] = True
    return {key: value for key, value in row.items() if value not in ("", None)}


async def read_history(
    services: CommandServices,
    ctx: ToolContext,
    name: str,
    *,
    limit: int,
    include_tools: bool,
) -> ToolOutput:
    """Return the last messages of a session. Raises ToolError and ToolDeniedError."""
    config, store = services.get_config(), services.store
    key = await resolve_session(services, ctx, name)
    await check_reached(store, reach_of(config, ctx), key)
    await check_exists(store, key)
    record = await store.session(key)
    messages = await _load_messages(services, record) if record else ()
    encoded = list(_encode(messages, include_tools=include_tools))
    shown, size, left = list[Json](), MAX_HISTORY_BYTES, _MAX_OUTPUT_CHARS
    for each in reversed(encoded[-limit:]):
        text = json.dumps(each, ensure_ascii=False)
        size, left = size - len(text.encode("utf-8", "replace")) - 2, left - len(text) - 2
        if size < 0 or left < 0:
            break
        shown.insert(0, each)
    found: dict[str, Json] = {"sessionKey": key, "count": len(shown), "messages": shown}
    if len(shown) < len(encoded):
        found["truncated"] = True
    taint = find_session_taint(key, messages) if key != ctx.session_key else None
    return _output(found, taint)


async def _load_messages(services: CommandServices, record: SessionRecord) -> Sequence[Message]:
    session = await Session.load(services.store, services.clock, record.key, record.agent)
    return session.messages


def _encode(messages: Sequence[Message], *, include_tools: bool) -> Iterator[dict[str, Json]]:
    """Yield messages for the model: texts without reasoning, and tools when they are asked for."""
    for message in messages:
        shown: dict[str, Json] = {"role": message.role}
        texts = [part.text for part in message.parts if isinstance(part, Text) and part.text]
        texts += ["[image]" for part in message.parts if isinstance(part, Image)]
        if message.role != "tool" and (text := _clean("\n".join(texts))):
            shown["text"] = text
        if include_tools:
            shown |= _encode_tools(message)
        if len(shown) > 1:
            if message.at_ms:
                shown["timestamp"] = message.at_ms
            yield shown


def _encode_tools(message: Message) -> dict[str, Json]:
    calls: list[Json] = [
        {"name": part.name, "arguments": _clean(json.dumps(dict(part.args), ensure_ascii=False))}
        for part in message.parts
        if isinstance(part, ToolCall)
    ]
    found: dict[str, Json] = {"calls": calls} if calls else {}
    for part in message.parts:
        if isinstance(part, ToolResult):
            found |= {"tool": part.name, "text": _clean(part.text) or "(no output)"}
            if part.is_error:
                found["isError"] = True
    return found


def _clean(text: str) -> str:
    # The markers of an earlier wrapping are removed: the complete result gets new ones.
    text = redact(unwrap_untrusted(text)).strip()
    # The remark about what was left out counts too.
    return text if len(text) <= MAX_TEXT_CHARS else clip_middle(text, MAX_TEXT_CHARS - 60)


def list_agents(services: CommandServices, ctx: ToolContext) -> ToolOutput:
    """Return the agents that the session may write to or start, and itself."""
    config = services.get_config()
    reach, agents = reach_of(config, ctx), list[Json]()
    for agent in agent_ids(config):
        entry = agent_entry(config, agent)
        can_send, can_spawn = reach.can_write_to(agent), _can_spawn(config, ctx, agent)
        if not (can_send or can_spawn or agent == ctx.agent):
            continue
        row: dict[str, Json] = {"id": agent}
        if name := one_line(entry.name or entry.identity.name or "", _MAX_NAME_CHARS):
            row["name"] = name
        agents.append({**row, "canSend": can_send, "canSpawn": can_spawn})
    return _output({"requester": ctx.agent, "agents": agents})


def _can_spawn(config: Config, ctx: ToolContext, agent: str) -> bool:
    try:
        check_depth(config, ctx.caller.depth)
        find_target(config, ctx.agent, agent)
    except UserError:
        return False
    return True


def _output(found: Mapping[str, Json], taint: TaintSource | None = None) -> ToolOutput:
    text = json.dumps(found, ensure_ascii=False)
    return ToolOutput((Text(text),), untrusted=taint)
