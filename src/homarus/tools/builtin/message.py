"""The `message` tool: send, reply, poll, react, edit and delete messages in chats.

Without a target it acts on the current chat. Other chats are allowed by `tools.message`, and a
chat that is new needs a person's approval. A text for another chat, also that of an edit, names
where it comes from. Messages of other chats are edited and deleted, and get buttons, from the
agent's own sessions only: a group cannot rewrite what the owner has read. A send has an idempotency
key made of the run and the call, and the other actions can be repeated, so the tool may be run
again.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Annotated, Literal, TypeAlias

from pydantic import AliasChoices, Field

from homarus.config.tools_schema import MessageToolConfig
from homarus.core.errors import ToolError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Address, Button, Extras, Poll, Text
from homarus.core.text import escape_invisible, one_line
from homarus.policy.approvals import ApprovalQuestion
from homarus.policy.audience import PRIVATE, audience_of
from homarus.policy.tool_call import Effect, LayerVerdict, ToolCallFacts, ToolDeclaration
from homarus.providers.base import ToolSpec
from homarus.tools.attachments import is_web_url
from homarus.tools.cross_context import find_cross_context_refusal
from homarus.tools.sources import ToolSourceContext
from homarus.tools.tool import (
    Messenger,
    PreparedCall,
    SendResult,
    Tool,
    ToolContext,
    ToolOutput,
    tool,
)

MessageActionName: TypeAlias = Literal[
    "send", "reply", "thread-reply", "poll", "react", "edit", "delete"
]
MAX_BUTTONS = 50
MIN_OPTIONS, MAX_OPTIONS = 2, 12  # of a poll
_RULES = MessageToolConfig.model_construct()


def _named(*names: str, about: str | None = None) -> object:
    return Field(validation_alias=AliasChoices(*names), description=about)


@dataclass(frozen=True, slots=True)
class _MessageAction:
    """A parsed call: the action and its target."""

    action: MessageActionName
    messenger: Messenger
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
    poll: Poll | None = None


@cache
def message_tool(rules: MessageToolConfig = _RULES, *, has_polls: bool = True) -> Tool:
    """Return the tool with the rules for writing to other chats.

    Without `has_polls` the model is not offered them: no service of the config has any.
    """

    @tool(
        group="messaging",
        name="message",
        aliases=("channel_send", "dm_send"),
        serial=True,
        idempotent=True,
    )
    async def run(
        ctx: ToolContext,
        *,
        action: MessageActionName = "send",
        message: Annotated[
            str | None, _named("message", "text", "caption", about="The words, in markdown")
        ] = None,
        target: Annotated[
            str | None,
            _named(
                "target",
                "to",
                about="An id, channel:id, chat:topic:N or #room; this chat if absent",
            ),
        ] = None,
        channel: str | None = None,
        account_id: Annotated[
            str | None, _named("accountId", about="Which of our accounts there")
        ] = None,
        thread_id: Annotated[str | None, _named("threadId")] = None,
        media: Annotated[
            str | None,
            _named("media", "path", "filePath", about="A file of the workspace, or a URL"),
        ] = None,
        reply_to: Annotated[
            str | None, _named("replyTo", about="Id of the message to answer")
        ] = None,
        message_id: Annotated[
            str | None,
            _named("messageId", about="The one being answered if absent"),
        ] = None,
        emoji: str | None = None,
        remove: Annotated[bool, Field(description="Take the reaction back")] = False,
        as_voice: Annotated[bool, _named("asVoice", about="Audio as a voice message")] = False,
        silent: bool = False,
        buttons: Annotated[
            list[list[dict[str, str]]] | None,
            Field(description="Rows of {text, callback_data}"),
        ] = None,
        poll_question: Annotated[str | None, Field(validation_alias="pollQuestion")] = None,
        poll_option: Annotated[list[str] | None, Field(validation_alias="pollOption")] = None,
        poll_duration_hours: Annotated[int, Field(ge=0, validation_alias="pollDurationHours")] = 0,
        poll_multi: Annotated[bool, Field(validation_alias="pollMulti")] = False,
    ) -> PreparedCall:
        """Write to a chat, or answer, react to, edit or delete a message there.

        Your answer reaches this chat by itself: use this to write elsewhere, to send files or
        buttons, or to react.
        """
        request = _MessageAction(
            action,
            _get_messenger(ctx),
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
            _poll(action, poll_question, poll_option, poll_duration_hours, is_multiple=poll_multi),
        )
        return await _prepare(run.declaration, rules, ctx, request)

    return run if has_polls else replace(run, get_spec=cache(partial(_spec_without_polls, run)))


def _spec_without_polls(full: Tool) -> ToolSpec:
    schema = json.loads(json.dumps(full.spec.parameters))
    names = [name for name in schema["properties"] if name.startswith("poll")]
    for name in names:
        del schema["properties"][name]
    schema["properties"]["action"]["enum"].remove("poll")
    return replace(full.spec, parameters=schema)


def _poll(
    action: MessageActionName,
    question: str | None,
    options: list[str] | None,
    hours: int,
    *,
    is_multiple: bool,
) -> Poll | None:
    """Return the poll of a call; other actions have none."""
    if action != "poll":
        return None
    text, given = (question or "").strip(), tuple(each.strip() for each in options or ())
    if not text or not MIN_OPTIONS <= len(given) <= MAX_OPTIONS or not all(given):
        raise ToolError(
            f"a poll has a question and {MIN_OPTIONS} to {MAX_OPTIONS} options",
            fix="give pollQuestion and pollOption",
        )
    return Poll(text, given, hours * 3600, is_multiple)


def tools(context: ToolSourceContext) -> Sequence[Tool]:
    """Return the tool for an agent that can send messages to chats."""
    if not context.has_chats:
        return []
    return [message_tool(context.config.tools.message, has_polls=context.has_polls)]


def _get_messenger(ctx: ToolContext) -> Messenger:
    if ctx.messenger is None or not ctx.messenger.accounts():
        raise ToolError("no chat service is connected", fix="say it in your answer")
    return ctx.messenger


def _find(ctx: ToolContext, target: str, channel: str, account: str, thread: str) -> Address:
    names = {"channel": channel, "account": account, "thread": thread}
    return _get_messenger(ctx).resolve_address(target, here=ctx.here, **names)


async def _prepare(
    tool: ToolDeclaration, rules: MessageToolConfig, ctx: ToolContext, request: _MessageAction
) -> PreparedCall:
    """Return the call with what the settings say about its chat.

    A new recipient is an effect, and so is the server of a file that is named by URL.
    """
    is_same_chat = ctx.here is not None and _chat(request.to) == _chat(ctx.here)
    verdict = None if is_same_chat else await _judge_chat(rules, ctx, request)
    is_new, is_fetched = verdict == _new_chat(request), is_web_url(request.media)
    effects: frozenset[Effect] = frozenset({"send"} if is_new or is_fetched else ())
    shown = _shown(request.to)
    detail = _described(request, shown)
    identity = json.dumps([ctx.agent, *_chat(request.to), request.to.thread, detail])
    question = ApprovalQuestion(
        tool.name,
        "May the agent write to a new recipient?" if is_new else f"May the agent write to {shown}?",
        escape_invisible(detail),
        hashlib.sha256(identity.encode("utf-8", "surrogatepass")).hexdigest(),
    )
    act = _change if request.action in {"react", "edit", "delete"} else _send
    is_marked = not is_same_chat and _is_bound(ctx, request)
    facts = ToolCallFacts(tool, effects=effects, own_verdict=verdict)
    return PreparedCall(facts, question, partial(act, rules, ctx, request, crossed=is_marked))


async def _judge_chat(
    rules: MessageToolConfig, ctx: ToolContext, request: _MessageAction
) -> LayerVerdict | None:
    """Return what the settings say about acting in another chat; None: they allow it."""
    to = request.to
    is_change = request.action in {"edit", "delete"} or bool(request.buttons)
    if is_change and audience_of(ctx.session_key) != PRIVATE:
        reason = f"from this conversation no message in {_shown(to)} is changed or gets buttons"
        return LayerVerdict("tool", "deny", f"{reason}; do it in this chat only")
    accounts = request.messenger.accounts()
    refusal = find_cross_context_refusal(rules, ctx.here, to.channel, _shown(to), accounts)
    if refusal:
        return LayerVerdict("tool", "deny", "; ".join(refusal))
    is_known = await request.messenger.is_known_chat(ctx.agent, to)
    return None if is_known else _new_chat(request)


def _new_chat(request: _MessageAction) -> LayerVerdict:
    return LayerVerdict("tool", "ask", f"{_shown(request.to)} is new to you")


def _is_bound(ctx: ToolContext, request: _MessageAction) -> bool:
    """Return whether the current chat is one of a chat service, not a terminal or a client."""
    return ctx.here is not None and _chat(ctx.here)[:2] in request.messenger.accounts()


async def _send(
    rules: MessageToolConfig, ctx: ToolContext, request: _MessageAction, *, crossed: bool
) -> ToolOutput:
    if request.poll:
        question = request.poll.question
        poll = replace(
            request.poll, question=_marked(rules, ctx, question) if crossed else question
        )
        extras = Extras(reply_to=request.reply_to, silent=request.silent)
        sent = await request.messenger.send_poll(request.to, poll, extras, _key(ctx, request))
        return _format_result(request.to, sent)
    if not request.text.strip() and not request.media:
        raise ToolError("there is nothing to send", fix="give message or media")
    if request.action == "thread-reply" and not request.to.thread:
        raise ToolError("it is not said in which thread", fix="give threadId")
    files = await ctx.attach([request.media]) if request.media else ()
    if failed := next((file for file in files if file.problem), None):
        raise ToolError(f"{failed.name}: {failed.problem}")
    extras = Extras(
        reply_to=_current(ctx, request) if request.action == "reply" else request.reply_to,
        media=files,
        as_voice=request.as_voice,
        buttons=request.buttons,
        silent=request.silent,
    )
    text = _marked(rules, ctx, request.text) if crossed else request.text
    result = await request.messenger.send(request.to, text, extras, _key(ctx, request))
    return _format_result(request.to, result)


async def _change(
    rules: MessageToolConfig, ctx: ToolContext, request: _MessageAction, *, crossed: bool
) -> ToolOutput:
    """React, edit or delete."""
    message_id = request.message_id or _current(ctx, request)
    where = f"message {one_line(message_id, 60)} in {_shown(request.to)}"
    match request.action:
        case "react" if request.emoji or request.remove:
            await request.messenger.react(
                request.to, message_id, "" if request.remove else request.emoji
            )
            text = f"{'Took the reaction back from' if request.remove else 'Reacted to'} {where}."
        case "react":
            raise ToolError("it is not said what to react with", fix="give emoji, or remove")
        case _ if not request.message_id:  # the current message is not ours to change
            raise ToolError("it is not said which message", fix="give messageId")
        case "edit":
            text = _marked(rules, ctx, request.text) if crossed else request.text
            await request.messenger.edit(request.to, message_id, text)
            text = f"Changed {where}."
        case _:
            await request.messenger.delete(request.to, message_id)
            text = f"Deleted {where}."
    return ToolOutput((Text(text),), {**_details(request.to), "messageId": message_id})


def _current(ctx: ToolContext, request: _MessageAction) -> str:
    """Return the message id of the call, or the current message in the current chat."""
    if named := request.message_id or request.reply_to:
        return named
    if ctx.here and _chat(ctx.here) == _chat(request.to) and ctx.message_id:
        return ctx.message_id
    raise ToolError("it is not said which message", fix="give messageId")


def _marked(rules: MessageToolConfig, ctx: ToolContext, text: str) -> str:
    """Return the text with the marker that names the chat it comes from."""
    marker = rules.cross_context.marker
    if not marker.enabled or not text.strip() or ctx.here is None:
        return text
    prefix, suffix = (
        part.replace("{channel}", ctx.here.channel) for part in (marker.prefix, marker.suffix)
    )
    return f"{prefix}{text}{suffix}"


def _key(ctx: ToolContext, request: _MessageAction) -> str:
    """Return the idempotency key. Call ids may repeat, so the content is part of it."""
    to = request.to
    references = (request.reply_to, request.message_id)
    identity = [ctx.call_id, *_chat(to), to.thread, request.text, request.media, *references]
    if poll := request.poll:
        identity += [poll.question, *poll.options]
    digest = hashlib.sha256(json.dumps(identity).encode()).hexdigest()
    return f"{ctx.run_id}:message:{digest[:16]}"


def _format_result(to: Address, result: SendResult) -> ToolOutput:
    shown, reason = _shown(to), one_line(result.why, 200)
    match result.state:
        case "failed":
            raise ToolError(f"it could not be sent to {shown}: {reason}")
        case "sent":
            at = f" as message {result.message_id}" if result.message_id else ""
            text = f"Sent to {shown}{at}."
        case "unknown":
            text = f"Sent to {shown}, but it was not confirmed: {reason}. Do not send it again."
        case _:
            text = f"It is on its way to {shown}, and not there yet. Do not send it again."
    details = {**_details(to), "messageId": result.message_id, "state": result.state}
    return ToolOutput((Text(text),), details)


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
    every = {button for row in rows for button in row}
    if len({button.data for button in every}) < len(every):
        raise ToolError("two buttons have the same callback_data", fix="give each its own, or none")
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


def _described(request: _MessageAction, shown: str) -> str:
    lines = [f"To: {shown}", f"What: {request.action}"]
    if request.text:
        lines += ["", request.text]
    if poll := request.poll:
        lines += ["", poll.question, *(f"- {option}" for option in poll.options)]
    if request.media:
        where = " from the web:" if is_web_url(request.media) else ""
        lines += ["", f"With the file{where} {request.media}"]
    if request.emoji:
        lines += ["", request.emoji]
    return "\n".join(lines)
