"""The wizard itself: its sections in order, each of which ends with one change of the config.

A section asks its questions, and only then the config is written, at once and complete. A wizard
that is interrupted continues with the answers that were given in the section under way.
"""

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from homarus import __version__
from homarus.agent.workspace import seed_workspace
from homarus.config.agent_edits import MAX_NAME_CHARS, update_agent
from homarus.config.agent_settings import default_agent_id, resolve_agent_settings
from homarus.config.load import LoadedConfig
from homarus.config.paths import expand, shorten
from homarus.config.tree_edit import set_path
from homarus.core.errors import UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.text import one_line
from homarus.gateway.auth import find_secrets
from homarus.gateway.listen_address import DEFAULT_PORT
from homarus.gateway.openclaw_process import find_openclaw_gateway
from homarus.gateway.owner_token import add_token, load_token
from homarus.gateway.wizard.answers import WizardAnswers
from homarus.gateway.wizard.services import ConfigEdit, WizardServices
from homarus.gateway.wizard.step import Dialog, Prompter, StepOption, WizardStep

if TYPE_CHECKING:
    from homarus.gateway.wizard.model_section import ModelSection

Section: TypeAlias = Literal["model", "workspace", "channels", "gateway", "daemon", "health"]
SECTIONS: Final[Mapping[Section, str]] = {
    "model": "Which model answers, and its key",
    "workspace": "The agent's name and the folder of its files",
    "channels": "A chat service: its account and a test message",
    "gateway": "The gateway's port, address and token",
    "daemon": "The service that keeps the gateway running",
    "health": "One question to the model that is configured",
}
_ORDER: Final[tuple[Section, ...]] = ("model", "workspace", "gateway", "channels", "daemon")
DEFAULT_NAME: Final = "Homarus"
_WELCOME: Final = (
    "A few questions, and your assistant works. Enter takes the answer in brackets.\n"
    "Ctrl-C stops at any time; `homarus onboard` then continues where you stopped."
)
_CLIENT_WELCOME: Final = (
    "A few questions, and your assistant works. What you finish is saved: you can stop at any time."
)


@dataclass(frozen=True, slots=True)
class WizardOptions:
    """What a call of the wizard leaves out."""

    should_probe: bool = True
    skips: frozenset[str] = frozenset({"gateway"})  # sections


