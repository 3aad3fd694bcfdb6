"""Run BOOT.md of each workspace when the gateway starts, as a message of its own session."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from homarus.agent.agent import Agent
from homarus.agent.workspace import boot_prompt
from homarus.core.message import Address, Inbound
from homarus.store.journal import Acceptance, InboxRecord

CHANNEL: Final = "boot"  # no adapter: the run has no chat to reply to

Accept = Callable[[str, Inbound], Awaitable[Acceptance]]
SubmitMessage = Callable[[str, InboxRecord], object]


async def run_boot_prompts(
    agents: Iterable[Agent], accept: Accept, submit: SubmitMessage, now_ms: int
) -> None:
    """Submit the boot prompt of each agent that has one."""
    for agent in agents:
        text = boot_prompt(agent.workspace)
        if not text:
            continue
        key = f"agent:{agent.id}:{CHANNEL}"
        name = f"{CHANNEL}:{agent.id}:{now_ms}"
        inbound = Inbound(name, Address(CHANNEL, key), "owner", text, at_ms=now_ms, run_id=name)
        submit(key, (await accept(key, inbound)).record)
