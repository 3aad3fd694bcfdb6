"""`boot-md`: submit the BOOT.md of every agent."""

from homarus.agent.internal_hooks.bundled_services import BundledHookServices
from homarus.agent.internal_hooks.event import HookEvent


async def handle(_event: HookEvent, services: BundledHookServices) -> None:
    """Submit them; their runs go on in the background."""
    await services.run_boot()
