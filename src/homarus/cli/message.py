"""`homarus message`: messages in chats, through the channels of a running gateway."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import click

from homarus.cli.command_group import CommandGroup, examples
from homarus.cli.gateway_options import GatewayOptions
from homarus.cli.message_options import (
    ChatTarget,
    action_options,
    call_gateway,
    chat_options,
    run_action,
)
from homarus.cli.options import Seconds, limit_option
from homarus.core.errors import HomarusError, UserError
from homarus.core.message import Json
from homarus.core.text import escape_invisible, one_line

_message_id = click.option("--message-id", metavar="MESSAGE", required=True, help="Its id.")
_user = click.option("--user", metavar="PERSON", required=True, help="The id of the person.")
_reason = click.option("--reason", metavar="TEXT", help="What the service tells the person.")
_silent = click.option("--silent", is_flag=True, help="Without a notification.")
_dry_run = click.option("--dry-run", is_flag=True, help="Show what would be sent, and to whom.")
_key = click.option(
    "--idempotency-key",
    metavar="KEY",
    show_default="a new one",
    help="What was sent under this key is not sent again.",
)
_MAX_SILENCE_S: Final = 366 * 86_400


@click.group("message", cls=CommandGroup)
@examples(
    'homarus message send --target telegram:12345 --message "Dinner is ready"',
    "homarus message read --target '!room:example.org' --limit 5",
)
def command() -> None:
    """Send, read and change messages in the chats of a gateway."""


@command.command()
@examples(
    'homarus message send --target telegram:12345 --message "On my way"',
    "homarus message send --target '#family:example.org' --media photo.jpg",
    'homarus message send --target 12345 --message "Test" --dry-run --json',
)
@chat_options
@click.option("-m", "--message", metavar="TEXT", help="The words, in markdown.")
@click.option(
    "--media", metavar="FILE", multiple=True, help="A file or URL to send with it; repeatable."
)
@click.option("--reply-to", metavar="MESSAGE", help="The id of the message to answer.")
@click.option("--gif-playback", is_flag=True, help="Play a video as an animation.")
@_silent
@_key
@_dry_run
@action_options
def send(
    target: ChatTarget,
    message: str | None,
    media: tuple[str, ...],
    reply_to: str | None,
    idempotency_key: str | None,
    gateway: GatewayOptions,
    *,
    gif_playback: bool,
    silent: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Send a message to a chat, once."""
    if not (message or "").strip() and not media:
        raise UserError("there is nothing to send", fix="give --message or --media")
    fields: dict[str, Json] = {"message": message, "replyToId": reply_to}
    fields |= {"mediaUrls": [_media_name(one) for one in media] or None}
    fields |= {"silent": silent or None, "gifPlayback": gif_playback or None}
    _send(gateway, target, fields, idempotency_key, dry_run=dry_run, as_json=as_json)


