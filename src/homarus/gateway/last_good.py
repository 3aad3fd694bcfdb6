"""The last config a gateway ran with: what it starts with when the file cannot be read.

A gateway that was started by the system at night should answer in the morning, whatever an editor
or an upgrade did to the file meanwhile. It says so wherever somebody looks, and goes back to the
file as soon as that is mended. It is never a way around a refusal: who may come in is decided by
a config that once was in use.
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
    """Remember a config that is in use, as written: variables stay variables."""
    file = JsonFile(state / FILE)
    try:
        if file.read() != loaded.raw:
            file.write(loaded.raw)
    except StoreError as exc:
        log.warning("the config in use was not kept aside: %s", exc)


def recall(paths: Paths, env: Mapping[str, str]) -> Loaded | None:
    """The config that was in use last; None when there is none, or it does not hold any more."""
    try:
        text = read_text(paths.state / FILE)
        return None if text is None else load_text(paths, env, text)
    except ConfigError:
        return None


def load_or_recall(paths: Paths, env: Mapping[str, str]) -> tuple[Loaded, ConfigError | None]:
    """The config, or the last good one and what is wrong with the file."""
    try:
        return load(paths, env), None
    except ConfigError as exc:
        if (last := recall(paths, env)) is not None:
            return last, exc
        raise _with_ways_out(exc, paths, env) from None


def sound_backup(paths: Paths, env: Mapping[str, str]) -> Path | None:
    """The newest backup of the config file that could be used as it is."""
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
    """The command that puts a sound backup in the file's place; empty when there is none."""
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