class WizardFlow:
    """Run the sections of the wizard with one prompter."""

    def __init__(
        self,
        prompter: Prompter,
        services: WizardServices,
        answers: WizardAnswers,
        options: WizardOptions | None = None,
    ) -> None:
        self._dialog, self._services = Dialog(prompter, answers), services
        self._answers, self._options = answers, options or WizardOptions()

    async def onboard(self) -> None:
        """Run every section that is not finished yet, then show how to go on."""
        await self._resume()
        loaded = self._services.load()
        if self._answers.is_empty and self._dialog.is_interactive:
            welcome = _CLIENT_WELCOME if self._services.is_client else _WELCOME
            await self._dialog.note("Welcome to Homarus", welcome)
        is_kept = loaded.exists and not self._answers.done and await self._keep(loaded)
        sections: tuple[Section, ...] = ("health", "daemon") if is_kept else _ORDER
        for section in sections:
            if section not in self._answers.done and section not in self._options.skips:
                await self._run(section)
                if not is_kept:
                    self._answers.finish(section)
        self._answers.remove()
        await self._dialog.note("Done", await self._services.describe_end())

    async def choose_section(self) -> Section:
        """Return the section that the person wants to go through."""
        options = tuple(StepOption(name, name, text) for name, text in SECTIONS.items())
        step = WizardStep(
            "wizard.section", "select", "What do you want to change?", options=options
        )
        chosen = await self._dialog.select(step)
        return next(name for name in SECTIONS if name == chosen)

    async def configure(self, section: Section) -> None:
        """Run one section alone."""
        await self._run(section)
        self._answers.remove()

    async def _resume(self) -> None:
        if self._answers.is_empty or not self._dialog.is_interactive:
            return
        finished = ", ".join(self._answers.done) or "nothing yet"
        step = WizardStep(
            "wizard.resume",
            "confirm",
            "Continue the onboarding that was interrupted?",
            f"Finished: {finished}. Answer no to start again; what is written stays.",
            initial=True,
        )
        if not await self._dialog.confirm(step):
            self._answers.remove()
        self._answers.forget("wizard.resume")

    async def _keep(self, loaded: LoadedConfig) -> bool:
        """Return whether an existing config stays as it is."""
        paths = self._services.paths
        settings = resolve_agent_settings(loaded.config, paths, default_agent_id(loaded.config))
        lines = [
            f"Config     {shorten(paths.config, paths.home)}",
            f"Model      {settings.model or 'none is configured'}",
            f"Workspace  {shorten(settings.workspace, paths.home)}",
            f"Channels   {', '.join(sorted(loaded.config.channels)) or 'none'}",
        ]
        if not self._services.is_client and (
            pid := find_openclaw_gateway(paths, self._services.env)
        ):
            lines.append(f"OpenClaw's gateway (process {pid}) uses it: stop that one first.")
        step = WizardStep(
            "wizard.existing",
            "select",
            "There is a configuration already",
            "\n".join(lines),
            options=(
                StepOption("keep", "Use it as it is", "nothing is changed"),
                StepOption("change", "Go through the questions", "with its values as answers"),
            ),
            # Enter leads to an assistant that answers, also after `homarus setup`.
            initial="keep" if settings.model or not self._dialog.is_interactive else "change",
        )
        return await self._dialog.select(step) == "keep"

    async def _run(self, section: Section) -> None:
        match section:
            case "model":
                await self._choose_model()
            case "workspace":
                await self._name_workspace()
            case "channels":
                await self._add_channel()
            case "gateway":
                await self._set_gateway()
            case "daemon":
                await self._install_service()
            case "health":
                await self._model_section().check_configured()

    def _model_section(self) -> "ModelSection":
        from homarus.gateway.wizard.model_section import ModelSection

        return ModelSection(self._dialog, self._services, should_probe=self._options.should_probe)

    async def _choose_model(self) -> None:
        chooser = self._model_section()
        await self._write(await chooser.run() or _unchanged)
        chooser.store_key()

    async def _name_workspace(self) -> None:
        loaded, paths = self._services.load(), self._services.paths
        agent = default_agent_id(loaded.config)
        settings = resolve_agent_settings(loaded.config, paths, agent)
        named = settings.identity.name or (settings.name if settings.name != agent else "")
        name = await self._dialog.text(
            WizardStep(
                "workspace.name",
                "text",
                "What is the agent called?",
                initial=named or DEFAULT_NAME,
                flag="--name",
            ),
            _parse_name,
        )
        folder = await self._dialog.text(
            WizardStep(
                "workspace.path",
                "text",
                "In which folder are its files?",
                "Markdown that you and the agent read and edit; existing files stay as they are.",
                initial=shorten(settings.workspace, paths.home),
                flag="--workspace",
            ),
            self._parse_workspace,
        )
        target = expand(folder, paths.home)

        def edit(tree: Any) -> Any:
            if name != named:
                tree = update_agent(tree, agent, {"identity": {"name": name}})
            if target == settings.workspace:
                return tree
            entries = loaded.config.agents.list
            own = next((entry for entry in entries if entry.id == agent and entry.workspace), None)
            if own:
                return update_agent(tree, agent, {"workspace": folder})
            return set_path(tree, ("agents", "defaults", "workspace"), folder)

        await self._write(edit)

    def _parse_workspace(self, text: str) -> str:
        folder = text.strip()
        if not self._services.is_client and folder and not folder.startswith(("/", "~")):
            folder = str(expand(folder, self._services.paths.home))
        self._services.check_workspace(folder, self._services.paths)
        try:
            seed_workspace(expand(folder, self._services.paths.home))
        except UserError as exc:  # its fix is for a config that names the folder already
            raise UserError(exc.message) from exc
        return shorten(expand(folder, self._services.paths.home), self._services.paths.home)

    async def _add_channel(self) -> None:
        from homarus.gateway.wizard.channel_section import ChannelSection

        if edit := await ChannelSection(self._dialog, self._services).run():
            await self._write(edit)

    async def _set_gateway(self) -> None:
        config = self._services.load().config.gateway
        port = await self._dialog.text(
            WizardStep(
                "gateway.port",
                "text",
                "Which port does the gateway listen on?",
                initial=str(config.port or DEFAULT_PORT),
                flag="--gateway-port",
            ),
            _parse_port,
        )
        bind = await self._dialog.select(
            WizardStep(
                "gateway.bind",
                "select",
                "Who can reach it?",
                options=(
                    StepOption("loopback", "Programs on this machine"),
                    StepOption("lan", "Devices in the local network", "with the token"),
                ),
                initial=config.bind if config.bind in {"loopback", "lan"} else "loopback",
                flag="--gateway-bind",
            )
        )
        is_new = await self._dialog.confirm(
            WizardStep(
                "gateway.token",
                "confirm",
                "Make a new token?",
                "Clients that have the old one must be given the new one.",
                initial=False,
            )
        )

        def edit(tree: Any) -> Any:
            if int(port) != (config.port or DEFAULT_PORT):
                tree = set_path(tree, ("gateway", "port"), int(port))
            if bind != config.bind:
                tree = set_path(tree, ("gateway", "bind"), bind)
            return add_token(tree) if is_new or (bind == "lan" and not has_secret(tree)) else tree

        def has_secret(tree: Any) -> bool:
            auth = (tree.get("gateway") or {}).get("auth") or {}
            return bool(auth.get("token") or auth.get("password"))

        await self._write(edit)

    async def _install_service(self) -> None:
        service = self._services.service
        if service is None:
            return
        state = await asyncio.to_thread(service.find_state)
        if state == "installed":
            await self._dialog.note("The service is installed", "homarus gateway status shows it.")
            return
        if state != "available":
            if self._answers.pop_preset("daemon.install"):
                raise UserError(state, fix="homarus gateway run runs it in the foreground")
            await self._dialog.note(
                "No service here", f"{state}.\nhomarus gateway run runs it in the foreground."
            )
            return
        step = WizardStep(
            "daemon.install",
            "confirm",
            "Keep the gateway running as a service of this machine?",
            "It starts now and at every login; `homarus gateway uninstall` removes it.",
            initial=self._dialog.is_interactive,
            flag="--install-daemon",
        )
        if not await self._dialog.confirm(step):
            return
        try:
            notes = await asyncio.to_thread(service.install)
        except UserError as exc:
            if not self._dialog.is_interactive:
                raise
            await self._dialog.note(exc.message, exc.fix)
            return
        await self._dialog.note("The service is installed and started", "\n".join(notes))

    async def _write(self, edit: ConfigEdit) -> None:
        """Change the config at once, with the record of this run; no change writes nothing."""
        loaded = self._services.load()
        needs_token = self._needs_token(loaded)

        def change(tree: Any) -> Any:
            new = edit(tree)
            if needs_token:
                new = set_path(add_token(new), ("gateway", "mode"), "local")
            return tree if new == tree else _stamp(new, self._services.command)

        await self._services.change_config(change)

    def _needs_token(self, loaded: LoadedConfig) -> bool:
        """Return whether a new config gets a token: no secret is set elsewhere."""
        if loaded.exists or self._services.is_client:
            return False
        auth = loaded.config.gateway.auth
        has_secret = any(find_secrets(auth, loaded.env)) or load_token(self._services.paths.state)
        return auth.mode is None and not has_secret


def _unchanged(tree: Any) -> Any:
    return tree


def _stamp(tree: Any, command: str) -> Any:
    at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    wizard = tree.get("wizard")
    run = {
        "lastRunAt": at,
        "lastRunVersion": __version__,
        "lastRunCommand": command,
        "lastRunMode": "local",
    }
    return {**tree, "wizard": {**(wizard if isinstance(wizard, dict) else {}), **run}}


def _parse_name(text: str) -> str:
    name = one_line(text.strip(), MAX_NAME_CHARS)
    if not name or not name.isprintable():
        raise UserError("an agent needs a name of printable characters")
    return name


def _parse_port(text: str) -> str:
    if not text.strip().isdecimal() or not 0 < int(text) < 65_536:
        raise UserError("a port is a number from 1 to 65535")
    return text.strip()
