"""The `message` tool: write to a chat, answer, react, edit and delete there.

Without a target it means the chat that is being answered. Elsewhere it writes only where
`tools.message` lets it, and to somebody new only after a person said yes. What it sends has an
id made of the run and the call, and the rest can be done twice: so it may be run again.
"""

import hashlib
import json
from collections.abc import Sequence
from functools import cache
from typing import Annotated, Literal, TypeAlias

from pydantic import AliasChoices, Field

from homarus.config.schema import MessageToolConfig
from homarus.core.errors import ToolDeniedError, ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Button, Extras, Text
from homarus.core.text import escape_invisible, one_line
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import (
    ApprovalRequest,
    Messenger,
    SendResult,
    Tool,
    ToolContext,
    ToolOutput,
    tool,
)

MessageActionName: TypeAlias = Literal["send", "reply", "thread-reply", "react", "edit", "delete"]
MAX_BUTTONS = 50
_RULES = MessageToolConfig.model_construct()


def _named(*names: str, about: str) -> object:
    return Field(validation_alias=AliasChoices(*names), description=about)


@dataclass(frozen=True, slots=True)
class _MessageAction:
    """A call, read: what to do, and where."""

    action: MessageActionName
    mail: Messenger
    to: Address
    message_id: str
    text: str = ""
    media: str = ""
    reply_to: str = ""
    emoji: str = ""
    remove: bool = False
    as_voice: bool = False
    silent: bool = False
    buttons: tuple[tuple[Button, ...], ...] = ()


@cache
def message_tool(rules: MessageToolConfig = _RULES) -> Tool:
    """The tool, with the rules for writing elsewhere."""

    @tool(group="messaging", name="message", serial=True, idempotent=True)
    async def run(
        ctx: ToolContext,
        *,
        action: Annotated[MessageActionName, Field(description="What to do")] = "send",
        message: Annotated[
            str | None, _named("message", "text", "caption", about="The words, in markdown")
        ] = None,
        target: Annotated[
            str | None,
            _named(
                "target",
                "to",
                about="Chat or person: an id, channel:id, chat:topic:N, #room. This chat if absent",
            ),
        ] = None,
        channel: Annotated[str | None, Field(description="Chat service")] = None,
        account_id: Annotated[
            str | None, _named("accountId", about="Which of our accounts there")
        ] = None,
        thread_id: Annotated[str | None, _named("threadId", about="Topic or thread")] = None,
        media: Annotated[
            str | None, _named("media", "path", "filePath", about="A file of the workspace")
        ] = None,
        reply_to: Annotated[
            str | None, _named("replyTo", about="Id of the message to answer")
        ] = None,
        message_id: Annotated[
            str | None,
            _named("messageId", about="The message meant; the one being answered if absent"),
        ] = None,
        emoji: Annotated[str | None, Field(description="To react with")] = None,
        remove: Annotated[bool, Field(description="Take the reaction back")] = False,
        as_voice: Annotated[bool, _named("asVoice", about="Audio as a voice message")] = False,
        silent: Annotated[bool, Field(description="Without a sound")] = False,
        buttons: Annotated[
            list[list[dict[str, str]]] | None,
            Field(description="Rows of {text, callback_data}; what is pressed comes as a message"),
        ] = None,
    ) -> ToolOutput:
        """Write to a chat, or answer, react to, edit or delete a message there.

        Your answer reaches this conversation by itself: use this to write elsewhere, to send a
        file or buttons, or to react. To somebody new your person is asked first.
        """
        asked = _MessageAction(
            action,
            _mail(ctx),
            _find(ctx, target or "", channel or "", account_id or "", thread_id or ""),
            message_id or "",
            message or "",
            media or "",
            reply_to or "",
            emoji or "",
            remove,
            as_voice,
            silent,
            _rows(buttons or []),
        )
        crossed = await _permit(rules, ctx, asked)
        if action in {"react", "edit", "delete"}:
            return await _change(ctx, asked)
        return await _send(rules, ctx, asked, crossed=crossed)

    return run


def tools(context: ToolSourceContext) -> Sequence[Tool]:
    """Return the tool for an agent that can send messages to chats."""
    return [message_tool(context.config.tools.message)] if context.has_chats else []


def _mail(ctx: ToolContext) -> Messenger:
    if ctx.mail is None or not ctx.mail.accounts():
        raise ToolError("no chat service is connected", fix="say it in your answer")
    return ctx.mail


def _find(ctx: ToolContext, target: str, channel: str, account: str, thread: str) -> Address:
    names = {"channel": channel, "account": account, "thread": thread}
    return _mail(ctx).resolve_address(target, here=ctx.here, **names)


async def _permit(rules: MessageToolConfig, ctx: ToolContext, asked: _MessageAction) -> bool:
    """Whether this leaves the chat that is answered; ToolDenied when it may not."""
    to, here = asked.to, ctx.here
    if here and _chat(to) == _chat(here):
        return False
    bound = here is not None and _chat(here)[:2] in asked.mail.accounts()
    if here and bound and not rules.allow_cross_context_send:
        within = to.channel == here.channel
        name = "allowWithinProvider" if within else "allowAcrossProviders"
        own = rules.cross_context
        if not (own.allow_within_provider if within else own.allow_across_providers):
            raise ToolDeniedError(
                f"from a chat on {here.channel} nothing is written to {_shown(to)}",
                fix=f"your person can allow it: tools.message.crossContext.{name}",
            )
    if not await asked.mail.is_known_chat(ctx.agent, to):
        question = ApprovalRequest(
            "May the agent write to somebody new?", escape_invisible(_described(asked, _shown(to)))
        )
        if not await ctx.ask(question):
            raise ToolDeniedError(f"nobody approved to write to {_shown(to)}, who is new to you")
    return bound


