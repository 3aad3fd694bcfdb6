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
from homarus.channels.deliver import Delivery
from homarus.channels.intake import Intake, Left, Put, Taken
from homarus.channels.live import Live
from homarus.channels.switchboard import Switchboard
from homarus.config.schema import Config
from homarus.core.clock import Clock
from homarus.core.message import Inbound, Outbound
from homarus.store.journal import Journal

if TYPE_CHECKING:
    from homarus.channels.gate import Gate
    from homarus.channels.porter import Porter, Record


class Front:
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
        record: "Record",
        put: Put,
        sent: Callable[[Outbound, str], object],
        called: Callable[[str], tuple[str, str]],
        is_command: Callable[[str], bool],
        given: Sequence[Channel] = (),
        commands: Callable[[], tuple[tuple[str, str], ...]] = tuple,
    ) -> None:
        self._told, self._is_command = sent, is_command
        self._door: tuple[Gate, Porter] | None = None
        self._open_door = partial(self._make_admission, config, state, clock, called, record)
        self.delivery = Delivery(journal, (), clock, config=config, sent=self._sent)
        self.live = Live(group, clock, channel=self._channel, config=config)
        self._intake = Intake(
            journal, clock, admit=self._admit, put=put, posted=self.delivery.nudge
        )
        self.switchboard = Switchboard(
            config,
            self.delivery,
            self._intake,
            clock,
            state=state,
            env=env,
            given=given,
            commands=commands,
        )

    async def _admit(self, channel: Channel, inbound: Inbound) -> Taken | Left:
        self._door = self._door or self._open_door()
        return await self._door[1].admit(channel, inbound)

    def _make_admission(
        self,
        config: Callable[[], Config],
        state: Path,
        clock: Clock,
        called: Callable[[str], tuple[str, str]],
        record: "Record",
    ) -> tuple["Gate", "Porter"]:
        from homarus.channels.gate import Gate
        from homarus.channels.media import Files
        from homarus.channels.mentions import Called
        from homarus.channels.porter import Porter

        gate = Gate(
            config,
            state,
            clock,
            entry=lambda key: porter.entries.get(key, {}),
            called=lambda agent: Called(*called(agent)),
            is_command=self._is_command,
        )
        porter = Porter(
            config,
            gate,
            Files(state, clock.now_ms),
            record=record,
            pack=self.delivery.pack,
            welcome=self.live.acknowledge,
        )
        return gate, porter

    def _channel(self, channel: str, account: str) -> Channel | None:
        return self.switchboard.channel(channel, account)

    def _sent(self, message: Outbound, error: str) -> None:
        """Handle a record that was delivered or is dead."""
        if not error:
            if self._door:
                self._door[0].answered(message.address)
            self.live.answered(message.key)
        self._told(message, error)
