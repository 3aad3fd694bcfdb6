"""Commands about one conversation: what it is, what the model is given, and what to do with it."""

import asyncio
import json
from pathlib import PurePosixPath
from typing import Final

from homarus.agent.commands.card import status_card
from homarus.agent.commands.orders import Order, Reply
from homarus.agent.context.tokens import message_bytes, message_tokens
from homarus.agent.prompt.preview import preview
from homarus.agent.prompt.report import describe
from homarus.core.errors import ToolError, Unavailable, UserError
from homarus.core.text import one_line
from homarus.sessions.export import FORMS, Head, read_path, render
from homarus.sessions.session import Session
from homarus.sessions.transcript import Tree
from homarus.tools.guard import Beneath

EXPORTS: Final = "exports"  # of the workspace
_STOP_S = 10.0
_TURNS = 5  # of the loop, until a run that was asked for just now has begun


async def status(order: Order) -> Reply:
    """`/status`."""
    return Reply(await status_card(order))


async def whoami(order: Order) -> Reply:
    """`/whoami`: how this channel names you, and what you may do."""
    inbound = order.inbound
    may = "every command" if order.is_owner else "the commands that are not for the owner alone"
    account = (
        f" · account {inbound.address.account}" if inbound.address.account != "default" else ""
    )
    return Reply(
        f"Channel: {inbound.address.channel}{account}\n"
        f"You: {one_line(inbound.sender, 120) or 'unnamed'}\n"
        f"You may give {may}."
    )


async def context(order: Order) -> Reply:
    """`/context [list|detail|json]`: what the model is given, counted."""
    if order.word not in {"", "list", "detail", "json"}:
        fix = "list, detail or json"
        raise UserError(f"/context does not understand {one_line(order.args, 40)!r}", fix=fix)
    session = await order.session()
    report = (await preview(order.program, order.key, order.program.find_traits)).report
    chars = sum(message_bytes(message) for message in session.messages)
    tokens = sum(message_tokens(message) for message in session.messages)
    if order.word == "json":
        talk = {"messages": len(session.messages), "bytes": chars, "tokens": tokens}
        shown = {"prompt": report.to_json(), "conversation": talk}
        return Reply(f"```json\n{json.dumps(shown, ensure_ascii=False, indent=2)}\n```")
    count = len(session.messages)
    said = f"Conversation: {count} messages, {chars:,} bytes, about {tokens:,} tokens"
    made = describe(report, detail=order.word == "detail")
    known = f"Last prompt, as the model counted it: {session.context_tokens:,} tokens"
    return Reply("\n".join([made, "", said, *([known] if session.context_tokens else [])]))


async def compact(order: Order) -> Reply:
    """`/compact [instructions]`."""
    made = await order.program.compact(order.key, order.args.strip())
    told = f"Compacted: about {made.tokens_before:,} tokens became {made.tokens_after:,}."
    if not made.by_model:
        told += " The model could not summarise; the notes were made without it."
    return Reply(f"{told} The transcript keeps everything.")


async def export(order: Order) -> Reply:
    """`/export [path]`: write this conversation to a file of the workspace."""
    session = await order.session()
    if session.leaf is None:
        raise UserError("there is nothing to export yet")
    path = _path(order, f"session-{session.session_id[:8]}-{session.leaf}.html")
    form = FORMS.get(PurePosixPath(path).suffix.lower())
    if form is None:
        fix = "end its name with .html or .md"
        raise UserError(f"cannot export to {one_line(path, 80)!r}", fix=fix)
    entries = await order.program.store.entries(session.session_id)
    messages = read_path(Tree(entries, session.leaf).path())
    at_ms = messages[-1].at_ms if messages else session.record.updated_ms
    title = session.label or "Conversation"
    page = render(Head(title, order.key, session.session_id, at_ms), messages, form)
    where = await asyncio.to_thread(_write, Beneath(order.agent.workspace), path, page)
    return Reply(f"Exported {len(messages)} messages to {where} of the workspace.")


def _path(order: Order, usual: str) -> str:
    """Where to write. Whoever is not the owner could otherwise write what agents are told."""
    path = order.args.strip()
    if not path:
        return f"{EXPORTS}/{usual}"
    if order.is_owner:
        return path
    if "/" in path or "\\" in path:
        raise UserError("only the owner may name a folder", fix="name a file alone")
    return f"{EXPORTS}/{path}"


def _write(folder: Beneath, path: str, page: str) -> str:
    """Write a new file. One that is there stays, unless it says the same."""
    data = page.encode("utf-8", "replace")
    try:
        if _holds(folder, path, data):
            return path
        return folder.write_atomic(path, data).path
    except ToolError as exc:
        raise UserError(exc.message, fix=exc.fix) from None


def _holds(folder: Beneath, path: str, data: bytes) -> bool:
    try:
        folder.stat(path)
    except ToolError:
        return False
    with folder.open_read(path) as opened:
        if opened.file.read(len(data) + 1) == data:
            return True
    raise UserError(f"{one_line(path, 80)} is there already", fix="name another file")


async def stop(order: Order) -> Reply:
    """`/stop`."""
    told = await order.program.hooks.command(order.where, "stop", "")
    said = "Stopped." if await stop_runs(order) else "Nothing is running."
    return Reply("\n".join([said, *told]))


async def stop_runs(order: Order) -> tuple[str, ...]:
    """Stop what the session does and has waiting; the ids of the runs."""
    stopped = dict.fromkeys(order.program.abort(order.key, by="stop-command"))
    for _ in range(_TURNS):
        await asyncio.sleep(0)
        stopped |= dict.fromkeys(order.program.abort(order.key, by="stop-command"))
    return tuple(stopped)


async def start_afresh(order: Order) -> Session:
    """Stop what the session does, and begin a new transcript; an empty one is new already."""
    await stop_runs(order)
    try:
        async with asyncio.timeout(_STOP_S), order.program.lanes.enter(f"session:{order.key}"):
            session = await order.session()
            if session.is_used:
                count = len(session.messages)
                await order.program.hooks.session_end(order.where, session.session_id, count)
                await session.reset()
            return session
    except TimeoutError:
        raise Unavailable(
            "the answer being made did not stop yet", fix="try again in a moment"
        ) from None


async def restart(order: Order) -> Reply:
    """`/restart`."""
    if not order.config.commands.restart:
        raise UserError("/restart is switched off", fix="set commands.restart to true")
    if order.program.restart is None:
        raise UserError("there is no gateway to restart here")
    return Reply("The gateway restarts; it is back in a moment.", then=order.program.restart)
