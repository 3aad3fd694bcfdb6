"""Slash commands, button presses and choices in menus.

Discord waits three seconds for the acknowledgement. It is the same for every sender: a press gets
none that is visible, a command a line that only its sender sees. The answer is a message of the
chat, whose session a command has too.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import discord

from homarus.channels.discord.content import mentioned_names, readable
from homarus.channels.discord.inbound import DiscordEventTranslator
from homarus.channels.discord.rest import DiscordRest
from homarus.channels.discord.snowflake import time_of
from homarus.channels.interactions import acknowledge_within
from homarus.core.approval_button import parse_approval_button
from homarus.core.channel_event import ButtonPressed
from homarus.core.errors import ChannelError, StoreError
from homarus.core.fast_dataclass import replace
from homarus.core.message import Inbound, Json
from homarus.core.native_command import NativeCommand
from homarus.core.text import one_line

log = logging.getLogger(__name__)

RECEIVED: Final = "Received."
PassOn: TypeAlias = Callable[[Inbound | ButtonPressed], Awaitable[None]]
_COMMAND, _COMPONENT, _AUTOCOMPLETE = 2, 3, 4
_REPLY, _DEFERRED_UPDATE, _CHOICES = 4, 6, 8
_EPHEMERAL: Final = 1 << 6
_MAX_QUOTED_CHARS: Final = 4_096


class InteractionHandler:
    """Handle the interactions of one bot; `commands` are those that Discord lists."""

    def __init__(
        self,
        rest: DiscordRest,
        translator: DiscordEventTranslator,
        may_approve: Callable[[str], bool],
        commands: Sequence[NativeCommand],
    ) -> None:
        self._rest, self._translator = rest, translator
        self._may_approve = may_approve
        self._commands = {command.name: command for command in commands}

    async def handle(self, interaction: "discord.Interaction[Any]", receive: PassOn) -> None:
        """Pass an interaction on, and acknowledge it in time."""

        async def acknowledge() -> None:
            path = f"/interactions/{interaction.id}/{interaction.token}/callback"
            try:
                await self._rest.call("POST", path, _acknowledgement(interaction.type.value))
            except ChannelError as exc:  # the message is stored: not fatal
                log.warning("an interaction was not acknowledged: %s", exc)

        async def pass_on() -> None:
            event = self.to_event(interaction)
            if event is not None:
                await receive(event)

        try:
            await acknowledge_within(pass_on(), acknowledge)
        except StoreError as exc:  # Discord does not offer it again
            log.error("an interaction of Discord could not be stored: %s", exc)  # noqa: TRY400 - it says all

    def to_event(self, interaction: "discord.Interaction[Any]") -> Inbound | ButtonPressed | None:
        """Return the message that an interaction stands for; None when it is none of ours."""
        match interaction.type.value:
            case 2:
                return self._command(interaction)
            case 3:
                return self._press(interaction)
        return None

    def _command(self, interaction: "discord.Interaction[Any]") -> Inbound | None:
        chat = self._translator.to_interaction_chat(interaction)
        data: Mapping[str, Json] = interaction.data or {}
        name = data.get("name")
        if chat is None or not isinstance(name, str) or not name:
            return None
        rows = data.get("options") or ()
        values = {str(row.get("name")): row.get("value") for row in rows if isinstance(row, dict)}
        command = self._commands.get(name) or NativeCommand(name, "")
        address, metadata = chat
        return Inbound(
            f"interaction:{interaction.id}",
            address,
            str(interaction.user.id),
            command.format_text(values),
            at_ms=time_of(interaction.id),
            metadata=replace(metadata, mentioned=True),
        )

    def _press(self, interaction: "discord.Interaction[Any]") -> ButtonPressed | None:
        """Translate a press: the visible label is the text, never the hidden data."""
        chat, under = self._translator.to_interaction_chat(interaction), interaction.message
        data: Mapping[str, Json] = interaction.data or {}
        if chat is None or under is None or under.author.id != self._translator.me:
            return None
        chosen = data.get("values") or [data.get("custom_id")]
        labels = _labels(under)
        pressed = [labels.get(str(value), "") for value in chosen]
        if not pressed or not all(pressed):
            return None
        address, metadata = chat
        return ButtonPressed(
            f"interaction:{interaction.id}",
            address,
            str(interaction.user.id),
            ", ".join(pressed),
            message_id=str(under.id),
            quoted=readable(under.content, mentioned_names(under))[:_MAX_QUOTED_CHARS],
            approval=self._approval(str(interaction.user.id), str(chosen[0])),
            at_ms=time_of(interaction.id),
            metadata=metadata,
        )

    def _approval(self, user: str, data: str) -> str:
        """Return the decision of a button, if this person may answer approvals here."""
        decision = parse_approval_button(data)
        if decision and not self._may_approve(user):
            log.warning("%s is not in channels.discord.execApprovals.approvers", user)
            return ""
        return decision


def _acknowledgement(kind: int) -> dict[str, Json]:
    match kind:
        case 2:
            return {"type": _REPLY, "data": {"content": RECEIVED, "flags": _EPHEMERAL}}
        case 4:
            return {"type": _CHOICES, "data": {"choices": []}}
    return {"type": _DEFERRED_UPDATE}


def _labels(message: discord.Message) -> dict[str, str]:
    """Return the labels of the buttons and options of a message by their ids."""
    found = dict[str, str]()
    for row in message.components:
        for part in getattr(row, "children", ()):
            if isinstance(part, discord.Button) and part.custom_id:
                found[part.custom_id] = one_line(part.label or "", 100)
            elif isinstance(part, discord.SelectMenu):
                found |= {option.value: one_line(option.label, 100) for option in part.options}
    return found
