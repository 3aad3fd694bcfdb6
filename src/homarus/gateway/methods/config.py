"""Methods for the configuration: shown without secrets, changed under a hash guard."""

import asyncio
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Annotated

from pydantic import Field

from homarus import __version__
from homarus.config import document
from homarus.config.edit import apply_merge_patch
from homarus.config.guarded import refuse_guarded
from homarus.config.load import Examined, examine
from homarus.config.rewrite import serialize
from homarus.config.secrets import redact, restore_redacted
from homarus.config.source import MAX_BYTES, hash_text, read_text
from homarus.config.write import Written, write
from homarus.core.errors import ConfigError, Conflict, InvalidRequest
from homarus.core.message import Json
from homarus.gateway.method import Call, NoParams, Params, method
from homarus.gateway.params import Ms, Name
from homarus.gateway.reload import rule_of

Raw = Annotated[str, Field(min_length=1, max_length=MAX_BYTES)]
_STALE = "config changed since last load; re-run config.get and retry"


@method("config.get", scope="read", params=NoParams)
async def get(call: Call, _params: NoParams) -> Json:
    """The config file: as written, with includes resolved, and with defaults. No secrets."""
    paths = call.host.paths
    shown: dict[str, Json] = {"path": str(paths.config), "exists": paths.config.exists()}
    try:
        text = read_text(paths.config)
        examined = examine(paths, call.host.loaded.env, text)
        own = document.plain(document.parse("{}" if text is None else text, str(paths.config)))
    except ConfigError as exc:
        nothing: dict[str, Json] = {"raw": None, "parsed": {}, "resolved": {}, "config": {}}
        issues = [_issue(exc)]
        return {**shown, **nothing, "valid": False, **_told(issues, ())}
    return {
        **shown,
        # Not the raw text: a comment may hold a secret that cannot be recognised.
        "raw": None if text is None else serialize(redact(own)),
        "parsed": redact(own),
        "resolved": redact(examined.raw),
        "valid": not examined.errors,
        "config": _with_defaults(examined),
        "hash": hash_text(text or ""),
        **_told([_issue(error) for error in examined.errors], examined.warnings),
    }


def _told(issues: list[Json], warnings: tuple[str, ...]) -> dict[str, Json]:
    notes = [{"path": "", "message": text} for text in warnings]
    return {"issues": issues, "warnings": notes, "legacyIssues": []}


def _issue(error: ConfigError) -> dict[str, Json]:
    told: dict[str, Json] = {
        "path": error.key,
        "message": error.reason + (f" ({error.fix})" if error.fix else ""),
    }
    return {**told, **({"file": error.file, "line": error.line} if error.file else {})}


def _with_defaults(examined: Examined) -> Json:
    """Return what was written, over the defaults.

    Variables stay as written: their values are not shown.
    """
    written: Json = redact(examined.raw)
    if examined.config is None:
        return written
    defaults = examined.config.model_dump(mode="json", by_alias=True, exclude_none=True)
    return _below(redact(defaults), written)


def _below(under: Json, over: Json) -> Json:
    if not isinstance(under, dict) or not isinstance(over, dict):
        return over
    missing = {key: value for key, value in under.items() if key not in over and value != {}}
    return {**{key: _below(under.get(key), value) for key, value in over.items()}, **missing}


class SetParams(Params):
    """The complete config as text, and the hash of what it replaces."""

    raw: Raw
    base_hash: Name | None = None


@method("config.set", scope="admin", params=SetParams)
async def set_(call: Call, params: SetParams) -> Json:
    """Replace the config, if it is still the one the client saw."""
    tree = _parse("config.set", params.raw)
    await _write(call, params.base_hash, lambda _own: tree)
    return {"ok": True, "path": str(call.host.paths.config), "config": redact(tree)}


class ChangeParams(Params):
    """A change as text, the hash of what it changes, and a note about it."""

    raw: Raw
    base_hash: Name | None = None
    session_key: str | None = None
    note: Annotated[str, Field(max_length=2_000)] | None = None
    restart_delay_ms: Ms | None = None


