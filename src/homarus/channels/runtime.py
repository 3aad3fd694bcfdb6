"""Compose everything between the chat services and the sessions.

Inbound: adapter → inbound pipeline → admission (routing, access control) → journal → download of
files → `submit`. Outbound: outbox records → outbox worker → adapter. Next to them, live replies:
typing indicator, drafts, reactions. Admission is imported with the first message, so that a program
without channels does not load it.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from homarus.channels.base import Channel, ListSkillCommands, no_skill_commands
from homarus.channels.controller import ChannelController
from homarus.channels.downloads import DownloadQueue
from homarus.channels.inbound import (
    AdmittedMessage,
    InboundPipeline,
    RejectedMessage,
    SubmitAccepted,
)
from homarus.channels.live_replies import LiveReplies
from homarus.channels.supervisor import ChannelSupervisor
from homarus.config.schema import Config
from homarus.core.channel_event import ChatEvent
from homarus.core.clock import Clock
from homarus.core.diagnostics import Diagnostics
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Inbound, Outbound
from homarus.core.native_command import NativeCommand
from homarus.sessions.notices import Notices
from homarus.store.base import Store
from homarus.store.journal import Cursor, Journal

if TYPE_CHECKING:
    from homarus.channels.access_control import AccessControl
    from homarus.channels.admission import AdmissionPipeline, FindSessionRecord
    from homarus.channels.chat_events import ChatEventHandler
    from homarus.channels.media import MediaDownloader
    from homarus.channels.stored_acks import StoredAcks


@dataclass(frozen=True, slots=True)
class _Admission:
    """What decides about messages and events."""

    access: "AccessControl"
    pipeline: "AdmissionPipeline"
    events: "ChatEventHandler"


class ChannelRuntime:
    """All channels of a config, started by the channel controller.

    `find_name` returns an agent's name and emoji.
    """

    def __init__(
        self,
        config: Callable[[], Config],
        store: Store,
        clock: Clock,
        group: asyncio.TaskGroup,
        *,
        state: Path,
        env: Callable[[], Mapping[str, str]],
        find_record: "FindSessionRecord",
        submit: SubmitAccepted,
        notices: Notices,
        on_sent: Callable[[Outbound, str], object],
        find_name: Callable[[str], tuple[str, str]],
        is_command: Callable[[str], bool],
        given: Sequence[Channel] = (),
        commands: Callable[[], tuple[NativeCommand, ...]] = tuple,
        skill_commands: ListSkillCommands = no_skill_commands,
        on_chat_moved: Callable[[str, str, str, str], None] = lambda *_ids: None,
        diagnostics: Diagnostics | None = None,
    ) -> None:
        self._on_sent, self._is_command = on_sent, is_command
        self._admission: _Admission | None = None
        journal = store.journal
        self._open_admission = partial(
            self._make_admission,
            config,
            clock,
            state=state,
            find_name=find_name,
            find_record=find_record,
            store=store,
            notices=notices,
        )
        self._config, self._journal = config, journal
        self._downloader: MediaDownloader | None = None
        self._open_downloader = partial(_make_downloader, state, clock)
        self.supervisor = ChannelSupervisor(
            journal, (), clock, config=config, sent=self._sent, diagnostics=diagnostics
        )
        self.live = LiveReplies(
            group,
            clock,
            channel=self._channel,
            config=config,
            open_acks=partial(_make_stored_acks, journal, clock),
        )
        self.downloads = DownloadQueue(
            group,
            journal,
            fetch=self._fetch_files,
            find_connected=self.supervisor.find_connected,
        )
        self._pipeline = InboundPipeline(
            journal,
            clock,
            admit=self._admit,
            submit=submit,
            on_enqueued=self.supervisor.wake_workers,
            record_event=self._record_event,
            downloads=self.downloads,
        )
        self.controller = ChannelController(
            config,
            self.supervisor,
            self._pipeline,
            clock,
            state=state,
            env=env,
            given=given,
            commands=commands,
            skill_commands=skill_commands,
            on_chat_moved=on_chat_moved,
        )

    async def _admit(self, channel: Channel, inbound: Inbound) -> AdmittedMessage | RejectedMessage:
        self._admission = self._admission or self._open_admission()
        return await self._admission.pipeline.admit(channel, inbound)

    async def _record_event(self, event: ChatEvent, cursor: Cursor | None) -> None:
        self._admission = self._admission or self._open_admission()
        await self._admission.events.record(event, cursor)

    def _make_admission(
        self,
        config: Callable[[], Config],
        clock: Clock,
        *,
        state: Path,
        find_name: Callable[[str], tuple[str, str]],
        find_record: "FindSessionRecord",
        store: Store,
        notices: Notices,
    ) -> "_Admission":
        from homarus.channels.access_control import AccessControl
        from homarus.channels.admission import AdmissionPipeline
        from homarus.channels.chat_events import ChatEventHandler
        from homarus.channels.mentions import AgentNames

        access = AccessControl(
            config,
            state,
            clock,
            find_entry=lambda key: admission.entries.get(key, {}),
            find_names=lambda agent: AgentNames(*find_name(agent)),
            is_command=self._is_command,
        )
        admission = AdmissionPipeline(
            config,
            access,
            self._journal,
            find_record=find_record,
            build_reply=self.supervisor.build_reply,
            add_ack=self.live.add_ack_reaction,
            encode_ack=self.live.encode_ack,
        )
        events = ChatEventHandler(
            config, store, notices, clock, access=access, find_routes=admission.find_routes
        )
        return _Admission(access, admission, events)

    async def _fetch_files(self, channel: Channel, inbound: Inbound) -> Inbound:
        from homarus.config.channels import common_settings

        self._downloader = self._downloader or self._open_downloader()
        address = inbound.address
        settings = common_settings(self._config(), address.channel, address.account)
        return await self._downloader.fetch(channel, settings, inbound)

    def _channel(self, channel: str, account: str) -> Channel | None:
        return self.controller.find_channel(channel, account)

    def _sent(self, message: Outbound, error: str) -> None:
        """Handle a record that was delivered or is dead."""
        if not error:
            if self._admission:
                self._admission.access.on_reply_sent(message.address)
            self.live.on_delivered(message.key)
        self._on_sent(message, error)


def _make_downloader(state: Path, clock: Clock) -> "MediaDownloader":
    from homarus.channels.media import MediaDownloader

    return MediaDownloader(state, clock.now_ms)


def _make_stored_acks(journal: Journal, clock: Clock) -> "StoredAcks":
    from homarus.channels.stored_acks import StoredAcks

    return StoredAcks(journal, clock)