async def _send(
    rules: MessageToolConfig, ctx: ToolContext, asked: _MessageAction, *, crossed: bool
) -> ToolOutput:
    if not asked.text.strip() and not asked.media:
        raise ToolError("there is nothing to send", fix="give message or media")
    if asked.action == "thread-reply" and not asked.to.thread:
        raise ToolError("it is not said in which thread", fix="give threadId")
    files = await asked.mail.attach([asked.media], ctx.workspace) if asked.media else ()
    if lost := next((file for file in files if file.problem), None):
        raise ToolError(f"{lost.name}: {lost.problem}")
    extras = Extras(
        reply_to=_current(ctx, asked) if asked.action == "reply" else asked.reply_to,
        media=files,
        as_voice=asked.as_voice,
        buttons=asked.buttons,
        silent=asked.silent,
    )
    text = _marked(rules, ctx, asked.text) if crossed else asked.text
    posted = await asked.mail.send(asked.to, text, extras, _key(ctx, asked))
    return _told(asked.to, posted)


async def _change(ctx: ToolContext, asked: _MessageAction) -> ToolOutput:
    """React, edit or delete."""
    message_id = asked.message_id or _current(ctx, asked)
    where = f"message {one_line(message_id, 60)} in {_shown(asked.to)}"
    match asked.action:
        case "react" if asked.emoji or asked.remove:
            await asked.mail.react(asked.to, message_id, "" if asked.remove else asked.emoji)
            told = f"{'Took the reaction back from' if asked.remove else 'Reacted to'} {where}."
        case "react":
            raise ToolError("it is not said what to react with", fix="give emoji, or remove")
        case _ if not asked.message_id:  # what is answered is another's: not ours to change
            raise ToolError("it is not said which message", fix="give messageId")
        case "edit":
            await asked.mail.edit(asked.to, message_id, asked.text)
            told = f"Changed {where}."
        case _:
            await asked.mail.delete(asked.to, message_id)
            told = f"Deleted {where}."
    return ToolOutput((Text(told),), {**_details(asked.to), "messageId": message_id})


def _current(ctx: ToolContext, asked: _MessageAction) -> str:
    """The message meant where none is named: the one that is being answered, in its chat."""
    if named := asked.message_id or asked.reply_to:
        return named
    if ctx.here and _chat(ctx.here) == _chat(asked.to) and ctx.message_id:
        return ctx.message_id
    raise ToolError("it is not said which message", fix="give messageId")


def _marked(rules: MessageToolConfig, ctx: ToolContext, text: str) -> str:
    """Words from another chat, which say so."""
    marker = rules.cross_context.marker
    if not marker.enabled or not text.strip() or ctx.here is None:
        return text
    prefix, suffix = (
        part.replace("{channel}", ctx.here.channel) for part in (marker.prefix, marker.suffix)
    )
    return f"{prefix}{text}{suffix}"


def _key(ctx: ToolContext, asked: _MessageAction) -> str:
    """One for one call. Some services use an id for several calls: what is said counts, too."""
    to = asked.to
    meant = (asked.reply_to, asked.message_id)
    said = [ctx.call_id, *_chat(to), to.thread, asked.text, asked.media, *meant]
    digest = hashlib.sha256(json.dumps(said).encode()).hexdigest()
    return f"{ctx.run_id}:message:{digest[:16]}"


def _told(to: Address, posted: SendResult) -> ToolOutput:
    shown, why = _shown(to), one_line(posted.why, 200)
    match posted.state:
        case "failed":
            raise ToolError(f"it could not be sent to {shown}: {why}")
        case "sent":
            at = f" as message {posted.message_id}" if posted.message_id else ""
            told = f"Sent to {shown}{at}."
        case "unknown":
            told = f"Sent to {shown}, but it was not confirmed: {why}. Do not send it again."
        case _:
            told = f"It is on its way to {shown}, and not there yet. Do not send it again."
    details = {**_details(to), "messageId": posted.message_id, "state": posted.state}
    return ToolOutput((Text(told),), details)


def _rows(buttons: list[list[dict[str, str]]]) -> tuple[tuple[Button, ...], ...]:
    if sum(map(len, buttons)) > MAX_BUTTONS:
        raise ToolError(f"more than {MAX_BUTTONS} buttons")
    rows = []
    for row in buttons:
        made = []
        for one in row:
            label = one.get("text") or one.get("label") or ""
            if not label.strip():
                raise ToolError("a button has no text", fix="give each {text, callback_data}")
            made.append(Button(label, one.get("callback_data") or one.get("data") or label))
        if made:
            rows.append(tuple(made))
    return tuple(rows)


def _chat(address: Address) -> tuple[str, str, str]:
    return address.channel, address.account, address.chat


def _shown(to: Address) -> str:
    account = "" if to.account == "default" else f":{to.account}"
    thread = f":topic:{to.thread}" if to.thread else ""
    return one_line(f"{to.channel}{account}:{to.chat}{thread}", 120)


def _details(to: Address) -> dict[str, str | None]:
    return {
        "channel": to.channel,
        "accountId": to.account,
        "to": to.chat,
        "threadId": to.thread,
    }


def _described(asked: _MessageAction, shown: str) -> str:
    lines = [f"To: {shown}", f"What: {asked.action}"]
    if asked.text:
        lines += ["", asked.text]
    if asked.media:
        lines += ["", f"With the file {asked.media}"]
    if asked.emoji:
        lines += ["", asked.emoji]
    return "\n".join(lines)
