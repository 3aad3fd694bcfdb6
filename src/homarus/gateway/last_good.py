"""The last config that a gateway ran with, used when the config file cannot be loaded.

A gateway that the system started at night should answer in the morning, whatever an editor or an
upgrade did to the file. Status and logs report it, and the gateway returns to the file as soon as
that is valid. It never bypasses an access check: access is decided by a config that was in use.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

from homarus.config.config_files import ConfigTexts, read_text
from homarus.config.load import LoadedConfig, load_config, load_text
from homarus.config.paths import Paths, shorten
from homarus.core.errors import ConfigError, StoreError
from homarus.gateway.json_file import JsonFile

log = logging.getLogger(__name__)

FILE = "openclaw.last-good.json"  # in the state directory


def save_last_good(state: Path, loaded: LoadedConfig) -> None:
    """Save the config in use as written: references to variables stay."""
    file = JsonFile(state / FILE)
    try:
        if file.read() != loaded.raw:
            file.write(loaded.raw)
    except StoreError as exc:
        log.warning("the config in use was not kept aside: %s", exc)


def load_last_good(paths: Paths, env: Mapping[str, str]) -> LoadedConfig | None:
    """Return the config that was last in use; None when there is none or it is no longer valid."""
    try:
        text = read_text(paths.state / FILE)
        return None if text is None else load_text(paths, env, ConfigTexts(text))
    except ConfigError:
        return None


def load_config_or_last_good(
    paths: Paths, env: Mapping[str, str]
) -> tuple[LoadedConfig, ConfigError | None]:
    """Return the config, or the last good one and the file's error."""
    try:
        return load_config(paths, env), None
    except ConfigError as exc:
        if (last := load_last_good(paths, env)) is not None:
            return last, exc
        raise _with_alternatives(exc, paths, env) from None


def find_valid_backup(paths: Paths, env: Mapping[str, str]) -> tuple[Path, Path] | None:
    """Return the newest backup of a config file that is valid with the other file, and the file."""
    from homarus.config.write import backup_paths  # only for a config that cannot be read

    for target in (paths.config, paths.own_config):
        for file in backup_paths(target):
            try:
                if (text := read_text(file)) is None:
                    continue
                both = ConfigTexts(read_text(paths.config), text)
                load_text(paths, env, both if target == paths.own_config else text)
            except ConfigError:
                continue
            return file, target
    return None


def restore_command(paths: Paths, env: Mapping[str, str]) -> str:
    """Return the command that restores a valid backup; empty when there is none."""
    found = find_valid_backup(paths, env)
    return "" if found is None else " ".join(["cp", *(shorten(each, paths.home) for each in found)])


def _with_alternatives(exc: ConfigError, paths: Paths, env: Mapping[str, str]) -> ConfigError:
    back = restore_command(paths, env)
    fixes = (
        exc.fix,
        f"{back} brings the last one back" if back else "",
        "homarus doctor tells more",
    )
    fix = "; ".join(each for each in fixes if each)
    return ConfigError(exc.reason, file=exc.file, line=exc.line, key=exc.key, fix=fix)
