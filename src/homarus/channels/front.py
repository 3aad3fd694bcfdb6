"""The front of the house: everything between chat services and the sessions, put together.

In: adapter → intake → porter (routing, gate, files) → journal → `put`. Out: parcels → courier →
adapter. Beside them, live: the typing sign, drafts, reactions.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from homarus.channels.base import Channel
from homarus.channels.deliver import Delivery
from homarus.channels.gate import Gate
from homarus.channels.intake import Intake, Put
from homarus.channels.live import Live
from homarus.channels.media import Files
from homarus.channels.mentions import Called
from homarus.channels.porter import Porter, Record
from homarus.channels.switchboard import Switchboard
from homarus.config.schema import Config
from homarus.core.clock import Clock
from homarus.core.message import Outbound
from homarus.store.journal import Journal


class Front:
    """Every channel of a config, at work once the switchboard is.

    `called` says an agent's name and emoji.
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
        record: Record,
        put: Put,
        sent: Callable[[Outbound, str], object],
        called: Callable[[str], tuple[str, str]],
        given: Sequence[Channel] = (),
        commands: Callable[[], tuple[tuple[str, str], ...]] = tuple,
    ) -> None:
        self.gate = Gate(
            config,
            state,
            clock,
            entry=lambda key: porter.entries.get(key, {}),
            called=lambda agent: Called(*called(agent)),
        )
        self._told = sent
        self.delivery = Delivery(journal, (), clock, config=config, sent=self._sent)
        self.live = Live(group, clock, channel=self._channel, config=config)
        porter = Porter(
            config,
            self.gate,
            Files(state, clock.now_ms),
            record=record,
            pack=self.delivery.pack,
            welcome=self.live.acknowledge,
        )
        self._intake = Intake(
            journal, clock, admit=porter.admit, put=put, posted=self.delivery.nudge
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

    def _channel(self, channel: str, account: str) -> Channel | None:
        return self.switchboard.channel(channel, account)

    def _sent(self, message: Outbound, error: str) -> None:
        """A parcel arrived, or was given up."""
        if not error:
            self.gate.answered(message.address)
            self.live.answered(message.key)
        self._told(message, error)