@method("config.patch", scope="admin", params=ChangeParams)
async def patch(call: Call, params: ChangeParams) -> Json:
    """Merge a patch into the config: null removes, lists of objects merge by id."""
    change = _parse("config.patch", params.raw)

    def merge(own: Json) -> Json:
        return apply_merge_patch(own, change, merge_object_arrays_by_id=True)

    return await _changed(call, "config-patch", params, merge)


@method("config.apply", scope="admin", params=ChangeParams)
async def apply(call: Call, params: ChangeParams) -> Json:
    """Replace the config and bring it into use."""
    tree = _parse("config.apply", params.raw)
    return await _changed(call, "config-apply", params, lambda _own: tree)


@method("config.schema", scope="admin", params=NoParams)
async def schema(_call: Call, _params: NoParams) -> Json:
    """The JSON Schema of the settings that have an effect, and which of them are secret."""
    from homarus.config.check import built_keys
    from homarus.config.json_schema import config_json_schema
    from homarus.config.secrets import is_secret

    secret = [key for key in built_keys() if is_secret(tuple(key.split(".")), "x")]
    return {
        "schema": config_json_schema(),
        "uiHints": {key.replace("<key>", "*"): {"sensitive": True} for key in secret},
        "version": __version__,
        "generatedAt": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }


def _parse(name: str, raw: str) -> dict[str, Json]:
    try:
        tree = document.plain(document.parse(raw, "raw"))
    except ConfigError as exc:
        raise InvalidRequest(f"invalid {name} params: raw: {exc.reason}") from None
    if not isinstance(tree, dict):
        raise InvalidRequest(f"invalid {name} params: raw must be an object")
    return tree


async def _write(call: Call, base_hash: str | None, change: Callable[[Json], Json]) -> Written:
    """Change the file, unless the gateway could not run with the result."""
    host, watch = call.host, call.gateway.watch
    if base_hash is None and host.paths.config.exists():
        raise InvalidRequest("config base hash required; re-run config.get and retry")

    def guarded(own: Mapping[str, Json]) -> Json:
        new = restore_redacted(change(own), own)
        refuse_guarded(own, new)
        return new

    def check(text: str) -> None:
        if watch and not call.gateway.config_problem:  # otherwise errors may be fixed one by one
            watch.check(text)

    env, now_ms = host.loaded.env, host.clock.now_ms()
    try:
        return await asyncio.to_thread(
            write, host.paths, env, guarded, if_hash=base_hash, at_ms=now_ms, check=check
        )
    except Conflict:
        raise InvalidRequest(_STALE) from None
    except ConfigError as exc:
        raise InvalidRequest(f"invalid config: {exc}", details={"issues": [_issue(exc)]}) from None


async def _changed(
    call: Call, kind: str, params: ChangeParams, change: Callable[[Json], Json]
) -> dict[str, Json]:
    """Change the file and apply it; `applied` says what was done."""
    written = await _write(call, params.base_hash, change)
    applied = await _apply(call, written)
    restarts = applied["action"] == "restart"
    host = call.host
    own = document.plain(document.parse(read_text(host.paths.config) or "{}"))
    payload: dict[str, Json] = {"kind": kind, "status": "ok", "ts": host.clock.now_ms()}
    payload |= {"message": params.note} if params.note else {}
    payload |= {"sessionKey": params.session_key} if params.session_key else {}
    return {
        "ok": True,
        "path": str(host.paths.config),
        "config": redact(own),
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


async def _apply(call: Call, written: Written) -> dict[str, Json]:
    """Apply what can change in a running gateway; the rest restarts it."""
    told: dict[str, Json] = {
        "hash": written.hash,
        "changed": list(written.changed),
        "keptLayout": written.kept_layout,
        "notBuilt": list(written.unbuilt),
    }
    if not written.changed:
        return {**told, "action": "none"}
    if call.gateway.watch is None:
        restarts = any(rule_of(path) == "restart" for path in written.changed)
        return {**told, "action": "restart" if restarts else "apply"}
    try:
        change = await call.gateway.watch.look()
    except ConfigError as exc:
        raise InvalidRequest(f"the config is changed, and not in use: {exc}") from None
    assert change is not None  # noqa: S101 - the file was changed above
    return {**told, "action": change.action, "withoutEffect": list(change.ignored)}
