"""The configuration that a command reads and changes: through a gateway, or in the file.

A gateway on this machine publishes which file it uses. Reading needs only that file; a change is
made by the gateway, which refuses what it could not run with and applies the rest. Settings that no
client may set (what is run, what is loaded) may be set by the owner at this machine: those are
written to the file, from which the gateway reads them.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from homarus.cli.gateway_options import (
    GatewayOptions,
    is_gateway_running,
    open_gateway,
    with_gateway_config,
)
from homarus.config.config_files import read_text
from homarus.config.load import read_raw
from homarus.config.paths import Paths
from homarus.config.rewrite import serialize
from homarus.core.errors import ConfigError, InvalidRequestError, UserError
from homarus.core.fast_dataclass import dataclass
from homarus.core.message import Json

if TYPE_CHECKING:
    from homarus.config.schema import Config
    from homarus.config.write import ConfigWrite
    from homarus.gateway.client import GatewayClient

T = TypeVar("T")
Edit: TypeAlias = Callable[[Any], Any]
_ATTEMPTS = 3
_STALE = "config changed since last load"
_NOTICE_S = 10.0
_EFFECTS = {
    "apply": "the gateway uses it now",
    "restart": "the gateway restarts with it",
    "ignore": "the gateway uses it after a restart (gateway.reload.mode is off)",
    "refused": "the gateway does not use it: homarus status says why",
    "": "the gateway has not taken it up yet: homarus status may say why",
}


@dataclass(frozen=True, slots=True)
class ConfigChangeResult:
    """The result of a change; `effect` describes the gateway's part."""

    file: str
    hash: str
    changed: tuple[str, ...]
    kept_layout: bool = True
    unbuilt: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()  # by OpenClaw
    effect: str = ""


@dataclass(frozen=True, slots=True)
class ConfigValidation:
    """All errors of a configuration; `in_use` is a running gateway's status of it."""

    file: str
    exists: bool
    issues: tuple[Mapping[str, Json], ...]
    warnings: tuple[str, ...]
    in_use: str = ""


class ConfigClient(Protocol):
    """A configuration, in a file or behind a gateway."""

    async def read(self) -> Json:
        """Return it as written, with its includes."""
        ...

    async def config(self) -> "Config":
        """Return it with defaults; a variable that is not set in this shell is no error."""
        ...

    async def validate(self) -> ConfigValidation: ...

    async def change(self, edit: Edit) -> ConfigChangeResult:
        """Apply a change to the file's own tree; ConfigError or InvalidRequestError refuses it."""
        ...


@asynccontextmanager
async def open_config_client(
    gateway: GatewayOptions, *, local: bool = False
) -> AsyncIterator[ConfigClient]:
    """Open the configuration of the options; `local` means the file, whoever uses it."""
    if gateway.url and not local:
        async with open_gateway(gateway) as client:
            yield RemoteConfigClient(client)
    elif local or not is_gateway_running(gateway):
        yield FileConfigClient(Paths.find(os.environ))
    else:
        yield LocalGatewayConfigClient(with_gateway_config(Paths.find(os.environ)), gateway)


def run_with_config(
    gateway: GatewayOptions, do: Callable[[ConfigClient], Awaitable[T]], *, local: bool = False
) -> T:
    """Run a function with the configuration of the options."""

    async def main() -> T:
        async with open_config_client(gateway, local=local) as settings:
            return await do(settings)

    return asyncio.run(main())


