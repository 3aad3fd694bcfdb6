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


class ConfigOverrides:
    """The values that replace those of the files until the program ends, by their path.

    `from_files` is the config in use without them.
    """

    def __init__(self, paths: Paths, loaded: LoadedConfig) -> None:
        self._paths, self.from_files = paths, loaded
        self.values: Mapping[KeyPath, Value] = {}

    def apply(self, loaded: LoadedConfig) -> LoadedConfig:
        """Return the config of the files, which is in use from now on, with the overrides.

        Raises ConfigError for overrides that do not fit it.
        """
        used = self.override(loaded, self.values) if self.values else loaded
        self.from_files = loaded
        return used

    def override(self, loaded: LoadedConfig, values: Mapping[KeyPath, Value]) -> LoadedConfig:
        """Return a loaded config with other values; what it was loaded from stays.

        Raises ConfigError for values that would be an error in the file, too.
        """
        text = json.dumps(override_tree(loaded.raw, values))
        try:
            checked = load_text(self._paths, loaded.env, ConfigTexts(text, None))
        except ConfigError as exc:
            raise ConfigError(exc.reason, key=exc.key, fix=exc.fix) from None
        return replace(loaded, config=checked.config, raw=checked.raw)


def override_tree(tree: Mapping[str, Value], values: Mapping[KeyPath, Value]) -> Value:
    """Return a config tree with other values at these paths."""
    new: Value = dict(tree)
    for path, value in values.items():
        new = set_path(new, path, value)
    return new
