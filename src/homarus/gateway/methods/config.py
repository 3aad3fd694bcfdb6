"""Methods for the configuration: shown without secrets, changed under a hash guard."""

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from homarus.config import json5_document
from homarus.config.config_files import MAX_BYTES, ConfigTexts
from homarus.config.redaction import redact_tree
from homarus.config.tree_edit import apply_merge_patch
from homarus.core.errors import ConfigError, ConflictError, InvalidRequestError, UserError
from homarus.core.message import Json
from homarus.gateway.config_view import describe_config, describe_issue, describe_schema
from homarus.gateway.config_watch import reload_rule
from homarus.gateway.method import MethodCall, NoParams, Params, method
from homarus.gateway.params import Ms, Name

# The writing of configs is imported by the methods that need it: an idle gateway does without.
if TYPE_CHECKING:
    from homarus.config.write import ConfigWrite

Raw = Annotated[str, Field(min_length=1, max_length=MAX_BYTES)]
_STALE = "config changed since last load; re-run config.get and retry"


@method("config.get", scope="read", params=NoParams)
async def get(call: MethodCall, _params: NoParams) -> Json:
    """The config file: as written, with includes resolved, and with defaults. No secrets."""
    return describe_config(call.services)


class ConfigSetParams(Params):
    """The complete config as text, and the hash of what it replaces."""

    raw: Raw
    base_hash: Name | None = None


@method("config.set", scope="admin", params=ConfigSetParams)
async def set_(call: MethodCall, params: ConfigSetParams) -> Json:
    """Replace the config, if it is still the one the client saw."""
    tree = _parse("config.set", params.raw)
    await _write(call, params.base_hash, lambda _own: tree)
    return {"ok": True, "path": str(call.services.paths.config), "config": redact_tree(tree)}


class ConfigChangeParams(Params):
    """A change as text, the hash of what it changes, and a note about it."""

    raw: Raw
    base_hash: Name | None = None
    session_key: str | None = None
    note: Annotated[str, Field(max_length=2_000)] | None = None
    restart_delay_ms: Ms | None = None


@method("config.patch", scope="admin", params=ConfigChangeParams)
async def patch(call: MethodCall, params: ConfigChangeParams) -> Json:
    """Merge a patch into the config: null removes, lists of objects merge by id."""
    change = _parse("config.patch", params.raw)

    def merge(own: Json) -> Json:
        return apply_merge_patch(own, change, merge_object_arrays_by_id=True)

    return await _changed(call, "config-patch", params, merge)


@method("config.apply", scope="admin", params=ConfigChangeParams)
async def apply(call: MethodCall, params: ConfigChangeParams) -> Json:
    """Replace the config and bring it into use."""
    tree = _parse("config.apply", params.raw)
    return await _changed(call, "config-apply", params, lambda _own: tree)


@method("config.validate", scope="admin", params=ConfigSetParams, advertised=False)
async def validate(call: MethodCall, params: ConfigSetParams) -> Json:
    """Check a config without writing it: what is wrong with it, or what it would change. Ours.

    `action` says whether the change would be applied at once or restart the gateway; `isStale`
    that the file is no longer the one with `baseHash`.
    """
    from homarus.gateway.client_changes import write_client_change

    issue: dict[str, Json]
    try:
        tree = json5_document.to_plain(json5_document.parse_json5(params.raw, "raw"))
        checked = await asyncio.to_thread(
            write_client_change,
            call.services,
            lambda _own: tree,
            base_hash=params.base_hash,
            check=_startable(call),
            dry_run=True,
        )
    except ConflictError:
        issue = {"path": "", "message": _STALE}
        return {"ok": False, "isStale": True, "issues": [issue]}
    except ConfigError as exc:
        return {"ok": False, "isStale": False, "issues": [describe_issue(exc)]}
    except UserError as exc:
        issue = {"path": "", "message": exc.message + (f" ({exc.fix})" if exc.fix else "")}
        return {"ok": False, "isStale": False, "issues": [issue]}
    restarts = any(reload_rule(path) == "restart" for path in checked.changed)
    return {
        "ok": True,
        "isStale": False,
        "issues": [],
        "changed": list(checked.changed),
        "action": "none" if not checked.changed else "restart" if restarts else "apply",
        "notBuilt": list(checked.unbuilt),
        "unreadable": list(checked.unreadable),
    }


