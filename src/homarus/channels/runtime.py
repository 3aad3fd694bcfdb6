"""Compose everything between the chat services and the sessions.

Inbound: adapter → inbound pipeline → admission (routing, access control, media) → journal →
`submit`. Outbound: outbox records → outbox worker → adapter. Next to them, live replies: typing
indicator, drafts, reactions. Admission is imported with the first message, so that a program
without channels does not load it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from homarus.channels.base import Channel
from homarus.channels.controller import ChannelController
from homarus.channels.inbound import (
    AdmittedMessage,
    InboundPipeline,
    RejectedMessage,
    SubmitAccepted,
)
from homarus.channels.live_replies import LiveReplies
from homarus.channels.supervisor import ChannelSupervisor
from homarus.config.schema import Config
from homarus.core.clock import Clock
from homarus.core.message import Inbound, Outbound
from homarus.store.journal import Journal

if TYPE_CHECKING:
    from homarus.channels.access_control import AccessControl
    from homarus.channels.admission import AdmissionPipeline, FindSessionRecord


class ChannelRuntime:
    """All channels of a config, started by the channel controller.

    `called` returns an agent's name and emoji.
    """

    def __init__(
        self,
        config: Callable[[], Config],
        journal: Journal,
        clock: Clock,
        group: asyncio.TaskGroup,
        *,
        state: Path,
        env: Callable[[], Mapping[str, str]],
        record: "FindSessionRecord",
        put: SubmitAccepted,
        sent: Callable[[Outbound, str], object],
        called: Callable[[str], tuple[str, str]],
        is_command: Callable[[str], bool],
        given: Sequence[Channel] = (),
        commands: Callable[[], tuple[tuple[str, str], ...]] = tuple,
    ) -> None:
        self._told, self._is_command = sent, is_command
        self._door: tuple[AccessControl, AdmissionPipeline] | None = None
        self._open_door = partial(self._make_admission, config, state, clock, called, record)
        self.delivery = ChannelSupervisor(journal, (), clock, config=config, sent=self._sent)
        self.live = LiveReplies(group, clock, channel=self._channel, config=config)
        self._intake = InboundPipeline(
            journal, clock, admit=self._admit, put=put, posted=self.delivery.wake_workers
        )
        self.switchboard = ChannelController(
            config,
            self.delivery,
            self._intake,
            clock,
            state=state,
            env=env,
            given=given,
            commands=commands,
        )

    async def _admit(self, channel: Channel, inbound: Inbound) -> AdmittedMessage | RejectedMessage:
        self._door = self._door or self._open_door()
        return await self._door[1].admit(channel, inbound)

    def _make_admission(
        self,
        config: Callable[[], Config],
        state: Path,
        clock: Clock,
        called: Callable[[str], tuple[str, str]],
        record: "FindSessionRecord",
    ) -> tuple["AccessControl", "AdmissionPipeline"]:
        from homarus.channels.access_control import AccessControl
        from homarus.channels.admission import AdmissionPipeline
        from homarus.channels.media import MediaDownloader
        from homarus.channels.mentions import AgentNames

        gate = AccessControl(
            config,
            state,
            clock,
            entry=lambda key: porter.entries.get(key, {}),
            called=lambda agent: AgentNames(*called(agent)),
            is_command=self._is_command,
        )
        porter = AdmissionPipeline(
            config,
            gate,
            MediaDownloader(state, clock.now_ms),
            record=record,
            pack=self.delivery.build_reply,
            welcome=self.live.add_ack_reaction,
        )
        return gate, porter

    def _channel(self, channel: str, account: str) -> Channel | None:
        return self.switchboard.find_channel(channel, account)

    def _sent(self, message: Outbound, error: str) -> None:
        """Handle a record that was delivered or is dead."""
        if not error:
            if self._door:
                self._door[0].on_reply_sent(message.address)
            self.live.on_delivered(message.key)
        self._told(message, error)
