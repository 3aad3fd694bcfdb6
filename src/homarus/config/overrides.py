"""Replace settings of the running program in memory, checked like those of the files."""

import json
from collections.abc import Mapping
from dataclasses import replace

from homarus.config.config_files import ConfigTexts
from homarus.config.json5_document import KeyPath, Value
from homarus.config.load import LoadedConfig, load_text
from homarus.config.paths import Paths
from homarus.config.tree_edit import set_path
from homarus.core.errors import ConfigError


def overridden_tree(tree: Mapping[str, Value], values: Mapping[KeyPath, Value]) -> Value:
    """Return a config tree with other values at these paths."""
    new: Value = dict(tree)
    for path, value in values.items():
        new = set_path(new, path, value)
    return new


def override_config(
    paths: Paths, loaded: LoadedConfig, values: Mapping[KeyPath, Value]
) -> LoadedConfig:
    """Return a loaded config with other values; what it was loaded from stays.

    Raises ConfigError for values that would be an error in the file, too.
    """
    text = json.dumps(overridden_tree(loaded.raw, values))
    try:
        checked = load_text(paths, loaded.env, ConfigTexts(text, None))
    except ConfigError as exc:
        raise ConfigError(exc.reason, key=exc.key, fix=exc.fix) from None
    return replace(loaded, config=checked.config, raw=checked.raw)