@command.command()
@examples('homarus message broadcast --targets telegram:1 --targets irc:ann -m "Hello"')
@click.option(
    "--targets", metavar="TARGET", multiple=True, required=True, help="A chat; repeatable."
)
@click.option("-m", "--message", metavar="TEXT", required=True, help="The words, in markdown.")
@_silent
@_key
@_dry_run
@action_options
def broadcast(
    targets: Sequence[str],
    message: str,
    idempotency_key: str | None,
    gateway: GatewayOptions,
    *,
    silent: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Send one message to several chats."""
    key = idempotency_key or uuid4().hex
    fields: dict[str, Json] = {"message": message, "silent": silent or None}
    results = list[dict[str, Json]]()
    for number, name in enumerate(dict.fromkeys(targets)):
        try:
            sent = _sent(gateway, ChatTarget(name), fields, f"{key}:{number}", dry_run=dry_run)
            results.append({"target": name, "ok": True, **sent})
        except HomarusError as exc:  # the other chats get the message all the same
            results.append({"target": name, "ok": False, "error": exc.message})
    failed = sum(not row["ok"] for row in results)
    if as_json:
        click.echo(json.dumps({"results": results, "failed": failed}, ensure_ascii=False))
    else:
        for row in results:
            told = row.get("error") or row.get("status") or "dry run"
            click.echo(f"{escape_invisible(str(row['target']))}: {escape_invisible(str(told))}")
    if failed:
        raise click.exceptions.Exit(1)


@command.command()
@examples("homarus message poll --target 12345 --poll-question Tea? -o Yes -o No")
@chat_options
@click.option("--poll-question", metavar="TEXT", required=True, help="The question.")
@click.option(
    "-o", "--poll-option", "options", metavar="TEXT", multiple=True, required=True,
    help="An answer to choose; 2 to 12 of them.",
)  # fmt: skip
@click.option("--poll-multi", is_flag=True, help="Several answers may be chosen.")
@click.option(
    "--poll-duration-hours", "hours", metavar="HOURS", type=click.IntRange(1, 168),
    help="Close it after so long.",
)  # fmt: skip
@_silent
@_key
@_dry_run
@action_options
def poll(
    target: ChatTarget,
    poll_question: str,
    options: tuple[str, ...],
    hours: int | None,
    idempotency_key: str | None,
    gateway: GatewayOptions,
    *,
    poll_multi: bool,
    silent: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Send a poll to a chat, once."""
    fields: dict[str, Json] = {"question": poll_question, "options": [*options]}
    fields |= {"maxSelections": len(options) if poll_multi else None, "durationHours": hours}
    fields["silent"] = silent or None
    _send(gateway, target, fields, idempotency_key, "poll", dry_run=dry_run, as_json=as_json)


@command.command()
@examples("homarus message react --target 12345 --message-id 77 --emoji 👍")
@chat_options
@_message_id
@click.option("--emoji", metavar="EMOJI", help="What to react with.")
@click.option("--remove", is_flag=True, help="Remove our reaction.")
@action_options
def react(
    target: ChatTarget, gateway: GatewayOptions, *, as_json: bool, **fields: str | bool | None
) -> None:
    """React to a message, or remove the reaction."""
    done = "Removed the reaction." if fields["remove"] else "Reacted."
    run_action(gateway, "react", target, fields, as_json=as_json, text=done)


@command.command()
@examples("homarus message reactions --target '!room:example.org' --message-id '$x'")
@chat_options
@_message_id
@action_options
def reactions(
    target: ChatTarget, message_id: str, gateway: GatewayOptions, *, as_json: bool
) -> None:
    """List the reactions to a message."""
    asked = {"message_id": message_id}
    found = run_action(gateway, "reactions", target, asked, as_json=as_json)
    for row in [] if as_json else found["reactions"]:
        people = ", ".join(one_line(str(user), 60) for user in row["users"])
        click.echo(f"{escape_invisible(row['emoji'])}  {row['count']}  {people}")


@command.command()
@examples("homarus message read --target '!room:example.org' --limit 5 --json")
@chat_options
@limit_option("How many messages at most.", 200, default=20)
@click.option("--before", metavar="MESSAGE", help="Only messages before this one.")
@action_options
def read(
    target: ChatTarget, limit: int, before: str | None, gateway: GatewayOptions, *, as_json: bool
) -> None:
    """Print the newest messages of a chat, as the service has them."""
    asked = {"limit": limit, "before": before}
    _show_messages(run_action(gateway, "read", target, asked, as_json=as_json), as_json)


@command.command()
@examples("homarus message search --target '!room:example.org' --query invoice")
@chat_options
@click.option("--query", metavar="TEXT", required=True, help="What to search for.")
@limit_option("How many messages at most.", 200, default=20)
@action_options
def search(
    target: ChatTarget, query: str, limit: int, gateway: GatewayOptions, *, as_json: bool
) -> None:
    """Search the messages of a chat on its service."""
    asked = {"message": query, "limit": limit}
    _show_messages(run_action(gateway, "search", target, asked, as_json=as_json), as_json)


@command.command()
@examples('homarus message edit --target 12345 --message-id 77 --message "At eight"')
@chat_options
@_message_id
@click.option("-m", "--message", metavar="TEXT", required=True, help="The new words.")
@action_options
def edit(
    target: ChatTarget, gateway: GatewayOptions, *, as_json: bool, **fields: str | bool | None
) -> None:
    """Replace the words of a message of ours."""
    run_action(gateway, "edit", target, fields, as_json=as_json, text="Changed the message.")


@command.command()
@examples("homarus message delete --target 12345 --message-id 77")
@chat_options
@_message_id
@action_options
def delete(
    target: ChatTarget, gateway: GatewayOptions, *, as_json: bool, **fields: str | bool | None
) -> None:
    """Delete a message."""
    run_action(gateway, "delete", target, fields, as_json=as_json, text="Deleted the message.")


@command.command()
@examples("homarus message pin --target 12345 --message-id 77")
@chat_options
@_message_id
@action_options
def pin(
    target: ChatTarget, gateway: GatewayOptions, *, as_json: bool, **fields: str | bool | None
) -> None:
    """Pin a message in its chat."""
    run_action(gateway, "pin", target, fields, as_json=as_json, text="Pinned the message.")


@command.command()
@examples("homarus message unpin --target 12345 --message-id 77")
@chat_options
@_message_id
@action_options
def unpin(
    target: ChatTarget, gateway: GatewayOptions, *, as_json: bool, **fields: str | bool | None
) -> None:
    """Unpin a message."""
    run_action(gateway, "unpin", target, fields, as_json=as_json, text="Unpinned the message.")


@command.command()
@examples("homarus message pins --target 12345 --json")
@chat_options
@action_options
def pins(target: ChatTarget, gateway: GatewayOptions, *, as_json: bool) -> None:
    """List the pinned messages of a chat."""
    _show_messages(run_action(gateway, "pins", target, {}, as_json=as_json), as_json)


@command.command()
@examples("homarus message permissions --target -100200")
@chat_options
@click.option("--user", metavar="PERSON", show_default="ourselves", help="Whose rights.")
@action_options
def permissions(
    target: ChatTarget, user: str | None, gateway: GatewayOptions, *, as_json: bool
) -> None:
    """Show what we, or another person, may do in a chat."""
    asked = {"user_id": user}
    found = run_action(gateway, "permissions", target, asked, as_json=as_json)
    for name, allowed in ({} if as_json else found["may"]).items():
        click.echo(f"{name:<28} {'yes' if allowed else 'no'}")


@command.command()
@examples("homarus message timeout --target -100200 --user 555 --duration 600")
@chat_options
@_user
@click.option(
    "--duration", "duration_s", metavar="SECONDS", type=Seconds(30, _MAX_SILENCE_S), default=600,
    help="For how many seconds.",
)  # fmt: skip
@click.option("--remove", is_flag=True, help="Let the person write again.")
@action_options
def timeout(
    target: ChatTarget,
    user: str,
    duration_s: float,
    gateway: GatewayOptions,
    *,
    remove: bool,
    as_json: bool,
) -> None:
    """Silence a member of a group for some time."""
    asked = {"user_id": user, "remove": remove, "duration_seconds": int(duration_s)}
    done = "They may write again." if remove else f"Silenced for {duration_s:g} s."
    run_action(gateway, "timeout", target, asked, as_json=as_json, text=done)


@command.command()
@examples("homarus message kick --target -100200 --user 555")
@chat_options
@_user
@_reason
@action_options
def kick(
    target: ChatTarget, user: str, reason: str | None, gateway: GatewayOptions, *, as_json: bool
) -> None:
    """Remove a member from a group; they may come back."""
    asked = {"user_id": user, "message": reason}
    run_action(gateway, "kick", target, asked, as_json=as_json, text="Removed.")


@command.command()
@examples("homarus message ban --target -100200 --user 555")
@chat_options
@_user
@_reason
@click.option("--remove", is_flag=True, help="Lift the ban.")
@action_options
def ban(
    target: ChatTarget,
    user: str,
    reason: str | None,
    gateway: GatewayOptions,
    *,
    remove: bool,
    as_json: bool,
) -> None:
    """Remove a member from a group for good, or lift that."""
    asked = {"user_id": user, "message": reason, "remove": remove}
    run_action(
        gateway, "ban", target, asked, as_json=as_json,
        text="Lifted the ban." if remove else "Banned.",
    )  # fmt: skip


@command.group()
@examples("homarus message thread list --target '!room:example.org'")
def thread() -> None:
    """Create, list and answer threads and topics."""


@thread.command("create")
@examples('homarus message thread create --target -100200 --name "Holidays"')
@chat_options
@click.option("--name", metavar="TEXT", help="The name of a topic.")
@click.option("--message-id", metavar="MESSAGE", help="The message that the thread is about.")
@click.option("-m", "--message", metavar="TEXT", help="The first words in the thread.")
@_key
@action_options
def thread_create(
    target: ChatTarget,
    name: str | None,
    message_id: str | None,
    message: str | None,
    idempotency_key: str | None,
    gateway: GatewayOptions,
    *,
    as_json: bool,
) -> None:
    """Create a topic by its name, or a thread about a message."""
    asked = {"message": name or message, "message_id": message_id}
    found = run_action(
        gateway, "thread-create", target, asked, as_json=as_json, key=idempotency_key
    )
    if not as_json:
        click.echo(escape_invisible(str(found["threadId"])))


@thread.command("list")
@examples("homarus message thread list --target '!room:example.org' --json")
@chat_options
@limit_option("How many threads at most.", 200, default=20)
@action_options
def thread_list(target: ChatTarget, limit: int, gateway: GatewayOptions, *, as_json: bool) -> None:
    """List the threads of a chat."""
    found = run_action(gateway, "thread-list", target, {"limit": limit}, as_json=as_json)
    for row in [] if as_json else found["threads"]:
        click.echo(f"{one_line(row['threadId'], 80)}  {one_line(row['text'], 100)}")


@thread.command("reply")
@examples('homarus message thread reply --target 1 --thread-id 7 --message "Yes"')
@chat_options
@click.option("-m", "--message", metavar="TEXT", required=True, help="The words.")
@_key
@_dry_run
@action_options
def thread_reply(
    target: ChatTarget,
    message: str,
    idempotency_key: str | None,
    gateway: GatewayOptions,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Send a message to a thread, once."""
    if not target.thread_id:
        raise UserError("it is not said in which thread", fix="give --thread-id")
    fields: dict[str, Json] = {"message": message}
    _send(gateway, target, fields, idempotency_key, dry_run=dry_run, as_json=as_json)


@command.group()
@examples("homarus message sticker send --target 12345 --sticker CAACAgIAAxk")
def sticker() -> None:
    """Send stickers."""


@sticker.command("send")
@examples("homarus message sticker send --target 12345 --sticker CAACAgIAAxk")
@chat_options
@click.option("--sticker", "name", metavar="ID", required=True, help="Its id, or its URL.")
@_key
@action_options
def sticker_send(
    target: ChatTarget,
    name: str,
    idempotency_key: str | None,
    gateway: GatewayOptions,
    *,
    as_json: bool,
) -> None:
    """Send a sticker by the id that the service has for it."""
    run_action(
        gateway, "sticker-send", target, {"message": name}, as_json=as_json,
        text="Sent.", key=idempotency_key,
    )  # fmt: skip


@command.group()
@examples("homarus message channel info --target -100200")
def channel() -> None:
    """Show the groups and rooms of a service."""


@channel.command("info")
@examples("homarus message channel info --target -100200 --json")
@chat_options
@action_options
def channel_info(target: ChatTarget, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Show the name, topic and size of a group or room."""
    _show_fields(run_action(gateway, "channel-info", target, {}, as_json=as_json), as_json)


@channel.command("list")
@examples("homarus message channel list --channel matrix")
@click.option("--channel", "name", metavar="NAME", required=True, help="The chat service.")
@click.option("--account", metavar="ID", help="Which of our accounts there.")
@limit_option("How many rooms at most.", 200, default=50)
@action_options
def channel_list(
    name: str, account: str | None, limit: int, gateway: GatewayOptions, *, as_json: bool
) -> None:
    """List the groups and rooms that we are in."""
    target = ChatTarget("", name, account)
    found = run_action(gateway, "channel-list", target, {"limit": limit}, as_json=as_json)
    for row in [] if as_json else found["channels"]:
        click.echo(f"{one_line(row['id'], 80)}  {one_line(row['name'], 80)}")


@command.group()
@examples("homarus message member info --target -100200 --user 555")
def member() -> None:
    """Show the members of a group."""


@member.command("info")
@examples("homarus message member info --target -100200 --user 555 --json")
@chat_options
@_user
@action_options
def member_info(target: ChatTarget, user: str, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Show who a member of a group is, and with which rights."""
    asked = {"user_id": user}
    _show_fields(run_action(gateway, "member-info", target, asked, as_json=as_json), as_json)


@command.group()
@examples("homarus message role info --target -100200")
def role() -> None:
    """Show, give and take roles in a group."""


@role.command("info")
@examples("homarus message role info --target -100200 --json")
@chat_options
@action_options
def role_info(target: ChatTarget, gateway: GatewayOptions, *, as_json: bool) -> None:
    """List who has a role in a group."""
    found = run_action(gateway, "role-info", target, {}, as_json=as_json)
    for row in [] if as_json else found["members"]:
        click.echo(f"{one_line(str(row['user']), 60)}  {one_line(str(row['role']), 60)}")


@role.command("add")
@examples("homarus message role add --target -100200 --user 555 --role moderator")
@chat_options
@_user
@click.option("--role", "name", metavar="ROLE", required=True, help="Which; role info lists them.")
@action_options
def role_add(
    target: ChatTarget, user: str, name: str, gateway: GatewayOptions, *, as_json: bool
) -> None:
    """Give a member of a group a role."""
    asked = {"user_id": user, "message": name}
    run_action(gateway, "role-add", target, asked, as_json=as_json, text="Done.")


@role.command("remove")
@examples("homarus message role remove --target -100200 --user 555")
@chat_options
@_user
@action_options
def role_remove(target: ChatTarget, user: str, gateway: GatewayOptions, *, as_json: bool) -> None:
    """Take the role from a member of a group."""
    run_action(gateway, "role-remove", target, {"user_id": user}, as_json=as_json, text="Done.")


def _media_name(name: str) -> str:
    """Return a file's full path: the gateway has another current directory."""
    return name if "://" in name else str(Path(name).expanduser().resolve())


def _send(
    gateway: GatewayOptions,
    target: ChatTarget,
    fields: Mapping[str, Json],
    key: str | None,
    method: str = "send",
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    sent = _sent(gateway, target, fields, key, method, dry_run=dry_run)
    if as_json:
        click.echo(json.dumps(sent, ensure_ascii=False))
        return
    chat = escape_invisible(f"{sent['channel']}:{sent['chatId']}")
    if dry_run:
        click.echo(f"Would be sent to {chat}. Nothing was sent.")
        return
    number = f" as message {sent['messageId']}" if sent["messageId"] else ""
    states = {"sent": f"Sent to {chat}{number}.", "queued": f"On its way to {chat}."}
    unknown = f"Sent to {chat}, but the service did not confirm it."
    click.echo(escape_invisible(states.get(str(sent["status"]), unknown)))


def _sent(
    gateway: GatewayOptions,
    target: ChatTarget,
    fields: Mapping[str, Json],
    key: str | None,
    method: str = "send",
    *,
    dry_run: bool,
) -> dict[str, Any]:
    """Send, or only resolve the target; return the gateway's answer."""
    given = {name: value for name, value in fields.items() if value is not None}
    if dry_run:
        found = run_action(gateway, "resolve", target, {}, as_json=False)
        return {
            "dryRun": True,
            "channel": found["channel"],
            "accountId": found["accountId"],
            "chatId": found["to"],
            "threadId": found["threadId"],
            "payload": given,
        }
    params: dict[str, Json] = {"to": target.target, "idempotencyKey": key or uuid4().hex}
    params |= target.encode()
    if target.thread_id:
        params["threadId"] = target.thread_id
    return asyncio.run(call_gateway(gateway, method, params | given))


def _show_messages(found: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        return
    rows = found["messages"]
    for row in rows:
        said = one_line(str(row.get("text") or ""), 200)
        click.echo(
            f"{one_line(str(row['id']), 60)}  {one_line(str(row.get('sender') or '?'), 60)}: {said}"
        )
    if not rows:
        click.echo("No messages.")


def _show_fields(found: Mapping[str, Any], as_json: bool) -> None:
    hidden = {"action", "channel", "accountId", "to", "threadId"}
    for name, value in ({} if as_json else found).items():
        if name not in hidden and value not in {"", None}:
            click.echo(f"{name:<12} {one_line(str(value), 200)}")
