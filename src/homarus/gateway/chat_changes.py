"""The config as the owner's chat commands change it: by the rule for clients.

A chat is as far from the machine as a client of the gateway, so that both may set the same.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from homarus.config.change_log import log_change
from homarus.config.group_migration import check_config_writes
from homarus.config.json5_document import KeyPath, Value
from homarus.config.load import load_config
from homarus.config.overrides import ConfigOverrides, override_tree
from homarus.config.protected_keys import check_protected_keys
from homarus.config.redaction import redact_tree
from homarus.config.tree_edit import format_path
from homarus.config.write import ConfigWrite, read_own_tree
from homarus.core.errors import ConfigError, UserError
from homarus.core.message import Address
from homarus.gateway.client_changes import client_rules, write_client_change
from homarus.gateway.config_watch import reload_rule
from homarus.gateway.services import GatewayServices

if TYPE_CHECKING:
    from homarus.config.config_files import ConfigTexts
    from homarus.gateway.config_watch import ConfigWatcher


class ChatConfigEdits:
    """Reads and changes the config files, and the overrides of the running program.

    `watcher` is None where no gateway watches the files.
    """

    def __init__(
        self,
        services: GatewayServices,
        watcher: "ConfigWatcher | None",
        overrides: ConfigOverrides,
        start_task: Callable[[Coroutine[None, None, None]], None],
    ) -> None:
        self._services, self._watcher, self._overrides = services, watcher, overrides
        self._start_task = start_task

    def read(self) -> Value:
        """Return the tree of the config files, with secrets."""
        return read_own_tree(self._services.paths)[0]

    async def write(
        self,
        chat: Address,
        change: Callable[[dict[str, Value]], Value],
        *,
        base_hash: str | None = None,
    ) -> ConfigWrite:
        """Change the files, unless the gateway could not run with the result.

        With `base_hash`, only if they still have this hash.

        Raises UserError where `configWrites` forbids it and for what a chat may not set, and the
        errors of `write_config`.
        """
        check_config_writes(self._services.loaded.config, chat.channel, chat.account)

        def check(texts: "ConfigTexts") -> None:
            if self._watcher:
                self._watcher.check(texts)

        return await asyncio.to_thread(
            write_client_change, self._services, change, base_hash=base_hash, check=check
        )

    def apply(self) -> None:
        """Bring the files into use; a gateway that must restart for it does."""
        self._start_task(self._apply())

    async def _apply(self) -> None:
        with suppress(ConfigError):  # the watcher reports it, and the old config stays in use
            if self._watcher:
                await self._watcher.check_now()
            else:
                services = self._services
                await services.reload(load_config(services.paths, services.loaded.env))

    async def override(self, values: Mapping[KeyPath, Value]) -> None:
        """Use these values instead of the files' until the program ends; none: the files' alone."""
        for path in values:
            if reload_rule(format_path(path)) == "restart":
                raise UserError(
                    f"{format_path(path)} needs a restart, and an override ends with it",
                    fix="/config set changes the file",
                )
        files, overrides = self._overrides.from_files, self._overrides
        rules = client_rules(self._services)
        check_protected_keys(files.raw, override_tree(files.raw, values), rules)
        overrides.override(files, values)  # what is invalid changes nothing
        overrides.values = dict(values)
        shown = {format_path(path): redact_tree(value, path) for path, value in values.items()}
        log_change(self._services.paths.state, "overrides", paths=[*shown], values=shown)
        await self._services.reload(files)
