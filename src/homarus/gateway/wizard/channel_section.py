"""The section `channels`: add an account of a chat service, and answer one test message."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

from homarus.channels.base import Acknowledge, Channel, ChannelContext, SupportsProbe
from homarus.channels.registry import available_channels, channel_label, load_channel
from homarus.config.account_edits import account_ids, add_account
from homarus.config.account_form import AccountField, account_fields
from homarus.config.channels import read_account
from homarus.config.json5_document import KeyPath
from homarus.config.variables import substitute
from homarus.core.channel_event import InboundEvent
from homarus.core.clock import SystemClock
from homarus.core.errors import HomarusError, UserError
from homarus.core.message import Inbound, Json, Outbound
from homarus.core.session_keys import DEFAULT_ACCOUNT
from homarus.core.tasks import task_group
from homarus.core.text import escape_invisible, one_line
from homarus.gateway.wizard.services import ConfigEdit, WizardServices
from homarus.gateway.wizard.step import Dialog, StepOption, WizardStep

NONE: Final = "none"
TEST_TEXT: Final = "Hello! This is the test message of Homarus: the channel works."
_BACK: Final = "An empty answer leads back to the services."
_WAIT_S: Final = 120.0
_PROBE_S: Final = 20.0


# Services whose sender ids cannot be taken over by another person.
_STABLE_IDS: Final = frozenset({"discord", "telegram", "matrix", "slack"})


class ChannelSection:
    """Choose a chat service, enter its account, and test it."""

    def __init__(self, dialog: Dialog, services: WizardServices) -> None:
        self._dialog, self._services = dialog, services

    async def run(self) -> ConfigEdit | None:
        """Return the edit that adds an account; None when no channel is wanted."""
        while True:
            channel = await self._dialog.select(self._channel_step())
            if channel == NONE:
                return None
            while (values := await self._ask_account(channel)) is not None:
                try:
                    edit = await self._check(channel, values)
                except HomarusError as exc:
                    if not self._dialog.is_interactive:
                        raise
                    shown = escape_invisible(exc.message), escape_invisible(exc.fix)
                    await self._dialog.note(*shown)
                    edit = None
                if edit is not None:
                    return edit
                self._dialog.answers.forget(f"channel.{channel}.", "channel.failed")
            self._dialog.answers.forget("channel.")

    async def _ask_account(self, channel: str) -> dict[KeyPath, Json] | None:
        """Return the settings of an account; None to choose another service."""
        values: dict[KeyPath, Json] = {}
        given: dict[str, Json] = {}
        for each in account_fields(load_channel(channel).Settings):
            if not each.is_needed(given):
                continue
            if answer := await self._ask(channel, each):
                values[each.key,] = given[each.key] = each.parse_answer(answer)
            elif not each.is_optional:
                return None
        return values

    def _channel_step(self) -> WizardStep:
        config = self._services.load().config
        options = [StepOption(NONE, "None for now")]
        for name in available_channels():
            is_known = account_ids({"channels": config.channels}, name)
            hint = "is configured already" if is_known else ""
            options.append(StepOption(name, channel_label(name), hint))
        return WizardStep(
            "channel.name",
            "select",
            "Which chat service should reach the agent first?",
            options=tuple(options),
            initial=NONE,
        )

    async def _ask(self, channel: str, field: AccountField) -> str:
        step = WizardStep(
            f"channel.{channel}.{field.key}",
            "text",
            field.title + (" (empty without one)" if field.is_optional else ""),
            field.help if field.is_optional else f"{field.help}\n{_BACK}".strip(),
            initial="" if field.is_optional else None,
        )

        def parse(text: str) -> str:
            value = text.strip()
            if not value and not field.is_optional and not self._dialog.is_interactive:
                raise UserError("this is needed")
            if not value.isprintable():
                raise UserError("that cannot be one: copy it again")
            return value

        ask = self._dialog.secret if field.is_secret else self._dialog.text
        return await ask(step, parse)

    async def _check(self, channel: str, values: Mapping[KeyPath, Json]) -> ConfigEdit | None:
        """Log in and answer a test message; None to enter the account again."""

        def edit(tree: Any) -> Any:
            return add_account(tree, channel, DEFAULT_ACCOUNT, values)

        account = self._make(channel, edit)
        if isinstance(account, SupportsProbe):
            try:
                await self._log_in(channel, account)
            except HomarusError as exc:
                return edit if await self._should_save(exc) else None
        sender = await self._test(channel, account)
        if sender is None or channel not in _STABLE_IDS:
            return edit
        if not await self._dialog.confirm(
            WizardStep(
                "channel.allow",
                "confirm",
                f"Answer {_describe(sender)} from now on?",
                "Other senders get a code, and you decide with `homarus pairing`.",
                initial=True,
            )
        ):
            return edit
        allowed = {**values, ("allowFrom",): [*self._allowed(channel), sender.sender]}
        return lambda tree: add_account(tree, channel, DEFAULT_ACCOUNT, allowed)

    async def _log_in(self, channel: str, account: SupportsProbe) -> None:
        label = channel_label(channel)
        self._dialog.progress(f"Logging in to {label} …")
        try:
            async with asyncio.timeout(_PROBE_S):
                name = await account.probe()
        except TimeoutError:
            raise UserError(f"{label} did not answer in {_PROBE_S:g} s") from None
        await self._dialog.note("The login works", f"The bot is {escape_invisible(name)}.")

    async def _should_save(self, error: HomarusError) -> bool:
        """Return whether an account whose login failed is added anyway."""
        lines = [escape_invisible(error.message), error.fix and f"→ {escape_invisible(error.fix)}"]
        step = WizardStep(
            "channel.failed",
            "select",
            "The login failed",
            "\n".join(filter(None, lines)),
            options=(
                StepOption("again", "Enter it again"),
                StepOption("save", "Add it anyway"),
            ),
            initial="again",
        )
        return await self._dialog.select(step) == "save"

    def _make(self, channel: str, edit: ConfigEdit) -> Channel:
        """Build the account without connecting it. Raises ConfigError for wrong settings."""
        loaded = self._services.load_with(edit)
        module = load_channel(channel)
        channels = substitute(loaded.raw["channels"], loaded.env)
        settings = read_account(channels, channel, DEFAULT_ACCOUNT, module.Settings)
        context = ChannelContext(
            channel,
            DEFAULT_ACCOUNT,
            SystemClock(),
            env=loaded.env,
            state=self._services.paths.state,
        )
        return module.create(context, settings)

    def _allowed(self, channel: str) -> Sequence[Json]:
        section = self._services.load().config.channels.get(channel)
        listed = section.get("allowFrom") if isinstance(section, Mapping) else None
        return listed if isinstance(listed, list | tuple) else ()

    async def _test(self, channel: str, account: Channel) -> Inbound | None:
        """Wait for a message of the person and answer it; None when the test is skipped."""
        label = channel_label(channel)
        while await self._dialog.confirm(
            WizardStep(
                "channel.test",
                "confirm",
                "Send a test message?",
                f"Answer yes, then write anything to the bot in {label}: it answers you.",
                initial=self._dialog.is_interactive,
            )
        ):
            self._dialog.answers.forget("channel.test")
            self._dialog.progress(f"Waiting for your message in {label} …")
            try:
                inbound = await _answer_one(account)
            except HomarusError as exc:
                await self._dialog.note(escape_invisible(exc.message), escape_invisible(exc.fix))
                continue
            text = f"{_describe(inbound)} wrote to the bot and was answered."
            await self._dialog.note("The test message was sent", text)
            return inbound
        self._dialog.answers.forget("channel.test")
        return None


async def _answer_one(account: Channel) -> Inbound:
    """Run the account until a direct message arrives, and answer it."""
    receiver = _FirstMessage()
    try:
        async with asyncio.timeout(_WAIT_S), task_group() as group:
            running = group.create_task(account.run(receiver))
            inbound = await receiver.message
            await account.send(Outbound(inbound.address, TEST_TEXT, f"wizard:{inbound.id}"))
            running.cancel()
    except TimeoutError:
        raise UserError(
            f"no message arrived in {_WAIT_S:g} s", fix="write to the bot, then try again"
        ) from None
    return inbound


class _FirstMessage:
    """An InboundHandler that accepts one direct message and ignores everything else."""

    def __init__(self) -> None:
        self.message: asyncio.Future[Inbound] = asyncio.get_running_loop().create_future()

    async def __call__(
        self,
        event: InboundEvent,
        cursor: Mapping[str, Json] | None = None,
        acknowledge: Acknowledge | None = None,
    ) -> None:
        del cursor, acknowledge
        if not isinstance(event, Inbound) or self.message.done():
            return
        if event.metadata.kind == "direct" and not event.metadata.is_bot:
            self.message.set_result(event)

    def mark_connected(self) -> None:
        """Record nothing: the login was checked before."""

    async def load_cursor(self) -> Mapping[str, Json] | None:
        return None

    async def save_cursor(self, cursor: Mapping[str, Json]) -> None:
        """Store nothing: the gateway reads from the start."""


def _describe(inbound: Inbound) -> str:
    name = escape_invisible(one_line(inbound.metadata.name or inbound.metadata.handle, 60))
    sender = escape_invisible(one_line(inbound.sender, 80))
    return f"{name} ({sender})" if name else sender
