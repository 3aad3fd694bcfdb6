"""Reconcile the running channel accounts with the config.

An account that cannot be created (an invalid setting, a missing package) has a problem, and the
others run. When the config changes, only the accounts whose settings changed are restarted.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from homarus.channels import base
from homarus.channels.base import (
    Channel,
    ChannelContext,
    ListSkillCommands,
    ServeWebhook,
    SupportsKeyActions,
    SupportsProbe,
    SupportsUnreadableCount,
    SupportsWebhook,
    SupportsWebhookAddress,
    no_skill_commands,
    refuse_listener,
)
from homarus.channels.inbound import InboundPipeline
from homarus.channels.supervisor import ChannelSupervisor, RunningAccount
from homarus.config.schema import Config
from homarus.core.clock import Clock
from homarus.core.errors import ChannelError, ConfigError, HomarusError, SendError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json
from homarus.core.native_command import NativeCommand
from homarus.core.tasks import run_contained

log = logging.getLogger(__name__)

PROBE_TIMEOUT_S: Final = 10.0
# What `channels capabilities` prints for each optional protocol of an adapter.
_ABILITIES: Final[Mapping[str, type[Any]]] = {
    "LooksUp": base.SupportsLookup,
    "Types": base.SupportsTyping,
    "Drafts": base.SupportsDrafts,
    "Edits": base.SupportsEdit,
    "Deletes": base.SupportsDelete,
    "Reacts": base.SupportsReactions,
    "Fetches": base.SupportsMediaFetch,
    "Probes": base.SupportsProbe,
    "Listens": base.SupportsWebhook,
}


@dataclass(frozen=True, slots=True)
class AccountStatus:
    """The state of an account. `problem` says why it is stopped, or what failed last."""

    channel: str
    account: str
    name: str = ""
    enabled: bool = True
    configured: bool = True
    running: bool = False
    connected: bool = False
    since_ms: int = 0
    last_in_ms: int = 0
    last_out_ms: int = 0
    restarts: int = 0
    problem: str = ""
    waiting: int = 0
    unreadable: int = 0


@dataclass(slots=True)
class _ConfiguredAccount:
    """An account of the config; `problem` says why it cannot be created."""

    settings: Mapping[str, Any]
    enabled: bool = True
    problem: str = ""


class ChannelController:
    """The accounts of a config. `given` are channels that the program itself provides."""

    def __init__(
        self,
        config: Callable[[], Config],
        supervisor: ChannelSupervisor,
        pipeline: InboundPipeline,
        clock: Clock,
        *,
        state: Path,
        env: Callable[[], Mapping[str, str]],
        given: Sequence[Channel] = (),
        commands: Callable[[], tuple[NativeCommand, ...]] = tuple,
        skill_commands: ListSkillCommands = no_skill_commands,
        on_chat_moved: Callable[[str, str, str, str], None] = lambda *_ids: None,
    ) -> None:
        self._config, self._supervisor, self._pipeline = config, supervisor, pipeline
        self._clock, self._state, self._env, self._commands = clock, state, env, commands
        self._on_chat_moved, self._skill_commands = on_chat_moved, skill_commands
        self._serve_webhook: ServeWebhook = refuse_listener
        self._accounts: dict[tuple[str, str], _ConfiguredAccount] = {}
        self._reconcile_lock = asyncio.Lock()  # one reconciliation at a time
        self._given = frozenset((channel.name, channel.account) for channel in given)
        for channel in given:
            supervisor.add_account(channel)

    @property
    def is_empty(self) -> bool:
        """Whether no chat can be reached: no account is enabled."""
        configured = any(_is_enabled(settings) for _, settings in self._configured())
        return not configured and not self._supervisor.accounts

    async def run(self) -> None:
        """Receive and send until cancelled."""
        await self.reconcile()
        await self._supervisor.run(self._pipeline)

    async def reconcile(self) -> None:
        """Start, restart and stop accounts to match the current config."""
        async with self._reconcile_lock:
            configured = dict(self._configured())
            known = self._accounts
            for key in [
                key for key, account in known.items() if account.settings != configured.get(key)
            ]:
                await self._supervisor.remove_account(*key)
                del known[key]
            for key, settings in configured.items():
                if key not in known or known[key].problem:  # what made it fail may be fixed
                    known[key] = _ConfiguredAccount(settings, enabled=_is_enabled(settings))
                    await self._start_account(key, known[key])
            self._accounts = {key: known[key] for key in configured}

    async def stop(self, channel: str, account: str) -> None:
        """Stop one account until its settings change or the gateway restarts."""
        async with self._reconcile_lock:
            await self._supervisor.remove_account(*self._check_known(channel, account))

    async def start(self, channel: str, account: str) -> None:
        """Restart one account, whether it was stopped, failed or runs."""
        async with self._reconcile_lock:
            key = self._check_known(channel, account)
            await self._supervisor.remove_account(*key)
            settings = self._accounts[key].settings
            started = _ConfiguredAccount(settings, enabled=_is_enabled(settings))
            self._accounts[key] = started
            await self._start_account(key, started)

    def status(self) -> tuple[AccountStatus, ...]:
        """Return every account and its state."""
        running_accounts = {running.key: running for running in self._supervisor.accounts}
        keys = dict.fromkeys((*self._accounts, *running_accounts))
        return tuple(self._status(key, running_accounts.get(key)) for key in keys)

    async def probe(self, channel: str, account: str) -> str:
        """Return our name on the service. Raises ChannelError when the login fails."""
        adapter = self._running(channel, account).channel
        if not isinstance(adapter, SupportsProbe):
            raise ChannelError(f"{channel} cannot be asked")
        try:
            async with asyncio.timeout(PROBE_TIMEOUT_S):
                return await adapter.probe()
        except TimeoutError as exc:
            raise ChannelError(f"{channel} did not answer within {PROBE_TIMEOUT_S:.0f} s") from exc

    async def run_key_action(
        self, channel: str, account: str, name: str, params: Mapping[str, Json]
    ) -> dict[str, Json]:
        """Do an action with devices or keys. Raises ChannelError, or UserError for a key file."""
        adapter = self._running(channel, account).channel
        if not isinstance(adapter, SupportsKeyActions):
            raise SendError(f"{channel} has no encryption of its own", retryable=False)
        return await adapter.run_key_action(name, params)

    def find_webhook(self, path: str) -> SupportsWebhook | None:
        """Return the account whose webhook has this path on the gateway's port."""
        running = self._find_by_path(path)
        channel: object = running.channel if running else None
        if isinstance(channel, SupportsWebhookAddress) and channel.webhook_address:
            return None
        return channel if isinstance(channel, SupportsWebhook) else None

    def set_webhook_server(self, serve: ServeWebhook) -> None:
        """Set what opens the listeners of webhooks with an address of their own."""
        self._serve_webhook = serve

    def find_channel(self, channel: str, account: str) -> Channel | None:
        """Return a running account, None if there is none."""
        running = self._supervisor.find_account(channel, account)
        return running.channel if running else None

    def _configured(self) -> Sequence[tuple[tuple[str, str], Mapping[str, Any]]]:
        config = self._config()
        if not config.channels:
            return ()
        from homarus.config.channels import account_names, channel_names, merged_section

        return [
            ((channel, account), merged_section(config.channels, channel, account))
            for channel in channel_names(config)
            for account in account_names(config, channel)
            if (channel, account) not in self._given
        ]

    async def _start_account(self, key: tuple[str, str], account: _ConfiguredAccount) -> None:
        """Start an account; an error becomes its problem."""

        async def start() -> None:
            try:
                channel = self._create(*key)
                self._check_path(channel)
                self._supervisor.add_account(channel)
            except HomarusError as exc:
                account.problem = str(exc)
                log.error(  # noqa: TRY400 - the error says it all
                    "channel %s:%s is off: %s", *key, exc
                )

        def on_bug(exc: Exception) -> None:
            account.problem = f"it met a bug ({type(exc).__name__}); homarus logs has the details"

        if account.enabled:
            await run_contained(f"channel {':'.join(key)}", start, on_bug)

    def _check_path(self, channel: Channel) -> None:
        """Refuse a webhook path that another account has."""
        if isinstance(channel, SupportsWebhook) and (other := self._find_by_path(channel.path)):
            raise ConfigError(
                f"its webhook's path {channel.path} is that of {other.name} already",
                fix="give one of them another webhookPath",
            )

    def _create(self, channel: str, account: str) -> Channel:
        from homarus.channels.registry import load_channel
        from homarus.config.channels import account_settings

        module = load_channel(channel)
        settings = account_settings(self._config(), channel, account, module.Settings)
        context = ChannelContext(
            channel,
            account,
            self._clock,
            commands=self._commands(),
            skill_commands=self._skill_commands,
            env=self._env(),
            state=self._state,
            on_chat_moved=partial(self._on_chat_moved, channel, account),
            serve_webhook=self._serve_webhook,
        )
        return module.create(context, settings)

    def _check_known(self, channel: str, account: str) -> tuple[str, str]:
        if (channel, account) not in self._accounts:
            raise UserError(
                f"there is no channel {channel}:{account}",
                fix="homarus channels list shows what is configured",
            )
        return channel, account

    def _find_by_path(self, path: str) -> RunningAccount | None:
        for running in self._supervisor.accounts if path else ():
            if isinstance(running.channel, SupportsWebhook) and running.channel.path == path:
                return running
        return None

    def _running(self, channel: str, account: str) -> RunningAccount:
        running = self._supervisor.find_account(channel, account)
        if running is None:
            problem = self._accounts[self._check_known(channel, account)].problem
            raise ChannelError(f"{channel}:{account} is off{problem and f': {problem}'}")
        return running

    def _status(self, key: tuple[str, str], running: RunningAccount | None) -> AccountStatus:
        account = self._accounts.get(key) or _ConfiguredAccount({})
        configured_status = AccountStatus(
            *key,
            name=str(account.settings.get("name") or ""),
            enabled=account.enabled,
            configured=not account.problem,
            problem=account.problem,
        )
        if running is None:
            return configured_status
        return replace(
            configured_status,
            running=running.task is not None and not running.task.done(),
            connected=running.is_connected,
            since_ms=running.since_ms,
            last_in_ms=self._pipeline.last_ms.get(running.name, 0),
            last_out_ms=running.last_out_ms,
            restarts=running.restarts,
            problem="" if running.is_connected else running.problem,
            waiting=running.worker.pending_count,
            unreadable=_count_unreadable(running.channel),
        )


def _is_enabled(settings: Mapping[str, Any]) -> bool:
    return settings.get("enabled") is not False


def _count_unreadable(channel: object) -> int:
    return channel.unreadable_count if isinstance(channel, SupportsUnreadableCount) else 0


def supported_features(channel: Channel) -> tuple[str, ...]:
    """Return what a channel can do besides receiving and sending, as the command prints it."""
    return tuple(name for name, protocol in _ABILITIES.items() if isinstance(channel, protocol))
