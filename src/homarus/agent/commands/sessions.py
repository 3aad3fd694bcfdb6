"""Commands about one session: status, context, export, compaction, stop, restart."""

import asyncio
import json
from pathlib import PurePosixPath
from typing import Final

from homarus.agent.commands.context import AgentCommandContext
from homarus.agent.commands.status_card import status_card
from homarus.agent.context.tokens import message_bytes, message_tokens
from homarus.agent.prompt.report import format_report
from homarus.core.errors import ToolError, UserError
from homarus.core.text import one_line
from homarus.plugins.commands import CommandContext, CommandReply, command
from homarus.policy.workspace_access import FULL_ACCESS, session_access
from homarus.sessions.export import FORMS, ExportHeader, export_messages, render_export
from homarus.sessions.session import Session
from homarus.sessions.stop_text import describe_stop
from homarus.sessions.transcript import EntryTree
from homarus.tools.rooted_fs import RootedFs

EXPORTS: Final = "exports"  # of the workspace


@command("status")
async def status(context: AgentCommandContext) -> CommandReply:
    """`/status`."""
    return CommandReply(await status_card(context))


@command("whoami")
async def whoami(context: CommandContext) -> CommandReply:
    """`/whoami`: the sender as the channel names them, and their authority."""
    inbound = context.inbound
    may = "every command" if context.is_owner else "the commands that are not for the owner alone"
    account = (
        f" · account {inbound.address.account}" if inbound.address.account != "default" else ""
    )
    return CommandReply(
        f"Channel: {inbound.address.channel}{account}\n"
        f"You: {one_line(inbound.sender, 120) or 'unnamed'}\n"
        f"You may give {may}."
    )


@command("context")
async def show_context(context: AgentCommandContext) -> CommandReply:
    """`/context [list|detail|json]`: the size of what the model is given."""
    if context.single_arg not in {"", "list", "detail", "json"}:
        fix = "list, detail or json"
        raise UserError(f"/context does not understand {one_line(context.args, 40)!r}", fix=fix)
    session = await context.session()
    report = (await context.services.preview(context.key)).report
    chars = sum(message_bytes(message) for message in session.messages)
    tokens = sum(message_tokens(message) for message in session.messages)
    if context.single_arg == "json":
        conversation = {"messages": len(session.messages), "bytes": chars, "tokens": tokens}
        if not context.is_for_owner_alone:
            report = report.without_host_paths()
        shown = {"prompt": report.to_json(), "conversation": conversation}
        return CommandReply(f"```json\n{json.dumps(shown, ensure_ascii=False, indent=2)}\n```")
    count = len(session.messages)
    sizes = f"Conversation: {count} messages, {chars:,} bytes, about {tokens:,} tokens"
    prompt = format_report(report, detail=context.single_arg == "detail")
    counted = f"Last prompt, as the model counted it: {session.context_tokens:,} tokens"
    return CommandReply(
        "\n".join([prompt, "", sizes, *([counted] if session.context_tokens else [])])
    )


@command("compact")
async def compact(context: AgentCommandContext) -> CommandReply:
    """`/compact [instructions]`."""
    result = await context.services.compact(context.key, context.args.strip())
    text = f"Compacted: about {result.tokens_before:,} tokens became {result.tokens_after:,}."
    if not result.by_model:
        text += " The model could not summarise; the notes were made without it."
    return CommandReply(f"{text} The transcript keeps everything.")


@command("export-session")
async def export(context: AgentCommandContext) -> CommandReply:
    """`/export [path]`: write this session to a file of the workspace."""
    session = await context.session()
    if session.leaf is None:
        raise UserError("there is nothing to export yet")
    path = _path(context, f"session-{session.session_id[:8]}-{session.leaf}.html")
    form = FORMS.get(PurePosixPath(path).suffix.lower())
    if form is None:
        fix = "end its name with .html or .md"
        raise UserError(f"cannot export to {one_line(path, 80)!r}", fix=fix)
    entries = await context.services.store.entries(session.session_id)
    messages = export_messages(EntryTree(entries, session.leaf).path())
    at_ms = messages[-1].at_ms if messages else session.record.updated_ms
    title = session.label or "Conversation"
    page = render_export(
        ExportHeader(title, context.key, session.session_id, at_ms), messages, form
    )
    # Groups do not see the folder of exports, but have theirs written there.
    is_export = path == f"{EXPORTS}/{PurePosixPath(path).name}"
    access = session_access(context.key, is_owner=context.is_owner)
    folder = RootedFs(context.agent.workspace, access=FULL_ACCESS if is_export else access)
    written_path = await asyncio.to_thread(_write, folder, path, page)
    return CommandReply(f"Exported {len(messages)} messages to {written_path} of the workspace.")


def _path(context: CommandContext, default: str) -> str:
    """Return the path to write; only the owner may overwrite files that agents read."""
    path = context.args.strip()
    if not path:
        return f"{EXPORTS}/{default}"
    if context.is_owner:
        return path
    if "/" in path or "\\" in path:
        raise UserError("only the owner may name a folder", fix="name a file alone")
    return f"{EXPORTS}/{path}"


def _write(folder: RootedFs, path: str, page: str) -> str:
    """Write a new file; raise UserError when another one has its name."""
    data = page.encode("utf-8", "replace")
    try:
        if _has_content(folder, path, data):
            return path
        return folder.write_atomic(path, data).path
    except ToolError as exc:
        raise UserError(exc.message, fix=exc.fix) from None


def _has_content(folder: RootedFs, path: str, data: bytes) -> bool:
    try:
        folder.stat(path)
    except ToolError:
        return False
    with folder.open_read(path) as opened:
        if opened.file.read(len(data) + 1) == data:
            return True
    raise UserError(f"{one_line(path, 80)} is there already", fix="name another file")


@command("stop")
async def stop(context: CommandContext) -> CommandReply:
    """`/stop`."""
    stopped = await context.ports.stop_runs(context.key)
    children = await context.ports.stop_children(context.key)
    # After the stop, which must not wait for a slow handler.
    lines = await context.ports.call_hooks(context.where, "stop", "")
    return CommandReply("\n".join([describe_stop(len(stopped), children), *lines]))


async def reset_session(context: AgentCommandContext) -> Session:
    """Start a new transcript; a session without messages stays as it is."""
    return await context.control.reset(
        context.key, context.where, by="stop-command", only_used=True
    )


@command("restart")
async def restart(context: CommandContext) -> CommandReply:
    """`/restart`."""
    if not context.config.commands.restart:
        raise UserError("/restart is switched off", fix="set commands.restart to true")
    restart_gateway = context.ports.get_restart()
    if restart_gateway is None:
        raise UserError("there is no gateway to restart here")
    return CommandReply("The gateway restarts; it is back in a moment.", on_saved=restart_gateway)