class FileConfigClient:
    """The file of this environment."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths

    async def read(self) -> Json:
        return read_raw(self._paths)

    async def config(self) -> "Config":
        from homarus.config.load import examine_config

        text = read_text(self._paths.config)
        examined = examine_config(self._paths, os.environ, text, need_variables=False)
        if examined.errors or examined.config is None:
            raise examined.errors[0]
        return examined.config

    async def validate(self) -> ConfigValidation:
        from homarus.config.load import examine_config
        from homarus.config.own_keys import describe_openclaw_problems
        from homarus.tools.catalog import describe_list_problems

        file = str(self._paths.config)
        try:
            found = examine_config(self._paths, os.environ, read_text(self._paths.config))
        except ConfigError as exc:
            return ConfigValidation(file, True, (_issue(exc),), ())  # noqa: FBT003 - it is there
        unread = () if found.errors else describe_openclaw_problems(found.shared)
        if found.config and not found.errors:
            unread = (*unread, *describe_list_problems(found.config))
        issues = tuple(map(_issue, found.errors))
        return ConfigValidation(file, found.exists, issues, (*found.warnings, *unread))

    async def change(self, edit: Edit) -> ConfigChangeResult:
        return _changed(self._write(edit))

    def _write(self, edit: Edit) -> "ConfigWrite":
        from homarus.config.write import write_config

        return write_config(self._paths, os.environ, edit)


class LocalGatewayConfigClient(FileConfigClient):
    """The file that a gateway on this machine uses."""

    def __init__(self, paths: Paths, gateway: GatewayOptions) -> None:
        super().__init__(paths)
        self._gateway = gateway

    async def validate(self) -> ConfigValidation:
        async with open_gateway(self._gateway) as client:
            return await _validate(client)

    async def change(self, edit: Edit) -> ConfigChangeResult:
        from homarus.config.write import read_own_tree

        async with open_gateway(self._gateway) as client:
            for _ in range(_ATTEMPTS):
                own, texts = read_own_tree(self._paths)
                new = edit(own)
                if _is_guarded(own, new, self._paths):
                    return await self._write_and_wait(client, edit)
                base = None if texts.shared is None else texts.hash
                if changed := await _apply(client, new, base):
                    return changed
        raise _changed_meanwhile_error(str(self._paths.config))

    async def _write_and_wait(self, client: "GatewayClient", edit: Edit) -> ConfigChangeResult:
        """Write the file, and wait for the gateway's result; undo what it refuses.

        A config that was refused before may be mended step by step, so it is not undone.
        """
        from homarus.config.config_files import read_config_texts
        from homarus.config.write import undo_write

        had_problem = await _has_problem(client)
        before = read_config_texts(self._paths)
        written = self._write(edit)
        if not written.changed:
            return _changed(written)
        action = problem = ""
        with suppress(TimeoutError):
            async with asyncio.timeout(_NOTICE_S):
                action, problem = await _applied_change(client)
        if action == "refused" and not had_problem:
            undo_write(self._paths, before, read_config_texts(self._paths))
            with suppress(TimeoutError):  # else the next change would not be undone
                async with asyncio.timeout(_NOTICE_S):
                    await _applied_change(client)
            raise ConfigError(f"the gateway could not run with this: {problem}")
        return replace(_changed(written), effect=_EFFECTS[action])


class RemoteConfigClient:
    """The configuration of a remote gateway, without its secrets."""

    def __init__(self, client: "GatewayClient") -> None:
        self._client = client

    async def read(self) -> Json:
        return (await _fetch_config(self._client))["resolved"]

    async def config(self) -> "Config":
        from homarus.config.check import check_config

        found = check_config((await _fetch_config(self._client))["config"]).config
        if found is None:
            raise UserError("the gateway's config is wrong", fix="homarus config validate --url …")
        return found

    async def validate(self) -> ConfigValidation:
        return await _validate(self._client)

    async def change(self, edit: Edit) -> ConfigChangeResult:
        for _ in range(_ATTEMPTS):
            payload = await _fetch_config(self._client)
            base = payload.get("hash") if payload.get("exists") else None
            if changed := await _apply(self._client, edit(payload["parsed"]), base):
                return changed
        raise _changed_meanwhile_error(str(payload["path"]))


async def _fetch_config(client: "GatewayClient") -> dict[str, Json]:
    """Return a gateway's config; raises when the gateway cannot load it."""
    found = await client.call("config.get")
    payload = found if isinstance(found, dict) else {}
    if "hash" not in payload and payload.get("exists"):
        messages = [str(issue.get("message")) for issue in payload.get("issues") or ()]
        raise ConfigError("; ".join(messages), file=str(payload.get("path")))
    return payload


async def _validate(client: "GatewayClient") -> ConfigValidation:
    found = await client.call("config.get")
    payload = found if isinstance(found, dict) else {}
    status = await client.call("status")
    problem = status.get("configProblem") if isinstance(status, dict) else None
    in_use = "the gateway goes on with the last good one" if problem else "the gateway uses it"
    return ConfigValidation(
        str(payload.get("path")),
        bool(payload.get("exists")),
        tuple(payload.get("issues") or ()),
        tuple(str(note.get("message")) for note in payload.get("warnings") or ()),
        in_use,
    )


async def _apply(
    client: "GatewayClient", tree: Json, base_hash: str | None
) -> ConfigChangeResult | None:
    """Have the gateway apply it; None when the file was changed meanwhile."""
    params: dict[str, Json] = {"raw": serialize(tree)}
    if base_hash is not None:
        params["baseHash"] = base_hash
    try:
        answer = await client.call("config.apply", params)
    except InvalidRequestError as exc:
        if exc.message.startswith(_STALE):
            return None
        raise
    payload = answer if isinstance(answer, dict) else {}
    applied = payload.get("applied") or {"action": "restart"}  # OpenClaw always restarts
    action, idle = str(applied["action"]), applied.get("withoutEffect") or ()
    effect = _EFFECTS.get(action, "")
    if idle:
        effect = f"{', '.join(idle)}: used after a restart (gateway.reload.mode is hot)"
    return ConfigChangeResult(
        file=str(applied.get("file") or payload.get("path")),
        hash=str(applied.get("hash") or ""),
        changed=tuple(applied.get("changed") or ()),
        kept_layout=applied.get("keptLayout") is not False,
        unbuilt=tuple(applied.get("notBuilt") or ()),
        unreadable=tuple(applied.get("unreadable") or ()),
        effect=effect,
    )


async def _has_problem(client: "GatewayClient") -> bool:
    """Return whether the gateway goes on with an earlier config because it refuses the present."""
    status = await client.call("status")
    return isinstance(status, dict) and bool(status.get("configProblem"))


async def _applied_change(client: "GatewayClient") -> tuple[str, str]:
    """Return what the gateway did with a file that it found changed, and why it refused it."""
    async for name, payload in client.events():
        fields = payload if isinstance(payload, dict) else {}
        if name == "config.reloaded":
            return str(fields.get("action")), ""
        if name == "config.rejected":
            return "refused", str(fields.get("message"))
    return "", ""


def _is_guarded(old: Json, new: Json, paths: Paths) -> bool:
    from homarus.config.protected_keys import ClientRules, check_protected_keys

    try:
        check_protected_keys(old, new, ClientRules(paths))
    except UserError:
        return True
    return False


def _changed(written: "ConfigWrite") -> ConfigChangeResult:
    return ConfigChangeResult(
        str(written.file),
        written.hash,
        written.changed,
        written.kept_layout,
        written.unbuilt,
        written.unreadable,
    )


def _issue(error: ConfigError) -> dict[str, Json]:
    return {
        "file": error.file,
        "line": error.line,
        "path": error.key,
        "message": error.reason,
        "fix": error.fix,
    }


def _changed_meanwhile_error(file: str) -> UserError:
    return UserError(f"{file} is being changed again and again", fix="try once more")