@method("config.schema", scope="admin", params=NoParams)
async def schema(_call: MethodCall, _params: NoParams) -> Json:
    """The JSON Schema of the settings that have an effect, and which of them are secret."""
    return await asyncio.to_thread(describe_schema)  # it takes about 0.4 s


def _parse(name: str, raw: str) -> dict[str, Json]:
    try:
        tree = json5_document.to_plain(json5_document.parse_json5(raw, "raw"))
    except ConfigError as exc:
        raise InvalidRequestError(f"invalid {name} params: raw: {exc.reason}") from None
    if not isinstance(tree, dict):
        raise InvalidRequestError(f"invalid {name} params: raw must be an object")
    return tree


async def _write(
    call: MethodCall, base_hash: str | None, change: Callable[[Json], Json]
) -> "ConfigWrite":
    """Change the file, unless the gateway could not run with the result."""
    from homarus.gateway.client_changes import write_client_change

    services = call.services
    if base_hash is None and services.paths.config.exists():
        raise InvalidRequestError("config base hash required; re-run config.get and retry")

    try:
        return await asyncio.to_thread(
            write_client_change, services, change, base_hash=base_hash, check=_startable(call)
        )
    except ConflictError:
        raise InvalidRequestError(_STALE) from None
    except ConfigError as exc:
        raise InvalidRequestError(
            f"invalid config: {exc}", details={"issues": [describe_issue(exc)]}
        ) from None
    except UserError as exc:
        raise InvalidRequestError(exc.message, fix=exc.fix) from None


def _startable(call: MethodCall) -> Callable[[ConfigTexts], None]:
    """Return the check that the gateway could run with new texts. Raises ConfigError."""
    watcher = call.gateway.config_watcher

    def check(texts: ConfigTexts) -> None:
        if watcher and not call.gateway.config_problem:  # otherwise errors may be fixed one by one
            watcher.check(texts)

    return check


async def _changed(
    call: MethodCall, kind: str, params: ConfigChangeParams, change: Callable[[Json], Json]
) -> dict[str, Json]:
    """Change the file and apply it; `applied` says what was done."""
    from homarus.config.write import read_own_tree

    written = await _write(call, params.base_hash, change)
    applied = await _apply(call, written)
    restarts = applied["action"] == "restart"
    services = call.services
    own, _ = read_own_tree(services.paths)
    payload: dict[str, Json] = {"kind": kind, "status": "ok", "ts": services.clock.now_ms()}
    payload |= {"message": params.note} if params.note else {}
    payload |= {"sessionKey": params.session_key} if params.session_key else {}
    return {
        "ok": True,
        "path": str(services.paths.config),
        "config": redact_tree(own),
        "applied": applied,
        "restart": {
            "ok": restarts,
            "pid": os.getpid(),
            "signal": "SIGUSR1",
            "delayMs": 0,
            "reason": kind,
            "mode": "watch" if restarts else "none",
        },
        "sentinel": {"path": None, "payload": payload},
    }


async def _apply(call: MethodCall, written: "ConfigWrite") -> dict[str, Json]:
    """Apply what can change in a running gateway; the rest restarts it."""
    fields: dict[str, Json] = {
        "hash": written.hash,
        "file": str(written.file),
        "changed": list(written.changed),
        "keptLayout": written.kept_layout,
        "notBuilt": list(written.unbuilt),
        "unreadable": list(written.unreadable),
    }
    if not written.changed:
        return {**fields, "action": "none"}
    if call.gateway.config_watcher is None:
        restarts = any(reload_rule(path) == "restart" for path in written.changed)
        return {**fields, "action": "restart" if restarts else "apply"}
    try:
        change = await call.gateway.config_watcher.check_now()
    except ConfigError as exc:
        raise InvalidRequestError(f"the config is changed, and not in use: {exc}") from None
    assert change is not None  # noqa: S101 - the file was changed above
    return {**fields, "action": change.action, "withoutEffect": list(change.ignored)}
