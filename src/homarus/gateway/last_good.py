"""The last config that a gateway ran with, used when the config file cannot be loaded.

A gateway that the system started at night should answer in the morning, whatever an editor or an
upgrade did to the file. Status and logs report it, and the gateway returns to the file as soon as
that is valid. It never bypasses an access check: access is decided by a config that was in use.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from homarus.config.load import Loaded, load, load_text
from homarus.config.paths import Paths, shorten
from homarus.config.source import read_text
from homarus.config.write import backups
from homarus.core.errors import ConfigError, StoreError
from homarus.gateway.json_file import JsonFile

log = logging.getLogger(__name__)

FILE = "openclaw.last-good.json"  # in the state directory


def keep(state: Path, loaded: Loaded) -> None:
    """Save the config in use as written: references to variables stay."""
    file = JsonFile(state / FILE)
    try:
        if file.read() != loaded.raw:
            file.write(loaded.raw)
    except StoreError as exc:
        log.warning("the config in use was not kept aside: %s", exc)


def recall(paths: Paths, env: Mapping[str, str]) -> Loaded | None:
    """Return the config that was last in use; None when there is none or it is no longer valid."""
    try:
        text = read_text(paths.state / FILE)
        return None if text is None else load_text(paths, env, text)
    except ConfigError:
        return None


def load_or_recall(paths: Paths, env: Mapping[str, str]) -> tuple[Loaded, ConfigError | None]:
    """Return the config, or the last good one and the file's error."""
    try:
        return load(paths, env), None
    except ConfigError as exc:
        if (last := recall(paths, env)) is not None:
            return last, exc
        raise _with_ways_out(exc, paths, env) from None


def sound_backup(paths: Paths, env: Mapping[str, str]) -> Path | None:
    """Return the newest backup of the config file that is valid."""
    for file in backups(paths.config):
        try:
            text = read_text(file)
            if text is not None:
                load_text(paths, env, text)
                return file
        except ConfigError:
            continue
    return None


def bring_back(paths: Paths, env: Mapping[str, str]) -> str:
    """Return the command that restores a valid backup; empty when there is none."""
    backup = sound_backup(paths, env)
    if backup is None:
        return ""
    return f"cp {shorten(backup, paths.home)} {shorten(paths.config, paths.home)}"


def _with_ways_out(exc: ConfigError, paths: Paths, env: Mapping[str, str]) -> ConfigError:
    back = bring_back(paths, env)
    ways = (
        exc.fix,
        f"{back} brings the last one back" if back else "",
        "homarus doctor tells more",
    )
    fix = "; ".join(way for way in ways if way)
    return ConfigError(exc.reason, file=exc.file, line=exc.line, key=exc.key, fix=fix)
