"""Translate pressed buttons and slash commands.

A press sends the visible label, never the value behind it. The main slash command sends its text:
a message, or a command of ours if it starts with the name of one. With `ephemeral`, its answer is
for the person alone: it comes as a direct message, and so does the conversation.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Final, Literal
from urllib.parse import parse_qsl

from homarus.channels.base import ListSkillCommands, no_skill_commands
from homarus.channels.slack.fields import as_object, get_object, get_objects, get_str
from homarus.channels.slack.inbound import SlackEventTranslator
from homarus.channels.slack.text import decode_text
from homarus.channels.slack.timestamps import is_ts, ts_to_ms
from homarus.channels.slack.traits import TRAITS
from homarus.core.approval_button import parse_approval_button
from homarus.core.channel_event import ButtonPressed, InboundEvent
from homarus.core.fast_dataclass import dataclass, replace
from homarus.core.message import Address, Inbound, Json
from homarus.core.text import one_line

_MAX_LABEL_CHARS: Final = 75  # the limit of Slack
_MAX_QUOTED_CHARS: Final = 4_096
_MAX_FIELDS: Final = 100


@dataclass(frozen=True, slots=True)
class InteractionTranslator:
    """Translate the interactions of one account.

    `commands` are the names of our commands; none, when `commands.native` is off for all channels.
    """

    events: SlackEventTranslator
    commands: frozenset[str]
    skill_commands: ListSkillCommands = no_skill_commands

    async def to_press(self, payload: Mapping[str, Json], now_ms: int) -> ButtonPressed | None:
        """Return the press of a button; None for another interaction."""
        user = TRAITS.normalize_id(get_str(get_object(payload, "user"), "id"))
        container, message = get_object(payload, "container"), get_object(payload, "message")
        chat_id = get_str(get_object(payload, "channel"), "id") or get_str(container, "channel_id")
        action = next(get_objects(payload, "actions"), {})
        label = one_line(get_str(get_object(action, "text"), "text"), _MAX_LABEL_CHARS)
        is_press = get_str(payload, "type") == "block_actions" and action.get("type") == "button"
        ts, at_ts = get_str(message, "ts"), get_str(action, "action_ts")
        if not (is_press and user and label and is_ts(ts) and TRAITS.normalize_id(chat_id)):
            return None
        chat = await self.events.find_chat(chat_id)
        if chat is None:
            return None
        thread = get_str(message, "thread_ts")
        is_ours = self.events.me.is_own(message)
        value = get_str(action, "value")
        return ButtonPressed(
            f"press:{chat.id}:{ts}:{user}:{at_ts}",
            Address(
                self.events.channel,
                chat.id,
                self.events.account,
                thread if is_ts(thread) and thread != ts else None,
            ),
            user,
            label,
            message_id=ts,
            quoted=decode_text(get_str(message, "text"), {}).text[:_MAX_QUOTED_CHARS],
            approval=parse_approval_button(value) if is_ours else "",
            at_ms=ts_to_ms(at_ts) or now_ms,
            metadata=await self.events.metadata_of(chat, user),
        )

    async def to_command(self, payload: Mapping[str, Json], now_ms: int) -> InboundEvent | None:
        """Return the message of a slash command; None for one that is not ours."""
        user = TRAITS.normalize_id(get_str(payload, "user_id"))
        id_ = get_str(payload, "trigger_id")
        written = await self.events.to_plain_text(get_str(payload, "text"))
        text = await self._command_text(get_str(payload, "command"), written.strip())
        if not (user and id_ and text):
            return None
        chat_id = get_str(payload, "channel_id")
        # A direct chat may be one of two people: the bot can write to its own alone.
        if self.events.settings.slash_command.ephemeral or chat_id.startswith("D"):
            chat_id = await self.events.directory.resolve_chat(user)
        chat = await self.events.find_chat(chat_id) if TRAITS.normalize_id(chat_id) else None
        if chat is None:
            return None
        metadata = await self.events.metadata_of(chat, user)
        return Inbound(
            f"slash:{id_}",
            Address(self.events.channel, chat.id, self.events.account),
            user,
            text,
            at_ms=now_ms,
            metadata=replace(metadata, mentioned=True),
        )

    async def _command_text(self, command: str, text: str) -> str:
        """Return what a person would write instead of the slash command; "" to ignore it."""
        settings, name = self.events.settings, command.lstrip("/").lower()
        if name == settings.slash_command.name:
            if not settings.slash_command.enabled:
                return ""
            first = text.partition(" ")[0].lower()
            return f"/{text}" if first in self.commands else text or "/help"
        if not name or await self._is_off(name):
            return ""
        return f"/{name} {text}".strip()

    async def _is_off(self, name: str) -> bool:
        """Return whether the config switches off a slash command that is not the main one."""
        own = self.events.settings.commands
        if own.native is False or (own.native == "auto" and not self.commands):
            return True
        if name in self.commands:
            return False
        is_skill = name in await self._skill_names(True)  # noqa: FBT003 - a value of the setting
        return is_skill and name not in await self._skill_names(own.native_skills)

    async def _skill_names(self, setting: bool | Literal["auto"]) -> set[str]:  # noqa: FBT001 - see above
        commands = await asyncio.to_thread(self.skill_commands, setting)  # reads files
        return {command.name for command in commands}


def parse_form(body: bytes) -> Mapping[str, Json] | None:
    """Return the payload of an interaction or a slash command; None when it is none."""
    try:
        fields = dict(parse_qsl(body.decode("utf-8"), max_num_fields=_MAX_FIELDS))
        payload = json.loads(fields["payload"]) if "payload" in fields else fields
    except (ValueError, RecursionError):
        return None
    return as_object(payload) or None
